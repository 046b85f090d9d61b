// Convolution as a product without its matrix of windows, once per instruction level. A tile is
// some outputs by three vectors of positions: per tap three loads of x and one broadcast an output
// feed 3 x outputs multiply-adds, more than the two loads a cycle need.
#include "ops/conv/kernels.h"
#include "simd/activate.h"
#include "simd/blocks.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

#if defined(__AVX512F__)
constexpr int kOutputs = 8;  // 24 of 32 registers
#else
constexpr int kOutputs = 4;  // 12 of 16
#endif
constexpr int kVectors = 3;
constexpr int kPositions = kVectors * kLanes;
constexpr int kTiles = 4;  // of positions in a unit, over which the weights of a tile are reused
constexpr int kBlockTerms = 64;  // of a sum that then joins the sum before it

HALFTONE_INLINE int bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

// Few outputs a group (depthwise): tiles of one.
HALFTONE_INLINE int tile_outputs(const Conv1dArgs& a) {
  return a.outputs * 2 > kOutputs ? kOutputs : 1;
}
HALFTONE_INLINE int64_t output_tiles(const Conv1dArgs& a) {
  return (a.outputs + tile_outputs(a) - 1) / tile_outputs(a);
}
HALFTONE_INLINE int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

void expand(const Conv1dArgs& a, int64_t channel) {
  alignas(64) float buffer[kRun];
  const char* x = a.x + channel * a.x_channel;
  for (int64_t phase = 0; phase < a.stride; ++phase) {
    float* to = a.expanded + (channel * a.stride + phase) * a.width;
    const int64_t inside = phase < a.length ? (a.length - phase + a.stride - 1) / a.stride : 0;
    const int64_t count = inside < a.width - a.lead ? inside : a.width - a.lead;
    std::memset(to, 0, static_cast<size_t>(a.lead) * sizeof(float));
    for (int64_t j = 0; j < count; j += kRun) {
      const int n = count - j < kRun ? static_cast<int>(count - j) : kRun;
      const float* run = read_run(a.x_format, x + (j * a.stride + phase) * a.x_step,
                                  a.stride * a.x_step, n, buffer);
      std::memcpy(to + a.lead + j, run, static_cast<size_t>(n) * sizeof(float));
    }
    const int64_t end = a.lead + (count > 0 ? count : 0);
    std::memset(to + end, 0, static_cast<size_t>(a.width - end) * sizeof(float));
  }
}

void pack(const Conv1dArgs& a, int64_t unit) {
  alignas(64) float buffer[kRun];
  const int64_t terms = a.channels * a.kernel, rows = tile_outputs(a), tiles = output_tiles(a);
  const int64_t group = unit / tiles, first = unit % tiles * rows;
  float* to = a.packed + unit * terms * rows;
  const int bytes = bytes_of(a.weight_format);
  for (int64_t r = 0; r < rows; ++r) {
    const bool present = first + r < a.outputs;
    const char* from = a.weight + (group * a.outputs + first + r) * terms * bytes;
    for (int64_t i = 0; i < terms; i += kRun) {
      const int n = terms - i < kRun ? static_cast<int>(terms - i) : kRun;
      const float* run =
          present ? read_run(a.weight_format, from + i * bytes, bytes, n, buffer) : nullptr;
      for (int k = 0; k < n; ++k) to[(i + k) * rows + r] = present ? run[k] : 0.0f;
    }
  }
}

