// Dispatch: each family keeps one constexpr table of kernels, best first. `can_run`, `plan`,
// `halftone info` and the support matrix are all made from it.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/message.h"
#include "halftone/device.h"

namespace halftone {

// A row of a table. `accepts` is a pure function of the problem: an empty string, or why not.
template <class Problem, class Function>
struct KernelRow {
  const char* name;  // "attention_avx512_bf16"
  Device::Kind device;
  CpuLevel level;  // least instruction level of CPU kernels
  std::string (*accepts)(const Problem&);
  Function function;
};

// What `choose` looked at, in order, and why it went on; the last row is the one chosen when its
// reason is empty. Collected on this thread while `kernel_trace` points to one; `halftone info`
// explains its choices with it.
using KernelTrace = std::vector<std::pair<std::string, std::string>>;
inline thread_local KernelTrace* kernel_trace = nullptr;

// First row that the device, the CPU level in force and the problem allow; null with `reason` of
// the last row refused when there is none.
template <class Row, class Problem>
const Row* choose(std::span<const Row> table, const Problem& problem, const Device& device,
                  std::string* reason) {
  *reason = concat("no kernel of this family runs on device ", device.name());
  const CpuLevel level = cpu_level();
  for (const Row& row : table) {
    if (row.device != device.kind()) continue;
    const bool reached = !device.is_cpu() || row.level <= level;
    std::string why = reached ? row.accepts(problem) : concat("needs CPU level ", name(row.level));
    if (kernel_trace != nullptr) kernel_trace->emplace_back(row.name, why);
    if (!reached) continue;
    if (why.empty()) return &row;
    *reason = std::move(why);
  }
  return nullptr;
}

}  // namespace halftone
