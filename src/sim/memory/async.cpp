// Asynchronous work: issue, groups, waits, commits.
#include "sim/memory/async.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "sim/memory/cluster_memory.h"
#include "sim/memory/memory.h"

namespace halftone::sim {

namespace {

// What registers hold while an instruction works on them: a signalling NaN in FP32 and BF16, so
// that arithmetic on it leaves a trace.
constexpr uint32_t kPoison = 0xffbaffba;

uint64_t hash_bytes(const void* data, uint32_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto* at = static_cast<const uint8_t*>(data);
  for (uint32_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

void poison(uint8_t* data, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += 4) std::memcpy(data + i, &kPoison, std::min(4u, bytes - i));
}

bool poisoned(const uint8_t* data, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += 4) {
    if (std::memcmp(data + i, &kPoison, std::min(4u, bytes - i)) != 0) return false;
  }
  return true;
}

// The engine's order of work for a thread's (warp's, warpgroup's) instructions.
Pipeline* pipeline_of(Thread& thread, Engine engine) {
  BlockMemory& block = memory_of(*thread.block);
  ThreadState& state = state_of(thread);
  Pipeline* pipeline = nullptr;
  auto kind = ComponentInfo::Kind::none;
  switch (engine) {
    case Engine::cp_async:
      pipeline = &state.cp_async, kind = ComponentInfo::Kind::cp_async;
      break;
    case Engine::bulk:
      pipeline = &state.bulk, kind = ComponentInfo::Kind::bulk;
      break;
    case Engine::remote_store:
      return nullptr;
    case Engine::wgmma:
      pipeline = &block.wgmma[thread.warp->index / 4], kind = ComponentInfo::Kind::wgmma;
      break;
    case Engine::tcgen05_mma:
    case Engine::tcgen05_shift:
    case Engine::tcgen05_cp:
      pipeline = &state.tensor, kind = ComponentInfo::Kind::tensor_mma;
      break;
    case Engine::tcgen05_ld:
      pipeline = &block.tensor_ld[thread.warp->index], kind = ComponentInfo::Kind::tensor_ld;
      break;
    case Engine::tcgen05_st:
      pipeline = &block.tensor_st[thread.warp->index], kind = ComponentInfo::Kind::tensor_st;
      break;
  }
  ClusterMemory& memory = memory_of(thread);
  if (pipeline->component == 0 && memory.checking) {
    pipeline->component = memory.new_component({kind, &thread, nullptr});
    pipeline->kind = kind;
    if (kind == ComponentInfo::Kind::tensor_mma) {
      state.tensor_cp = memory.new_component({ComponentInfo::Kind::tensor_cp, &thread, nullptr});
    }
  }
  return pipeline;
}

// What all of them know. Lanes of a warp mostly share a clock, which is met once.
template <class Member>
ClockRef meet_of(const Issuers& issuers, Member member) {
  ClockRef met = std::invoke(member, state_of(issuers.first[0])), last = met;
  for (uint32_t i = 1; i < issuers.count; ++i) {
    const ClockRef& next = std::invoke(member, state_of(issuers.first[i]));
    if (next == last) continue;
    met = ClockJoiner::meet(met, next);
    last = next;
  }
  return met;
}

// The thread learns that all work of the pipeline up to `number` is done.
void acquire_pipeline(ClusterMemory& memory, ThreadState& state, Pipeline& pipeline,
                      uint32_t number, bool async_too) {
  if (!memory.checking || number == 0) return;
  if (pipeline.waited_for != number) {
    const Epoch epoch{pipeline.component, number};
    pipeline.waited = with({}, &epoch, 1);
    pipeline.waited_for = number;
  }
  memory.acquire(state, {pipeline.waited, async_too ? pipeline.waited : ClockRef(), {}});
}

class GroupWait final : public Waiting {
 public:
  GroupWait(const char* instruction, const Pipeline& pipeline, uint32_t number, const Site& site)
      : Waiting(instruction, site), pipeline_(pipeline), number_(number) {}
  const void* key() const override { return &pipeline_; }
  std::string text() const override {
    return std::to_string(number_ - pipeline_.done) + " pieces of asynchronous work";
  }

