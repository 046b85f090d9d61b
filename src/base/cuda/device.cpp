// Which CUDA devices there are, and what they allow.
#include <optional>
#include <vector>

#include "base/backend.h"
#include "base/cuda/api.h"

namespace halftone::cuda {

namespace {

struct Found {
  DeviceProperties properties;
  std::string refused;  // why no kernel of Halftone runs there, or ""
};
struct Machine {
  std::vector<Found> devices;
  std::string reason;  // why there is none
};

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "asking cuda:", index, " for attribute ",
        static_cast<int>(which));
  return value;
}

std::string version_text(int version) {  // 13000 -> "13.0"
  return concat(version / 1000, ".", version % 1000 / 10);
}

// Code for sm_80 and sm_89 runs on later minor versions; code for the "a" targets on exactly one.
std::optional<Arch> arch_of(int major, int minor) {
  if (major == 8) return minor >= 9 ? Arch::sm_89 : Arch::sm_80;
  if (major == 9 && minor == 0) return Arch::sm_90a;
  if (major == 10 && minor == 0) return Arch::sm_100a;
  if (major == 12 && minor == 0) return Arch::sm_120a;
  return std::nullopt;
}

Found describe(int index, const std::string& driver) {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, index), "asking cuda:", index, " for its properties");
  Found found;
  DeviceProperties& out = found.properties;
  out.name = p.name;
  out.memory_bytes = static_cast<int64_t>(p.totalGlobalMem);
  out.l2_bytes = p.l2CacheSize;
  out.sm_count = p.multiProcessorCount;
  out.shared_per_block = static_cast<int>(p.sharedMemPerBlockOptin);
  out.shared_per_sm = static_cast<int>(p.sharedMemPerMultiprocessor);
  out.registers_per_sm = p.regsPerMultiprocessor;
  out.threads_per_block = p.maxThreadsPerBlock;
  out.threads_per_sm = p.maxThreadsPerMultiProcessor;
  out.blocks_per_sm = p.maxBlocksPerMultiProcessor;
  // 8 is the portable size; GB20x (sm_120a) keeps to it too.
  out.cluster_size = attribute(cudaDevAttrClusterLaunch, index) != 0 ? 8 : 1;
  out.clock_ghz = attribute(cudaDevAttrClockRate, index) * 1e-6;
  out.driver = driver;
  if (const std::optional<Arch> arch = arch_of(p.major, p.minor)) {
    out.arch = *arch;
  } else {
    found.refused =
        concat("device cuda:", index, " (", p.name, ") has compute capability ", p.major, ".",
               p.minor, ", for which Halftone has no kernels; 8.x, 9.0, 10.0 and 12.0 have some");
  }
  return found;
}

Machine look() {
  Machine machine;
  int driver = 0, count = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (driver == 0) {
    machine.reason =
        "this machine has no NVIDIA driver; install one for CUDA " + version_text(CUDART_VERSION);
  } else if (error == cudaErrorInsufficientDriver) {
    machine.reason =
        concat("the NVIDIA driver supports CUDA ", version_text(driver), " and this build needs ",
               version_text(CUDART_VERSION), "; update the driver");
  } else if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    machine.reason = "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide it)";
  } else if (error != cudaSuccess) {
    machine.reason = concat("the NVIDIA driver does not answer: ", cudaGetErrorString(error), " (",
                            cudaGetErrorName(error), ")");
  } else {
    for (int i = 0; i < count; ++i) {
      machine.devices.push_back(describe(i, "CUDA " + version_text(driver)));
    }
  }
  cudaGetLastError();
  return machine;
}

const Machine& machine() {
  static const Machine found = look();
  return found;
}

}  // namespace

int device_count(std::string* reason) {
  if (reason != nullptr) *reason = machine().reason;
  return static_cast<int>(machine().devices.size());
}

Device device(int index) {
  const int count = device_count(nullptr);
  if (count == 0) {
    fail(ErrorCode::unsupported, "device cuda:", index, " is not available: ", machine().reason,
         ", or use cpu");
  }
  if (index < 0 || index >= count) {
    fail(ErrorCode::unsupported, "device cuda:", index, " is not there: this machine has cuda:0",
         count > 1 ? concat(" to cuda:", count - 1) : std::string(), ", or use cpu");
  }
  const Found& found = machine().devices[static_cast<size_t>(index)];
  if (!found.refused.empty()) fail(ErrorCode::unsupported, found.refused, "; use cpu");
  return DeviceAccess::make(Device::Kind::cuda, index, found.properties.arch);
}

const DeviceProperties& properties(const Device& device) {
  return machine().devices.at(static_cast<size_t>(device.index())).properties;
}

void* driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr) {
    cudaGetLastError();
    fail(ErrorCode::unsupported, "the NVIDIA driver has no ", name,
         machine().reason.empty() ? "; update it" : ": " + machine().reason);
  }
  return function;
}

}  // namespace halftone::cuda
