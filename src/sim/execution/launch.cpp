#include "sim/execution/launch.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "sim/counter_state.h"
#include "sim/execution/execution.h"
#include "sim/execution/scheduler.h"
#include "sim/memory/memory_model.h"
#include "sim/report.h"
#include "sim/sink.h"

namespace halftone::sim {

namespace {

// Everything a cluster needs; used for one cluster after another.
struct Slot {
  explicit Slot(FiberPool& pool) : scheduler(pool) {}

  Cluster cluster;
  Scheduler scheduler;
  std::unique_ptr<MemoryModel> memory = MemoryModel::create();
  ClusterCounters counters;
  std::vector<Block> blocks;
  std::vector<std::unique_ptr<ExecutionState>> states;
  std::vector<Warp> warps;
  std::vector<Thread> threads;

  void begin(Launch& launch, uint64_t index);
};

Dim3 position(uint64_t linear, const Dim3& extent) {
  return {static_cast<uint32_t>(linear % extent.x),
          static_cast<uint32_t>(linear / extent.x % extent.y),
          static_cast<uint32_t>(linear / extent.x / extent.y)};
}

void Slot::begin(Launch& launch, uint64_t index) {
  const LaunchShape& shape = launch.shape;
  const Dim3 clusters{shape.grid.x / shape.cluster.x, shape.grid.y / shape.cluster.y,
                      shape.grid.z / shape.cluster.z};
  const auto block_count = static_cast<uint32_t>(shape.cluster.count());
  const auto thread_count = static_cast<uint32_t>(shape.block.count());
  const uint32_t warp_count = (thread_count + 31) / 32;
  cluster = {};
  cluster.launch = &launch;
  cluster.index = index;
  cluster.position = position(index, clusters);
  cluster.block_count = block_count;
  cluster.scheduler = &scheduler;
  cluster.memory = memory.get();
  cluster.counters = &counters;
  counters.enabled = launch.options.counters;
  blocks.assign(block_count, {});
  warps.assign(size_t{block_count} * warp_count, {});
  threads.assign(size_t{block_count} * thread_count, {});
  while (states.size() < block_count) states.push_back(std::make_unique<ExecutionState>());
  cluster.blocks = blocks.data();
  for (uint32_t b = 0; b < block_count; ++b) {
    Block& block = blocks[b];
    block.cluster = &cluster;
    block.rank = b;
    const Dim3 inside = position(b, shape.cluster);
    block.index = {cluster.position.x * shape.cluster.x + inside.x,
                   cluster.position.y * shape.cluster.y + inside.y,
                   cluster.position.z * shape.cluster.z + inside.z};
    block.linear = block.index.x + uint64_t{shape.grid.x} *
                                       (block.index.y + uint64_t{shape.grid.y} * block.index.z);
    block.thread_count = thread_count;
    block.warp_count = warp_count;
    block.threads = &threads[size_t{b} * thread_count];
    block.warps = &warps[size_t{b} * warp_count];
    block.state = states[b].get();
    for (uint32_t w = 0; w < warp_count; ++w) {
      Warp& warp = block.warps[w];
      const uint32_t lanes = std::min(32u, thread_count - 32 * w);
      warp.block = &block;
      warp.index = w;
      warp.threads = block.threads + size_t{32} * w;
      warp.present = warp.ready = lanes == 32 ? kFullMask : (1u << lanes) - 1;
    }
    for (uint32_t t = 0; t < thread_count; ++t) {
      Thread& thread = block.threads[t];
      thread.block = &block;
      thread.thread = &thread;
      thread.warp = &block.warps[t / 32];
      thread.index = t;
      thread.lane = t % 32;
      thread.position = position(t, shape.block);
    }
  }
  for (Block& block : blocks) reset_execution(block);
  memory->begin(cluster);
  scheduler.begin(cluster);
}

constexpr uint64_t kBusy = ~uint64_t{0} - 1, kGone = ~uint64_t{0};

// Turns of a worker through its polling clusters without any change, after which they hang: more
// than a kernel's own delay loops take. The fewer when many clusters make a turn long.
constexpr size_t kIdleTurns = 10000, kLeastIdleTurns = 1000;

// What the workers of a launch share.
struct Grid {
  Launch& launch;
  uint64_t clusters;
  uint64_t capacity;  // clusters that the chip holds at a time
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> resident{0};
  std::atomic<uint64_t> progress{0};  // counts whatever may let a polling loop end
  // Of each worker: the progress at which it found all its clusters polling, or kBusy, kGone.
  std::vector<std::atomic<uint64_t>> idle_at;
  std::mutex mutex;
  SimulatorCounters counters;
  std::exception_ptr error;
};

// Stacks and slots of one OS thread, kept from launch to launch.
struct Store {
  FiberPool fibers;
  std::vector<std::unique_ptr<Slot>> slots;

