// From two accesses without order between them to a report: which rule it is and what fixes it.
#include "sim/memory/cluster_memory.h"

namespace halftone::sim {

namespace {

using Kind = ComponentInfo::Kind;

bool asynchronous(Kind kind) {
  return kind != Kind::none && kind != Kind::thread && kind != Kind::cp_async;
}

const char* completion(Kind kind) {
  switch (kind) {
    case Kind::cp_async:
      return "cp.async.wait_group (or cp.async.mbarrier.arrive and a wait on that mbarrier)";
    case Kind::bulk:
      return "cp.async.bulk.wait_group";
    case Kind::bytes:
      return "a wait on the mbarrier that it signals";
    case Kind::wgmma:
      return "wgmma.wait_group";
    case Kind::tensor_mma:
    case Kind::tensor_cp:
      return "tcgen05.commit and a wait on its mbarrier";
    case Kind::tensor_ld:
      return "tcgen05.wait::ld";
    case Kind::tensor_st:
      return "tcgen05.wait::st";
    default:
      return "a barrier";
  }
}

struct Verdict {
  Level level = Level::error;
  const char* rule = "";
  std::string text, fix;
};

// An access by asynchronous work that may not have been ordered after `prior`.
Verdict judge_operation(const Operation& work, Conflict conflict, const Stamp& other,
                        const ComponentInfo& prior, bool tensor, const std::string& place) {
  const Component component = plain(other.component);
  const std::string name = work.operation.instruction;
  const bool issuer = prior.kind == Kind::thread &&
                      prior.thread->block == work.agent.thread->block &&
                      prior.thread->index - work.agent.thread->index < work.issuers;
  const bool after_issue =
      issuer && (work.issuers > 1 ? !work.happened.knows(component, other.epoch)
                                  : other.epoch > work.issuer_epoch);
  if (after_issue) {
    if (conflict == Conflict::read_after_write) {
      return {Level::error, "async.source_overwritten",
              "the source of " + name + " at " + place + " was overwritten before it was read",
              "wait for its completion before the source is reused"};
    }
    return {Level::error,
            conflict == Conflict::write_after_read ? "async.not_waited"
                                                   : "async.destination_overwritten",
            place + ", which " + name + " writes, was " +
                (conflict == Conflict::write_after_read ? "read" : "written") +
                " before that was complete",
            std::string("wait for its completion first")};
  }
  if (!work.happened.knows(component, other.epoch)) {
    const bool early = asynchronous(prior.kind);
    const char* rule =
        early ? (conflict == Conflict::read_after_write   ? "async.not_waited"
                 : conflict == Conflict::write_after_read ? "async.source_overwritten"
                                                          : "async.destination_overwritten")
        : conflict == Conflict::write_after_write ? "race.write_write"
                                                  : "race.read_write";
    return {Level::error, rule,
            name + " and another access touch " + place + " without an order between them",
            std::string("before it is issued: ") + completion(prior.kind)};
  }
  if (tensor) {
    const bool pipelined =
        work.operation.engine != Engine::tcgen05_ld && work.operation.engine != Engine::tcgen05_st;
    if (prior.thread == work.agent.thread && pipelined) {
      return {Level::strict, "tcgen05.not_pipelined",
              name + " is not in order behind the earlier instruction on " + place,
              "wait for it: tcgen05.commit and its mbarrier"};
    }
    if (work.tensor_seen.knows(component, other.epoch)) {
      return {pipelined ? Level::strict : Level::error, "tcgen05.missing_fence_after",
              name + " builds on what another thread did to " + place +
                  " without a fence after the synchronisation",
              "tcgen05.fence::after_thread_sync after the wait"};
    }
    return {Level::error, "tcgen05.missing_fence_before",
            "what another thread did to " + place + " was handed over to " + name +
                " without a fence before the synchronisation",
            "tcgen05.fence::before_thread_sync before the arrive"};
  }
  if (conflict == Conflict::write_after_read) {
    return {Level::strict, "proxy.read_then_async_write",
            name + " overwrites " + place +
                ", which was read in the generic proxy, without a "
                "proxy fence between",
            "fence.proxy.async after the reads, before the barrier that hands the buffer over"};
  }
  if (prior.kind == Kind::cp_async) {
    return {Level::strict, "proxy.cp_async",
            name + " uses what cp.async wrote to " + place + " without a proxy fence between",
            "fence.proxy.async after cp.async.wait_group, before the barrier"};
  }
  return {Level::error, "proxy.missing_fence",
          name + " uses what was written to " + place +
              " in the generic proxy without a proxy "
              "fence between",
          "fence.proxy.async by the writing thread after its stores, before the barrier"};
}

Verdict judge_thread(const Agent& agent, Conflict conflict, const ComponentInfo& prior,
                     const std::string& what, const std::string& place) {
  if (asynchronous(prior.kind) || (prior.kind == Kind::cp_async && prior.thread == agent.thread)) {
    const char* rule = conflict == Conflict::read_after_write   ? "async.not_waited"
                       : conflict == Conflict::write_after_read ? "async.source_overwritten"
                                                                : "async.destination_overwritten";
    const char* earlier = conflict == Conflict::write_after_read ? "reads" : "writes";
    return {Level::error, rule,
            what + ": asynchronous work that " + earlier + " it has not been waited for",
            completion(prior.kind)};
  }
  if (prior.kind == Kind::cp_async) {
    return {Level::error, "cp_async.other_thread",
            what + ": copied by another thread's cp.async, and no barrier between",
            "cp.async.wait_group by the thread that copies, then a barrier"};
  }
  const bool same_warp = prior.thread != nullptr && prior.thread->warp == agent.thread->warp;
  return {Level::error,
          conflict == Conflict::write_after_write ? "race.write_write" : "race.read_write",
          what + " races with " +
              (conflict == Conflict::write_after_read ? "an earlier read" : "an earlier write") +
              (same_warp ? " by another lane of the warp" : " by another thread") + " of " + place,
          same_warp ? "__syncwarp between the two" : "a barrier between the two"};
}

}  // namespace

SimulatorAccess ClusterMemory::describe(const Stamp& stamp, Conflict conflict) const {
  const ComponentInfo& info =
      components_[std::min<size_t>(plain(stamp.component), components_.size() - 1)];
  const SiteEntry& where = sites_[stamp.site_id()];
  const bool read = conflict == Conflict::write_after_read;
  SimulatorAccess access;
  access.what = where.instruction != nullptr
                    ? std::string(where.instruction) + (read ? ", reading" : ", writing")
                    : std::string(read ? "read" : "write");
  access.proxy = name(asynchronous(info.kind) ? Proxy::async : Proxy::generic);
  access.file = where.site.file_name();
  access.function = where.site.function_name();
  access.line = where.site.line();
  if (info.thread != nullptr) {
    access.block = info.thread->block->linear;
    access.warp = static_cast<int>(info.thread->warp->index);
    if (info.kind == Kind::thread || info.kind == Kind::cp_async) {
      access.lane = static_cast<int>(info.thread->lane);
    }
    if (info.thread->role != nullptr) access.role = info.thread->role;
  }
  if (info.barrier != nullptr) {
    access.block = info.barrier->block.block->linear;
    access.phase = static_cast<int64_t>(stamp.epoch) - info.barrier->epoch_base - 1;
    access.what += ", signals " + info.barrier->text();
  }
  return access;
}

void ClusterMemory::conflict(Agent& agent, Conflict kind, const Stamp& other,
                             const std::string& what, const std::string& place, const Site& site,
                             bool tensor) {
  const AgentState& state = state_of(agent);
  const ComponentInfo& prior =
      components_[std::min<size_t>(plain(other.component), components_.size() - 1)];
  Verdict verdict;
  if (kind == Conflict::uninitialised) {
    verdict = {Level::error, tensor ? "tmem.uninitialised" : "shared.uninitialised",
               what + ": nobody has written it in this kernel",
               "write it first; or wait for what fills it"};
  } else if (kind == Conflict::barrier) {
    verdict = {Level::error, "mbarrier.plain_access",
               what + ": a live mbarrier is there, which only mbarrier instructions may touch",
               "mbarrier.inval before the memory is reused; check the shared-memory plan"};
  } else if (state.operation != nullptr && state.operation->agent.proxy != Proxy::generic) {
    verdict = judge_operation(*state.operation, kind, other, prior, tensor, place);
  } else {
    verdict = judge_thread(agent, kind, prior, what, place);
  }
  if (verdict.level == Level::strict && !strict) return;
  // Loops over words find the same pair thousands of times.
  const uint64_t key =
      reinterpret_cast<uintptr_t>(verdict.rule) * 0x9e3779b97f4a7c15ull ^
      uint64_t { other.site_id() } << 32 ^
      site_id(site, state.operation != nullptr ? state.operation->operation.instruction : nullptr);
  if (++reported_[key] > 4) return;
  Violation violation;
  violation.level = verdict.level;
  violation.rule = verdict.rule;
  violation.text = std::move(verdict.text);
  violation.fix = std::move(verdict.fix);
  violation.accesses.push_back(access(agent, site, what));
  if (kind != Conflict::uninitialised && kind != Conflict::barrier) {
    violation.accesses.push_back(describe(other, kind));
  }
  sim::report(agent, std::move(violation));
}

}  // namespace halftone::sim
