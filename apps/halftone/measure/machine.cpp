#include "measure/machine.h"

#include <unistd.h>

#include "base/bf16_dots.h"
#include "build_info.h"
#include "halftone/device.h"
#include "halftone/stream.h"

namespace halftone::app {

std::string version() {
  const std::string built_from = commit();
  return std::string("halftone ") + kVersion +
         (built_from.empty() ? std::string() : " (commit " + built_from + ")");
}

std::string commit() { return kCommit; }

int64_t total_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

const char* bf16_products() {
  return cpu_level() < CpuLevel::avx512_bf16 || multiply_bf16_in_f32() ? "f32" : "dot";
}

nlohmann::json machine(int threads) {
  return {{"processor", cpu_name()},
          {"cpu_level_detected", name(detected_cpu_level())},
          {"cpu_level", name(cpu_level())},
          {"bf16_products", bf16_products()},
          {"usable_processors", available_processors()},
          {"threads", threads},
          {"memory_bytes", total_memory()},
          {"version", kVersion},
          {"commit", commit().empty() ? nlohmann::json(nullptr) : nlohmann::json(commit())},
          {"compiler", __VERSION__}};
}

}  // namespace halftone::app
