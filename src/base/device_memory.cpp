#include "base/device_memory.h"

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "base/backend.h"
#include "base/memory_limit.h"
#include "base/message.h"
#include "halftone/stream.h"

namespace halftone {

namespace {

constexpr size_t kAlignment = 64;  // a cache line, and the widest vector register

// Below this the C library keeps blocks by itself. The address sanitizer watches freed memory, so
// that nothing is kept from it.
constexpr size_t kLarge = size_t{1} << 20;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kKeepsBlocks = false;
#elif defined(__has_feature)
constexpr bool kKeepsBlocks = !__has_feature(address_sanitizer);
#else
constexpr bool kKeepsBlocks = true;
#endif

// Blocks of this size and more start at a multiple of it and ask for pages of it: the
// processor's prefetchers stop at the end of a page, and rows of a matrix are about a small one
// each.
constexpr size_t kHugePage = size_t{2} << 20;
void* allocate_aligned(size_t bytes) {
  // The address sanitizer wants to know where a block ends.
  if (bytes < kHugePage || !kKeepsBlocks) return std::aligned_alloc(kAlignment, bytes);
  // aligned_alloc takes multiples of the alignment.
  void* data = std::aligned_alloc(kHugePage, (bytes + kHugePage - 1) / kHugePage * kHugePage);
#if defined(MADV_HUGEPAGE)
  // Only a wish: where the system does not grant it, the block works as before.
  if (data != nullptr) (void)madvise(data, bytes, MADV_HUGEPAGE);
#endif
  return data;
}

// Large blocks that were released, for the next tensor of nearly their size: fresh ones come from
// the system page by page.
class LargeBlocks {
 public:
  LargeBlocks() { blocks_.reserve(kMost / kLarge); }  // keep() must not throw
  // Null: none that fits; else its size in `bytes`.
  void* take(size_t* bytes) {
    const std::lock_guard lock(mutex_);
    for (size_t i = blocks_.size(); i-- > 0;) {  // the latest is the warmest
      if (blocks_[i].bytes < *bytes || blocks_[i].bytes - *bytes > *bytes / 8) continue;
      void* data = blocks_[i].data;
      *bytes = blocks_[i].bytes;
      kept_ -= blocks_[i].bytes;
      blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(i));
      return data;
    }
    return nullptr;
  }
  // False: the caller frees it.
  bool keep(void* data, size_t bytes) {
    if (bytes > kMost) return false;
    const std::lock_guard lock(mutex_);
    while (kept_ + bytes > kMost) {
      std::free(blocks_.front().data);
      kept_ -= blocks_.front().bytes;
      blocks_.erase(blocks_.begin());
    }
    blocks_.push_back({data, bytes});
    kept_ += bytes;
    return true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    for (const Block& block : blocks_) std::free(block.data);
    blocks_.clear();
    kept_ = 0;
  }

 private:
  static constexpr size_t kMost = size_t{128} << 20;  // bytes kept at a time
  struct Block {
    void* data;
    size_t bytes;
  };
  std::mutex mutex_;
  std::vector<Block> blocks_;
  size_t kept_ = 0;
};
LargeBlocks& large_blocks() {
  static auto* blocks = new LargeBlocks;  // outlives every tensor, static ones too
  return *blocks;
}

std::shared_ptr<const void> allocate_host(size_t bytes, void** data) {
  size_t rounded = (bytes + kAlignment) / kAlignment * kAlignment;  // never 0
  if (rounded > memory_limit()) {
    fail(ErrorCode::out_of_memory, rounded, " bytes are needed; this machine has ", memory_limit());
  }
  const bool large = kKeepsBlocks && rounded >= kLarge;
  *data = large ? large_blocks().take(&rounded) : nullptr;
  if (*data == nullptr) *data = allocate_aligned(rounded);
  if (*data == nullptr) {
    large_blocks().release();
    *data = allocate_aligned(rounded);
  }
  if (*data == nullptr) {
    fail(ErrorCode::out_of_memory, rounded, " bytes are needed, which the system refused");
  }
  if (!large) return {*data, [](const void* p) { std::free(const_cast<void*>(p)); }};
  return {*data, [rounded](const void* p) {
            void* block = const_cast<void*>(p);
            if (!large_blocks().keep(block, rounded)) std::free(block);
          }};
}

using Kind = Device::Kind;
bool either(const Device& a, const Device& b, Kind kind) {
  return a.kind() == kind || b.kind() == kind;
}

}  // namespace

std::shared_ptr<const void> allocate_memory(const Device& device, size_t bytes, void** data) {
  switch (device.kind()) {
    case Kind::cpu:
      return allocate_host(bytes, data);
    case Kind::cuda:
      *data = cuda::allocate(device, bytes);
      return {*data, [device, bytes](const void* p) {
                cuda::deallocate(device, const_cast<void*>(p), bytes);
              }};
    case Kind::simulator:
      *data = simulator::allocate(device, bytes);
      return {*data, [device, bytes](const void* p) {
                simulator::deallocate(device, const_cast<void*>(p), bytes);
              }};
  }
  return nullptr;
}

void copy_memory(const Device& to_device, void* to, const Device& from_device, const void* from,
                 size_t bytes, Stream* stream) {
  if (bytes == 0) return;
  if (either(to_device, from_device, Kind::cuda)) {
    cuda::copy(to_device, to, from_device, from, bytes, stream);
  } else if (either(to_device, from_device, Kind::simulator)) {
    simulator::copy(to_device, to, from_device, from, bytes, stream);
  } else {
    std::memcpy(to, from, bytes);
  }
}

void fill_memory(const Device& device, void* to, int byte, size_t bytes, Stream* stream) {
  if (bytes == 0) return;
  switch (device.kind()) {
    case Kind::cpu:
      std::memset(to, byte, bytes);
      return;
    case Kind::cuda:
      return cuda::fill(device, to, byte, bytes, stream);
    case Kind::simulator:
      return simulator::fill(device, to, byte, bytes, stream);
  }
}

}  // namespace halftone
