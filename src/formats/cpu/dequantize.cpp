// Codes to plain floats, once per ISA level: two vectors of BF16 pairs at a time, which
// hold every code exactly, times the scale, rounded once.
#include "formats/cpu/kernels.h"

#include "formats/cpu/encode.h"
#include "simd/two.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// Numbers of BF16 pairs in the order in which store_two<O> wants them.
template <Format O>
HALFTONE_INLINE Two split(bf16v words) {
  if constexpr (O == Format::bf16) return load_two<Format::bf16>(&words);
#if defined(__AVX512F__)
  const auto all = bits_as<__m512i>(words);
  return {widen_bf16(bits_as<u16v>(_mm512_castsi512_si256(all))),
          widen_bf16(bits_as<u16v>(_mm512_maskz_extracti64x4_epi64(0xf, all, 1)))};
#else
  u16v halves[2];
  std::memcpy(halves, &words, sizeof words);
  return {widen_bf16(halves[0]), widen_bf16(halves[1])};
#endif
}

// What may go wrong in a row: a rounding to f32 before the one to the output (inexact), subnormals,
// which VCVTNE2PS2BF16 flushes (tiny). Asked of all scales at once, not of each where it is used.
struct Hazards {
  bool inexact, tiny;
};
Hazards hazards_of(const RowScales& row, int64_t groups) {
  i32v inexact{}, tiny{};
  const auto add = [&](f32v scale) __attribute__((always_inline)) {
    const i32v bits = bits_as<i32v>(scale), magnitude = bits & 0x7fffffff;
    const i32v whole = bits_as<i32v>(scale * row.factor) & 0x7fffffff;
    // Codes have 8 bits, scales whose last 12 are 0 no more than 12: their products fit 24.
    inexact |= (bits & 0xfff) != i32v{};
    // No code but 0 is below 2^-16.
    const i32v least = broadcast_i32(static_cast<int32_t>(float_bits(0x1p-109f)));
    tiny |= (magnitude != i32v{}) & ((magnitude < least) | (whole < least));
  };
  int64_t g = 0;
  for (; g + kLanes <= groups; g += kLanes) add(load_raw<f32v>(row.scales + g));
  if (g < groups) {
    add(load_partial<Format::f32>(row.scales, g, static_cast<int>(groups - g)));
  }
  return {row.factor != 1.0f || any(inexact), any(tiny)};
}

// What kTwo elements are multiplied with.
struct GroupScale {
  Two scale;
  int zero;
  int64_t index;  // of the group, the first of two
  // Products are: one block in seven of bf16 numbers has a largest one that 448 divides, and then
  // they often lie midway without having been rounded.
  bool exact = false;
};
HALFTONE_INLINE GroupScale group_scale(const RowScales& row, int64_t g) {
  const f32v all = broadcast(row.scales[g]);
  const bool exact = row.factor == 1.0f && (float_bits(row.scales[g]) & 0xfff) == 0;
  return {{all, all}, row.zeros != nullptr ? row.zeros[g] : kInt4Zero, g, exact};
}
// Of two groups of kLanes elements: a vector each, or the lower and the upper lanes of both when
// these are the even and the odd elements.
template <Format O>
HALFTONE_INLINE GroupScale two_group_scales(const RowScales& row, int64_t g) {
  GroupScale all = group_scale(row, g);
  all.exact = false;  // the second is not asked
  const f32v second = broadcast(row.scales[g + 1]);
  if constexpr (O == Format::bf16) {
    i32v lower{};
    for (int i = 0; i < kLanes / 2; ++i) lower[i] = -1;
    all.scale.a = all.scale.b = pick(lower, all.scale.a, second);
  } else {
    all.scale.b = second;
  }
  return all;
}

