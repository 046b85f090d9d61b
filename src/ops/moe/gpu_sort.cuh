// MoE permutation on GPUs: token slots sorted by expert (stable), and the M-chunks of the grouped
// GEMMs, all on the device without a host synchronisation. A CTA an expert.
#pragma once
#include "base/launch.h"
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "hw/bits.h"
#include "hw/griddep.h"
#include "hw/thread.h"
#include "hw/vote.h"
#include "ops/gemm/sm80/params.h"
#include "pipe/fault.h"

namespace halftone {

// A list of M-chunks for a GEMM whose tiles take `rows` rows.
struct MChunks {
  gemm::MChunk* chunks = nullptr;
  uint32_t* count = nullptr;
  uint32_t rows = 1;
};

struct GpuSortParams {
  const int32_t* expert_ids =
      nullptr;  // [tokens, top_k]; an id out of range has no row and is reported
  int64_t chosen_row = 0;
  const float* weights = nullptr;  // routing weights of the slots, to be permuted, or null
  int64_t weights_row = 0;
  uint32_t tokens = 0, top_k = 0, experts = 0;
  int32_t* token_of = nullptr;  // [rows]
  int32_t* row_of = nullptr;    // [tokens, top_k]; -1: none
  float* row_weights = nullptr;
  FaultReporter faults;
  MChunks in, out;  // of the GEMMs into the experts' intermediate and out of it
};

// A CTA for each expert: all count the slots of all experts, and place those of their own.
struct GpuSort {
  using Params = GpuSortParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1, kWarps = kThreads / 32;

  static LaunchShape shape(const Params& p) {
    return {.grid = {p.experts, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = (p.experts + kWarps) * 4};
  }

  HT_DEVICE static uint32_t expert_of(const Params& p, uint32_t slot,
                                      hw::Site site = hw::Site::current()) {
    return static_cast<uint32_t>(
        hw::load_global(p.expert_ids + slot / p.top_k * p.chosen_row + slot % p.top_k, site));
  }
  // The sum over the CTA, broadcast to all threads.
  HT_DEVICE static uint32_t block_sum(hw::SharedAddress scratch, uint32_t x,
                                      hw::Site site = hw::Site::current()) {
    HT_UNROLL
    for (uint32_t d = 16; d > 0; d /= 2) x += hw::shuffle_xor(x, d, 32, hw::kFullWarp, site);
    if (hw::lane_index() == 0) hw::store_shared(scratch + hw::warp_index() * 4, x, site);
    hw::barrier_sync(site);
    uint32_t sum = 0;
    for (uint32_t w = 0; w < kWarps; ++w) sum += hw::load_shared<uint32_t>(scratch + w * 4, site);
    hw::barrier_sync(site);
    return sum;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const uint32_t thread = hw::thread_index().x, expert = hw::block_index().x;
    const uint32_t slots = p.tokens * p.top_k;
    const hw::SharedAddress counts = hw::shared_memory_base(), scratch = counts + p.experts * 4;
    for (uint32_t e = thread; e < p.experts; e += kThreads) hw::store_shared(counts + e * 4, 0u);
    hw::barrier_sync();
    for (uint32_t slot = thread; slot < slots; slot += kThreads) {
      const uint32_t e = expert_of(p, slot);
      if (e < p.experts) {
        hw::reduce_shared<hw::Atomic::add>(counts + e * 4, 1u);
      } else if (expert == 0) {
        hw::store_global(p.row_of + slot, -1);
        pipe::report_fault(p.faults, Fault::moe_expert, slot, static_cast<int32_t>(e), p.experts);
      }
    }
    hw::barrier_sync();
    uint32_t before = 0, in = 0, out = 0;
    for (uint32_t e = thread; e < expert; e += kThreads) {
      const auto count = hw::load_shared<uint32_t>(counts + e * 4);
      before += count;
      in += chunks_of(count, p.in), out += chunks_of(count, p.out);
    }
    const auto count = hw::load_shared<uint32_t>(counts + expert * 4);
    const uint32_t first = block_sum(scratch, before);
    write_chunks(p.in, p.experts, block_sum(scratch, in), first, count);
    write_chunks(p.out, p.experts, block_sum(scratch, out), first, count);

    uint32_t row = first;
    for (uint32_t begin = 0; begin < slots; begin += kThreads) {
      const uint32_t slot = begin + thread;
      const bool mine = slot < slots && expert_of(p, slot) == expert;
      const uint32_t lanes = hw::vote_ballot(mine);
      if (hw::lane_index() == 0) {
        hw::store_shared(scratch + hw::warp_index() * 4, hw::popc(lanes));
      }
      hw::barrier_sync();
      uint32_t at = row + hw::popc(lanes & ((1u << hw::lane_index()) - 1));
      for (uint32_t w = 0; w < kWarps; ++w) {
        const auto found = hw::load_shared<uint32_t>(scratch + w * 4);
        row += found;
        if (w < hw::warp_index()) at += found;
      }
      if (mine) place(p, slot, at);
      hw::barrier_sync();
    }
    if (expert + 1 < p.experts) return;
    // Rows without a slot get a valid index: they are copied, and their results are not used.
    for (uint32_t r = row + thread; r < slots; r += kThreads) hw::store_global(p.token_of + r, 0);
  }

  HT_DEVICE static uint32_t chunks_of(uint32_t count, const MChunks& list) {
    return (count + list.rows - 1) / list.rows;
  }
  // The chunks of the CTA's expert, from index `index` of the list on.
  HT_DEVICE static void write_chunks(const MChunks& list, uint32_t experts, uint32_t index,
                                     uint32_t first, uint32_t count) {
    const uint32_t expert = hw::block_index().x, chunks = chunks_of(count, list);
    for (uint32_t i = hw::thread_index().x; i < chunks; i += kThreads) {
      const uint32_t done = i * list.rows, left = count - done;
      hw::store_global(
          list.chunks + index + i,
          gemm::MChunk{static_cast<int32_t>(expert), static_cast<int32_t>(first + done),
                       static_cast<int32_t>(left < list.rows ? left : list.rows), 0});
    }
    if (expert + 1 == experts && hw::thread_index().x == 0) {
      hw::store_global(list.count, index + chunks);
    }
  }
  HT_DEVICE static void place(const Params& p, uint32_t slot, uint32_t row) {
    const uint32_t token = slot / p.top_k;
    hw::store_global(p.token_of + row, static_cast<int32_t>(token));
    hw::store_global(p.row_of + slot, static_cast<int32_t>(row));
    if (p.row_weights == nullptr) return;
    hw::store_global(p.row_weights + row,
                     hw::load_global(p.weights + token * p.weights_row + slot % p.top_k));
  }
};

}  // namespace halftone
