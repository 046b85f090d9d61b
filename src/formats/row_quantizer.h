// Quantises a row group by group with the primitives of one ISA level.
#pragma once
#include <cstring>

#include "formats/recipe.h"

namespace halftone {

HALFTONE_CODEC int scale_bytes(Format format) {
  switch (format) {
    case Format::f32:
      return 4;
    case Format::f16:
    case Format::bf16:
      return 2;
    default:
      return 1;
  }
}
HALFTONE_CODEC void store_scale(Format format, uint8_t* scales, int64_t i, uint32_t code) {
  switch (scale_bytes(format)) {
    case 4:
      std::memcpy(scales + i * 4, &code, 4);
      break;
    case 2: {
      const auto half = static_cast<uint16_t>(code);
      std::memcpy(scales + i * 2, &half, 2);
      break;
    }
    default:
      scales[i] = static_cast<uint8_t>(code);
  }
}
HALFTONE_CODEC uint32_t load_scale(Format format, const void* scales, int64_t i) {
  const auto* bytes = static_cast<const uint8_t*>(scales) + i * scale_bytes(format);
  uint32_t code = 0;
  switch (scale_bytes(format)) {
    case 4:
      std::memcpy(&code, bytes, 4);
      break;
    case 2:
      std::memcpy(&code, bytes, 2);
      break;
    default:
      code = *bytes;
  }
  return code;
}
HALFTONE_CODEC float read_scale(Format format, const void* scale) {
  return decode_scale(format, load_scale(format, scale, 0));
}
HALFTONE_CODEC int plain_bytes(Format format) { return format == Format::f32 ? 4 : 2; }

// Ops: amax, range, encode_block, squared_error as in vector_kernels.cpp. The recipe and the
// source format are best constants, so that one copy per format remains.
template <class Ops>
inline __attribute__((always_inline)) bool quantize_row_with(const Recipe& recipe, Format source,
                                                             const void* x, int64_t columns,
                                                             uint8_t* codes, uint8_t* scales,
                                                             uint8_t* zeros) {
  const int64_t group = recipe.group > 0 ? recipe.group : columns;
  bool fits = true;
  for (int64_t begin = 0, g = 0; begin < columns; begin += group, ++g) {
    const int64_t n = group < columns - begin ? group : columns - begin;
    const void* from = static_cast<const char*>(x) + begin * plain_bytes(source);
    uint8_t* to = codes + code_offset(recipe.format, begin);
    const uint32_t amax = Ops::amax(source, from, n);
    if (amax >= kInfinityBits) {
      std::memset(to, 0, static_cast<size_t>(packed_bytes(recipe.format, n)));
      store_scale(recipe.scale_format, scales, g, poisoned_scale(recipe).code);
      if (recipe.asymmetric) zeros[g] = 0;
      continue;
    }
    float low = 0, high = 0;
    ZeroPoint best{{}, kInt4Zero};
    if (recipe.asymmetric) {
      Ops::range(source, from, n, &low, &high);
      best = asymmetric_scale(recipe, low, high);
    } else {
      best.scale = block_scale(recipe, amax);
    }
    if (recipe.adaptive && amax != 0) {
      const auto error_of = [&](const ZeroPoint& candidate) __attribute__((always_inline)) {
        return Ops::squared_error(source, recipe.format, from, n, candidate.scale.multiplier,
                                  candidate.zero, candidate.scale.value, recipe.tensor_scale);
      };
      const ZeroPoint first = best;
      double least = error_of(best);
      for (int i = 0; i < alternatives(recipe); ++i) {
        ZeroPoint other{{}, kInt4Zero};
        if (recipe.asymmetric) {
          other = asymmetric_scale(recipe, low * scale_factor(i), high * scale_factor(i));
        } else {
          other.scale = alternative(recipe, first.scale, i);
        }
        const double error = error_of(other);
        if (error < least) least = error, best = other;
      }
    }
    fits &= best.scale.value < bits_float(kInfinityBits);
    store_scale(recipe.scale_format, scales, g, best.scale.code);
    if (recipe.asymmetric) zeros[g] = static_cast<uint8_t>(best.zero);
    Ops::encode_block(recipe, source, from, n, best.scale.multiplier, best.zero, to);
  }
  return fits;
}

}  // namespace halftone