  std::unique_ptr<Slot> take() {
    if (slots.empty()) return std::make_unique<Slot>(fibers);
    std::unique_ptr<Slot> slot = std::move(slots.back());
    slots.pop_back();
    return slot;
  }
  void give(std::unique_ptr<Slot> slot) {
    constexpr size_t kKept = 16;
    if (slots.size() < kKept) slots.push_back(std::move(slot));
  }
};

Store& store() {
  thread_local Store one;
  return one;
}

class Worker {
 public:
  Worker(Grid& grid, int number) : grid_(grid), number_(number) {}

  void run() {
    grid_.idle_at[number_].store(kBusy);
    try {
      work();
    } catch (...) {
      grid_.launch.stopped.store(true);
      const std::lock_guard lock(grid_.mutex);
      if (!grid_.error) grid_.error = std::current_exception();
    }
    // After a stop: whatever is still parked unwinds.
    for (std::unique_ptr<Slot>& slot : parked_) {
      slot->scheduler.run();
      done(std::move(slot));
    }
    grid_.idle_at[number_].store(kGone);
    const std::lock_guard lock(grid_.mutex);
    add_counters(grid_.counters, counters_);
  }

 private:
  void work() {
    size_t idle_turns = 0;
    while (!grid_.launch.stopped.load(std::memory_order_relaxed)) {
      if (start()) {
        idle_turns = 0;
        continue;
      }
      if (parked_.empty() && grid_.next.load() >= grid_.clusters) return;
      const uint64_t before = grid_.progress.load();
      turn();
      if (grid_.progress.load() != before) {
        idle_turns = 0;
        grid_.idle_at[number_].store(kBusy);
        continue;
      }
      grid_.idle_at[number_].store(before);
      const bool all = std::all_of(grid_.idle_at.begin(), grid_.idle_at.end(), [&](auto& at) {
        const uint64_t value = at.load();
        return value == before || value == kGone;
      });
      if (!all) {
        idle_turns = 0;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else if (!parked_.empty() && ++idle_turns > most_idle_turns()) {
        hang();
        return;
      }
    }
  }

  size_t most_idle_turns() const { return std::max(kIdleTurns / parked_.size(), kLeastIdleTurns); }

  // Begins the next cluster if there is one and the chip has room for it.
  bool start() {
    if (grid_.next.load() >= grid_.clusters) return false;
    if (grid_.resident.fetch_add(1) >= grid_.capacity) {
      grid_.resident.fetch_sub(1);
      return false;
    }
    const uint64_t index = grid_.next.fetch_add(1);
    if (index >= grid_.clusters) {
      grid_.resident.fetch_sub(1);
      return false;
    }
    std::unique_ptr<Slot> slot = store().take();
    slot->begin(grid_.launch, index);
    grid_.progress.fetch_add(1);
    if (run(*slot)) {
      done(std::move(slot));
    } else {
      parked_.push_back(std::move(slot));
    }
    return true;
  }

  // Lets every parked cluster poll once more.
  void turn() {
    for (size_t i = 0; i < parked_.size();) {
      if (!run(*parked_[i])) {
        ++i;
        continue;
      }
      done(std::move(parked_[i]));
      parked_.erase(parked_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  // True when the cluster has ended.
  bool run(Slot& slot) {
    const uint64_t before = slot.scheduler.activity();
    const Scheduler::Outcome outcome = slot.scheduler.run();
    if (slot.scheduler.activity() != before) grid_.progress.fetch_add(1);
    return outcome != Scheduler::Outcome::parked;
  }

  void done(std::unique_ptr<Slot> slot) {
    slot->counters.flush();
    slot->counters.steps = slot->scheduler.steps();
    if (slot->counters.enabled) add_counters(counters_, slot->counters.result());
    slot->counters.clear();
    store().give(std::move(slot));
    grid_.resident.fetch_sub(1);
    grid_.progress.fetch_add(1);
  }

  void hang() {
    if (grid_.launch.stopped.exchange(true)) return;
    Slot& slot = *parked_.front();
    const uint64_t started = std::min(grid_.next.load(), grid_.clusters);
    std::string cause = concat(
        "every thread of the grid that could run polls, and nothing changes (",
        grid_.resident.load(), grid_.resident.load() == 1 ? " cluster" : " clusters", " polling");
    if (started < grid_.clusters) {
      cause +=
          concat(", ", grid_.clusters - started, " of ", grid_.clusters,
                 " clusters not started because the chip holds ", grid_.capacity, " at a time");
    }
    cause += "); the first of them:";
    grid_.launch.sink.add(hang_violation(slot.cluster, slot.scheduler, std::move(cause)));
  }

  Grid& grid_;
  size_t number_;
  std::vector<std::unique_ptr<Slot>> parked_;
  SimulatorCounters counters_;
};

// Clusters the chip holds at a time, by shared memory, threads, registers and blocks.
uint64_t capacity(const KernelImage& kernel, const LaunchShape& shape, const Chip& chip) {
  const auto threads = static_cast<uint32_t>((shape.block.count() + 31) / 32 * 32);
  uint32_t blocks = std::min(chip.blocks_per_sm, chip.threads_per_sm / threads);
  blocks = std::min(blocks, chip.shared_per_sm / (shape.shared_bytes + chip.shared_reserved));
  blocks = std::min(blocks, chip.registers_per_sm / (launch_registers(kernel, chip) * threads));
  const uint64_t all = uint64_t{std::max(blocks, 1u)} * chip.sm_count;
  return std::max<uint64_t>(all / shape.cluster.count(), 1);
}

}  // namespace

uint32_t launch_registers(const KernelImage& kernel, const Chip& chip) {
  const uint32_t threads = (std::max(kernel.threads, 1u) + 31) / 32 * 32;
  const uint32_t most = chip.registers_per_sm / (threads * std::max(kernel.min_blocks, 1u));
  return std::clamp(most / 8 * 8, 24u, 256u);
}

LaunchResult run_grid(const KernelImage& kernel, const LaunchShape& shape, const void* params,
                      Arch arch, const SimulatorOptions& options, ThreadPool& pool) {
  const LaunchGuard guard;
  const Chip& chip = sim::chip(arch);
  ReportSink sink;
  Launch launch{kernel, shape, params, chip, options, sink, launch_registers(kernel, chip)};
  Grid grid{.launch = launch,
            .clusters = shape.grid.count() / shape.cluster.count(),
            .capacity = capacity(kernel, shape, chip),
            .idle_at = std::vector<std::atomic<uint64_t>>(size_t(pool.size())),
            .mutex = {},
            .counters = {},
            .error = nullptr};
  for (auto& at : grid.idle_at) at.store(kGone);
  if (options.counters) forget_touched();
  const auto work = [&](int number) { Worker(grid, number).run(); };
  if (grid.clusters == 1) {
    work(0);
  } else {
    pool.run(work);
  }
  if (grid.error) std::rethrow_exception(grid.error);
  return {sink.take(), std::move(grid.counters)};
}

uint32_t sm_index() {
  const Thread& me = self();
  return static_cast<uint32_t>(me.block->linear % launch_of(me).chip.sm_count);
}

uint64_t clock_now() { return cluster_of(self()).scheduler->steps(); }

}  // namespace halftone::sim