template <int Outputs>
HALFTONE_INLINE void tile(const Conv1dArgs& a, int64_t group, const float* weights, int64_t first,
                          float* out) {
  f32v sum[Outputs][kVectors] = {}, total[Outputs][kVectors] = {};
  int terms = 0;
  const auto join = [&]() __attribute__((always_inline)) {
    for (int o = 0; o < Outputs; ++o) {
      for (int v = 0; v < kVectors; ++v) total[o][v] += sum[o][v], sum[o][v] = f32v{};
    }
    terms = 0;
  };
  const int64_t shift = floor_div(-a.padding, a.stride);
  const int64_t first_phase = -a.padding - shift * a.stride, first_place = a.lead + shift + first;
  const int64_t phase_step = a.dilation % a.stride, place_step = a.dilation / a.stride;
  const float* w = weights;
  for (int64_t c = 0; c < a.channels; ++c) {
    const float* channel = a.expanded + (group * a.channels + c) * a.stride * a.width;
    // Phase and place of a tap, stepped rather than divided for.
    int64_t phase = first_phase, place = first_place;
    for (int64_t k = 0; k < a.kernel; ++k) {
      const float* x = channel + phase * a.width + place;
      f32v values[kVectors];
      for (int v = 0; v < kVectors; ++v) values[v] = load_raw<f32v>(x + v * kLanes);
      for (int o = 0; o < Outputs; ++o) {
        const f32v weight = broadcast(w[o]);
        for (int v = 0; v < kVectors; ++v) sum[o][v] = fma(weight, values[v], sum[o][v]);
      }
      w += Outputs;
      if (++terms == kBlockTerms) join();
      phase += phase_step;
      place += place_step;
      if (phase >= a.stride) phase -= a.stride, ++place;
    }
  }
  join();
  for (int o = 0; o < Outputs; ++o) {
    for (int v = 0; v < kVectors; ++v) store_raw(out + o * kPositions + v * kLanes, total[o][v]);
  }
}

HALFTONE_INLINE float bias_of(const Conv1dArgs& a, int64_t output) {
  float value[1];
  const int bytes = bytes_of(a.bias_format);
  return *read_run(a.bias_format, a.bias + output * bytes, bytes, 1, value);
}

void multiply(const Conv1dArgs& a, int64_t unit) {
  alignas(64) float tiles[kOutputs * kPositions];
  const int64_t of_group = output_tiles(a), of_all = of_group * a.groups;
  const int64_t rows = tile_outputs(a), which = unit % of_all, group = which / of_group;
  const float* weights = a.packed + which * a.channels * a.kernel * rows;
  for (int t = 0; t < kTiles; ++t) {
    const int64_t first = (unit / of_all * kTiles + t) * kPositions;
    if (first >= a.out_length) return;
    if (rows == 1) {
      tile<1>(a, group, weights, first, tiles);
    } else {
      tile<kOutputs>(a, group, weights, first, tiles);
    }
    const int64_t output = which % of_group * rows;
    const int count =
        a.out_length - first < kPositions ? static_cast<int>(a.out_length - first) : kPositions;
    for (int64_t o = 0; o < rows && output + o < a.outputs; ++o) {
      const int64_t channel = group * a.outputs + output + o;
      float* y = tiles + o * kPositions;
      const f32v bias = broadcast(a.bias != nullptr ? bias_of(a, channel) : 0.0f);
      with_activation(
          a.activation.kind, [&]<Activation Kind>() __attribute__((always_inline)) {
            for (int i = 0; i < kPositions; i += kLanes) {
              store_raw(y + i, activate<Kind, false>(load_raw<f32v>(y + i) + bias, a.activation));
            }
          });
      write_run(a.out_format, a.out + channel * a.out_channel + first * a.out_step, a.out_step,
                count, y);
    }
  }
}

}  // namespace

void conv1d_units(const Conv1dArgs& args, Conv1dStep step, int64_t begin, int64_t end,
                  Conv1dTile* layout) {
  if (layout != nullptr) {
    *layout = {tile_outputs(args), kTiles * kPositions};
    return;
  }
  for (int64_t unit = begin; unit < end; ++unit) {
    switch (step) {
      case Conv1dStep::expand:
        expand(args, unit);
        break;
      case Conv1dStep::pack:
        pack(args, unit);
        break;
      case Conv1dStep::multiply:
        multiply(args, unit);
        break;
    }
  }
}

}  // namespace halftone::HALFTONE_LEVEL
