// Inside the memory model: what it keeps for a cluster, a block, a thread and a piece of
// asynchronous work. Only the sources of the memory model include this.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/execution/arrivals.h"
#include "sim/execution/clock.h"
#include "sim/execution/schedule.h"
#include "sim/memory/async.h"
#include "sim/memory/memory_model.h"
#include "sim/memory/order.h"
#include "sim/memory/shadow.h"
#include "sim/memory/tensor_memory.h"
#include "sim/report.h"

namespace halftone::sim {

class ClusterMemory;
struct BlockMemory;
struct Barrier;
class Operation;
struct GridState;
struct Standing;
struct Allocation;

// Whose accesses a component counts.
struct ComponentInfo {
  enum class Kind : uint8_t {
    none,
    thread,
    cp_async,
    bulk,
    bytes,
    wgmma,
    tensor_mma,
    tensor_cp,
    tensor_ld,
    tensor_st
  };
  Kind kind = Kind::none;
  const Thread* thread = nullptr;    // the thread, or one of those that issue
  const Barrier* barrier = nullptr;  // bytes: the one that is signalled
};

// Work of one owner in one engine, numbered from 1.
struct Pipeline {
  Component component = 0;
  ComponentInfo::Kind kind = ComponentInfo::Kind::none;
  uint32_t issued = 0;
  uint32_t done = 0;                 // all up to here have run
  std::vector<uint32_t> done_early;  // beyond it
  WaitQueue queue;
  // That all up to `waited_for` are done, as a clock; threads share it.
  ClockRef waited;
  uint32_t waited_for = 0;
  void finish(uint32_t number);
};

// Groups of one waiter: number of the last piece of work of each.
struct Groups {
  std::vector<uint32_t> ends;
  uint32_t waited = 0;  // all up to here are known to be done
};

// Registers that hold NaN until they are waited for.
struct Fragment {
  uint8_t* data;
  uint32_t bytes;
  Pipeline* pipeline;
  uint32_t last;  // number of the last work that uses them
  bool written;
  std::shared_ptr<std::vector<uint8_t>> values;
  Site site;
  const char* instruction;
};

// Behind Agent::clock.
struct AgentState {
  ClusterMemory* memory = nullptr;
  Operation* operation = nullptr;  // null: a thread
  Component component = 0;
  uint32_t epoch = 1;
  View ordered;  // what its accesses to shared memory must come after, in its proxy
};

struct ThreadState : AgentState {
  Thread* thread = nullptr;
  // `ordered` is the generic proxy's knowledge.
  ClockRef async;            // what asynchronous work issued now may build on
  uint32_t async_epoch = 0;  // own accesses among it: up to the last fence.proxy.async
  ClockRef tensor_known,
      tensor_seen;  // tcgen05 work that its tcgen05 work may build on; without a fence
  // fence.acq_rel: what relaxed stores release, what relaxed loads have read.
  Knowledge fenced;
  uint32_t fenced_epoch = 0, fenced_async = 0;
  Knowledge relaxed_reads;
  Pipeline cp_async, bulk, tensor;  // tensor: mma, shift, cp, in order
  Component tensor_cp = 0;          // component of tcgen05.cp; the pipeline's is mma's
  Groups cp_async_groups, bulk_groups, wgmma_groups;
  std::vector<Fragment> fragments;
  // Registers as wgmma last saw them, and the fences up to then.
  struct SeenRegisters {
    const void* data;
    uint64_t hash;
    uint32_t fences;
  };
  std::vector<SeenRegisters> wgmma_registers;
  uint32_t wgmma_fences = 0;
  std::vector<std::pair<const Barrier*, uint64_t>> last_waits;  // phase last waited for
  uint32_t polls = 0;  // atomics and ordered loads since others last ran
};

struct Barrier final {
  Barrier(BlockMemory& b, uint32_t a) : block(b), address(a) {}
  BlockMemory& block;
  uint32_t address;  // offset in its block
  bool live = false;
  uint64_t phase = 0;  // being filled
  uint32_t expected = 0;
  int64_t pending = 0, bytes = 0;
  Component component = 0;   // of bytes signalled
  uint32_t epoch_base = 0;   // + phase + 1 is the epoch of bytes in `phase`
  Epoch init;                // when, by whom it was made
  bool init_fenced = false;  // fence.mbarrier_init
  uint64_t fenced_at = 0;    // cluster barriers its thread had arrived at then
  Site init_site;
  bool observed = true;  // the phase before was waited for
  bool broken = false;   // a report says why it will not complete
  Accumulator local, remote;
  Knowledge done_local, done_remote;
  std::vector<Operation*> in_flight;
  std::vector<std::pair<std::string, uint32_t>> arrived_bytes;  // this phase: operation, bytes
  uint64_t expected_bytes = 0;                                  // this phase
  WaitQueue queue;
  Arrivals arrivals;
  std::string name;
  std::string text() const;  // "mbarrier full[2] (0x440)"
  uint32_t byte_epoch() const { return epoch_base + static_cast<uint32_t>(phase) + 1; }
};

// Tensor memory of a block; the allocator's state is shared by the blocks of a multiprocessor.
struct TensorMemory {
  std::vector<uint32_t> cells;  // lane-major
  std::unique_ptr<Shadow> shadow;
  struct Range {
    uint32_t first, columns, group;
    Site site;
  };
  std::vector<Range> ranges;
  bool relinquished = false;
  uint32_t last_columns = 0;
  uint32_t group = 0;       // cta_group in use
  uint32_t pair_calls = 0;  // allocations and deallocations with cta_group 2
  WaitQueue queue;
};

struct BlockMemory {
  Block* block = nullptr;
  uint32_t base = 0, bytes = 0;
  std::vector<uint8_t> shared;  // from address 0 on
  std::unique_ptr<Shadow> shadow;
  std::unordered_map<uint32_t, std::unique_ptr<Barrier>> barriers;
  std::vector<Pipeline> wgmma;                 // of each warpgroup
  std::vector<Pipeline> tensor_ld, tensor_st;  // of each warp
  TensorMemory tensor;
  Barrier* find(uint32_t offset);
};

class ClusterMemory final : public MemoryModel {
 public:
  void begin(Cluster&) override;
  void thread_exit(Thread&) override;
  void block_exit(Block&) override;
  void end(Cluster&) override;
  void abandon(Cluster&) override;
  void release(Thread&, SyncPoint&, Scope) override;
  void release_fenced(Thread&, SyncPoint&) override;
  void acquire(Thread&, SyncPoint&, Scope) override;
  void reset(SyncPoint&) override;
  void warp_sync(Warp&, uint32_t mask) override;

