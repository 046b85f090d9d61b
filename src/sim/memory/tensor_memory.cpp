#include "sim/memory/tensor_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/execution/collective.h"
#include "sim/memory/cluster_memory.h"
#include "sim/memory/memory.h"

namespace halftone::sim {

namespace {

struct Columns {
  uint32_t first, count;
};

std::string text_of(uint32_t first, uint32_t columns) {
  return "columns " + std::to_string(first) + " to " + std::to_string(first + columns - 1);
}

class AllocationWait final : public Waiting {
 public:
  AllocationWait(const TensorMemory& memory, uint32_t columns, const Site& site)
      : Waiting("tcgen05.alloc", site), memory_(memory), columns_(columns) {}
  const void* key() const override { return &memory_; }
  std::string text() const override {
    std::string text =
        std::to_string(columns_) + " columns of tensor memory, of which none is free";
    for (const TensorMemory::Range& range : memory_.ranges) {
      text += "; " + text_of(range.first, range.columns) + " allocated at " + to_string(range.site);
    }
    return text;
  }

 private:
  const TensorMemory& memory_;
  uint32_t columns_;
};

class PairWait final : public Waiting {
 public:
  PairWait(const char* instruction, const Block& peer, const Site& site)
      : Waiting(instruction, site), peer_(peer) {}
  const void* key() const override { return &peer_; }
  std::string text() const override {
    return "the same instruction of block " + std::to_string(peer_.rank) +
           " of the cluster (cta_group::2)";
  }

 private:
  const Block& peer_;
};

// The first gap of `columns` columns, or kTensorColumns.
uint32_t find_gap(const TensorMemory& memory, uint32_t columns) {
  uint32_t at = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const TensorMemory::Range& range : memory.ranges) {
      if (at < range.first + range.columns && range.first < at + columns) {
        at = range.first + range.columns;
        moved = true;
      }
    }
  }
  return at + columns <= kTensorColumns ? at : kTensorColumns;
}

struct Uniforms {
  uint32_t unused = 0;
};

// All lanes of the warp come together, as the instruction asks.
void converge(const char* instruction, const Site& site, const Uniform& uniform) {
  Uniforms mine;
  warp_collective(
      instruction, kFullMask, mine, [](const Lanes<Uniforms>&) {}, site, uniform);
}

void check_group(Thread& thread, uint32_t group, const char* what, const Site& site) {
  TensorMemory& memory = memory_of(*thread.block).tensor;
  if (memory.group == 0) memory.group = group;
  if (memory.group == group) return;
  report(thread, Level::error, "tmem.cta_group", site, what,
         std::string(what) + " with cta_group::" + std::to_string(group) +
             " after others with cta_group::" + std::to_string(memory.group),
         "one cta_group for all tcgen05 instructions of a kernel");
}

// With cta_group 2 both blocks of the pair must come.
void meet_peer(Thread& thread, uint32_t group, const char* what, const Site& site) {
  if (group != 2) return;
  const uint32_t peer_rank = thread.block->rank ^ 1u;
  if (peer_rank >= cluster_of(thread).block_count) {
    fatal(thread, "tmem.no_pair", site, what,
          std::string(what) + " with cta_group::2 in a cluster of " +
              std::to_string(cluster_of(thread).block_count));
  }
  const Block& peer = cluster_of(thread).blocks[peer_rank];
  TensorMemory& mine = memory_of(*thread.block).tensor;
  TensorMemory& other = memory_of(peer).tensor;
  const uint32_t calls = ++mine.pair_calls;
  mine.queue.wake_all();
  const PairWait waiting(what, peer, site);
  wait_until(other.queue, waiting, [&] { return other.pair_calls >= calls; });
}

}  // namespace