// Whether a float that was itself rounded lies midway between two numbers of O, so that the
// direction depends on what was rounded away.
template <Format O>
HALFTONE_INLINE bool midway(Two v) {
#if defined(__AVX512BW__)
  if constexpr (O == Format::bf16) {
    const __m512i half = _mm512_set1_epi16(-0x8000);
    return (_mm512_mask_cmpeq_epi16_mask(0x55555555, bits_as<__m512i>(v.a), half) |
            _mm512_mask_cmpeq_epi16_mask(0x55555555, bits_as<__m512i>(v.b), half)) != 0;
  }
#endif
  const auto of = [](f32v x) __attribute__((always_inline)) {
    const i32v bits = bits_as<i32v>(x) & 0x7fffffff;
    if constexpr (O == Format::bf16) return (bits & 0xffff) == broadcast_i32(0x8000);
    // f16: below 2^-14 the spacing changes: those all count.
    const i32v small = (bits < broadcast_i32(0x38800000)) & (bits != i32v{});
    return ((bits & 0x1fff) == broadcast_i32(0x1000)) | small;
  };
  return any(of(v.a) | of(v.b));
}
HALFTONE_INLINE bool subnormal(Two v) {
  const auto of = [](f32v x) __attribute__((always_inline)) {
    const i32v bits = bits_as<i32v>(x) & 0x7fffffff;
    return (bits < broadcast_i32(0x800000)) & (bits != i32v{});
  };
  return any(of(v.a) | of(v.b));
}

template <Format F, Format O>
struct Run {
  const uint8_t* codes;
  const RowScales row;
  char* y;
  const Hazards hazards;

  HALFTONE_INLINE const uint8_t* codes_of(int64_t i) const { return codes + code_offset(F, i); }

  // Elements i .. i + n, n <= kTwo, given as numbers.
  HALFTONE_INLINE void finish(Two v, const GroupScale& g, int64_t i, int64_t n) const {
    v = {v.a * g.scale.a, v.b * g.scale.b};
    if (row.factor != 1.0f) v = {v.a * row.factor, v.b * row.factor};
    char* to = y + i * plain_bytes(O);
    if constexpr (O != Format::f32) {
      const bool wrong = (hazards.inexact && !g.exact && midway<O>(v)) ||
                         (O == Format::bf16 && __builtin_expect(hazards.tiny, 0) && subnormal(v));
      if (__builtin_expect(wrong, 0)) return exactly(g.index, i, n);
    }
    // What is left has no subnormals. Looking for them at zeros, as store_two does by itself, is a
    // branch that codes of few bits, many of them 0, make unpredictable.
    if (n == kTwo) {
      store_two<O, true, false, true>(to, v, row.streamed);
    } else {
      store_two_partial<O, true, true>(to, v, n);
    }
  }
  __attribute__((noinline)) void exactly(int64_t group, int64_t i, int64_t n) const {
    const RowScales own{row.scales + group, row.zeros != nullptr ? row.zeros + group : nullptr,
                        row.group < n ? row.group : n, row.factor};
    scalar_format_kernels().dequantize_row(F, codes_of(i), n, own, O, y + i * plain_bytes(O));
  }

  HALFTONE_INLINE bf16v decoded(const uint8_t* from, int zero) const {
    if constexpr (F == Format::int4) return decode_int4_pairs(from, 0, zero);
    return decode_pairs<F>(from, 0);
  }

  // Elements begin .. end; scale_at(i): the GroupScale of kTwo elements from i on.
  template <class Scale>
  HALFTONE_INLINE void all(int64_t begin, int64_t end, const Scale& scale_at) const {
    int64_t i = begin;
    for (; i + 2 * kTwo <= end; i += 2 * kTwo) {
      const uint8_t* from = codes_of(i);
      ask_ahead<code_offset(F, 2 * kTwo)>(static_cast<const char*>(static_cast<const void*>(from)));
      const auto &first = scale_at(i), &second = scale_at(i + kTwo);
      bf16v words[2];
      if constexpr (is_fp8(element_of(F))) {
        decode_pairs_x2<F>(from, 0, words);
      } else {
        words[0] = decoded(from, first.zero);
        words[1] = decoded(codes_of(i + kTwo), second.zero);
      }
      finish(split<O>(words[0]), first, i, kTwo);
      finish(split<O>(words[1]), second, i + kTwo, kTwo);
    }
    for (; i < end; i += kTwo) {
      const int64_t n = end - i < kTwo ? end - i : kTwo;
      uint8_t padded[kTwo] = {};
      std::memcpy(padded, codes_of(i), static_cast<size_t>((n * bits_of(F) + 7) / 8));
      const auto& g = scale_at(i);
      finish(split<O>(decoded(padded, g.zero)), g, i, n);
    }
  }
};