  Component new_component(ComponentInfo);
  const ComponentInfo& component(Component c) const { return components_[c]; }
  uint32_t site_id(const Site& site, const char* instruction) {
    uint64_t bits;
    static_assert(sizeof(Site) >= sizeof bits);
    std::memcpy(&bits, &site, sizeof bits);
    const uint64_t hash =
        (bits ^ reinterpret_cast<uintptr_t>(instruction) << 20) * 0x9e3779b97f4a7c15ull;
    SiteSlot& slot = site_slots_[hash >> 56];
    if (sizeof(Site) == sizeof bits && slot.bits == bits && slot.instruction == instruction &&
        slot.id != 0) {
      return slot.id;
    }
    slot = {bits, instruction, find_site(site, instruction)};
    return slot.id;
  }

  // The thread's accesses up to now become part of `into`; later ones will not be.
  void release(ThreadState&, Accumulator& into);
  void acquire(ThreadState&, const Knowledge&);
  // As a piece of knowledge.
  Knowledge release(ThreadState&);

  struct SiteEntry {
    Site site;
    const char* instruction = nullptr;
  };
  const SiteEntry& site(uint32_t id) const { return sites_[id]; }

  // Reports an access that is not in order after `other`, or of an uninitialised word. `what` says
  // which access ("read of 16 bytes at 0x440").
  void conflict(Agent&, Conflict, const Stamp& other, const std::string& what,
                const std::string& place, const Site&, bool tensor);
  SimulatorAccess describe(const Stamp&, Conflict) const;