void tensor_alloc(Thread& thread, uint32_t cta_group, uint32_t destination, uint32_t columns,
                  const Site& site) {
  constexpr const char* what = "tcgen05.alloc";
  converge(what, site, {{{"columns", columns}, {"destination", destination}}});
  if (thread.lane == 0) {
    BlockMemory& block = memory_of(*thread.block);
    TensorMemory& memory = block.tensor;
    if (columns < 32 || columns > kTensorColumns || !std::has_single_bit(columns)) {
      fatal(thread, "tmem.columns", site, what,
            "tcgen05.alloc of " + std::to_string(columns) +
                " columns: a power of two from 32 to 512 is needed");
    }
    check_group(thread, cta_group, what, site);
    if (memory.relinquished) {
      report(thread, Level::error, "tmem.relinquished", site, what,
             "tcgen05.alloc after tcgen05.relinquish_alloc_permit",
             "relinquish after the last allocation");
    }
    if (memory.last_columns != 0 && columns > memory.last_columns) {
      report(thread, Level::error, "tmem.increasing", site, what,
             "tcgen05.alloc of " + std::to_string(columns) + " columns after one of " +
                 std::to_string(memory.last_columns) + ": sizes may not grow in a kernel",
             "allocate the largest part first");
    }
    memory.last_columns = columns;
    const uint32_t resident = cluster_of(thread).launch->kernel.min_blocks;
    uint32_t total = columns;
    for (const TensorMemory::Range& range : memory.ranges) total += range.columns;
    if (total * resident > kTensorColumns && resident > 1) {
      report(thread, Level::strict, "tmem.co_resident", site, what,
             std::to_string(resident) +
                 " blocks of this kernel share a multiprocessor, and each "
                 "allocates " +
                 std::to_string(total) + " of 512 columns: one waits for another",
             "fewer columns, or one block a multiprocessor");
    }
    meet_peer(thread, cta_group, what, site);
    const AllocationWait waiting(memory, columns, site);
    wait_until(memory.queue, waiting, [&] { return find_gap(memory, columns) != kTensorColumns; });
    const uint32_t first = find_gap(memory, columns);
    memory.ranges.push_back({first, columns, cta_group, site});
    if (memory.cells.empty()) memory.cells.resize(kTensorLanes * kTensorColumns);
    const bool checking = memory_of(thread).checking;
    if (checking && memory.shadow == nullptr) {
      memory.shadow = std::make_unique<Shadow>(kTensorLanes * kTensorColumns);
    }
    for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
      const uint32_t at = lane * kTensorColumns + first;
      std::fill_n(memory.cells.begin() + at, columns, 0xffffffffu);
      if (checking) memory.shadow->reset(at, columns);
    }
    write_shared(thread, destination, first, site);
  }
  converge(what, site, {});
}

void tensor_dealloc(Thread& thread, uint32_t cta_group, uint32_t address, uint32_t columns,
                    const Site& site) {
  constexpr const char* what = "tcgen05.dealloc";
  converge(what, site, {{{"address", address}, {"columns", columns}}});
  if (thread.lane == 0) {
    TensorMemory& memory = memory_of(*thread.block).tensor;
    ClusterMemory& cluster = memory_of(thread);
    check_group(thread, cta_group, what, site);
    meet_peer(thread, cta_group, what, site);
    const auto found = std::find_if(
        memory.ranges.begin(), memory.ranges.end(),
        [&](const auto& range) { return range.first == address && range.columns == columns; });
    if (found == memory.ranges.end()) {
      fatal(thread, "tmem.dealloc", site, what,
            "tcgen05.dealloc of " + text_of(address, columns) + " (address " + hex(address) +
                "): no allocation is exactly that");
    }
    if (cluster.checking) {
      ThreadState& state = state_of(thread);
      const Access access{&state.ordered, state.component, state.epoch, 0};
      for (uint32_t lane = 0; lane < kTensorLanes; ++lane) {
        for (uint32_t column = address; column < address + columns; ++column) {
          const Cell& cell = (*memory.shadow)[lane * kTensorColumns + column];
          const Stamp* open = nullptr;
          if (cell.writer.component < kSplitWord && cell.writer.component != 0 &&
              !access.after(cell.writer)) {
            open = &cell.writer;
          }
          for (const Stamp& reader : cell.readers) {
            if (reader.component != 0 && !access.after(reader)) open = &reader;
          }
          if (open == nullptr) continue;
          Violation violation;
          violation.rule = "tmem.dealloc_in_use";
          violation.text = "tcgen05.dealloc of " + text_of(address, columns) +
                           " while work on them has not been waited for";
          violation.fix =
              "wait for the last tcgen05 instruction (tcgen05.wait::ld and a barrier, "
              "or the commit's mbarrier) before the deallocation";
          violation.accesses = {
              sim::access(thread, site, what),
              cluster.describe(*open, open == &cell.writer ? Conflict::write_after_write
                                                           : Conflict::write_after_read)};
          report(thread, std::move(violation));
          lane = kTensorLanes;
          break;
        }
      }
    }
    memory.ranges.erase(found);
    memory.queue.wake_all();
  }
  converge(what, site, {});
}

void tensor_relinquish(Thread& thread, uint32_t cta_group, const Site& site) {
  constexpr const char* what = "tcgen05.relinquish_alloc_permit";
  converge(what, site, {});
  if (thread.lane != 0) return;
  check_group(thread, cta_group, what, site);
  memory_of(*thread.block).tensor.relinquished = true;
}

bool check_tensor_window(Thread& thread, uint32_t address, const Site& site) {
  const uint32_t window = (address >> 16) / 32, own = thread.warp->index % 4;
  if (window == own) return true;
  report(thread, Level::error, "tmem.lane_window", site, "tcgen05.ld/st",
         "address " + hex(address) + " names lane " + std::to_string(address >> 16) + "; warp " +
             std::to_string(thread.warp->index) + " may touch lanes " + std::to_string(own * 32) +
             " to " + std::to_string(own * 32 + 31),
         "add 32 * (warp % 4) << 16 to the address");
  return false;
}

// ---- Accesses -----------------------------------------------------------------------------------

