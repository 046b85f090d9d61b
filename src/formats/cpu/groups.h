// Scales and codes of kLanes groups of a row at once, a lane per group: groups of 16 or 32 elements
// are too short for scalar arithmetic on each.
#pragma once
#include "formats/cpu/encode.h"
#include "formats/kernels.h"
#include "formats/recipe.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

// Scales of kLanes blocks: recipe.h's block_scale with a lane per block.
struct Scales {
  u32v code;
  f32v value, multiplier;
};

HALFTONE_INLINE Scales scales_of_codes(const Recipe& recipe, u32v code, f32v value) {
  if (has_tensor_scale(recipe.format)) {
    const f32v inverse = 1.0f / (value * recipe.decode_scale);
    return {code, value, min(inverse, broadcast(kFloatMax))};
  }
  return {code, value, 1.0f / value};
}

HALFTONE_INLINE Scales scales_near(const Recipe& recipe, f32v wanted) {
  if (recipe.scale_format == Format::f16) {
    const u16v code = narrow_f16(max(wanted, broadcast(0x1p-24f)));
    return scales_of_codes(recipe, widen_u16(code), widen_f16(code));
  }
  const f32v clamped = max(wanted, broadcast(0x1p-126f));
  if (recipe.scale_format == Format::bf16) {
    const u16v code = narrow_bf16(clamped);
    return scales_of_codes(recipe, widen_u16(code), widen_bf16(code));
  }
  return scales_of_codes(recipe, bits_as<u32v>(clamped), clamped);
}

// The E4M3 number nearest to x >= 0, and its code; of a NaN something. As encode_detail's
// encode_float: the power of two that rounds x, taken away again, leaves the number itself, without
// the way through the code.
HALFTONE_INLINE f32v round_e4m3(f32v x, u32v* code) {
  constexpr int kShift = 20, kLeastPower = (-6 + 127 + kShift) << 23;
  const i32v clipped = min(bits_as<i32v>(x), broadcast_i32(0x43e00000));  // 448
  const i32v exponent = clipped & 0x7f800000;
  const f32v power = bits_as<f32v>(max(exponent + (kShift << 23), broadcast_i32(kLeastPower)));
  const f32v sum = bits_as<f32v>(clipped) + power;
  const u32v bits = bits_as<u32v>(sum);
  *code = ((bits >> kShift) + (bits - (static_cast<uint32_t>(kLeastPower) >> kShift))) & 0xffu;
  return sum - power;
}

HALFTONE_INLINE Scales block_scales(const Recipe& recipe, u32v amax) {
  const f32v largest = bits_as<f32v>(amax);
  const i32v zero = bits_as<i32v>(amax) == i32v{};
  if (recipe.scale_format == Format::ue8m0) {
    const uint32_t largest_bits = float_bits(largest_element(recipe.format));
    const int element_exponent = static_cast<int>(largest_bits >> 23) - 127;
    // Rounding up: past the mantissa of the largest element it carries into the exponent.
    const uint32_t carry = recipe.ue8m0_down ? 0 : 0x7fffffu - (largest_bits & 0x7fffffu);
    i32v code = bits_as<i32v>((amax + carry) >> 23) - element_exponent;
    code = max(code, i32v{});
    const i32v inverse = 254 - code;
    const u32v bits = bits_as<u32v>(inverse) << 23;
    const i32v subnormal = inverse == i32v{};
    return {bits_as<u32v>(code), f32v{},
            bits_as<f32v>(pick(subnormal, broadcast_u32(0x400000), bits))};
  }
  if (has_tensor_scale(recipe.format)) {
    u32v code;
    const f32v value = round_e4m3(largest * (recipe.encode_scale * (1.0f / 6.0f)), &code);
    Scales scales = scales_of_codes(recipe, code, value);
    scales.multiplier = pick(zero, f32v{}, scales.multiplier);
    return scales;
  }
  return scales_near(recipe, pick(zero, broadcast(1.0f), largest / largest_element(recipe.format)));
}

