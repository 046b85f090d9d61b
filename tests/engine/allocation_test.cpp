// A decode step allocates no memory: everything is made when the session is, or when its cache
// grows by a page. Every way to memory that the library has goes through one of these counters.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/support/memory_model.h"

namespace {
std::atomic<int64_t> allocations{0};

void* counted(size_t size, size_t alignment) {
  ++allocations;
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<size_t>(size, 1)) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}
}  // namespace

// Not inlined: the compiler would see memory of one family given back to another.
[[gnu::noinline]] void* operator new(size_t size) {
  return counted(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// Tensors come from here.
extern "C" void* aligned_alloc(size_t alignment, size_t size) { return counted(size, alignment); }

namespace halftone {
namespace {

int64_t allocations_of_steps(const ModelConfig& config, const char* weights, Format kv) {
  SessionOptions options;
  options.kv = kv;
  options.threads = 2;
  Session session(test::make_model(test::random_checkpoint(config), weights), options);
  const int32_t token = 7;
  // Behind the first page of 64; the second holds what is counted. 100 tokens before, so that the
  // list of tokens (which doubles) has room.
  for (int i = 0; i < 100; ++i) session.forward(std::span(&token, 1));
  const int64_t before = allocations;
  for (int i = 0; i < 20; ++i) session.forward(std::span(&token, 1));
  return allocations - before;
}

TEST(Allocation, DecodeStepsMakeNone) {
  for (const char* weights : {"bf16", "nvfp4", "int4"}) {
    for (const Format kv : {Format::bf16, Format::fp8_e4m3, Format::nvfp4}) {
      SCOPED_TRACE(std::string(weights) + " with a cache in " + name(kv));
      EXPECT_EQ(allocations_of_steps(test::small_config(), weights, kv), 0);
      EXPECT_EQ(allocations_of_steps(test::small_moe_config(), weights, kv), 0);
    }
  }
}

TEST(Allocation, TheCountersCount) {
  const int64_t before = allocations;
  const Tensor tensor = Tensor::empty({16}, Format::f32);
  EXPECT_GE(allocations - before, 1);
  const int64_t between = allocations;
  const auto number = std::make_unique<std::string>(100, 'x');
  EXPECT_GE(allocations - between, 2);
}

}  // namespace
}  // namespace halftone