namespace {

// False, and a report, when the cells are not allocated.
bool allocated(Agent& agent, Block& block, uint32_t address, uint32_t columns, const char* what,
               const Site& site) {
  const uint32_t lane = address >> 16, column = address & 0xffff;
  const TensorMemory& memory = memory_of(block).tensor;
  if (lane < kTensorLanes && columns <= kTensorColumns && column <= kTensorColumns - columns) {
    for (const TensorMemory::Range& range : memory.ranges) {
      if (column >= range.first && column + columns <= range.first + range.columns) return true;
    }
  }
  const AgentState& state = state_of(agent);
  report(agent, Level::error, "tmem.out_of_allocation",
         state.operation != nullptr ? state.operation->site : site, what,
         std::string(what) + " of tensor memory at " + hex(address) + " (lane " +
             std::to_string(lane) + ", " + text_of(column, columns) +
             "), which the block has not allocated",
         "tcgen05.alloc enough columns, and use the address that it wrote");
  return false;
}

enum class Kind { read, read_to_write, write };

template <Kind kKind>
void check(Agent& agent, Block& block, uint32_t address, uint32_t columns, uint32_t marks,
           const Site& site) {
  AgentState& state = state_of(agent);
  const Operation* work = state.operation;
  Access access{work != nullptr ? &work->tensor : &state.ordered, state.component, state.epoch,
                work != nullptr ? state.memory->site_id(work->site, work->operation.instruction)
                                : state.memory->site_id(site, nullptr)};
  access.ordered_self = work == nullptr || work->in_order;
  const uint32_t at = (address >> 16) * kTensorColumns + (address & 0xffff);
  Shadow& shadow = *memory_of(block).tensor.shadow;
  const auto found = [&](Conflict conflict, uint32_t word, const Stamp& other) {
    const std::string place = "tensor memory lane " + std::to_string(word / kTensorColumns) +
                              " column " + std::to_string(word % kTensorColumns) + " of block " +
                              std::to_string(block.linear);
    state.memory->conflict(agent, conflict, other,
                           std::string(kKind == Kind::write ? "write of " : "read of ") + place,
                           place, work != nullptr ? work->site : site, true);
  };
  if constexpr (kKind == Kind::write) {
    if (marks != 15) {
      shadow.write(at, marks, access, found);
    } else {
      shadow.write_range(at, columns, access, found);
    }
  } else if constexpr (kKind == Kind::read_to_write) {
    shadow.read_range_to_write(at, columns, access, found);
  } else {
    shadow.read_range(at, columns, access, found);
  }
}

uint32_t* cells_at(Block& block, uint32_t address) {
  return memory_of(block).tensor.cells.data() + (address >> 16) * kTensorColumns +
         (address & 0xffff);
}

}  // namespace

void read_tensor(Agent& agent, Block& block, uint32_t address, uint32_t columns, uint32_t* to,
                 const Site& site, bool then_written) {
  if (!allocated(agent, block, address, columns, "read", site)) {
    std::fill_n(to, columns, 0xffffffffu);
    return;
  }
  if (memory_of(agent).checking) {
    if (then_written) {
      check<Kind::read_to_write>(agent, block, address, columns, 15, site);
    } else {
      check<Kind::read>(agent, block, address, columns, 15, site);
    }
  }
  std::memcpy(to, cells_at(block, address), columns * sizeof(uint32_t));
}

void write_tensor(Agent& agent, Block& block, uint32_t address, uint32_t columns,
                  const uint32_t* from, const Site& site) {
  if (!allocated(agent, block, address, columns, "write", site)) return;
  if (memory_of(agent).checking) check<Kind::write>(agent, block, address, columns, 15, site);
  std::memcpy(cells_at(block, address), from, columns * sizeof(uint32_t));
}

void write_tensor_bytes(Agent& agent, Block& block, uint32_t address, uint32_t value, uint32_t mask,
                        const Site& site) {
  if (!allocated(agent, block, address, 1, "write", site)) return;
  if (memory_of(agent).checking) check<Kind::write>(agent, block, address, 1, mask & 15, site);
  uint32_t bits = 0;
  for (uint32_t b = 0; b < 4; ++b) bits |= (mask >> b & 1) != 0 ? 0xffu << 8 * b : 0u;
  uint32_t& cell = *cells_at(block, address);
  cell = (cell & ~bits) | (value & bits);
}

void poison_tensor(Block& block, uint32_t address, uint32_t lanes, uint32_t columns) {
  TensorMemory& memory = memory_of(block).tensor;
  if (memory.cells.empty()) return;
  for (uint32_t lane = address >> 16; lane < std::min((address >> 16) + lanes, kTensorLanes);
       ++lane) {
    for (uint32_t column = address & 0xffff;
         column < std::min((address & 0xffff) + columns, kTensorColumns); ++column) {
      memory.cells[lane * kTensorColumns + column] = 0xffffffffu;
    }
  }
}

}  // namespace halftone::sim
