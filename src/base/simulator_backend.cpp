// The simulated devices beneath tensors, streams and launches.
#include <cstring>
#include <map>

#include "base/backend.h"
#include "base/launch.h"
#include "base/message.h"
#include "halftone/simulator.h"
#include "sim/chip.h"
#include "sim/counter_state.h"
#include "sim/execution/launch.h"
#include "sim/memory/device_memory.h"
#include "sim/sink.h"

namespace halftone::simulator {

namespace {

// Host code stays within its allocation too.
void check_range(const Device& device, const void* data, size_t bytes) {
  if (device.kind() != Device::Kind::simulator) return;
  const sim::Allocation* allocation = sim::find_allocation(data);
  require(allocation != nullptr && !allocation->freed && allocation->contains(data, bytes),
          "device ", device.name(), ": ", bytes, " bytes at ", data,
          " are not inside one live allocation of the device");
}

std::map<Arch, DeviceProperties> make_properties() {
  std::map<Arch, DeviceProperties> all;
  for (Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    const sim::Chip& chip = sim::chip(arch);
    DeviceProperties& p = all[arch];
    p.name = concat("simulated ", chip.name);
    p.arch = arch;
    p.memory_bytes = int64_t{1} << 40;  // as much as the host gives
    p.sm_count = static_cast<int>(chip.sm_count);
    p.shared_per_block = static_cast<int>(chip.shared_per_block);
    p.shared_per_sm = static_cast<int>(chip.shared_per_sm);
    p.registers_per_sm = static_cast<int>(chip.registers_per_sm);
    p.threads_per_block = static_cast<int>(chip.threads_per_block);
    p.threads_per_sm = static_cast<int>(chip.threads_per_sm);
    p.blocks_per_sm = static_cast<int>(chip.blocks_per_sm);
    p.cluster_size = static_cast<int>(chip.cluster_size);
    p.clock_ghz = chip.rates.clock_ghz;
    p.driver = "simulator";
  }
  return all;
}

}  // namespace

Device device(Arch arch) { return DeviceAccess::make(Device::Kind::simulator, 0, arch); }

const DeviceProperties& properties(const Device& device) {
  static const std::map<Arch, DeviceProperties> all = make_properties();
  return all.at(device.arch());
}

void* allocate(const Device& device, size_t bytes) { return sim::allocate(device.arch(), bytes); }
void deallocate(const Device&, void* data, size_t) noexcept { sim::deallocate(data); }

void fill(const Device& device, void* to, int byte, size_t bytes, Stream*) {
  check_range(device, to, bytes);
  std::memset(to, byte, bytes);
}

void copy(const Device& to_device, void* to, const Device& from_device, const void* from,
          size_t bytes, Stream*) {
  check_range(to_device, to, bytes);
  check_range(from_device, from, bytes);
  std::memmove(to, from, bytes);
}

void launch(const KernelImage& kernel, const LaunchShape& shape, const void* params,
            Stream& stream) {
  const Device& device = stream.device();
  if (kernel.sim_body == nullptr) {
    fail(ErrorCode::unsupported, "kernel ", kernel.name,
         " was not compiled for the simulator in this build");
  }
  auto& state = static_cast<SimulatorStream&>(*stream.state());
  const std::lock_guard lock(state.mutex);
  sim::LaunchResult result =
      sim::run_grid(kernel, shape, params, device.arch(), state.options, stream.pool());

  SimulatorReport& report = state.report;
  report.kernel = kernel.name;
  report.options = state.options;
  ++report.launches;
  if (state.options.counters) {
    sim::add_counters(report.counters, result.counters);
    report.bounds = sim::bounds(report.counters, sim::chip(device.arch()));
  }
  std::string text;
  size_t broken = 0;
  for (SimulatorViolation& violation : result.violations) {
    if (violation.level != SimulatorViolation::Level::warning) {
      ++broken;
      text.append("\n").append(to_string(violation));
    }
    report.violations.push_back(std::move(violation));
  }
  if (broken != 0 && state.options.throws) {
    fail(ErrorCode::device, "kernel ", kernel.name, " on ", device.name(), " (",
         to_string(state.options), ") broke ", broken, broken == 1 ? " rule:" : " rules:", text);
  }
}

}  // namespace halftone::simulator