 private:
  const Pipeline& pipeline_;
  uint32_t number_;
};

void wait_for(Thread& thread, Pipeline& pipeline, uint32_t number, const char* instruction,
              const Site& site) {
  const GroupWait waiting(instruction, pipeline, number, site);
  wait_until(pipeline.queue, waiting, [&] { return pipeline.done >= number; });
  static_cast<void>(thread);
}

// Registers whose work is done get their values, if nobody has touched them.
void land_fragments(Thread& thread, const Pipeline& pipeline, uint32_t number) {
  ThreadState& state = state_of(thread);
  auto& fragments = state.fragments;
  for (size_t i = 0; i < fragments.size();) {
    Fragment& fragment = fragments[i];
    if (fragment.pipeline != &pipeline || fragment.last > number) {
      ++i;
      continue;
    }
    if (poisoned(fragment.data, fragment.bytes)) {
      std::memcpy(fragment.data, fragment.values->data(), fragment.bytes);
    } else if (memory_of(thread).checking) {
      report(thread, Level::error, "registers.touched", fragment.site, fragment.instruction,
             std::string("registers that ") + fragment.instruction +
                 " writes were changed before it was waited for",
             "wait for the group (or tcgen05.wait::ld) before the registers are used");
    }
    if (pipeline.kind == ComponentInfo::Kind::wgmma) {
      const uint64_t hash = hash_bytes(fragment.data, fragment.bytes);
      auto& seen = state.wgmma_registers;
      std::erase_if(seen, [&](const auto& entry) { return entry.data == fragment.data; });
      if (seen.size() > 64) seen.erase(seen.begin());
      seen.push_back({fragment.data, hash, state.wgmma_fences});
    }
    fragments[i] = std::move(fragments.back());
    fragments.pop_back();
  }
}

void check_wgmma_fence(Thread& thread, const AsyncOperation::Registers& registers,
                       const char* instruction, const Site& site) {
  ThreadState& state = state_of(thread);
  const uint64_t hash = hash_bytes(registers.data, registers.bytes);
  auto& seen = state.wgmma_registers;
  const auto found = std::find_if(seen.begin(), seen.end(),
                                  [&](const auto& entry) { return entry.data == registers.data; });
  const bool missing = state.wgmma_fences == 0 || (found != seen.end() && found->hash != hash &&
                                                   found->fences == state.wgmma_fences);
  if (missing) {
    report(thread, Level::error, "wgmma.missing_fence", site, instruction,
           std::string(registers.written ? "the accumulator" : "A") +
               " was written by other instructions since the last wgmma.fence",
           "wgmma.fence after the registers are written, before the first wgmma that uses them");
  }
  if (registers.written) return;
  if (found != seen.end()) seen.erase(found);
  if (seen.size() > 64) seen.erase(seen.begin());
  seen.push_back({registers.data, hash, state.wgmma_fences});
}

// The values of a piece of work's registers; shared with earlier work that is still on its way.
std::shared_ptr<std::vector<uint8_t>> take_registers(const AsyncOperation& operation,
                                                     const AsyncOperation::Registers& registers,
                                                     Pipeline* pipeline, uint32_t number,
                                                     const Site& site) {
  Thread& thread = *registers.thread;
  ThreadState& state = state_of(thread);
  auto* data = static_cast<uint8_t*>(registers.data);
  const bool checking = memory_of(thread).checking;
  for (Fragment& fragment : state.fragments) {
    if (fragment.data >= data + registers.bytes || data >= fragment.data + fragment.bytes) continue;
    if (fragment.data == data && fragment.bytes == registers.bytes &&
        fragment.pipeline == pipeline) {
      if (registers.written) {
        fragment.last = number;
        fragment.site = site;
      }
      return fragment.values;
    }
    if (checking) {
      report(thread, Level::error, "registers.touched", site, operation.instruction,
             std::string(operation.instruction) + " uses registers that " + fragment.instruction +
                 " at " + to_string(fragment.site) + " still works on, as another shape",
             "wait for the group first");
    }
    break;
  }
  if (checking && operation.engine == Engine::wgmma) {
    check_wgmma_fence(thread, registers, operation.instruction, site);
  }
  auto values = std::make_shared<std::vector<uint8_t>>(data, data + registers.bytes);
  if (registers.written) {
    state.fragments.push_back(
        {data, registers.bytes, pipeline, number, true, values, site, operation.instruction});
    poison(data, registers.bytes);
  }
  return values;
}

}  // namespace

Operation::Operation(Issuers who, AsyncOperation&& what, const Site& where)
    : operation(std::move(what)), issuers(who.count), site(where) {
  Thread& first = *who.first;
  ThreadState& issuer = state_of(first);
  ClusterMemory& memory = memory_of(first);
  const Engine engine = operation.engine;
  agent.block = first.block;
  agent.thread = &first;
  agent.proxy = engine == Engine::cp_async ? Proxy::generic : Proxy::async;
  agent.clock = &state;
  state.memory = &memory;
  state.operation = this;
  if (operation.signals.empty() || engine != Engine::bulk) pipeline = pipeline_of(first, engine);
  if (pipeline != nullptr) number = ++pipeline->issued;
  in_order = pipeline != nullptr && engine != Engine::cp_async && engine != Engine::bulk;
  for (const AsyncOperation::Registers& registers : operation.registers) {
    values.push_back(take_registers(operation, registers, pipeline, number, site));
  }
  if (!memory.checking) return;

  const Component mma = issuer.tensor.component, cp = issuer.tensor_cp;
  state.epoch = number;
  state.component = pipeline == nullptr            ? Component{0}
                    : engine == Engine::tcgen05_cp ? cp
                                                   : pipeline->component;
  happened.clock =
      meet_of(who, [](const ThreadState& s) -> const ClockRef& { return s.ordered.clock; });
  state.ordered.clock =
      agent.proxy == Proxy::generic ? happened.clock : meet_of(who, &ThreadState::async);
  if (who.count == 1) {
    happened.add(issuer.component, issuer.epoch);
    state.ordered.add(issuer.component,
                      agent.proxy == Proxy::generic ? issuer.epoch : issuer.async_epoch);
  }
  issuer_epoch = issuer.epoch;
  if (engine >= Engine::tcgen05_mma) {
    const BlockMemory& block = memory_of(*first.block);
    tensor.clock = meet_of(who, &ThreadState::tensor_known);
    tensor_seen.clock = meet_of(who, &ThreadState::tensor_seen);
    const Component ld = block.tensor_ld[first.warp->index].component,
                    st = block.tensor_st[first.warp->index].component;
    // What this warp has loaded, stored and waited for needs no fence.
    for (const Component own : {ld, st}) {
      if (own != 0 && happened.clock) tensor.add(own, (*happened.clock)[own]);
    }
    if (engine == Engine::tcgen05_mma || engine == Engine::tcgen05_shift) {
      for (View* view : {&state.ordered, &happened, &tensor}) {
        view->add(mma, kForever), view->add(cp, kForever);
      }
    } else if (engine == Engine::tcgen05_cp) {
      happened.add(mma, kForever);
    }
  }
  for (uint32_t i = 0; i < who.count; ++i) ++state_of(who.first[i]).epoch;
}

void Operation::run() {
  access_block = nullptr;
  if (operation.effect) operation.effect(agent);
  for (const AsyncOperation::Signal& signal : operation.signals) {
    complete_bytes(agent, signal.barrier, signal.bytes, this, site);
  }
  if (pipeline != nullptr) pipeline->finish(number);
}

std::string Operation::text() const {
  std::string text = operation.instruction;
  for (const AsyncOperation::Signal& signal : operation.signals) {
    text += ", " + std::to_string(signal.bytes) + " bytes for ";
    const uint32_t rank = signal.barrier >> 24;
    const Block& block = rank == 0 ? *agent.block : cluster_of(agent).blocks[rank - 1];
    const Barrier* barrier = memory_of(block).find(signal.barrier & 0xffffff);
    text += barrier != nullptr ? barrier->text() : "the mbarrier at " + hex(signal.barrier);
  }
  return text + ", issued at " + to_string(site);
}

void issue(Issuers issuers, AsyncOperation operation, const Site& site) {
  Thread& first = *issuers.first;
  for (const AsyncOperation::Signal& signal : operation.signals) {
    Barrier* barrier = live_barrier(first, signal.barrier, operation.instruction, site);
    // The engine of a bulk copy finds the barrier in the asynchronous proxy.
    check_barrier_visible(first, *barrier, true, operation.instruction, site);
  }
  auto work = std::make_unique<Operation>(issuers, std::move(operation), site);
  for (const AsyncOperation::SharedRange& range : work->operation.shared) {
    if (range.bytes == 0) continue;
    const Place place =
        locate(first, range.address, range.bytes, 1, work->operation.instruction, site);
    std::memset(place.block->shared.data() + place.offset, 0xff, range.bytes);
    if (memory_of(first).checking) work->stamp_destination(place, range.bytes);
  }
  for (const AsyncOperation::Signal& signal : work->operation.signals) {
    live_barrier(first, signal.barrier, work->operation.instruction, site)
        ->in_flight.push_back(work.get());
  }
  for (const AsyncOperation::TensorRange& range : work->operation.tensor) {
    poison_tensor(*range.block, range.address, range.lanes, range.columns);
  }
  add_async(*first.block->cluster, std::move(work));
  if (issuers.count == 1) schedule_point();
}

void* in_flight(Agent& agent, uint32_t index) {
  return state_of(agent).operation->values[index]->data();
}

// ---- Groups -------------------------------------------------------------------------------------

namespace {

Groups& groups_of(ThreadState& state, Engine engine) {
  return engine == Engine::cp_async ? state.cp_async_groups
         : engine == Engine::bulk   ? state.bulk_groups
                                    : state.wgmma_groups;
}

const char* wait_name(Engine engine) {
  return engine == Engine::cp_async ? "cp.async.wait_group"
         : engine == Engine::bulk   ? "cp.async.bulk.wait_group"
                                    : "wgmma.wait_group";
}

}  // namespace

void commit_group(Thread& thread, Engine engine, const Site&) {
  const uint32_t end = pipeline_of(thread, engine)->issued;
  if (engine != Engine::wgmma) {
    groups_of(state_of(thread), engine).ends.push_back(end);
    return;
  }
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((thread.warp->present >> lane & 1) == 0) continue;
    state_of(thread.warp->thread(lane)).wgmma_groups.ends.push_back(end);
  }
}

