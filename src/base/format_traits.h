// The table of number formats. What code wants to know about a format it asks here, so that a new
// one is a row of these lists and not a case in every kernel.
#pragma once
#include <cstdint>

#include "halftone/dtype.h"

// Always inlined, as what formats/codec.h defines: files of one ISA level may use it.
#define HALFTONE_TRAIT constexpr inline __attribute__((always_inline))

namespace halftone {

// X(name, bits, exponent bits, mantissa bits, code of NaN, largest number) of the elements that
// `quantize` makes. Mantissa bits 0: an integer. A float without a NaN encodes it as its largest
// number, as conversion instructions do.
#define HALFTONE_SMALL_ELEMENTS(X) \
  X(e4m3, 8, 4, 3, 0x7f, 448.0f)   \
  X(e5m2, 8, 5, 2, 0x7f, 57344.0f) \
  X(e2m1, 4, 2, 1, 0x07, 6.0f)     \
  X(e2m3, 6, 2, 3, 0x1f, 7.5f)     \
  X(e3m2, 6, 3, 2, 0x1f, 28.0f)    \
  X(int8, 8, 0, 0, 0x7f, 127.0f)   \
  X(int4, 4, 0, 0, 0x0f, 7.0f)

// X(name, element, format of the scale, elements that share one, whether one FP32 scale a tensor
// multiplies them too). The scales of formats with group 0 are chosen by `Scaling`, or there are
// none.
#define HALFTONE_FORMATS(X)          \
  X(f32, f32, f32, 0, false)         \
  X(f16, f16, f32, 0, false)         \
  X(bf16, bf16, f32, 0, false)       \
  X(fp8_e4m3, e4m3, f32, 0, false)   \
  X(fp8_e5m2, e5m2, f32, 0, false)   \
  X(mxfp8, e4m3, ue8m0, 32, false)   \
  X(mxfp4, e2m1, ue8m0, 32, false)   \
  X(nvfp4, e2m1, fp8_e4m3, 16, true) \
  X(int8, int8, f32, 0, false)       \
  X(int4, int4, f32, 0, false)       \
  X(i32, i32, f32, 0, false)         \
  X(i64, i64, f32, 0, false)         \
  X(u8, u8, f32, 0, false)           \
  X(ue8m0, ue8m0, f32, 0, false)     \
  X(mxfp6, e2m3, ue8m0, 32, false)   \
  X(mxfp6_e3m2, e3m2, ue8m0, 32, false)

// How the bits of an element make a number. Formats of the same element differ in their scales.
enum class Element : uint8_t {
  f32,
  f16,
  bf16,
  i32,
  i64,
  u8,
  ue8m0,
#define HALFTONE_X(name, ...) name,
  HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
};

struct ElementTraits {
  int bits;
  int exponent_bits, mantissa_bits;  // of what quantize makes; mantissa_bits 0: an integer
  uint32_t nan;
  float largest;  // 0: quantize does not make it
};

HALFTONE_TRAIT ElementTraits traits_of(Element e) {
  switch (e) {
#define HALFTONE_X(name, bits, exponent, mantissa, nan, largest) \
  case Element::name:                                            \
    return {bits, exponent, mantissa, nan, largest};
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
    case Element::i64:
      return {64, 0, 0, 0, 0};
    case Element::f16:
    case Element::bf16:
      return {16, 0, 0, 0, 0};
    case Element::u8:
    case Element::ue8m0:
      return {8, 0, 0, 0, 0};
    default:
      return {32, 0, 0, 0, 0};
  }
}

HALFTONE_TRAIT Element element_of(Format f) {
  switch (f) {
#define HALFTONE_X(name, element, ...) \
  case Format::name:                   \
    return Element::element;
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
  }
  return Element::f32;
}
HALFTONE_TRAIT int bits_of(Format f) { return traits_of(element_of(f)).bits; }

// Elements that share a scale by definition of the format; 0: `Scaling` says it.
HALFTONE_TRAIT int scale_group_of(Format f) {
  switch (f) {
#define HALFTONE_X(name, element, scale, group, ...) \
  case Format::name:                                 \
    return group;
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
  }
  return 0;
}
// And the format of that scale.
HALFTONE_TRAIT Format scale_format_of(Format f) {
  switch (f) {
#define HALFTONE_X(name, element, scale, ...) \
  case Format::name:                          \
    return Format::scale;
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
  }
  return Format::f32;
}
HALFTONE_TRAIT bool has_tensor_scale(Format f) {
  switch (f) {
#define HALFTONE_X(name, element, scale, group, tensor_scale) \
  case Format::name:                                          \
    return tensor_scale;
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
  }
  return false;
}
HALFTONE_TRAIT bool has_group_scales(Format f) { return scale_group_of(f) != 0; }
HALFTONE_TRAIT bool has_power_of_two_scales(Format f) {
  return has_group_scales(f) && scale_format_of(f) == Format::ue8m0;
}
// Codes of integers may be counted from a zero point of their group.
HALFTONE_TRAIT bool may_have_zero_points(Format f) { return element_of(f) == Element::int4; }

// What `quantize` makes.
HALFTONE_TRAIT bool is_quantised(Format f) { return traits_of(element_of(f)).largest > 0; }
HALFTONE_TRAIT bool is_small_float(Element e) { return traits_of(e).mantissa_bits > 0; }
// E4M3 and E5M2, which have NaN and conversion instructions of their own.
HALFTONE_TRAIT bool is_fp8(Element e) { return e == Element::e4m3 || e == Element::e5m2; }
// Codes that share bytes. Rows begin at whole bytes.
HALFTONE_TRAIT bool is_packed(Format f) { return bits_of(f) < 8; }
// So many elements, a run of whole bytes, ...
HALFTONE_TRAIT int elements_of_unit(Format f) {
  return bits_of(f) % 8 == 0 ? 1 : bits_of(f) == 4 ? 2 : 4;
}
// ... and the bytes in front of element i, a multiple of them.
HALFTONE_TRAIT int64_t code_offset(Format f, int64_t i) { return i * bits_of(f) / 8; }

// Least exponent of a normal number of a small float.
HALFTONE_TRAIT int least_exponent(Element e) { return 2 - (1 << (traits_of(e).exponent_bits - 1)); }

// Whether another format holds every element exactly: floats by their significant bits and their
// exponents, integers by their bits.
HALFTONE_TRAIT bool fits_in(Element e, int significant, int exponent_bits) {
  const ElementTraits t = traits_of(e);
  if (t.largest == 0) return false;
  if (t.mantissa_bits == 0) return t.bits <= significant;
  return t.mantissa_bits < significant && t.exponent_bits <= exponent_bits;
}
HALFTONE_TRAIT bool is_exact_in_bf16(Element e) { return e == Element::bf16 || fits_in(e, 8, 8); }
HALFTONE_TRAIT bool is_exact_in_e4m3(Element e) { return fits_in(e, 4, 4); }

inline constexpr Format kFormats[] = {
#define HALFTONE_X(name, ...) Format::name,
    HALFTONE_FORMATS(HALFTONE_X)
#undef HALFTONE_X
};
// What `quantize` makes: the elements, a format of each of them, which stands for all where only
// elements matter, and all formats.
inline constexpr Element kSmallElements[] = {
#define HALFTONE_X(name, ...) Element::name,
    HALFTONE_SMALL_ELEMENTS(HALFTONE_X)
#undef HALFTONE_X
};
inline constexpr int kSmallElementCount = sizeof(kSmallElements) / sizeof(kSmallElements[0]);
HALFTONE_TRAIT Format format_with(Element e) {
  for (const Format f : kFormats) {
    if (element_of(f) == e) return f;
  }
  return Format::f32;
}

struct FormatList {
  Format list[sizeof(kFormats) / sizeof(kFormats[0])] = {};
  int count = 0;
  constexpr const Format* begin() const { return list; }
  constexpr const Format* end() const { return list + count; }
};
constexpr FormatList quantised_formats() {
  FormatList result;
  for (const Format f : kFormats) {
    if (is_quantised(f)) result.list[result.count++] = f;
  }
  return result;
}
inline constexpr FormatList kElementFormats = quantised_formats();

}  // namespace halftone