HALFTONE_INLINE void store_scales(Format format, uint8_t* to, u32v codes) {
  switch (scale_bytes(format)) {
    case 4:
      store_raw(to, codes);
      break;
    case 2:
      store_raw(to, narrow_u16(codes));
      break;
    default:
      store_raw(to, narrow_u8(codes));
  }
}

// Zero points of kLanes blocks: recipe.h's asymmetric_scale.
HALFTONE_INLINE Scales asymmetric_scales(const Recipe& recipe, f32v low, f32v high,
                                         i32v* zero_points) {
  const f32v width = high * 0.5f - low * 0.5f;
  const i32v some = width > f32v{};
  const Scales scales = scales_near(recipe, pick(some, width * (2.0f / 15.0f), broadcast(1.0f)));
  const f32v shift = broadcast(12582912.0f);  // 1.5 * 2^23: the sum has no bits below 1
  const f32v zero = min((shift - low * scales.multiplier) - shift, broadcast(15.0f));
  *zero_points = bits_as<i32v>(zero + shift) - 0x4b400000;
  return scales;
}

struct LargerBits {
  HALFTONE_INLINE u32v operator()(u32v a, u32v b) const {
    return bits_as<u32v>(max(bits_as<i32v>(a), bits_as<i32v>(b)));
  }
};
struct Smaller {
  HALFTONE_INLINE f32v operator()(f32v a, f32v b) const { return min(a, b); }
};
struct Larger {
  HALFTONE_INLINE f32v operator()(f32v a, f32v b) const { return max(a, b); }
};

// Bits of the largest |x| of each of kLanes groups.
template <Format S>
HALFTONE_INLINE u32v group_maxima(const void* x, const GroupStarts& start) {
  const int64_t group = start.group;
  if constexpr (has_pair_maxima<S>()) {
    if ((group == 16 && start.count == kLanes) || group % (2 * kLanes) == 0) {
      return pair_group_amax<S>(x, start);
    }
  }
  u32v amax[kLanes];
  for (int g = 0; g < kLanes; ++g) amax[g] = amax_lanes<S, true>(x, start[g], group);
  reduce_each(amax, LargerBits());
  return amax[0];
}

// Least and largest number of each of kLanes groups, and 0, where all are finite; the result:
// group_maxima.
template <Format S>
HALFTONE_INLINE u32v group_ranges(const void* x, const GroupStarts& start, f32v* low, f32v* high) {
  const int64_t group = start.group;
  if constexpr (has_pairs<S, Format::int4>()) {
    if (group % (2 * kLanes) == 0) return pair_group_ranges<S>(x, start, low, high);
  }
  f32v least[kLanes], largest[kLanes];
  for (int g = 0; g < kLanes; ++g) {
    least[g] = largest[g] = f32v{};
    for (int64_t i = 0; i < group; i += kLanes) {
      const f32v v = load<S>(x, start[g] + i);
      least[g] = min(v, least[g]);
      largest[g] = max(v, largest[g]);
    }
  }
  reduce_each(least, Smaller());
  reduce_each(largest, Larger());
  *low = least[0];
  *high = largest[0];
  return group_maxima<S>(x, start);
}

// What encodes kLanes groups; finite: whether it does.
struct GroupScales {
  u32v code;
  f32v multiplier;
  i32v zero;
  bool finite;
  bool powers;  // of two, as encode_words takes them
};

// Of kLanes groups, of a multiple of kLanes elements each. Not finite when an element is not, or
// when a scale overflows.
template <Format S, Format T>
HALFTONE_INLINE GroupScales group_scales(const Recipe& recipe, const void* x,
                                         const GroupStarts& start) {
  u32v amax;
  Scales of;
  i32v zero = broadcast_i32(kInt4Zero);
  if (T == Format::int4 && recipe.asymmetric) {
    f32v low, high;
    amax = group_ranges<S>(x, start, &low, &high);
    of = asymmetric_scales(recipe, low, high, &zero);
  } else {
    amax = group_maxima<S>(x, start);
    of = block_scales(recipe, amax);
  }
  i32v unusable = bits_as<i32v>(amax >= broadcast_u32(kInfinityBits));
  if (recipe.scale_format == Format::f16) unusable |= of.value > broadcast(65504.0f);
  bool powers = false;
  if constexpr (has_pairs<S, T>()) {
    powers = recipe.scale_format == Format::ue8m0 && start.group % (2 * kLanes) == 0 &&
             !any(bits_as<i32v>(of.code < broadcast_u32(kLeastWordScale)));
  }
  return {of.code, of.multiplier, zero, !any(unusable), powers};
}