void wait_group(Thread& thread, Engine engine, uint32_t allowed, bool, const Site& site) {
  ThreadState& state = state_of(thread);
  Groups& groups = groups_of(state, engine);
  if (groups.ends.size() <= allowed) return;
  const size_t count = groups.ends.size() - allowed;
  const uint32_t number = groups.ends[count - 1];
  Pipeline& pipeline = *pipeline_of(thread, engine);
  wait_for(thread, pipeline, number, wait_name(engine), site);
  groups.ends.erase(groups.ends.begin(), groups.ends.begin() + static_cast<ptrdiff_t>(count));
  groups.waited = std::max(groups.waited, number);
  acquire_pipeline(memory_of(thread), state, pipeline, number, engine != Engine::cp_async);
  land_fragments(thread, pipeline, number);
}

void wgmma_fence(Thread& thread, const Site&) {
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((thread.warp->present >> lane & 1) != 0) {
      ++state_of(thread.warp->thread(lane)).wgmma_fences;
    }
  }
}

void tcgen05_wait(Thread& thread, Engine engine, const Site& site) {
  Pipeline& pipeline = *pipeline_of(thread, engine);
  const uint32_t number = pipeline.issued;
  if (number == 0) return;
  wait_for(thread, pipeline, number,
           engine == Engine::tcgen05_ld ? "tcgen05.wait::ld" : "tcgen05.wait::st", site);
  acquire_pipeline(memory_of(thread), state_of(thread), pipeline, number, true);
  land_fragments(thread, pipeline, number);
}

