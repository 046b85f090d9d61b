// Feature: fp8_convert
#include "hw/convert/convert.h"
#include "hw/convert/convert_fp8_upper.h"
#include "hw/convert/convert_fp8x4.h"
#include "instantiate.h"

namespace halftone::hw {

template <Type kType, bool kRelu>
__device__ void of_type(const Operands& o) {
  use(o, cvt_fp8x2<kType, kRelu>(o.f, o.g));
  use(o, cvt_fp8x2_f16x2<kType, kRelu>(o.a));
  use(o, cvt_fp8x4<kType>({o.f, o.g, o.f, o.g}));
  use(o, cvt_f16x2_fp8x2<kType, kRelu>(static_cast<uint16_t>(o.a)));
  use(o, cvt_f16x2_fp8x2_upper<kType>(o.a));
}

__global__ void instantiate_convert(Operands o) {
  of_type<Type::e4m3, false>(o);
  of_type<Type::e4m3, true>(o);
  of_type<Type::e5m2, false>(o);
  of_type<Type::e5m2, true>(o);
}

}  // namespace halftone::hw
