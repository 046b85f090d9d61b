// A catalogue of bugs that real GPU kernels had, each as one small kernel in two forms: broken, and
// fixed. The simulator reports every broken form, naming both places, and finds nothing in the
// fixed ones; `halftone simulate --bugs` prints the table.
//
// A kernel is a template over `kFixed`. A comment `// [name]` marks the lines a report must name.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/launch.h"
#include "hw/copy/tensor_map.h"

namespace halftone::bugs {

// What every kernel of the catalogue gets.
struct Params {
  uint32_t* in;            // kWords words, random bits
  uint32_t* out;           // kWords words
  uint32_t* flags;         // 64 words, zero
  hw::TensorMap rows;      // `in` as bf16 [64, 64], boxes of 64x64, swizzle 128
  hw::TensorMap unmapped;  // the same from 4 KB before `in`, whose base belongs to nobody
};
inline constexpr uint32_t kWords = 16384;

struct Bug {
  const char* name;     // "missing-proxy-fence"
  const char* summary;  // what is wrong, in a sentence
  const char* seen_in;  // where such a bug was fixed in public
  const char* rule;     // what must be reported
  Arch arch;            // where it is simulated
  LaunchShape shape;
  KernelImage broken, fixed;
  const char* file;  // of the kernel
};

// All of them, in the order of the table.
const std::vector<Bug>& catalogue();

// Launches one form on memory of its own; the findings are the stream's.
void run(const Bug&, bool fixed, Stream&);

struct Verdict {
  bool reported = false;     // the rule, in the broken form
  bool sites_right = false;  // every marked line is named (true when the source is not at hand)
  bool source_read = false;
  int clean_seeds = 0;  // adversarial seeds without a finding in the fixed form
  std::string report;   // of the broken form
};
// Runs the broken form once and the fixed form under `seeds` adversarial schedules, both strict.
Verdict judge(const Bug&, int seeds);

}  // namespace halftone::bugs
