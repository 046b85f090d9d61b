#include "sim/numerics/mma_rules.h"

namespace halftone::sim {
namespace {

bool is_integer(MmaElement type) { return type == MmaElement::s8 || type == MmaElement::u8; }
bool is_fp8(MmaElement type) { return type == MmaElement::e4m3 || type == MmaElement::e5m2; }
bool is_e2m1(MmaElement type) {
  return type == MmaElement::e2m1 || type == MmaElement::e2m1_container;
}
bool is_narrow(MmaElement type) {
  return is_fp8(type) || is_e2m1(type) || type == MmaElement::e2m3 || type == MmaElement::e3m2;
}

using Sum = MmaRule::Sum;
using Output = MmaRule::Output;

std::optional<MmaRule> block_scaled(Arch arch, MmaUnit unit, MmaElement a, MmaElement b,
                                    MmaAccumulator accumulator, MmaScales scales) {
  const bool present = (unit == MmaUnit::mma_sync && arch == Arch::sm_120a) ||
                       (unit == MmaUnit::tcgen05 && arch == Arch::sm_100a);
  if (!present || accumulator != MmaAccumulator::f32) return {};
  if (scales == MmaScales::mxf8f6f4) {
    if (!is_narrow(a) || !is_narrow(b)) return {};
    return MmaRule{Sum::fused, Output::f32, 32, 25, scales};
  }
  if (!is_e2m1(a) || !is_e2m1(b)) return {};
  return MmaRule{Sum::grouped, Output::f32, 64, 35, scales};
}

std::optional<MmaRule> sixteen_bits(Arch arch, MmaElement type, Output output) {
  const bool tf32 = type == MmaElement::tf32;
  if (arch <= Arch::sm_89)  // the unit takes half the k of the largest instruction at a time
    return MmaRule{Sum::fused, output, static_cast<uint8_t>(tf32 ? 4 : 8), 24};
  return MmaRule{Sum::fused, output, static_cast<uint8_t>(tf32 ? 8 : 16), 25};
}

std::optional<MmaRule> narrow(Arch arch, MmaUnit unit, MmaElement a, MmaElement b, Output output) {
  const Output short_output = output == Output::f32 ? Output::f32_e8m13 : output;
  switch (unit) {
    case MmaUnit::wgmma:
      if (!is_fp8(a) || !is_fp8(b)) return {};
      return MmaRule{Sum::fused, short_output, 32, 13};
    case MmaUnit::tcgen05:
      return MmaRule{Sum::fused, output, 32, 25};
    case MmaUnit::mma_sync:
      break;
  }
  if (arch == Arch::sm_120a) return MmaRule{Sum::fused, output, 32, 25};
  if (!is_fp8(a) || !is_fp8(b)) return {};
  if (arch == Arch::sm_89) return MmaRule{Sum::fused, short_output, 16, 13};
  // sm_90a and sm_100a have no such unit for mma.sync. The assembler converts both operands to f16
  // and issues two f16 products of k16, one over the low and one over the high half of every
  // register (k % 4 < 2 and k % 4 >= 2), chained from zero, and adds C with an FP32 addition.
  if (arch >= Arch::sm_90a && output == Output::f32)
    return MmaRule{Sum::f16_expansion, output, 16, 25};
  return {};
}

}  // namespace

const char* name(MmaElement type) {
  static constexpr const char* kNames[] = {"bf16", "f16",  "tf32",           "e4m3", "e5m2", "e2m3",
                                           "e3m2", "e2m1", "e2m1 container", "s8",   "u8"};
  return kNames[static_cast<int>(type)];
}

std::optional<MmaRule> mma_rule(Arch arch, MmaUnit unit, MmaElement a, MmaElement b,
                                MmaAccumulator accumulator, MmaScales scales) {
  if (unit == MmaUnit::wgmma && arch != Arch::sm_90a) return {};
  if (unit == MmaUnit::tcgen05 && arch != Arch::sm_100a) return {};
  if (scales != MmaScales::none) return block_scaled(arch, unit, a, b, accumulator, scales);
  if (is_integer(a) || is_integer(b)) {
    if (!is_integer(a) || !is_integer(b) || accumulator != MmaAccumulator::s32) return {};
    return MmaRule{Sum::integer, Output::s32, 32, 0};
  }
  if (accumulator == MmaAccumulator::s32) return {};
  const Output output = accumulator == MmaAccumulator::f16 ? Output::f16 : Output::f32;
  if (is_narrow(a) && is_narrow(b)) return narrow(arch, unit, a, b, output);
  if (a != b || is_narrow(a) || is_narrow(b)) return {};
  if (output == Output::f16 && a != MmaElement::f16) return {};
  return sixteen_bits(arch, a, output);
}

}  // namespace halftone::sim