// Asks for what lies `ahead` bytes behind a group; 0: for what the groups' maxima will read when
// the codes of `group` elements at `at` are made: they are a strip of kLanes groups ahead, so that
// this is the strip after that, or kAhead numbers of 16 bits.
template <Format S>
HALFTONE_INLINE void ask_for_group(const void* x, int64_t at, int64_t group, int64_t ahead) {
  const int64_t next = group * (2 * kLanes) > kAhead / 2 ? group * (2 * kLanes) : kAhead / 2;
  const auto* from = static_cast<const char*>(x) + at * plain_bytes(S) +
                     (ahead != 0 ? ahead : next * plain_bytes(S));
  for (int64_t i = 0; i < group * plain_bytes(S); i += kLineBytes) __builtin_prefetch(from + i);
}

// encode_groups with scales that are powers of two.
template <Format T>
HALFTONE_INLINE void encode_groups_in_words(const GroupScales& of, int64_t group, int count,
                                            const void* x, int64_t begin, uint8_t* codes,
                                            bool streamed, int64_t ahead) {
  uint32_t code[kLanes];
  store_raw(code, of.code);
  for (int g = 0; g < count; ++g) {
    ask_for_group<Format::bf16>(x, begin + g * group, group, ahead);
    for (int64_t i = 0; i < group; i += 2 * kLanes) {
      const int64_t at = g * group + i;
      uint8_t* to = codes + code_offset(T, at);
      if (encode_words<T>(x, begin + at, static_cast<int>(code[g]), to, streamed)) continue;
      const f32v factor = broadcast(reciprocal_ue8m0(static_cast<uint8_t>(code[g])));
      encode_pairs<T, false>(x, begin + at, factor, 0, to, streamed);
    }
  }
}

// The codes of `count` groups from element `begin` on.
template <Format S, Format T>
HALFTONE_INLINE void encode_groups(const GroupScales& of, int64_t group, int count, const void* x,
                                   int64_t begin, uint8_t* codes, bool streamed, int64_t ahead) {
  if constexpr (has_pairs<S, T>() &&
                (element_of(T) == Element::e2m1 || element_of(T) == Element::e4m3)) {
    if (of.powers) {
      return encode_groups_in_words<T>(of, group, count, x, begin, codes, streamed, ahead);
    }
  }
  if constexpr (has_pairs<S, T>() && element_of(T) == Element::e2m1) {
    if (group == 16) {  // a vector of 32 elements holds two groups
      for (int g = 0; g < count; g += 2) {
        ask_for_group<S>(x, begin + g * 16, 32, ahead);
        const f32v factor = pair_of_lanes<T>(of.multiplier, g);
        encode_pairs<T, false>(x, begin + g * 16, factor, 0, codes + g * 8, streamed);
      }
      return;
    }
  }
  float multiplier[kLanes];
  int32_t zero[kLanes];
  store_raw(multiplier, of.multiplier);
  store_raw(zero, of.zero);
  for (int g = 0; g < count; ++g) {
    ask_for_group<S>(x, begin + g * group, group, ahead);
    const f32v factor = broadcast(multiplier[g]);
    int64_t i = 0;
    if constexpr (has_pairs<S, T>()) {
      for (; i + 2 * kLanes <= group; i += 2 * kLanes) {
        const int64_t at = g * group + i;
        encode_pairs<T, false>(x, begin + at, factor, zero[g], codes + code_offset(T, at),
                               streamed);
      }
    }
    for (; i < group; i += kLanes) {
      const int64_t at = g * group + i;
      store_codes<T>(codes + code_offset(T, at),
                     encode_lanes<T, false>(load<S>(x, begin + at) * factor, zero[g]), streamed);
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
