// Implicit-GEMM convolution on the CPU (no im2col matrix), compiled for every ISA level. A tile is
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
constexpr int kTiles = 8;        // of a unit: their accumulators take a third of L1
constexpr int kFewTerms = 256;   // whose x, 4 to 5 lines for three taps, fits L1
constexpr int kBlockTerms = 64;  // terms of a partial sum, added to the sum before it

HALFTONE_INLINE int bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

// Few outputs a group (depthwise): tiles of one.
HALFTONE_INLINE int tile_outputs(const Conv1dArgs& a) {
  return a.outputs * 2 > kOutputs ? kOutputs : 1;
}
HALFTONE_INLINE int64_t output_tiles(const Conv1dArgs& a) {
  return (a.outputs + tile_outputs(a) - 1) / tile_outputs(a);
}
// A unit is tiles of positions for one tile of outputs, where x of a tile fits L1, and tiles of
// outputs of one group for the same positions where it does not.
HALFTONE_INLINE int64_t unit_outputs(const Conv1dArgs& a) {
  int64_t count = a.channels * a.kernel <= kFewTerms ? 1 : kTiles;
  while (count > output_tiles(a)) count /= 2;
  return count;
}
HALFTONE_INLINE int64_t unit_positions(const Conv1dArgs& a) { return kTiles / unit_outputs(a); }
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

// The taps of a group in the order of their weights: where each finds x for the first output, from
// the group's converted x on. Phase and offset are stepped rather than divided for.
class Taps {
 public:
  HALFTONE_INLINE explicit Taps(const Conv1dArgs& a) : a_(a) {
    const int64_t shift = floor_div(-a.padding, a.stride);
    first_phase_ = phase_ = -a.padding - shift * a.stride;
    first_place_ = place_ = a.lead + shift;
  }
  HALFTONE_INLINE int64_t next() {
    const int64_t at = channel_ + phase_ * a_.width + place_;
    phase_ += phase_step_, place_ += place_step_;
    if (phase_ >= a_.stride) phase_ -= a_.stride, ++place_;
    if (++tap_ == a_.kernel) {
      tap_ = 0, phase_ = first_phase_, place_ = first_place_;
      channel_ += a_.stride * a_.width;
    }
    return at;
  }

 private:
  const Conv1dArgs& a_;
  const int64_t phase_step_ = a_.dilation % a_.stride, place_step_ = a_.dilation / a_.stride;
  int64_t first_phase_, first_place_, phase_, place_, channel_ = 0, tap_ = 0;
};

// total [Outputs, kPositions] += weights x of `terms` taps.
template <int Outputs>
HALFTONE_INLINE void add_block(const float* x, const int64_t* taps, int64_t terms, const float* w,
                               float* total) {
  f32v sum[Outputs][kVectors] = {};
  for (int64_t i = 0; i < terms; ++i, w += Outputs) {
    f32v values[kVectors];
    for (int v = 0; v < kVectors; ++v) values[v] = load_raw<f32v>(x + taps[i] + v * kLanes);
    for (int o = 0; o < Outputs; ++o) {
      const f32v weight = broadcast(w[o]);
      for (int v = 0; v < kVectors; ++v) sum[o][v] = fma(weight, values[v], sum[o][v]);
    }
  }
  for (int o = 0; o < Outputs; ++o) {
    for (int v = 0; v < kVectors; ++v) {
      float* to = total + o * kPositions + v * kLanes;
      store_raw(to, load_raw<f32v>(to) + sum[o][v]);
    }
  }
}

HALFTONE_INLINE float bias_of(const Conv1dArgs& a, int64_t output) {
  float value[1];
  const int bytes = bytes_of(a.bias_format);
  return *read_run(a.bias_format, a.bias + output * bytes, bytes, 1, value);
}

// Outputs [first, first + count) of a group, from `position` on.
void finish(const Conv1dArgs& a, int64_t group, int64_t first, int64_t count, int64_t position,
            float* totals) {
  const int64_t left = a.out_length - position;
  const int positions = left < kPositions ? static_cast<int>(left) : kPositions;
  for (int64_t o = 0; o < count && first + o < a.outputs; ++o) {
    const int64_t channel = group * a.outputs + first + o;
    float* y = totals + o * kPositions;
    const f32v bias = broadcast(a.bias != nullptr ? bias_of(a, channel) : 0.0f);
    with_activation(
        a.activation.kind, [&]<Activation Kind>() __attribute__((always_inline)) {
          for (int i = 0; i < kPositions; i += kLanes) {
            store_raw(y + i, activate<Kind, false>(load_raw<f32v>(y + i) + bias, a.activation));
          }
        });
    write_run(a.out_format, a.out + channel * a.out_channel + position * a.out_step, a.out_step,
              positions, y);
  }
}

// Many terms go block by block through all tiles of a unit, so that their x stays in L1, where it
// would come from L2 or L3 for every tile.
void multiply(const Conv1dArgs& a, int64_t unit) {
  alignas(64) float totals[kTiles * kOutputs * kPositions] = {};
  int64_t taps[kFewTerms];
  const int64_t terms = a.channels * a.kernel, rows = tile_outputs(a), tiles = output_tiles(a);
  const int64_t of_unit = unit_outputs(a), of_group = (tiles + of_unit - 1) / of_unit;
  const int64_t which = unit % (of_group * a.groups), group = which / of_group;
  const int64_t first_tile = which % of_group * of_unit;
  const int64_t first = unit / (of_group * a.groups) * unit_positions(a) * kPositions;
  const float* weights = a.packed + (group * tiles + first_tile) * terms * rows;
  const float* x = a.expanded + group * a.channels * a.stride * a.width;
  // f(tile of outputs, position, its totals) for the tiles of the unit.
  const auto each_tile = [&](auto f) __attribute__((always_inline)) {
    for (int64_t i = 0; i < kTiles; ++i) {
      const int64_t tile = i % of_unit, position = first + i / of_unit * kPositions;
      if (first_tile + tile < tiles && position < a.out_length) {
        f(tile, position, totals + i * rows * kPositions);
      }
    }
  };
  Taps tap(a);
  const int64_t span = terms <= kFewTerms ? kFewTerms : kBlockTerms;
  for (int64_t i = 0; i < terms; i += span) {
    const int64_t some = terms - i < span ? terms - i : span;
    for (int64_t k = 0; k < some; ++k) taps[k] = tap.next();
    each_tile([&](int64_t tile, int64_t position, float* total) __attribute__((always_inline)) {
      const float* w = weights + (tile * terms + i) * rows;
      for (int64_t k = 0; k < some; k += kBlockTerms) {
        const int64_t count = some - k < kBlockTerms ? some - k : kBlockTerms;
        if (rows == 1) {
          add_block<1>(x + position, taps + k, count, w + k, total);
        } else {
          add_block<kOutputs>(x + position, taps + k, count, w + k * kOutputs, total);
        }
      }
    });
  }
  each_tile([&](int64_t tile, int64_t position, float* total) {
    finish(a, group, (first_tile + tile) * rows, rows, position, total);
  });
}

}  // namespace

void conv1d_units(const Conv1dArgs& args, Conv1dStep step, int64_t begin, int64_t end,
                  Conv1dTile* layout) {
  if (layout != nullptr) {
    *layout = {tile_outputs(args), unit_outputs(args), unit_positions(args) * kPositions};
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
