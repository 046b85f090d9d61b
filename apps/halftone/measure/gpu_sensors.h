// The clock and the power of a GPU while something runs on it, as its driver's NVML tells
// them. Nothing is linked: where there is no NVML, nothing is known.
#pragma once
#include <functional>
#include <string>

#include "halftone/device.h"

namespace halftone {

// Medians over a few samples; 0: not known. On the GPUs since Ampere the power that NVML tells is
// the mean of the last second.
struct GpuState {
  double clock_ghz = 0;  // of the multiprocessors
  double watts = 0;
};

class GpuSensors {
 public:
  // `library` has NVML's functions; `pci_bus_id`: "0000:19:00.0".
  GpuSensors(const char* library, const std::string& pci_bus_id);
  // Of a CUDA device.
  explicit GpuSensors(const Device&);
  ~GpuSensors();
  GpuSensors(const GpuSensors&) = delete;
  GpuSensors& operator=(const GpuSensors&) = delete;

  double power_limit_watts() const;  // 0: not known
  // Calls work() and looks every few milliseconds, once at least, until it returns.
  GpuState during(const std::function<void()>& work) const;

 private:
  struct Nvml;
  Nvml* nvml_ = nullptr;  // null: nothing is known
};

}  // namespace halftone
