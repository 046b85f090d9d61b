#include "measure/gpu_sensors.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <stop_token>
#include <thread>
#include <vector>

namespace halftone {

namespace {

// NVML's constants, of its documentation.
constexpr int kSuccess = 0, kSmClock = 1;
using Handle = void*;

// The function that `library` calls `name`; false where it has none.
template <class Function>
bool find(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  return *function != nullptr;
}

// The bus on which the CUDA driver, already loaded, has device `index`, in the process's order.
std::string pci_bus_id(int index) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*get)(int*, int) = nullptr;
  int (*bus_of)(char*, int, int) = nullptr;
  int device = 0;
  char text[32] = "";
  const bool known = driver != nullptr && find(driver, "cuDeviceGet", &get) &&
                     find(driver, "cuDeviceGetPCIBusId", &bus_of) && get(&device, index) == 0 &&
                     bus_of(text, sizeof text, device) == 0;
  if (driver != nullptr) dlclose(driver);
  return known ? text : "";
}

double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

}  // namespace

struct GpuSensors::Nvml {
  void* library = nullptr;
  Handle device = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, int, unsigned*) = nullptr;  // MHz
  int (*power)(Handle, unsigned*) = nullptr;       // mW
  int (*limit)(Handle, unsigned*) = nullptr;       // mW

  bool open(const char* name, const std::string& bus) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(library, "nvmlInit_v2", &init) &&
           find(library, "nvmlShutdown", &shutdown) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", &handle) &&
           find(library, "nvmlDeviceGetClockInfo", &clock) &&
           find(library, "nvmlDeviceGetPowerUsage", &power) &&
           find(library, "nvmlDeviceGetEnforcedPowerLimit", &limit) && init() == kSuccess &&
           handle(bus.c_str(), &device) == kSuccess;
  }
};

GpuSensors::GpuSensors(const char* library, const std::string& pci_bus_id) : nvml_(new Nvml) {
  if (!pci_bus_id.empty() && nvml_->open(library, pci_bus_id)) return;
  if (nvml_->library != nullptr) dlclose(nvml_->library);
  delete nvml_;
  nvml_ = nullptr;
}

GpuSensors::GpuSensors(const Device& device)
    : GpuSensors("libnvidia-ml.so.1", pci_bus_id(device.index())) {}

GpuSensors::~GpuSensors() {
  if (nvml_ == nullptr) return;
  nvml_->shutdown();
  dlclose(nvml_->library);
  delete nvml_;
}

double GpuSensors::power_limit_watts() const {
  unsigned value = 0;
  const bool known = nvml_ != nullptr && nvml_->limit(nvml_->device, &value) == kSuccess;
  return known ? value / 1000.0 : 0;
}

GpuState GpuSensors::during(const std::function<void()>& work) const {
  if (nvml_ == nullptr) {
    work();
    return {};
  }
  std::vector<double> clocks, watts;
  std::jthread sampler([&](const std::stop_token& stop) {
    do {
      unsigned value = 0;
      if (nvml_->clock(nvml_->device, kSmClock, &value) == kSuccess)
        clocks.push_back(value / 1000.0);
      if (nvml_->power(nvml_->device, &value) == kSuccess) watts.push_back(value / 1000.0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } while (!stop.stop_requested());
  });
  work();
  sampler.request_stop();
  sampler.join();
  return {median(clocks), median(watts)};
}

}  // namespace halftone
