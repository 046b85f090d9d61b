#include "sim/execution/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/message.h"

#if defined(__SANITIZE_ADDRESS__)
#define HALFTONE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HALFTONE_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HALFTONE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HALFTONE_TSAN 1
#endif
#endif

#if defined(HALFTONE_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(HALFTONE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(HALFTONE_UCONTEXT)
// void halftone_sim_switch(void** save, void* load): keeps what the System V ABI asks a function to
// keep (six registers, the control words of SSE and x87) on the old stack, and takes it from the
// new one.
asm(R"(
.text
.align 16
.globl halftone_sim_switch
.hidden halftone_sim_switch
.type halftone_sim_switch, @function
halftone_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  stmxcsr (%rsp)
  fnstcw 4(%rsp)
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  ldmxcsr (%rsp)
  fldcw 4(%rsp)
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size halftone_sim_switch, .-halftone_sim_switch

# First frame of a fiber: prepare() left the entry in r12 and its argument in r13.
.align 16
.globl halftone_sim_enter
.hidden halftone_sim_enter
.type halftone_sim_enter, @function
halftone_sim_enter:
  .cfi_startproc
  .cfi_undefined rip
  movq %r13, %rdi
  call *%r12
  ud2
  .cfi_endproc
.size halftone_sim_enter, .-halftone_sim_enter
)");
extern "C" void halftone_sim_switch(void** save, void* load);
extern "C" void halftone_sim_enter();
#endif

namespace halftone::sim {

namespace {

#if defined(HALFTONE_ASAN)
thread_local Fiber* leaving = nullptr;  // whose bounds the next fiber learns

void finish_switch(Fiber& now) {
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(now.fake_stack, &bottom, &bytes);
  now.fake_stack = nullptr;
  leaving->own_bottom = bottom;
  leaving->own_bytes = bytes;
}
#endif

// What a new fiber runs first.
struct Start {
  void (*entry)(void*);
  void* argument;
  Fiber* fiber;
};

void first_frame(void* place) {
  const Start start = *static_cast<Start*>(place);
#if defined(HALFTONE_ASAN)
  finish_switch(*start.fiber);
#endif
  start.entry(start.argument);
}

#if defined(HALFTONE_UCONTEXT)
void context_entry(unsigned high, unsigned low) {
  first_frame(reinterpret_cast<void*>(uintptr_t{high} << 32 | low));
}
#endif

void jump(Fiber& from, Fiber& to, [[maybe_unused]] bool forever) {
#if defined(HALFTONE_ASAN)
  leaving = &from;
  __sanitizer_start_switch_fiber(forever ? nullptr : &from.fake_stack, to.own_bottom, to.own_bytes);
#endif
#if defined(HALFTONE_TSAN)
  __tsan_switch_to_fiber(to.tsan, 0);
#endif
#if defined(HALFTONE_UCONTEXT)
  swapcontext(&from.context, &to.context);
#else
  halftone_sim_switch(&from.stack_pointer, to.stack_pointer);
#endif
#if defined(HALFTONE_ASAN)
  finish_switch(from);
#endif
}

}  // namespace

void prepare(Fiber& fiber, void (*entry)(void*), void* argument) {
#if defined(HALFTONE_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack, fiber.stack_bytes);
  fiber.fake_stack = nullptr;
  fiber.own_bottom = fiber.stack;
  fiber.own_bytes = fiber.stack_bytes;
#endif
  std::byte* top = fiber.stack + fiber.stack_bytes;
  auto* start = reinterpret_cast<Start*>(top - 64);
  *start = {entry, argument, &fiber};
#if defined(HALFTONE_UCONTEXT)
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.stack_bytes - 64;
  fiber.context.uc_link = nullptr;
  const auto place = reinterpret_cast<uintptr_t>(start);
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(context_entry), 2,
              static_cast<unsigned>(place >> 32), static_cast<unsigned>(place));
#else
  // The frame that halftone_sim_switch pops: control words, r15 .. rbp, return address.
  auto* frame = reinterpret_cast<uint64_t*>(top - 64) - 10;
  uint32_t mxcsr;
  uint16_t x87;
  asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(x87));
  frame[0] = mxcsr | uint64_t{x87} << 32;
  frame[1] = frame[2] = 0;                              // r15, r14
  frame[3] = reinterpret_cast<uint64_t>(start);         // r13
  frame[4] = reinterpret_cast<uint64_t>(&first_frame);  // r12
  frame[5] = frame[6] = 0;                              // rbx, rbp
  frame[7] = reinterpret_cast<uint64_t>(&halftone_sim_enter);
  frame[8] = frame[9] = 0;  // the stack is aligned to 16 bytes where halftone_sim_enter calls
  fiber.stack_pointer = frame;
#endif
}

void switch_fiber(Fiber& from, Fiber& to) { jump(from, to, false); }

void leave_fiber(Fiber& from, Fiber& to) {
  jump(from, to, true);
  __builtin_unreachable();
}

void adopt_thread([[maybe_unused]] Fiber& fiber) {
#if defined(HALFTONE_TSAN)
  fiber.tsan = __tsan_get_current_fiber();
#endif
}

Fiber* FiberPool::take() {
  if (free_.empty()) map(all_.size() < kGuarded ? 1 : kRow);
  Fiber* fiber = free_.back();
  free_.pop_back();
  return fiber;
}

void FiberPool::map(size_t count) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = count * kStackBytes + page;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (base == MAP_FAILED || mprotect(base, page, PROT_NONE) != 0) {
    if (base != MAP_FAILED) munmap(base, bytes);
    fail(ErrorCode::out_of_memory, "the simulator cannot map stack number ", all_.size() + 1,
         " of ", kStackBytes, " bytes; simulate fewer threads at a time");
  }
  mappings_.emplace_back(base, bytes);
  for (size_t i = 0; i < count; ++i) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = static_cast<std::byte*>(base) + page + i * kStackBytes;
    // Tops a page apart would all fall into the same cache sets.
    fiber->stack_bytes = kStackBytes - all_.size() % 32 * 128;
#if defined(HALFTONE_TSAN)
    fiber->tsan = __tsan_create_fiber(0);
#endif
    free_.push_back(fiber.get());
    all_.push_back(std::move(fiber));
  }
}

FiberPool::~FiberPool() {
#if defined(HALFTONE_TSAN)
  for (const auto& fiber : all_) __tsan_destroy_fiber(fiber->tsan);
#endif
  for (const auto& [base, bytes] : mappings_) {
#if defined(HALFTONE_ASAN)
    ASAN_UNPOISON_MEMORY_REGION(base, bytes);
#endif
    munmap(base, bytes);
  }
}

}  // namespace halftone::sim
