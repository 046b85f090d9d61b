#include "hw/convert/convert.h"

#include "instantiate.h"

namespace halftone::hw {

template <Rounding kRounding, bool kRelu>
__device__ void to_halves(const Operands& o) {
  use(o, cvt_bf16x2<kRounding, kRelu>(o.f, o.g));
  use(o, cvt_f16x2<kRounding, kRelu>(o.f, o.g));
  use(o, cvt_bf16<kRounding, kRelu>(o.f));
  use(o, cvt_f16<kRounding, kRelu>(o.f));
}

__global__ void instantiate_convert(Operands o) {
  to_halves<Rounding::rn, false>(o);
  to_halves<Rounding::rn, true>(o);
  to_halves<Rounding::rz, false>(o);
  to_halves<Rounding::rz, true>(o);
  use(o, cvt_f32_f16(static_cast<uint16_t>(o.a)));
  use(o, cvt_f32_bf16(static_cast<uint16_t>(o.a)));
  use(o, cvt_rna_tf32(o.f));
}

}  // namespace halftone::hw
