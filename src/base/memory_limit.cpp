#include "base/memory_limit.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace halftone {

size_t memory_limit() {
  static const size_t limit = [] {
    size_t bytes = SIZE_MAX;
    struct sysinfo info = {};
    if (sysinfo(&info) == 0) bytes = (info.totalram + info.totalswap) * size_t{info.mem_unit};
    // Absent, or "max", where there is no limit.
    std::ifstream group("/sys/fs/cgroup/memory.max");
    size_t group_limit = 0;
    if (group >> group_limit) bytes = std::min(bytes, group_limit);
    return bytes;
  }();
  return limit;
}

}  // namespace halftone