  Cluster* cluster = nullptr;
  bool checking = false, strict = false;
  std::vector<std::unique_ptr<BlockMemory>> blocks;
  std::vector<ThreadState> threads;
  ClockJoiner joiner;
  std::unordered_map<uint64_t, Accumulator> flags;  // knowledge at ordered and atomic locations
  // Global memory: this cluster among the others (global_access.cpp).
  std::shared_ptr<GridState> grid;  // null: one cluster, nobody to race with
  std::shared_ptr<Standing> standing;
  Allocation* recent[4] = {};

 private:
  std::vector<ComponentInfo> components_;
  std::vector<SiteEntry> sites_;
  // A call's location is one object: its bytes are enough to know it again.
  struct SiteSlot {
    uint64_t bits = 0;
    const char* instruction = nullptr;
    uint32_t id = 0;
  };
  std::array<SiteSlot, 256> site_slots_;
  std::unordered_map<uint64_t, uint32_t> reported_;  // by rule and sites
  struct Point {
    Accumulator released;
    Knowledge knowledge;  // of `released`, while `fresh`
    bool fresh = false;
  };
  std::vector<std::unique_ptr<Point>> points_;
  Point& point_of(SyncPoint&);
  uint32_t find_site(const Site&, const char* instruction);
  void clear();
};

inline AgentState& state_of(Agent& agent) { return *static_cast<AgentState*>(agent.clock); }
inline ThreadState& state_of(Thread& thread) { return *static_cast<ThreadState*>(thread.clock); }
inline ClusterMemory& memory_of(const Agent& agent) {
  return *static_cast<ClusterMemory*>(cluster_of(agent).memory);
}
inline BlockMemory& memory_of(const Block& block) {
  return *static_cast<BlockMemory*>(block.memory);
}

// A shared address taken apart.
struct Place {
  BlockMemory* block;
  uint32_t offset;
};
// Fatal when `bytes` from `address` are not shared memory, or not aligned.
Place locate(const Agent&, uint32_t address, uint32_t bytes, uint32_t alignment, const char* what,
             const Site&);
std::string hex(uint64_t);
// Inside shared_access.cpp: knowledge that goes with a location (key) that threads synchronise by,
// and giving way in polling loops.
void read_flag(Agent&, uint64_t key, Order);
void write_flag(Agent&, uint64_t key, Order);
void poll(Agent&, const Site&);

// A piece of asynchronous work on its way.
class Operation final : public AsyncWork {
 public:
  Operation(Issuers, AsyncOperation&&, const Site&);
  bool ready() const override { return !in_order || pipeline->done + 1 == number; }
  void run() override;
  std::string text() const override;

  AsyncOperation operation;
  Agent agent;
  AgentState state;
  View happened;                 // before it, whatever the proxy
  View tensor, tensor_seen;      // tcgen05: as in ThreadState
  uint32_t issuer_epoch = 0;     // accesses of the issuer up to here came before
  Pipeline* pipeline = nullptr;  // null: completes by bytes alone
  uint32_t number = 0;
  uint32_t issuers = 1;
  bool in_order = false;
  Site site;
  std::vector<std::shared_ptr<std::vector<uint8_t>>> values;  // of its registers
  // Destinations whose words carry its stamp since it was issued: whoever touches them before its
  // completion is waited for is found when he does.
  struct Stamped {
    const BlockMemory* block;
    uint32_t offset, bytes;
  };
  std::vector<Stamped> stamped;
  void stamp_destination(const Place&, uint32_t bytes);
  // Its accesses to the shared memory of the block it last touched.
  const BlockMemory* access_block = nullptr;
  Access access{};
};

// Inside mbarrier.cpp.
void complete_bytes(Agent&, uint32_t barrier, uint32_t bytes, Operation*, const Site&);
// An arrival by asynchronous work that brings `knowledge`.
void arrive_async(Agent&, uint32_t barrier, const Accumulator& knowledge, const Site&);
// Inside tensor_memory.cpp: NaN until the work that writes it has run.
void poison_tensor(Block&, uint32_t address, uint32_t lanes, uint32_t columns);
Barrier* live_barrier(Agent&, uint32_t address, const char* what, const Site&);
// Use by asynchronous work issued by `thread`: initialisation must be visible to it.
void check_barrier_visible(Thread&, Barrier&, bool async, const char* what, const Site&);

}  // namespace halftone::sim
