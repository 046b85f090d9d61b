#include "sim/memory/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "base/message.h"

namespace halftone::sim {

namespace {

constexpr size_t kAlignment = 256;               // cudaMalloc's
constexpr size_t kKeptBytes = size_t{64} << 20;  // of freed memory, to recognise late accesses

struct Registry {
  std::shared_mutex mutex;
  // By the lowest address of the red zone before the data.
  std::map<const uint8_t*, std::unique_ptr<Allocation>> all;
  std::deque<const uint8_t*> freed;
  size_t freed_bytes = 0;
  uint64_t count = 0;
  int launches = 0;  // running ones: what they may have looked up stays

  // Gives the oldest freed memory back; the lock is held.
  void trim() {
    while (launches == 0 && freed_bytes > kKeptBytes && !freed.empty()) {
      const auto at = all.find(freed.front());
      freed.pop_front();
      freed_bytes -= at->second->bytes;
      std::free(const_cast<uint8_t*>(at->first));
      all.erase(at);
    }
  }
};

Registry& registry() {
  static auto* one = new Registry;  // outlives every tensor with static storage
  return *one;
}

}  // namespace

void* allocate(Arch arch, size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const size_t whole = rounded + 2 * kRedZone;
  auto* base =
      rounded < bytes ? nullptr : static_cast<uint8_t*>(std::aligned_alloc(kAlignment, whole));
  if (base == nullptr) {
    fail(ErrorCode::out_of_memory, bytes, " bytes are needed on sim:", halftone::name(arch),
         ", which the system refused");
  }
  std::memset(base, 0xff, whole);
  auto allocation = std::make_unique<Allocation>();
  allocation->data = base + kRedZone;
  allocation->bytes = bytes;
  allocation->arch = arch;
  const size_t words = bytes / (32 * 64) + 1;
  allocation->touched = std::make_unique<std::atomic<uint64_t>[]>(words);
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  allocation->number = ++all.count;
  void* data = allocation->data;
  all.all.emplace(base, std::move(allocation));
  return data;
}

void deallocate(void* data) noexcept {
  if (data == nullptr) return;
  Registry& all = registry();
  const std::unique_lock lock(all.mutex);
  const auto at = all.all.find(static_cast<const uint8_t*>(data) - kRedZone);
  if (at == all.all.end() || at->second->freed) return;  // owners free once
  at->second->freed = true;
  std::memset(data, 0xff, at->second->bytes);
  all.freed.push_back(at->first);
  all.freed_bytes += at->second->bytes;
  all.trim();
}

Allocation* find_allocation(const void* address) {
  const auto byte = static_cast<const uint8_t*>(address);
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  auto at = all.all.upper_bound(byte);
  if (at == all.all.begin()) return nullptr;
  --at;
  Allocation& one = *at->second;
  const size_t rounded = (one.bytes + kAlignment - 1) / kAlignment * kAlignment;
  return byte < one.data + rounded + kRedZone ? &one : nullptr;
}

void forget_touched() {
  Registry& all = registry();
  const std::shared_lock lock(all.mutex);
  for (const auto& [base, one] : all.all) {
    if (!one->any_touched.exchange(false)) continue;
    for (size_t w = 0; w < one->bytes / (32 * 64) + 1; ++w) one->touched[w].store(0);
  }
}

LaunchGuard::LaunchGuard() {
  const std::unique_lock lock(registry().mutex);
  ++registry().launches;
}

LaunchGuard::~LaunchGuard() {
  const std::unique_lock lock(registry().mutex);
  --registry().launches;
  registry().trim();
}

}  // namespace halftone::sim
