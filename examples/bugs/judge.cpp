#include <algorithm>
#include <fstream>
#include <set>

#include "base/device_memory.h"
#include "bug.h"
#include "halftone/error.h"
#include "halftone/simulator.h"
#include "halftone/tensor.h"
#include "pipe/tensor_map.h"

namespace halftone::bugs {
namespace {

hw::TensorMap rows_at(uint8_t* address, const Device& device) {
  return pipe::make_tensor_map(
      pipe::matrix_box(hw::Type::bf16, address, 64, 64, 128, 64, 64, tile::Swizzle::b128), device);
}

SimulatorReport report_of(const Bug& bug, bool fixed, uint64_t seed,
                          SimulatorOptions::Schedule schedule) {
  // One processor thread: what races in the kernel would race in this program too.
  Stream stream(Device::simulator(bug.arch), 1);
  SimulatorOptions options;
  options.severity = SimulatorOptions::Severity::strict;
  options.schedule = schedule;
  options.seed = seed;
  options.throws = false;
  configure(stream, options);
  run(bug, fixed, stream);
  return simulator_report(stream);
}

// Lines of the source that carry the bug's mark; empty when it cannot be read.
std::set<uint32_t> marked_lines(const Bug& bug) {
  std::set<uint32_t> lines;
  std::ifstream source(std::string(HALFTONE_BUGS_DIR "/") + bug.file);
  const std::string mark = std::string("// [") + bug.name + "]";
  uint32_t number = 1;
  for (std::string line; std::getline(source, line); ++number) {
    if (line.find(mark) != std::string::npos) lines.insert(number);
  }
  return lines;
}

}  // namespace

void run(const Bug& bug, bool fixed, Stream& stream) {
  const Device device = stream.device();
  std::vector<uint32_t> words(kWords);
  uint32_t state = 12345;
  for (uint32_t& word : words) word = (state = state * 1664525 + 1013904223) & 0x3fff3fff;
  Tensor in = Tensor::empty({int64_t{kWords}}, Format::i32, device);
  Tensor out = Tensor::empty({int64_t{kWords}}, Format::i32, device);
  Tensor flags = Tensor::empty({64}, Format::i32, device);
  copy_memory(device, in.data(), Device::cpu(), words.data(), kWords * 4);
  fill_memory(device, flags.data(), 0, 256);

  Params params{};
  params.in = in.data<uint32_t>();
  params.out = out.data<uint32_t>();
  params.flags = flags.data<uint32_t>();
  if (device.arch() >= Arch::sm_90a) {  // older chips have no tensor copies
    params.rows = rows_at(in.data<uint8_t>(), device);
    params.unmapped = rows_at(in.data<uint8_t>() - 4096, device);
  }
  launch(fixed ? bug.fixed : bug.broken, bug.shape, params, stream);
  stream.synchronize();
}

Verdict judge(const Bug& bug, int seeds) {
  Verdict verdict;
  const std::set<uint32_t> marked = marked_lines(bug);
  verdict.source_read = !marked.empty();
  const SimulatorReport broken = report_of(bug, false, 1, SimulatorOptions::Schedule::fifo);
  verdict.report = to_string(broken, false);
  for (const SimulatorViolation& violation : broken.violations) {
    if (violation.rule != bug.rule) continue;
    verdict.reported = true;
    std::set<uint32_t> named;
    for (const SimulatorAccess& access : violation.accesses) {
      if (access.file.ends_with(bug.file)) named.insert(access.line);
    }
    verdict.sites_right |=
        !named.empty() && std::includes(named.begin(), named.end(), marked.begin(), marked.end());
  }
  for (int seed = 1; seed <= seeds; ++seed) {
    const SimulatorReport fixed =
        report_of(bug, true, seed, SimulatorOptions::Schedule::adversarial);
    if (fixed.clean()) {
      ++verdict.clean_seeds;
    } else if (verdict.report.find("fixed form") == std::string::npos) {
      verdict.report += "\nmended form:\n" + to_string(fixed, false);
    }
  }
  return verdict;
}

}  // namespace halftone::bugs
