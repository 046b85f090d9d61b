// Feature: fp4_convert
#include "hw/convert/convert_narrow.h"
#include "instantiate.h"

namespace halftone::hw {

template <Relu kRelu>
__device__ void narrow(const Operands& o) {
  const auto half = static_cast<uint16_t>(o.a);
  use(o, cvt_e2m1x2<kRelu>(o.f, o.g));
  use(o, cvt_e2m1x2_f16x2<kRelu>(o.a));
  use(o, cvt_f16x2_e2m1x2<kRelu>(static_cast<uint8_t>(o.a)));
  use(o, cvt_fp6x2<Type::e2m3, kRelu>(o.f, o.g));
  use(o, cvt_fp6x2<Type::e3m2, kRelu>(o.f, o.g));
  use(o, cvt_f16x2_fp6x2<Type::e2m3, kRelu>(half));
  use(o, cvt_f16x2_fp6x2<Type::e3m2, kRelu>(half));
}

template <PowerRounding kRounding, PowerOverflow kOverflow>
__device__ void powers(const Operands& o) {
  use(o, cvt_ue8m0x2<kRounding, kOverflow>(o.f, o.g));
  use(o, cvt_ue8m0x2_bf16x2<kRounding, kOverflow>(o.a));
}

__global__ void instantiate_convert_narrow(Operands o) {
  narrow<Relu::no>(o);
  narrow<Relu::yes>(o);
  powers<PowerRounding::rz, PowerOverflow::nan>(o);
  powers<PowerRounding::rz, PowerOverflow::finite>(o);
  powers<PowerRounding::rp, PowerOverflow::nan>(o);
  powers<PowerRounding::rp, PowerOverflow::finite>(o);
  use(o, cvt_bf16x2_ue8m0x2(static_cast<uint16_t>(o.a)));
}

}  // namespace halftone::hw
