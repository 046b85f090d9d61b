// Rows whose groups lie within them, once per ISA level: scales of as many groups as a
// vector has lanes at once, codes a group at a time.
#include "formats/cpu/groups.h"
#include "formats/cpu/kernels.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

// What quantize_row_with does one group at a time.
struct RowOps {
  static uint32_t amax(Format source, const void* x, int64_t n) {
    return HALFTONE_LEVEL::amax(source, x, n);
  }
  static double squared_error(Format source, Format target, const void* x, int64_t n,
                              float multiplier, int zero, float scale, float tensor_scale) {
    return HALFTONE_LEVEL::squared_error(source, target, x, n, multiplier, zero, scale,
                                         tensor_scale);
  }

  static void range(Format source, const void* x, int64_t n, float* low, float* high) {
    f32v least{}, largest{};
    with_source(source, [&]<Format S>() {
      for (int64_t i = 0; i < n; i += kLanes) {
        const int64_t left = n - i;
        const f32v v =
            left >= kLanes ? load<S>(x, i) : load_partial<S>(x, i, static_cast<int>(left));
        least = min(v, least);
        largest = max(v, largest);
      }
    });
    *low = -reduce_max(-least);
    *high = reduce_max(largest);
  }

  // As quantize_row_with uses it: only finite elements and multipliers are encoded.
  static void encode_block(const Recipe& recipe, Format source, const void* x, int64_t n,
                           float multiplier, int zero, uint8_t* codes) {
    with_source(source, [&]<Format S>() {
      with_element(recipe.format, [&]<Format T>() {
        // What follows is mostly the next row.
        encode_past_caches<S, T>(x, 0, n, multiplier, zero, codes, recipe.streamed,
                                 recipe.ahead != 0 ? recipe.ahead : n * plain_bytes(S));
      });
    });
  }
};

// A row of whole groups of a length in vectors, kLanes of them at once. What cannot be done so goes
// to general(first element, count).
template <Format S, Format T, class General>
HALFTONE_INLINE bool quantize_strips(const Recipe& recipe, int64_t group, const void* x,
                                     int64_t columns, uint8_t* codes, uint8_t* scales,
                                     uint8_t* zeros, const General& general) {
  bool fits = true;
  const int64_t strip = group * kLanes;
  const bool streamed = recipe.streamed && starts_line(codes);
  const auto encode_at = [&](const GroupScales& of, int64_t begin, int count)
      __attribute__((always_inline)) {
    encode_groups<S, T>(of, group, count, x, begin, codes + code_offset(T, begin), streamed,
                        recipe.ahead);
  };
  const int64_t whole = columns / strip * strip;
  GroupScales next = group_scales<S, T>(recipe, x, {0, group});
  for (int64_t begin = 0; begin < whole; begin += strip) {
    // The scales of the next strip come first: their long chain of dependent steps then runs beside
    // the encoding of this one.
    const GroupScales of = next;
    if (begin + strip < whole) next = group_scales<S, T>(recipe, x, {begin + strip, group});
    if (!of.finite) {
      fits &= general(begin, strip);
      continue;
    }
    const int64_t g = begin / group;
    store_scales(recipe.scale_format, scales + g * scale_bytes(recipe.scale_format), of.code);
    if (recipe.asymmetric) store_bytes(zeros + g, bits_as<u32v>(of.zero));
    encode_at(of, begin, kLanes);
  }
  if (whole == columns) return fits;
  const auto count = static_cast<int>((columns - whole) / group);
  const GroupScales of = group_scales<S, T>(recipe, x, {whole, group, count});
  if (!of.finite) return general(whole, columns - whole) && fits;
  uint8_t scale[kLanes * 4], zero[kLanes];
  store_scales(recipe.scale_format, scale, of.code);
  const int64_t g = whole / group, width = scale_bytes(recipe.scale_format);
  std::memcpy(scales + g * width, scale, static_cast<size_t>(count * width));
  if (recipe.asymmetric) {
    store_bytes(zero, bits_as<u32v>(of.zero));
    std::memcpy(zeros + g, zero, static_cast<size_t>(count));
  }
  encode_at(of, whole, count);
  return fits;
}

}  // namespace

bool quantize_row(const Recipe& recipe, Format source, const void* x, int64_t columns,
                  uint8_t* codes, uint8_t* scales, uint8_t* zeros) {
  const auto general = [&](int64_t begin, int64_t n) {
    const int64_t g = recipe.group > 0 ? begin / recipe.group : 0;
    return quantize_row_with<RowOps>(
        recipe, source, static_cast<const char*>(x) + begin * plain_bytes(source), n,
        codes + code_offset(recipe.format, begin), scales + g * scale_bytes(recipe.scale_format),
        zeros + (zeros != nullptr ? g : 0));
  };
  if (recipe.adaptive || recipe.group == 0 || recipe.group % kLanes != 0) {
    return general(0, columns);
  }
  // Few groups are not worth a strip of their own; two of nvfp4 share a vector.
  const int64_t strip = recipe.group * kLanes;
  const bool rest = columns % strip >= strip / 4 && recipe.group % (2 * kLanes) == 0;
  const int64_t unit = rest ? recipe.group : strip;
  const int64_t whole = columns / unit * unit;
  if (columns < strip) return general(0, columns);
  bool fits = true;
  with_source(source, [&]<Format S>() {
    with_element(recipe.format, [&]<Format T>() {
      const auto strips = [&](int64_t group) __attribute__((always_inline)) {
        fits = quantize_strips<S, T>(recipe, group, x, whole, codes, scales, zeros, general);
      };
      // Constants for the groups of one or two vectors, whose loops would cost more than they do.
      if (element_of(T) == Element::e2m1 && recipe.group == 16) {
        strips(16);
      } else if (recipe.group == 32) {
        strips(32);
      } else {
        strips(recipe.group);
      }
    });
  });
  return whole < columns ? general(whole, columns - whole) && fits : fits;
}

}  // namespace halftone::HALFTONE_LEVEL
