// Asynchronous work: cp.async, bulk and tensor copies, st.async, wgmma, tcgen05.
//
// The body of such an instruction makes an AsyncOperation and issues it. Its effect runs once,
// later, at a moment the schedule picks, at the latest when somebody waits for its completion:
//   sim::AsyncOperation copy(sim::Engine::bulk, "cp.async.bulk.shared::cluster.global");
//   copy.complete_bytes(barrier, bytes);
//   copy.writes_shared(destination, bytes);        // NaN until the effect has run
//   copy.effect = [=](sim::Agent& agent) { ... read_global(agent, ...); write_shared(agent, ...);
//   }; sim::issue(sim::self(), std::move(copy), site);
// Checks follow from the accesses its agent makes: everything it touches must be ordered before
// the issue (in its proxy), and whoever touches it later must have waited for its completion.
//
// Waiting is a thread's: these functions may sleep, so do not call them inside a collective's model
// (run the collective first, for its checks, then let every lane wait).
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "sim/execution/thread.h"

namespace halftone::sim {

enum class Engine : uint8_t {
  cp_async,      // generic proxy; groups of a thread, or cp.async.mbarrier.arrive
  bulk,          // async proxy; bytes on an mbarrier, or bulk groups of a thread
  remote_store,  // st.async, red.async: async proxy; bytes on an mbarrier
  wgmma,         // async proxy; in order; groups of a warpgroup
  tcgen05_mma,   // async proxy; commits of a thread (mma, shift and cp; see order below)
  tcgen05_shift,
  tcgen05_cp,
  tcgen05_ld,  // of a warp; tcgen05.wait::ld
  tcgen05_st,  // of a warp; tcgen05.wait::st
};

// Who issues: one thread, or neighbouring ones (a warp, a warpgroup) together.
struct Issuers {
  Issuers(Thread& one) : first(&one) {}
  Issuers(Thread& first_thread, uint32_t threads) : first(&first_thread), count(threads) {}
  Issuers(Warp& warp) : first(warp.threads), count(32) {}
  Thread* first;
  uint32_t count = 1;
};

struct AsyncOperation {
  AsyncOperation(Engine e, const char* instruction_name)
      : engine(e), instruction(instruction_name) {}

  // Signals `bytes` on an mbarrier (own or cluster address) of the issuer's cluster when the effect
  // has run. May be called once for each destination block of a multicast.
  void complete_bytes(uint32_t barrier, uint32_t bytes) { signals.push_back({barrier, bytes}); }
  // Shared memory (any block of the cluster) or tensor memory that the effect writes entirely:
  // filled with NaN until then, and known to be on its way. Without it, accesses that come too
  // early are found only when the effect runs.
  void writes_shared(uint32_t address, uint32_t bytes) { shared.push_back({address, bytes}); }
  void writes_tensor(Block& block, uint32_t address, uint32_t lanes, uint32_t columns) {
    tensor.push_back({&block, address, lanes, columns});
  }
  // Registers of a thread that the effect reads and writes (a wgmma accumulator) or only writes
  // (tcgen05.ld). They hold NaN from now until their completion is waited for, must not be touched
  // meanwhile, and receive their values then. Returns their index for `in_flight`.
  uint32_t writes_registers(Thread& thread, void* data, uint32_t bytes) {
    registers.push_back({&thread, data, bytes, true});
    return static_cast<uint32_t>(registers.size()) - 1;
  }
  // Registers it only reads (A of wgmma, the source of tcgen05.st): taken at issue, and must not
  // change until waited for.
  uint32_t reads_registers(Thread& thread, const void* data, uint32_t bytes) {
    registers.push_back({&thread, const_cast<void*>(data), bytes, false});
    return static_cast<uint32_t>(registers.size()) - 1;
  }

  Engine engine;
  const char* instruction;  // a literal
  std::function<void(Agent&)> effect;

  struct Signal {
    uint32_t barrier, bytes;
  };
  struct SharedRange {
    uint32_t address, bytes;
  };
  struct TensorRange {
    Block* block;
    uint32_t address, lanes, columns;
  };
  struct Registers {
    Thread* thread;
    void* data;
    uint32_t bytes;
    bool written;
  };
  std::vector<Signal> signals;
  std::vector<SharedRange> shared;
  std::vector<TensorRange> tensor;
  std::vector<Registers> registers;
};

void issue(Issuers, AsyncOperation, const Site&);

// Inside an effect: the contents of the operation's registers number `index`, to read and write.
void* in_flight(Agent&, uint32_t index);
template <class T>
T* in_flight(Agent& agent, uint32_t index) {
  return static_cast<T*>(in_flight(agent, index));
}

// cp.async.commit_group, cp.async.bulk.commit_group (by a thread), wgmma.commit_group (once a warp,
// from the model of its collective; any lane).
void commit_group(Thread&, Engine, const Site&);
// Waits until at most `allowed` of the newest groups are not done; called by every thread that
// executes it. `read`: until their sources have been read (cp.async.bulk.wait_group.read).
void wait_group(Thread&, Engine, uint32_t allowed, bool read, const Site&);
// wgmma.fence, by every thread (or once a warp, from a model): registers written so far may be
// used.
void wgmma_fence(Thread&, const Site&);

// cp.async.mbarrier.arrive: an arrival when all cp.async of this thread so far are done. Without
// `noinc` the pending count is raised first.
void cp_async_mbarrier_arrive(Thread&, uint32_t barrier, bool noinc, const Site&);

// tcgen05.commit: one arrival on each barrier when all mma, shift and cp of this thread and
// `cta_group` (1 or 2) so far are done. `blocks` 0: `barrier` alone; else the same offset in every
// block whose rank's bit is set.
void tcgen05_commit(Thread&, uint32_t cta_group, uint32_t barrier, uint32_t blocks, const Site&);
// tcgen05.wait::ld, ::st, by every lane of the warp.
void tcgen05_wait(Thread&, Engine, const Site&);

}  // namespace halftone::sim
