// Stacks that take turns on one OS thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#if !defined(__x86_64__) && !defined(HALFTONE_UCONTEXT)
#define HALFTONE_UCONTEXT 1
#endif
#if defined(HALFTONE_UCONTEXT)
#include <ucontext.h>
#endif

namespace halftone::sim {

// A stack and the place where it stopped. A fiber without a stack stands for the OS thread's own.
struct Fiber {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;  // lowest usable byte; the page below faults
  size_t stack_bytes = 0;
#if defined(HALFTONE_UCONTEXT)
  ucontext_t context;
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;
#endif
  // What the sanitizers want to know.
  void* fake_stack = nullptr;
  const void* own_bottom = nullptr;
  size_t own_bytes = 0;
  void* tsan = nullptr;
};

// Makes `fiber` begin with entry(argument), which must not return.
void prepare(Fiber& fiber, void (*entry)(void*), void* argument);
// Goes on with `to`; returns when somebody goes on with `from`.
void switch_fiber(Fiber& from, Fiber& to);
// The same when `from` will never go on: its stack may be prepared anew.
[[noreturn]] void leave_fiber(Fiber& from, Fiber& to);
// For the fiber that stands for the running OS thread, before its first switch.
void adopt_thread(Fiber& fiber);

// Stacks of one OS thread, mapped once and used again and again.
class FiberPool {
 public:
  FiberPool() = default;
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  Fiber* take();
  // The fiber may still be running, as long as it leaves before the next take().
  void give(Fiber* fiber) { free_.push_back(fiber); }
  size_t mapped() const { return all_.size(); }  // stacks

  // Kernels keep fragments of a few kilobytes on the stack; unoptimised and sanitized builds need
  // several times that. Pages are committed when touched.
  static constexpr size_t kStackBytes = size_t{256} << 10;

  // Every stack has a guard page of its own up to this number. A guard page takes two of the 65530
  // mappings a process may have by default, so later ones share one for a row of stacks.
  static constexpr size_t kGuarded = 8192;
  static constexpr size_t kRow = 64;

 private:
  void map(size_t count);

  std::vector<std::unique_ptr<Fiber>> all_;
  std::vector<Fiber*> free_;
  std::vector<std::pair<void*, size_t>> mappings_;
};

}  // namespace halftone::sim
