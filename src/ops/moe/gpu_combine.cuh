// The results of a token's experts, weighted and added in the order of the experts; then the shared
// expert's. A block takes a token.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "pipe/elements.h"

namespace halftone {

struct GpuCombineParams {
  const float* down = nullptr;      // [rows, hidden]; rows of the shared expert from `shared` on
  const int32_t* row_of = nullptr;  // [tokens, top_k]; -1: no expert
  const float* weights = nullptr;   // [tokens, top_k]; null: 1
  int64_t weights_row = 0;
  const float* shared_scale = nullptr;  // [tokens]; null: 1
  int64_t shared_step = 0;
  int64_t shared = -1;  // -1: there is none
  char* out = nullptr;
  int64_t out_row = 0;  // bytes
  uint32_t tokens = 0, top_k = 0, hidden = 0;
  Format format = Format::f32;
};

struct GpuCombine {
  using Params = GpuCombineParams;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  static LaunchShape shape(const Params& p) {
    return {.grid = {p.tokens, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = p.top_k * 8};
  }

  HT_DEVICE static void run(const Params& p) {
    hw::take_turns();
    const uint32_t token = hw::block_index().x, thread = hw::thread_index().x;
    const hw::SharedAddress rows = hw::shared_memory_base(), weights = rows + p.top_k * 4;
    // Rows are sorted by expert: the place of a slot is the number of smaller rows.
    for (uint32_t s = thread; s < p.top_k; s += kThreads) {
      const int32_t* all = p.row_of + int64_t{token} * p.top_k;
      const int32_t row = hw::load_global(all + s);
      uint32_t at = 0;
      for (uint32_t other = 0; other < p.top_k; ++other) {
        const int32_t o = hw::load_global(all + other);
        at += o < row || (o == row && other < s) ? 1 : 0;
      }
      const float weight =
          p.weights != nullptr ? hw::load_global(p.weights + token * p.weights_row + s) : 1.0f;
      hw::store_shared(rows + at * 4, row);
      hw::store_shared(weights + at * 4, weight);
    }
    hw::barrier_sync();
    const float scale =
        p.shared_scale != nullptr ? hw::load_global(p.shared_scale + token * p.shared_step) : 1.0f;
    for (uint32_t h = thread; h < p.hidden; h += kThreads) {
      float sum = 0;
      for (uint32_t s = 0; s < p.top_k; ++s) {
        const auto row = hw::load_shared<int32_t>(rows + s * 4);
        if (row < 0) continue;
        sum += hw::load_shared<float>(weights + s * 4) *
               hw::load_global(p.down + int64_t{row} * p.hidden + h);
      }
      if (p.shared >= 0) {
        sum += scale * hw::load_global(p.down + (p.shared + token) * p.hidden + h);
      }
      pipe::store_element(p.format, p.out + token * p.out_row + h * pipe::bytes_of(p.format), sum);
    }
  }
};

}  // namespace halftone
