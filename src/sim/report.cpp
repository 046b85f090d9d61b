#include "sim/report.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <tuple>

#include "base/message.h"
#include "sim/execution/scheduler.h"
#include "sim/sink.h"

namespace halftone {

namespace {

std::string_view file_of(std::string_view text) {
  const size_t slash = text.rfind('/');
  return slash == std::string_view::npos ? text : text.substr(slash + 1);
}

}  // namespace

namespace sim {

const char* name(Proxy proxy) {
  switch (proxy) {
    case Proxy::generic:
      return "generic";
    case Proxy::async:
      return "async";
    case Proxy::tensormap:
      return "tensormap";
  }
  return "?";
}

bool same_site(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string to_string(const Site& site) {
  return site.line() == 0 ? "the kernel's start"
                          : concat(file_of(site.file_name()), ":", site.line());
}

std::string describe(const Thread& thread) {
  std::string text =
      concat("block ", thread.block->linear, " warp ", thread.warp->index, " lane ", thread.lane);
  if (thread.role != nullptr) text += concat(" (", thread.role, ")");
  return text;
}

SimulatorAccess access(const Agent& agent, const Site& site, std::string what) {
  SimulatorAccess result;
  result.what = std::move(what);
  result.proxy = name(agent.proxy);
  result.file = site.file_name();
  result.function = site.function_name();
  result.line = site.line();
  if (agent.block != nullptr) result.block = agent.block->linear;
  if (agent.thread != nullptr) {
    result.warp = static_cast<int>(agent.thread->warp->index);
    result.lane = static_cast<int>(agent.thread->lane);
    if (agent.thread->role != nullptr) result.role = agent.thread->role;
  }
  return result;
}

void report(const Cluster& cluster, Violation violation) {
  if (violation.level == Level::fatal) fatal(cluster, std::move(violation));
  using Severity = SimulatorOptions::Severity;
  const Severity severity = cluster.launch->options.severity;
  if (severity == Severity::off) return;
  if (violation.level == Level::strict && severity != Severity::strict) return;
  cluster.launch->sink.add(std::move(violation));
}

void fatal(const Cluster& cluster, Violation violation) {
  violation.level = Level::fatal;
  cluster.launch->sink.add(std::move(violation));
  cluster.launch->stopped.store(true, std::memory_order_relaxed);
  throw Unwind{};
}

void report(const Agent& agent, Level level, const char* rule, const Site& site, std::string what,
            std::string text, std::string fix) {
  Violation violation;
  violation.level = level;
  violation.rule = rule;
  violation.text = std::move(text);
  violation.fix = std::move(fix);
  violation.accesses = {access(agent, site, std::move(what))};
  report(cluster_of(agent), std::move(violation));
}

void fatal(const Agent& agent, const char* rule, const Site& site, std::string what,
           std::string text, std::string fix) {
  report(agent, Level::fatal, rule, site, std::move(what), std::move(text), std::move(fix));
  throw Unwind{};  // not reached: report throws
}

void require_feature(bool available, const char* instruction, const Site& site) {
  if (available) return;
  const Thread& me = self();
  fatal(me, "target.unavailable", site, concat("executes ", instruction),
        concat(instruction, " does not exist on ", halftone::name(launch_of(me).chip.arch)),
        "choose a kernel for this architecture");
}

void ReportSink::add(SimulatorViolation violation) {
  // Places are told by file name: the same text wherever the sources lie.
  for (SimulatorAccess& one : violation.accesses) one.file = std::string(file_of(one.file.c_str()));
  std::string key = violation.rule;
  for (const SimulatorAccess& one : violation.accesses) key += concat("|", one.file, ":", one.line);
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = found_.try_emplace(std::move(key), violation);
  if (fresh) return;
  const uint64_t count = at->second.count + violation.count;
  // The first block's text stands for all of them, whichever OS thread came first.
  const auto order = [](const SimulatorViolation& v) {
    return v.accesses.empty()
               ? std::tuple(uint64_t{0}, 0, 0)
               : std::tuple(v.accesses[0].block, v.accesses[0].warp, v.accesses[0].lane);
  };
  if (order(violation) < order(at->second)) at->second = std::move(violation);
  at->second.count = count;
}

std::vector<SimulatorViolation> ReportSink::take() {
  const std::lock_guard lock(mutex_);
  std::vector<SimulatorViolation> result;
  for (auto& [key, violation] : found_) result.push_back(std::move(violation));
  found_.clear();
  std::stable_sort(
      result.begin(), result.end(),
      [](const SimulatorViolation& a, const SimulatorViolation& b) { return a.level > b.level; });
  return result;
}

}  // namespace sim

namespace {

const char* name(SimulatorViolation::Level level) {
  switch (level) {
    case SimulatorViolation::Level::warning:
      return "warning";
    case SimulatorViolation::Level::strict:
      return "strict";
    case SimulatorViolation::Level::error:
      return "error";
    case SimulatorViolation::Level::fatal:
      return "fatal";
  }
  return "?";
}

}  // namespace

std::string to_string(const SimulatorViolation& violation) {
  std::string text = concat(name(violation.level), ": ", violation.rule, ": ", violation.text);
  for (const SimulatorAccess& one : violation.accesses) {
    text += concat("\n    block ", one.block);
    if (one.warp >= 0) text += concat(" warp ", one.warp);
    if (one.lane >= 0) text += concat(" lane ", one.lane);
    if (!one.role.empty()) text += concat(" (", one.role, ")");
    text += concat(" ", one.what);
    if (one.line != 0) text += concat(" at ", file_of(one.file), ":", one.line);
    if (!one.proxy.empty() && one.proxy != "generic") text += concat(", ", one.proxy, " proxy");
    if (one.phase >= 0) text += concat(", phase ", one.phase);
  }
  if (violation.count > 1) text += concat("\n    found ", violation.count, " times");
  if (!violation.fix.empty()) text += concat("\n    fix: ", violation.fix);
  return text;
}

}  // namespace halftone
