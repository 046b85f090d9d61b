// Recording violations. Fatal ones end the launch: every fiber unwinds.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "sim/execution/thread.h"

namespace halftone::sim {

using Level = SimulatorViolation::Level;
using Violation = SimulatorViolation;

// The running thread's (or an agent's) side of a report.
SimulatorAccess access(const Agent&, const Site&, std::string what);

// Records it once for each rule and pair of sites, then counts. Level::strict is dropped unless the
// severity is strict, everything but fatal is dropped when it is off. Throws for fatal ones.
void report(const Cluster&, Violation);
inline void report(const Agent& agent, Violation violation) {
  report(cluster_of(agent), std::move(violation));
}
[[noreturn]] void fatal(const Cluster&, Violation);

// The usual case: one rule, one place. `text` says what and with which values.
void report(const Agent&, Level, const char* rule, const Site&, std::string what, std::string text,
            std::string fix = {});
[[noreturn]] void fatal(const Agent&, const char* rule, const Site&, std::string what,
                        std::string text, std::string fix = {});

// For hw bodies: the running kernel's architecture lacks this instruction. Fatal.
void require_feature(bool available, const char* instruction, const Site&);

}  // namespace halftone::sim