template <Format F, Format O>
void dequantize(const uint8_t* codes, int64_t columns, const RowScales& row, void* y) {
  const int64_t group = row.group;
  const Run<F, O> run{codes, row, static_cast<char*>(y),
                      hazards_of(row, (columns + group - 1) / group)};
  int64_t begin = 0;
  if (element_of(F) == Element::e2m1 && group == kLanes) {
    begin = columns / kTwo * kTwo;
    run.all(
        0, begin, [&](int64_t i) __attribute__((always_inline)) {
          return two_group_scales<O>(row, i / kLanes);
        });
  } else if (group == kTwo) {
    begin = columns / kTwo * kTwo;
    run.all(
        0, begin, [&](int64_t i) __attribute__((always_inline)) {
          return group_scale(row, i / kTwo);
        });
  }
  for (; begin < columns; begin += group) {
    const GroupScale g = group_scale(row, begin / group);
    run.all(
        begin, group < columns - begin ? begin + group : columns,
        [&](int64_t) __attribute__((always_inline))->const GroupScale& { return g; });
  }
}

}  // namespace

void dequantize_row(Format format, const uint8_t* codes, int64_t columns, const RowScales& row,
                    Format out, void* y) {
  if (columns == 0) return;
  if (row.group % elements_of_unit(format) != 0 && row.group < columns) {
    return scalar_format_kernels().dequantize_row(format, codes, columns, row, out, y);
  }
  with_element(format, [&]<Format F>() {
    with_source(out, [&]<Format O>() { dequantize<F, O>(codes, columns, row, y); });
  });
}

void decode_scales(Format format, const void* codes, int64_t n, float* scales) {
  const auto* bytes = static_cast<const uint8_t*>(codes);
  const auto each = [&](auto decode_lanes) __attribute__((always_inline)) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store_raw(scales + i, decode_lanes(bytes + i));
    if (i == n) return;
    uint8_t padded[kLanes] = {};
    std::memcpy(padded, bytes + i, static_cast<size_t>(n - i));
    store_partial<Format::f32>(scales, i, decode_lanes(padded), static_cast<int>(n - i));
  };
  switch (format) {
    case Format::fp8_e4m3:
      return each([](const uint8_t* p) { return decode<Format::fp8_e4m3>(p, 0); });
    case Format::ue8m0:
      return each([](const uint8_t* p) { return decode_ue8m0(load_raw<u8v>(p)); });
    default:
      return convert(format, Format::f32, codes, n, scales);
  }
}

void decode_bf16(Format format, const uint8_t* codes, int64_t n, uint16_t* y) {
  with_element(format, [&]<Format F>() {
    int64_t i = 0;
    for (; i + 2 * kTwo <= n; i += 2 * kTwo) {
      bf16v words[2];
      decode_pairs_x2<F>(codes, i, words);
      store_raw(y + i, words[0]);
      store_raw(y + i + kTwo, words[1]);
    }
    for (; i + kTwo <= n; i += kTwo) store_raw(y + i, decode_pairs<F>(codes, i));
    if (i < n) {
      scalar_format_kernels().decode_bf16(format, codes + code_offset(F, i), n - i, y + i);
    }
  });
}

}  // namespace halftone::HALFTONE_LEVEL