// ---- Arrivals when earlier work is done ---------------------------------------------------------

namespace {

class ArriveWork final : public AsyncWork {
 public:
  ArriveWork(Thread& thread, const char* instruction, Pipeline& pipeline, const Site& site)
      : agent_(thread),
        instruction_(instruction),
        pipeline_(pipeline),
        number_(pipeline.issued),
        site_(site) {}
  bool ready() const override { return pipeline_.done >= number_; }
  void run() override {
    for (const uint32_t barrier : barriers) arrive_async(agent_, barrier, knowledge, site_);
  }
  std::string text() const override {
    return std::string(instruction_) + " at " + to_string(site_) + ", when " +
           std::to_string(number_ - std::min(number_, pipeline_.done)) + " pieces of work are done";
  }
  uint32_t number() const { return number_; }

  std::vector<uint32_t> barriers;
  Accumulator knowledge;

 private:
  Agent agent_;
  const char* instruction_;
  Pipeline& pipeline_;
  uint32_t number_;
  Site site_;
};

}  // namespace

void cp_async_mbarrier_arrive(Thread& thread, uint32_t address, bool noinc, const Site& site) {
  constexpr const char* what = "cp.async.mbarrier.arrive";
  Barrier& barrier = *live_barrier(thread, address, what, site);
  check_barrier_visible(thread, barrier, false, what, site);
  if (!noinc) ++barrier.pending;
  Pipeline& pipeline = *pipeline_of(thread, Engine::cp_async);
  auto work = std::make_unique<ArriveWork>(thread, what, pipeline, site);
  work->barriers = {address};
  if (memory_of(thread).checking) {
    work->knowledge.add_generic({pipeline.component, work->number()});
  }
  add_async(*thread.block->cluster, std::move(work));
  schedule_point();
}

void tcgen05_commit(Thread& thread, uint32_t cta_group, uint32_t barrier, uint32_t blocks,
                    const Site& site) {
  constexpr const char* what = "tcgen05.commit";
  Pipeline& pipeline = *pipeline_of(thread, Engine::tcgen05_mma);
  auto work = std::make_unique<ArriveWork>(thread, what, pipeline, site);
  if (blocks == 0) work->barriers = {barrier};
  for (uint32_t rank = 0; blocks >> rank != 0; ++rank) {
    if ((blocks >> rank & 1) != 0) {
      work->barriers.push_back((rank + 1) << 24 | (barrier & 0xffffff));
    }
  }
  for (const uint32_t each : work->barriers) {
    Barrier* target = live_barrier(thread, each, what, site);
    check_barrier_visible(thread, *target, true, what, site);
  }
  if (memory_of(thread).checking) {
    work->knowledge.add_all({pipeline.component, work->number()});
    work->knowledge.add_all({state_of(thread).tensor_cp, work->number()});
  }
  add_async(*thread.block->cluster, std::move(work));
  schedule_point();
  static_cast<void>(cta_group);
}

}  // namespace halftone::sim
