// Loads, stores and atomics on shared memory.
#include <bit>
#include <cstring>

#include "sim/memory/cluster_memory.h"
#include "sim/memory/memory.h"

namespace halftone::sim {

Place locate(const Agent& agent, uint32_t address, uint32_t bytes, uint32_t alignment,
             const char* what, const Site& site) {
  const uint32_t rank = address >> 24, offset = address & 0xffffff;
  const Cluster& cluster = cluster_of(agent);
  if (rank > cluster.block_count) {
    fatal(agent, "shared.no_such_block", site, what,
          std::string(what) + " at " + hex(address) + ": block " + std::to_string(rank - 1) +
              " of a cluster of " + std::to_string(cluster.block_count));
  }
  const Block& block = rank == 0 ? *agent.block : cluster.blocks[rank - 1];
  BlockMemory& memory = memory_of(block);
  if (offset < memory.base || offset - memory.base > memory.bytes ||
      bytes > memory.bytes - (offset - memory.base)) {
    fatal(agent, "shared.out_of_range", site, what,
          std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex(offset) +
              ": the block has " + std::to_string(memory.bytes) + " bytes of shared memory, from " +
              hex(memory.base) + " on",
          "ask for more shared memory at the launch, or fix the address");
  }
  if (offset % alignment != 0) {
    fatal(agent, "shared.misaligned", site, what,
          std::string(what) + " of " + std::to_string(bytes) + " bytes at " + hex(offset) +
              " must be aligned to " + std::to_string(alignment));
  }
  if (rank != 0 && &block != agent.block && block.exited == block.thread_count &&
      memory_of(agent).checking) {
    report(agent, Level::error, "cluster.peer_exited", site, what,
           std::string(what) + " in the shared memory of block " + std::to_string(rank - 1) +
               " of the cluster, all of whose threads have returned",
           "a cluster barrier at the end of the kernel");
  }
  return {&memory, offset};
}

namespace {

// What an access by `agent` looks like to the shadow of `block`.
Access access_of(const Agent& agent, const AgentState& state, const BlockMemory& block,
                 const Site& site) {
  ClusterMemory& memory = *state.memory;
  if (state.operation == nullptr) {
    return {&state.ordered, state.component, state.epoch, memory.site_id(site, nullptr)};
  }
  Operation& work = *state.operation;
  if (work.access_block == &block) return work.access;
  Access access{&state.ordered, state.component, state.epoch,
                memory.site_id(work.site, work.operation.instruction)};
  access.ordered_self = work.in_order;
  // What signals bytes is known to be done by who waits for the mbarrier in that block.
  if (!work.operation.signals.empty()) {
    const AsyncOperation::Signal* signal = &work.operation.signals[0];
    for (const auto& each : work.operation.signals) {
      const uint32_t rank = each.barrier >> 24;
      const Block& its = rank == 0 ? *agent.block : cluster_of(agent).blocks[rank - 1];
      if (&its == block.block) signal = &each;
    }
    const uint32_t rank = signal->barrier >> 24;
    const Block& its = rank == 0 ? *agent.block : cluster_of(agent).blocks[rank - 1];
    if (const Barrier* barrier = memory_of(its).find(signal->barrier & 0xffffff)) {
      access.component = barrier->component;
      access.epoch = barrier->byte_epoch();
    }
    access.ordered_self = false;
  }
  work.access_block = &block;
  work.access = access;
  return access;
}

std::string say(const char* verb, uint32_t bytes, uint32_t offset) {
  return std::string(verb) + " of " + std::to_string(bytes) + " bytes at " + hex(offset);
}

// The destination was checked and stamped when the work was issued.
bool stamped_at_issue(const Operation& work, const Place& place, uint32_t bytes) {
  for (const Operation::Stamped& range : work.stamped) {
    if (range.block == place.block && place.offset >= range.offset &&
        place.offset + bytes <= range.offset + range.bytes) {
      return true;
    }
  }
  return false;
}

template <bool kWrite>
void check(Agent& agent, const Place& place, uint32_t bytes, bool atomic, const Site& site) {
  AgentState& state = state_of(agent);
  if (kWrite && state.operation != nullptr && stamped_at_issue(*state.operation, place, bytes)) {
    return;
  }
  Access access = access_of(agent, state, *place.block, site);
  access.atomic = atomic;
  Shadow& shadow = *place.block->shadow;
  const auto found = [&](Conflict conflict, uint32_t word, const Stamp& other) {
    state.memory->conflict(agent, conflict, other,
                           say(kWrite ? "write" : "read", bytes, place.offset),
                           "shared memory at " + hex(word * 4) + " of block " +
                               std::to_string(place.block->block->linear),
                           state.operation != nullptr ? state.operation->site : site, false);
  };
  const uint32_t first = place.offset / 4, last = (place.offset + bytes - 1) / 4;
  if (first == last) {
    const uint32_t marks = ((1u << bytes) - 1) << place.offset % 4;
    if constexpr (kWrite) {
      shadow.write(first, marks, access, found);
    } else {
      shadow.read(first, marks, access, found);
    }
    return;
  }
  if (place.offset % 4 != 0 || bytes % 4 != 0) {  // engines' byte-granular pieces
    for (uint32_t word = first; word <= last; ++word) {
      const uint32_t from = std::max(place.offset, word * 4);
      const uint32_t to = std::min(place.offset + bytes, word * 4 + 4);
      const uint32_t marks = ((1u << (to - from)) - 1) << from % 4;
      if constexpr (kWrite) {
        shadow.write(word, marks, access, found);
      } else {
        shadow.read(word, marks, access, found);
      }
    }
    return;
  }
  if constexpr (kWrite) {
    shadow.write_range(first, last - first + 1, access, found);
  } else {
    shadow.read_range(first, last - first + 1, access, found);
  }
}

Place locate_access(const Agent& agent, uint32_t address, uint32_t bytes, const char* what,
                    const Site& site) {
  const bool engine = state_of(const_cast<Agent&>(agent)).operation != nullptr;
  const uint32_t alignment = engine ? 1 : bytes <= 16 ? std::bit_floor(bytes) : 4;
  return locate(agent, address, bytes, alignment, what, site);
}

uint64_t flag_key(const Place& place) {
  return uint64_t{place.block->block->rank} << 32 | place.offset | uint64_t{1} << 63;
}

}  // namespace

void Operation::stamp_destination(const Place& place, uint32_t bytes) {
  check<true>(agent, place, bytes, false, site);
  stamped.push_back({place.block, place.offset, bytes});
}

uint32_t shared_memory_base(const Block& block) { return memory_of(block).base; }
uint32_t shared_memory_bytes(const Block& block) { return memory_of(block).bytes; }

uint32_t map_shared_rank(const Thread& thread, uint32_t address, uint32_t rank, const Site& site) {
  const Cluster& cluster = cluster_of(thread);
  if (rank >= cluster.block_count) {
    fatal(thread, "shared.no_such_block", site, "mapa",
          "mapa to block " + std::to_string(rank) + " of a cluster of " +
              std::to_string(cluster.block_count));
  }
  return (rank + 1) << 24 | (address & 0xffffff);
}

uint32_t shared_rank(const Agent& agent, uint32_t address) {
  return address >> 24 == 0 ? agent.block->rank : (address >> 24) - 1;
}

namespace {

// A thread's access of up to 16 bytes to its own block: where most time goes. Null: the long way.
BlockMemory* plain_access(const Agent& agent, const AgentState& state, uint32_t address,
                          uint32_t bytes) {
  auto* block = static_cast<BlockMemory*>(agent.block->memory);
  const bool plain = state.operation == nullptr && address >= block->base &&
                     uint64_t{address} + bytes <= uint64_t{block->base} + block->bytes &&
                     std::has_single_bit(bytes) && bytes <= 16 && (address & (bytes - 1)) == 0;
  return plain ? block : nullptr;
}

template <bool kWrite>
void check_plain(Agent& agent, AgentState& state, BlockMemory& block, uint32_t address,
                 uint32_t bytes, const Site& site) {
  const Access access{&state.ordered, state.component, state.epoch,
                      state.memory->site_id(site, nullptr)};
  const auto found = [&](Conflict conflict, uint32_t word, const Stamp& other) {
    state.memory->conflict(
        agent, conflict, other, say(kWrite ? "write" : "read", bytes, address),
        "shared memory at " + hex(word * 4) + " of block " + std::to_string(block.block->linear),
        site, false);
  };
  Shadow& shadow = *block.shadow;
  const uint32_t first = address / 4;
  const uint32_t marks = bytes >= 4 ? 15 : ((1u << bytes) - 1) << address % 4;
  for (uint32_t word = first; word < first + (bytes + 3) / 4; ++word) {
    if constexpr (kWrite) {
      shadow.write(word, marks, access, found);
    } else {
      shadow.read(word, marks, access, found);
    }
  }
}

}  // namespace

void read_shared(Agent& agent, uint32_t address, void* to, uint32_t bytes, const Site& site) {
  if (bytes == 0) return;
  AgentState& state = state_of(agent);
  if (BlockMemory* block = plain_access(agent, state, address, bytes)) {
    if (state.memory->checking) check_plain<false>(agent, state, *block, address, bytes, site);
    std::memcpy(to, block->shared.data() + address, bytes);
    return;
  }
  const Place place = locate_access(agent, address, bytes, "read of shared memory", site);
  if (memory_of(agent).checking) check<false>(agent, place, bytes, false, site);
  std::memcpy(to, place.block->shared.data() + place.offset, bytes);
}

void write_shared(Agent& agent, uint32_t address, const void* from, uint32_t bytes,
                  const Site& site) {
  if (bytes == 0) return;
  AgentState& state = state_of(agent);
  if (BlockMemory* block = plain_access(agent, state, address, bytes)) {
    if (state.memory->checking) check_plain<true>(agent, state, *block, address, bytes, site);
    std::memcpy(block->shared.data() + address, from, bytes);
    return;
  }
  const Place place = locate_access(agent, address, bytes, "write of shared memory", site);
  if (memory_of(agent).checking) check<true>(agent, place, bytes, false, site);
  std::memcpy(place.block->shared.data() + place.offset, from, bytes);
}

namespace {

// Knowledge that goes with a location that threads synchronise through.
void acquire_flag(ClusterMemory& memory, Thread& thread, uint64_t key, Order order) {
  const auto found = memory.flags.find(key);
  if (found == memory.flags.end()) return;
  ThreadState& state = state_of(thread);
  const Knowledge knowledge = found->second.knowledge();
  if (order == Order::acquire || order == Order::acq_rel) {
    memory.acquire(state, knowledge);
  } else {
    Knowledge& reads = state.relaxed_reads;
    reads.generic = memory.joiner.join(reads.generic, knowledge.generic);
    reads.async = memory.joiner.join(reads.async, knowledge.async);
    reads.tensor = memory.joiner.join(reads.tensor, knowledge.tensor);
  }
}

void release_flag(ClusterMemory& memory, Thread& thread, uint64_t key, Order order) {
  ThreadState& state = state_of(thread);
  if (order == Order::release || order == Order::acq_rel) {
    memory.release(state, memory.flags[key]);
  } else if (state.fenced.generic) {
    memory.flags[key].add(memory.joiner, state.fenced);
  }
}

}  // namespace

// Loops that poll a location must let others run; loops that do not, should not pay for it.
void poll(Agent& agent, const Site& site) {
  AgentState& state = state_of(agent);
  if (state.operation != nullptr || &agent != &self()) return;
  if (++static_cast<ThreadState&>(state).polls % 8 == 0) spin(site);
}

void read_flag(Agent& agent, uint64_t key, Order order) {
  ClusterMemory& memory = memory_of(agent);
  if (!memory.checking || state_of(agent).operation != nullptr) return;
  acquire_flag(memory, *agent.thread, key, order);
}

void write_flag(Agent& agent, uint64_t key, Order order) {
  ClusterMemory& memory = memory_of(agent);
  if (!memory.checking || state_of(agent).operation != nullptr) return;
  release_flag(memory, *agent.thread, key, order);
}

void read_shared_ordered(Agent& agent, uint32_t address, void* to, uint32_t bytes, Order order,
                         MemoryScope, const Site& site) {
  const Place place = locate_access(agent, address, bytes, "read of shared memory", site);
  if (memory_of(agent).checking) check<false>(agent, place, bytes, true, site);
  std::memcpy(to, place.block->shared.data() + place.offset, bytes);
  read_flag(agent, flag_key(place), order);
  poll(agent, site);
}

void write_shared_ordered(Agent& agent, uint32_t address, const void* from, uint32_t bytes,
                          Order order, MemoryScope, const Site& site) {
  const Place place = locate_access(agent, address, bytes, "write of shared memory", site);
  write_flag(agent, flag_key(place), order);
  if (memory_of(agent).checking) check<true>(agent, place, bytes, true, site);
  std::memcpy(place.block->shared.data() + place.offset, from, bytes);
}

void atomic_shared(Agent& agent, uint32_t address, uint32_t bytes, Order order, MemoryScope,
                   AtomicUpdate update, const Site& site) {
  const Place place = locate_access(agent, address, bytes, "atomic on shared memory", site);
  if (memory_of(agent).checking) {
    check<false>(agent, place, bytes, true, site);
    write_flag(agent, flag_key(place), order);
    check<true>(agent, place, bytes, true, site);
  }
  update(place.block->shared.data() + place.offset);
  read_flag(agent, flag_key(place), order);
  poll(agent, site);
}

}  // namespace halftone::sim
