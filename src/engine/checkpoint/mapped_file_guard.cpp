// A file that another process shortens while it is mapped: touching what is gone raises SIGBUS. The
// handler puts zeros in its place and marks the file; what was computed from them is refused.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <mutex>

#include "base/message.h"
#include "engine/checkpoint/mapped_file.h"
#include "halftone/mapped_files.h"

namespace halftone {

namespace {

// What the handler may look at: plain atomics, never freed.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> truncated{false};
};
constexpr size_t kRanges = 4096;  // shards of the largest checkpoints are some hundreds
Range ranges[kRanges];
std::atomic<bool> any_truncated{false};
struct sigaction previous_action;
std::mutex registering;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range& range : ranges) {
    if (address < range.begin.load() || address >= range.end.load()) continue;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* const start = reinterpret_cast<void*>(address / page * page);
    if (mmap(start, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != start)
      break;
    range.truncated = true;
    any_truncated = true;
    return;
  }
  // Not ours: as it would have been without this handler.
  if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
    previous_action.sa_sigaction(signal, info, context);
  } else {
    sigaction(signal, &previous_action, nullptr);  // the instruction runs again and ends it
  }
}

}  // namespace

size_t watch_mapping(const void* data, size_t bytes) {
  const std::lock_guard lock(registering);
  for (size_t i = 0; i < kRanges; ++i) {
    if (ranges[i].end.load() != 0) continue;
    ranges[i].truncated = false;
    ranges[i].begin = reinterpret_cast<uintptr_t>(data);
    ranges[i].end = reinterpret_cast<uintptr_t>(data) + bytes;
    return i;
  }
  return kRanges;  // not watched
}

void forget_mapping(size_t index) {
  const std::lock_guard lock(registering);
  if (index >= kRanges) return;
  ranges[index].begin = 0;
  ranges[index].end = 0;
}

void check_mapped_files() {
  if (!any_truncated.load()) return;
  for (Range& range : ranges) {
    if (range.end.load() == 0 || !range.truncated.load()) continue;
    fail(ErrorCode::io, "a file that is mapped with ", range.end.load() - range.begin.load(),
         " bytes became shorter while it was in use; put it back and load the model again");
  }
}

void guard_mapped_files() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &previous_action) == 0;
  }();
  static_cast<void>(installed);
}

}  // namespace halftone
