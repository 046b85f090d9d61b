// Dispatch: each family keeps one constexpr table of kernels, best first. `can_run`, `plan`,
// `halftone info` and the support matrix are all made from it.
#pragma once
#include <cstddef>
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
  CpuLevel level;  // least ISA level of CPU kernels
  std::string (*accepts)(const Problem&);
  Function function;
  Arch arch = Arch::sm_80;  // of GPU kernels: the one they run on
  bool later = false;       // and on every later architecture
  bool chip = false;        // of a library of the vendor's: not on the simulator
};

// What a row of a family with kernels for both runs: a CPU kernel or a GPU one.
template <class Cpu, class Gpu>
struct CpuOrGpu {
  Cpu cpu = nullptr;
  Gpu gpu = nullptr;
  constexpr CpuOrGpu(Cpu function) : cpu(function) {}
  constexpr CpuOrGpu(Gpu function) : gpu(function) {}
};
// The row of a GPU kernel that runs on sm_80 and later.
#define HALFTONE_GPU_ROW(stem, accepts, function)                                                 \
  {                                                                                               \
    { stem "_gpu", Device::Kind::cuda, CpuLevel::baseline, accepts, function, Arch::sm_80, true } \
  }

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
    // A simulated GPU runs what the GPU runs.
    if ((row.device == Device::Kind::cpu) != device.is_cpu()) continue;
    const bool reached = device.is_cpu()                                   ? row.level <= level
                         : row.chip && device.kind() != Device::Kind::cuda ? false
                         : row.later ? row.arch <= device.arch()
                                     : row.arch == device.arch();
    std::string why = reached           ? row.accepts(problem)
                      : device.is_cpu() ? concat("needs CPU level ", name(row.level))
                      : row.chip        ? concat("needs a GPU that is not simulated")
                      : row.later       ? concat("needs ", name(row.arch), " or later")
                                        : concat("runs on ", name(row.arch), " alone");
    if (kernel_trace != nullptr) kernel_trace->emplace_back(row.name, why);
    if (!reached && !device.is_cpu()) *reason = concat(row.name, " ", why);
    if (!reached) continue;
    if (why.empty()) return &row;
    *reason = std::move(why);
  }
  return nullptr;
}

// `can_run` and the choice of `plan` for a family with the table `table`.
template <class Row, size_t N, class Problem>
Support support_of(const Row (&table)[N], const Problem& problem, const Device& device) {
  Support support;
  support.ok = choose(std::span<const Row>(table), problem, device, &support.reason) != nullptr;
  if (support.ok) support.reason.clear();
  return support;
}
// Throws `unsupported` with the reason when there is none.
template <class Row, size_t N, class Problem>
const Row* kernel_for(const Row (&table)[N], const Problem& problem, const Device& device) {
  std::string reason;
  const Row* row = choose(std::span<const Row>(table), problem, device, &reason);
  require_support({row != nullptr, reason});
  return row;
}

}  // namespace halftone
