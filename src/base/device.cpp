#include "halftone/device.h"

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/backend.h"
#include "base/bf16_dots.h"
#include "base/message.h"
#include "halftone/memory.h"

namespace halftone {

const char* name(Arch arch) {
  switch (arch) {
    case Arch::sm_80:
      return "sm_80";
    case Arch::sm_89:
      return "sm_89";
    case Arch::sm_90a:
      return "sm_90a";
    case Arch::sm_100a:
      return "sm_100a";
    case Arch::sm_120a:
      return "sm_120a";
  }
  return "?";
}

Device Device::cuda(int index) { return halftone::cuda::device(index); }
Device Device::simulator(Arch arch) { return halftone::simulator::device(arch); }

const DeviceProperties& properties(const Device& device) {
  switch (device.kind()) {
    case Device::Kind::cuda:
      return cuda::properties(device);
    case Device::Kind::simulator:
      return simulator::properties(device);
    case Device::Kind::cpu:
      break;
  }
  fail(ErrorCode::invalid_argument, "properties are of GPUs; the cpu has none");
}

DeviceMemory device_memory(const Device& device) {
  require(device.kind() == Device::Kind::cuda, "device_memory is of CUDA devices, not of ",
          device.name());
  return cuda::memory(device);
}

int cuda_device_count(std::string* reason) { return cuda::device_count(reason); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    const std::string digits(text.substr(5));
    require(!digits.empty() && digits.size() < 4 &&
                digits.find_first_not_of("0123456789") == std::string::npos,
            "device \"", text, "\": cuda: takes a device number, for example cuda:0");
    return cuda(std::stoi(digits));
  }
  if (text.starts_with("sim:")) {
    for (Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
      if (text.substr(4) == halftone::name(arch)) return simulator(arch);
    }
  }
  fail(ErrorCode::invalid_argument, "device \"", text,
       "\" is not known; the devices are cpu, cuda:N and sim:ARCH");
}

std::string Device::name() const {
  switch (kind_) {
    case Kind::cpu:
      return "cpu";
    case Kind::cuda:
      return concat("cuda:", index_);
    case Kind::simulator:
      return concat("sim:", halftone::name(arch_));
  }
  return "?";
}

const char* name(CpuLevel level) {
  switch (level) {
    case CpuLevel::baseline:
      return "baseline";
    case CpuLevel::avx2:
      return "avx2";
    case CpuLevel::avx512:
      return "avx512";
    case CpuLevel::avx512_bf16:
      return "avx512_bf16";
  }
  return "?";
}

CpuLevel detected_cpu_level() {
#if defined(__x86_64__)
  // These builtins ask CPUID and, through XGETBV, whether the system saves the wide registers.
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512vnni") &&
                    __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi");
  const CpuLevel level = bf16     ? CpuLevel::avx512_bf16
                         : avx512 ? CpuLevel::avx512
                         : avx2   ? CpuLevel::avx2
                                  : CpuLevel::baseline;
#if defined(HALFTONE_SECOND_LEVEL)  // a build for sanitizers has the code of two levels
  return level < CpuLevel::HALFTONE_SECOND_LEVEL ? CpuLevel::baseline
                                                 : CpuLevel::HALFTONE_SECOND_LEVEL;
#else
  return level;
#endif
#else
  return CpuLevel::baseline;
#endif
}

CpuLevel cpu_level() {
  static const CpuLevel detected = detected_cpu_level();
  const char* forced = std::getenv("HALFTONE_CPU");
  if (forced == nullptr || *forced == '\0') return detected;
  for (int i = 0; i < kCpuLevelCount; ++i) {
    const auto level = static_cast<CpuLevel>(i);
    if (std::strcmp(forced, name(level)) != 0) continue;
    if (level > detected) {
      fail(ErrorCode::unsupported, "HALFTONE_CPU=", forced, ": this processor reaches only ",
           name(detected));
    }
    return level;
  }
  fail(ErrorCode::invalid_argument, "HALFTONE_CPU=", forced,
       " is not a level; the levels are baseline, avx2, avx512, avx512_bf16");
}

// AMD's cores start two VDPBF16PS a cycle, twice the products of their multiply-adds in f32; an
// Intel core starts 0.45 (measured on Emerald Rapids), less than half of its own. By vendor and not
// by a measurement, so that a machine gives the same bits every time.
bool multiply_bf16_in_f32() {
  const char* forced = std::getenv("HALFTONE_BF16");
  if (forced != nullptr && *forced != '\0') {
    const bool f32 = std::strcmp(forced, "f32") == 0;
    if (f32 || std::strcmp(forced, "dot") == 0) return f32;
    fail(ErrorCode::invalid_argument, "HALFTONE_BF16=", forced,
         " is not known; bf16 is multiplied as dot or f32");
  }
#if defined(__x86_64__)
  static const bool intel = [] {
    __builtin_cpu_init();
    return __builtin_cpu_is("intel") != 0;
  }();
  return intel;
#else
  return false;
#endif
}

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace halftone
