// The table of one ISA level, and its simpler members: maxima, codes of a given scale,
// bands, conversions.
#include "formats/cpu/kernels.h"

#include "formats/cpu/band.h"

namespace halftone::HALFTONE_LEVEL {

uint32_t amax(Format source, const void* x, int64_t n) {
  return with_source(source, [&]<Format S>() { return largest_lane(amax_lanes<S>(x, 0, n)); });
}

void encode(Format source, Format target, const void* x, int64_t n, float multiplier, int zero,
            uint8_t* codes) {
  with_source(source, [&]<Format S>() {
    with_element(target, [&]<Format T>() { encode_run<S, T>(x, 0, n, multiplier, zero, codes); });
  });
}

double squared_error(Format source, Format target, const void* x, int64_t n, float multiplier,
                     int zero, float scale, float tensor_scale) {
  return with_source(source, [&]<Format S>() {
    return with_element(target, [&]<Format T>() {
      return error_run<S, T>(x, n, multiplier, zero, scale, tensor_scale);
    });
  });
}

bool quantize_band(const Recipe& recipe, Format source, const Band& band) {
  return with_source(source, [&]<Format S>() {
    switch (recipe.format) {
      case Format::fp8_e5m2:
        return quantize_band_as<S, Format::fp8_e5m2>(recipe, band);
      case Format::int8:
        return quantize_band_as<S, Format::int8>(recipe, band);
      default:
        return quantize_band_as<S, Format::fp8_e4m3>(recipe, band);
    }
  });
}

void encode_ue8m0(const float* x, int64_t n, bool down, uint8_t* codes) {
  const auto encode = [down](f32v v) __attribute__((always_inline)) {
    const u32v code = down ? encode_ue8m0_down(v) : encode_ue8m0_up(v);
    return narrow_u8(code);
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_raw(codes + i, encode(load<Format::f32>(x, i)));
  if (i == n) return;
  const int left = static_cast<int>(n - i);
  uint8_t bytes[kLanes];
  store_raw(bytes, encode(load_partial<Format::f32>(x, i, left)));
  std::memcpy(codes + i, bytes, static_cast<size_t>(left));
}

void convert(Format source, Format out, const void* x, int64_t n, void* y) {
  with_source(source, [&]<Format S>() {
    with_source(out, [&]<Format O>() {
      int64_t i = 0;
      for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
        __builtin_prefetch(static_cast<const char*>(x) + i * plain_bytes(S) + kAhead);
        store_pair<O>(y, i, load<S>(x, i), load<S>(x, i + kLanes));
      }
      for (; i < n; i += kLanes) {
        const int left = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
        store_partial<O>(y, i, load_partial<S>(x, i, left), left);
      }
    });
  });
}

extern const FormatKernels kFormatKernels;
const FormatKernels kFormatKernels = {amax,         encode,        encode_ue8m0,   squared_error,
                                      quantize_row, quantize_band, dequantize_row, decode_scales,
                                      decode_bf16,  convert};

}  // namespace halftone::HALFTONE_LEVEL
