// The M-chunks of a grouped GEMM whose counts are in device memory (contiguous or masked layout),
// and the addresses of the groups' matrices. A CTA a group.
#pragma once
#include "ops/moe/gpu_sort.cuh"

namespace halftone {

struct GpuGroupsParams {
  const int32_t* counts = nullptr;
  int64_t count_step = 0;
  uint32_t groups = 0, rows = 0;  // in all
  uint32_t slots = 0;             // masked layout: rows of a group; 0: contiguous layout
  gemm::GpuSource first;          // the matrix of the first group, and bytes to the next
  int64_t data_step = 0, scale_step = 0, zero_step = 0;
  gemm::GpuSource* sources = nullptr;
  MChunks chunks;
  FaultReporter faults;
};

// A CTA for each group, each of which sums up the counts of all.
struct GpuGroups {
  using Params = GpuGroupsParams;
  static constexpr uint32_t kThreads = GpuSort::kThreads, kMinBlocks = 1;
  static constexpr uint32_t kSharedBytes = GpuSort::kWarps * 4;

  static LaunchShape shape(const Params& p) {
    return {.grid = {p.groups, 1, 1},
            .block = {kThreads, 1, 1},
            .cluster = {},
            .shared_bytes = kSharedBytes};
  }

  HT_DEVICE static uint32_t count_of(const Params& p, uint32_t group) {
    const auto count = static_cast<uint32_t>(hw::load_global(p.counts + group * p.count_step));
    return count <= (p.slots > 0 ? p.slots : p.rows) ? count : 0;
  }

  HT_DEVICE static void run(const Params& p) {
    hw::launch_dependents_and_wait();
    const uint32_t thread = hw::thread_index().x, group = hw::block_index().x;
    const hw::SharedAddress scratch = hw::shared_memory_base();
    uint32_t before = 0, index = 0, all = 0;
    for (uint32_t g = thread; g < p.groups; g += kThreads) {
      const uint32_t count = count_of(p, g);
      all = all + count <= p.rows ? all + count : p.rows + 1;  // sums of many counts overflow
      if (g >= group) continue;
      before += count, index += GpuSort::chunks_of(count, p.chunks);
    }
    before = GpuSort::block_sum(scratch, before);
    index = GpuSort::block_sum(scratch, index);
    all = GpuSort::block_sum(scratch, all);
    const bool fits = p.slots > 0 || all <= p.rows;
    const uint32_t count = fits ? count_of(p, group) : 0;
    const uint32_t first = p.slots > 0 ? group * p.slots : before;
    GpuSort::write_chunks(p.chunks, p.groups, fits ? index : 0, first, count);
    if (thread != 0) return;
    gemm::GpuSource source = p.first;
    source.data += group * p.data_step;
    if (source.scales != nullptr) source.scales += group * p.scale_step;
    if (source.zeros != nullptr) source.zeros += group * p.zero_step;
    gemm::store_source(p.sources + group, source);
    const int32_t given = hw::load_global(p.counts + group * p.count_step);
    if (!fits || static_cast<uint32_t>(given) != count) {
      pipe::report_fault(p.faults, Fault::group_count, group, given,
                         p.slots > 0 ? p.slots : p.rows);
    }
  }
};

}  // namespace halftone
