// Where a tensor lives and where an operation runs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace halftone {

// GPU architectures, named as the compiler names its targets.
enum class Arch : uint8_t { sm_80, sm_89, sm_90a, sm_100a, sm_120a };
const char* name(Arch);

class Device {
 public:
  enum class Kind : uint8_t { cpu, cuda, simulator };

  Device() = default;
  static Device cpu() { return {}; }
  // Error::unsupported, saying what to do, when this build has no CUDA backend, the machine no
  // driver or no such device, or the build no kernels for it.
  static Device cuda(int index = 0);
  // Error::unsupported when this build has no simulator.
  static Device simulator(Arch);
  // "cpu", "cuda:0", "sim:sm_90a".
  static Device parse(std::string_view);

  Kind kind() const { return kind_; }
  int index() const { return index_; }
  Arch arch() const { return arch_; }
  std::string name() const;
  bool is_cpu() const { return kind_ == Kind::cpu; }
  bool operator==(const Device&) const = default;

 private:
  friend struct DeviceAccess;  // the backends make devices
  Kind kind_ = Kind::cpu;
  int index_ = 0;
  Arch arch_ = Arch::sm_80;
};

// What a GPU, real or simulated, is and allows.
struct DeviceProperties {
  std::string name;  // "NVIDIA H200"
  Arch arch = Arch::sm_80;
  int64_t memory_bytes = 0, l2_bytes = 0;
  int sm_count = 0;
  int shared_per_block = 0;  // largest dynamic shared memory a kernel may ask for, bytes
  int shared_per_sm = 0;
  int registers_per_sm = 0;
  int threads_per_block = 0, threads_per_sm = 0, blocks_per_sm = 0;
  int cluster_size = 1;  // largest portable number of blocks per cluster
  double clock_ghz = 0;
  std::string driver;  // "CUDA 13.0", or what simulates
};
// Of a CUDA or simulated device.
const DeviceProperties& properties(const Device&);
// CUDA devices of this machine; 0 where build, driver or machine has none, and `reason` says why.
int cuda_device_count(std::string* reason = nullptr);

// ISA levels of the CPU kernels, each including the one before.
enum class CpuLevel : uint8_t {
  baseline,     // x86-64-v2, or any other processor
  avx2,         // AVX2, FMA, F16C
  avx512,       // F, BW, VL, DQ, CD
  avx512_bf16,  // also VNNI, BF16, VBMI
};
inline constexpr int kCpuLevelCount = 4;
const char* name(CpuLevel);
// What this processor and its operating system can run.
CpuLevel detected_cpu_level();
// The level in force: the detected one, or the one named by the environment variable HALFTONE_CPU.
// A name that is unknown or above the detected level is an Error.
CpuLevel cpu_level();
// Processor name as it states it, or "unknown".
std::string cpu_name();

}  // namespace halftone
