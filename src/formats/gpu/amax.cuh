// The largest element of whole tensors, and the scales that follow from it.
#pragma once
#include "formats/gpu/encode.cuh"
#include "hw/griddep.h"
#include "pipe/row_threads.h"

namespace halftone {

// Raises largest[matrix] to the bits of the largest |x|: a grid of threads along x and the matrices
// along y. Of matrices without gaps between their rows, one row is enough.
struct AmaxParams {
  Rows x;  // rows of all matrices
  Format source;
  int64_t rows, columns;  // of a matrix
  bool finite;            // NaN and infinity are left out; else a NaN is above everything
  uint32_t* largest;
};

template <pipe::Access kAccess>
struct AmaxGpu {
  using Params = AmaxParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 4;
  static constexpr uint32_t kEights = kAccess == pipe::Access::any ? 1 : 4;  // under way at a time

  HT_DEVICE static uint32_t largest_of(uint32_t a, uint32_t b) { return a > b ? a : b; }
  // Of 16 bits two elements at a time; 0 times what is not finite is a NaN, which max leaves out.
  HT_DEVICE static uint32_t largest(const pipe::Eight<kAccess>& eight, Format source, bool finite) {
    if constexpr (kAccess == pipe::Access::bf16 || kAccess == pipe::Access::f16) {
      constexpr Format kFormat = pipe::format_of(kAccess, Format::f32);
      constexpr hw::Type kType = kFormat == Format::bf16 ? hw::Type::bf16x2 : hw::Type::f16x2;
      const auto words = std::bit_cast<hw::Words4>(eight);
      uint32_t pair = 0;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t two = words[i] & 0x7fff7fff;
        pair = finite ? hw::max_pair<kType>(pair, hw::fma_pair<kType>(two, 0, two))
                      : hw::max_nan_pair<kType>(pair, two);
      }
      float low, high;
      pipe::widen_pair(kFormat, pair, low, high);
      return largest_of(magnitude(low), magnitude(high));
    } else {
      float x[8];
      eight.widen(source, x);
      uint32_t most = 0;
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) {
        const uint32_t bits = magnitude(x[k]);
        if (bits < kInfinityBits || !finite) most = largest_of(most, bits);
      }
      return most;
    }
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const int64_t eights = (p.columns + 7) / 8, count = p.rows * eights;
    const int64_t first_row = int64_t{hw::block_index().y} * p.rows;
    const int64_t step = int64_t{kThreads} * hw::grid_size().x;
    uint32_t most = 0;
    for (int64_t begin = int64_t{kThreads} * hw::block_index().x + hw::thread_index().x;
         begin < count; begin += step * kEights) {
      pipe::Eight<kAccess> read[kEights];
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) {
        const int64_t n = begin + i * step;
        if (n >= count) continue;
        const int64_t row = p.rows == 1 ? 0 : n / eights, first = (n - row * eights) * 8;
        read[i].load(p.source, p.x[first_row + row], {first, first + 4}, p.columns);
      }
      HT_UNROLL
      for (uint32_t i = 0; i < kEights; ++i) {
        most = largest_of(most, largest(read[i], p.source, p.finite));
      }
    }
    pipe::RowThreads threads(kThreads);
    most = threads.reduce(most, largest_of);
    if (hw::thread_index().x == 0) {
      hw::reduce_global<hw::Atomic::max>(p.largest + hw::block_index().y, most);
    }
  }
};

// Turns largest elements, in the places of f32 scales, into the scales: of matrices, or nvfp4's
// tensor scale. One block.
struct TensorScaleGpu {
  struct Params {
    Recipe recipe;
    uint32_t* scales;
    int64_t count;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    for (int64_t i = hw::thread_index().x; i < p.count; i += kThreads) {
      Recipe recipe = p.recipe;
      const float most = std::bit_cast<float>(hw::load_global(p.scales + i));
      uint32_t code = 0;
      if (has_tensor_scale(recipe.format)) {
        set_tensor_amax(most, &recipe);
        code = std::bit_cast<uint32_t>(recipe.tensor_scale);
      } else {
        code = BlockRange{most}.scale(recipe).scale.code;
      }
      hw::store_global(p.scales + i, code);
    }
  }
};

}  // namespace halftone
