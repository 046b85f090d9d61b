// What is printed when nothing can happen any more.
#include <algorithm>
#include <map>

#include "base/message.h"
#include "sim/execution/execution.h"
#include "sim/execution/scheduler.h"
#include "sim/report.h"

namespace halftone::sim {

namespace {

// Threads that stand at the same place for the same thing: a line of the report.
struct Group {
  const Thread* first;
  uint32_t last_warp;  // of contiguous ones
  uint32_t threads = 0;
};

bool alike(const Thread& a, const Thread& b) {
  if (a.state != b.state || a.role != b.role) return false;
  if (a.state == Thread::State::exited) return true;
  if (a.waiting == nullptr || b.waiting == nullptr) {
    return a.waiting == b.waiting && a.spinning == b.spinning &&
           same_site(a.last_site, b.last_site);
  }
  return a.waiting->key() == b.waiting->key() && same_site(a.waiting->site(), b.waiting->site());
}

std::vector<Group> groups(const Block& block) {
  std::vector<Group> result;
  for (uint32_t t = 0; t < block.thread_count; ++t) {
    const Thread& thread = block.threads[t];
    Group* at = nullptr;
    for (Group& group : result) {
      if (group.last_warp + 1 >= thread.warp->index && alike(*group.first, thread)) at = &group;
    }
    if (at == nullptr) {
      result.push_back({&thread, thread.warp->index, 0});
      at = &result.back();
    }
    at->last_warp = thread.warp->index;
    ++at->threads;
  }
  return result;
}

std::string who(const Group& group) {
  const uint32_t first = group.first->warp->index;
  std::string text = first == group.last_warp ? concat("warp ", first)
                                              : concat("warps ", first, "-", group.last_warp);
  if (group.first->role != nullptr) text += concat(" (", group.first->role, ")");
  if (group.threads == 1) {
    text += concat(" lane ", group.first->lane);
  } else if (group.threads % 32 != 0) {
    text += concat(", ", group.threads, " threads");
  }
  return text;
}

std::string states(const Cluster& cluster, std::vector<SimulatorAccess>& accesses) {
  std::string text;
  for (uint32_t b = 0; b < cluster.block_count; ++b) {
    const Block& block = cluster.blocks[b];
    text += concat("\n  block ", block.linear, " (", block.index.x, ", ", block.index.y, ", ",
                   block.index.z, ")");
    if (cluster.block_count > 1) text += concat(", rank ", block.rank);
    // The text of one thing waited for is printed once.
    std::map<const void*, std::string> seen;
    for (const Group& group : groups(block)) {
      const Thread& thread = *group.first;
      text += concat("\n    ", who(group), ": ");
      if (thread.state == Thread::State::exited) {
        text += "returned from the kernel";
      } else if (thread.waiting != nullptr) {
        const Waiting& waiting = *thread.waiting;
        text += concat("waits in ", waiting.instruction(), " at ", to_string(waiting.site()));
        const auto [at, fresh] = seen.emplace(waiting.key(), who(group));
        text +=
            fresh ? concat("\n      ", waiting.text()) : concat(", for the same as ", at->second);
        accesses.push_back(
            access(thread, waiting.site(), concat("waits in ", waiting.instruction())));
      } else if (thread.fiber == nullptr) {
        text += "has not begun";
      } else {
        text +=
            concat(thread.spinning ? "polls at " : "is ready, after ", to_string(thread.last_site));
        if (thread.spinning) accesses.push_back(access(thread, thread.last_site, "polls"));
      }
    }
  }
  return text;
}

}  // namespace

Violation hang_violation(const Cluster& cluster, const Scheduler& scheduler, std::string cause) {
  Violation violation;
  violation.level = Level::fatal;
  violation.rule = "hang";
  violation.text = std::move(cause);
  violation.text += states(cluster, violation.accesses);
  for (const Scheduler::Queued& queued : scheduler.work()) {
    violation.text += concat("\n    asynchronous: ", queued.work->text());
  }
  return violation;
}

void report_deadlock(Cluster& cluster, const Scheduler& scheduler) {
  Violation violation =
      hang_violation(cluster, scheduler,
                     "no thread of the cluster can run and no asynchronous work can "
                     "complete");
  violation.rule = "deadlock";
  // A pool that can never have enough has a rule of its own.
  for (const SimulatorAccess& one : violation.accesses) {
    if (one.what == "waits in setmaxnreg.inc") violation.rule = "setmaxnreg.deadlock";
  }
  fatal(cluster, std::move(violation));
}

}  // namespace halftone::sim
