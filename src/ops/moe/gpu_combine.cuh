// MoE combine on GPUs: the outputs of a token's experts, weighted by routing and added in the order
// of expert index; then the shared expert's output and the residual. A CTA takes the columns of a
// token, four outputs a thread.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "pipe/elements.h"
#include "pipe/fault.h"

namespace halftone {

struct GpuCombineParams {
  const float* down = nullptr;      // [rows, hidden]; rows of the shared expert from `shared` on
  const int32_t* row_of = nullptr;  // [tokens, top_k]; -1: no expert
  // Instead of row_of, for a single token: its expert ids, with the rows in the order of its slots.
  // An id out of range has no row and is reported.
  const int32_t* expert_ids = nullptr;
  uint32_t experts = 0;
  FaultReporter faults;
  const float* weights = nullptr;  // [tokens, top_k]; null: 1
  int64_t weights_row = 0;
  const float* shared_scale = nullptr;  // [tokens]; null: 1
  int64_t shared_step = 0;
  int64_t shared = -1;             // -1: no shared expert
  const char* residual = nullptr;  // [tokens, hidden], may be out; null: none
  int64_t residual_row = 0;        // bytes
  char* out = nullptr;
  int64_t out_row = 0;  // bytes
  uint32_t tokens = 0, top_k = 0, hidden = 0;
  Format format = Format::f32;
};

// A thread's loads for eight experts are in flight at once: a single token waits for memory, not
// for threads.
struct GpuCombine {
  using Params = GpuCombineParams;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr uint32_t kColumns = 4, kSlots = 8;  // of a thread, and in flight at once

  static LaunchShape shape(const Params& p) {
    constexpr uint32_t kEach = kThreads * kColumns;
    return {.grid = {p.tokens, (p.hidden + kEach - 1) / kEach, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = p.top_k * 12};
  }

  HT_DEVICE static int32_t row_of_slot(const Params& p, uint32_t slot, int32_t expert) {
    if (static_cast<uint32_t>(expert) < p.experts) return static_cast<int32_t>(slot);
    if (hw::block_index().y == 0) {
      pipe::report_fault(p.faults, Fault::moe_expert, slot, expert, p.experts);
    }
    return -1;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const uint32_t token = hw::block_index().x, thread = hw::thread_index().x;
    const hw::SharedAddress given = hw::shared_memory_base();
    const hw::SharedAddress rows = given + p.top_k * 4, weights = rows + p.top_k * 4;
    const float scale =
        p.shared_scale != nullptr ? hw::load_global(p.shared_scale + token * p.shared_step) : 1.0f;
    const int32_t* keys =
        p.expert_ids != nullptr ? p.expert_ids : p.row_of + int64_t{token} * p.top_k;
    for (uint32_t s = thread; s < p.top_k; s += kThreads) {
      hw::store_shared(given + s * 4, hw::load_global(keys + s));
    }
    hw::barrier_sync();
    // Rows are sorted by expert: the rank of a slot is the number of smaller rows, or experts.
    for (uint32_t s = thread; s < p.top_k; s += kThreads) {
      const float weight =
          p.weights != nullptr ? hw::load_global(p.weights + token * p.weights_row + s) : 1.0f;
      const auto row = hw::load_shared<int32_t>(given + s * 4);
      uint32_t at = 0;
      for (uint32_t other = 0; other < p.top_k; ++other) {
        const auto o = hw::load_shared<int32_t>(given + other * 4);
        at += o < row || (o == row && other < s) ? 1 : 0;
      }
      hw::store_shared(rows + at * 4, p.expert_ids != nullptr ? row_of_slot(p, s, row) : row);
      hw::store_shared(weights + at * 4, weight);
    }
    hw::barrier_sync();

    const uint32_t first = hw::block_index().y * kThreads * kColumns + thread;
    const auto load = [&](int64_t row, uint32_t column) {
      const uint32_t h = first + column * kThreads;
      return row >= 0 && h < p.hidden ? hw::load_global(p.down + row * p.hidden + h) : 0.0f;
    };
    float sums[kColumns] = {}, residual[kColumns] = {};
    if (p.residual != nullptr) {
      HT_UNROLL
      for (uint32_t c = 0; c < kColumns; ++c) {
        const uint32_t h = first + c * kThreads;
        if (h >= p.hidden) continue;
        residual[c] = pipe::load_element(
            p.format, p.residual + token * p.residual_row + h * pipe::bytes_of(p.format));
      }
    }
    for (uint32_t begin = 0; begin < p.top_k; begin += kSlots) {
      int32_t row[kSlots];
      float parts[kSlots][kColumns];
      HT_UNROLL
      for (uint32_t s = 0; s < kSlots; ++s) {
        row[s] = begin + s < p.top_k ? hw::load_shared<int32_t>(rows + (begin + s) * 4) : -1;
        HT_UNROLL
        for (uint32_t c = 0; c < kColumns; ++c) parts[s][c] = load(row[s], c);
      }
      HT_UNROLL
      for (uint32_t s = 0; s < kSlots; ++s) {
        if (row[s] < 0) continue;
        const auto weight = hw::load_shared<float>(weights + (begin + s) * 4);
        HT_UNROLL
        for (uint32_t c = 0; c < kColumns; ++c) sums[c] += weight * parts[s][c];
      }
    }
    HT_UNROLL
    for (uint32_t c = 0; c < kColumns; ++c) {
      const uint32_t h = first + c * kThreads;
      if (p.shared >= 0) sums[c] += scale * load(p.shared + token, c);
      if (h >= p.hidden) continue;
      if (p.residual != nullptr) sums[c] += residual[c];
      pipe::store_element(p.format, p.out + token * p.out_row + h * pipe::bytes_of(p.format),
                          sums[c]);
    }
  }
};

}  // namespace halftone
