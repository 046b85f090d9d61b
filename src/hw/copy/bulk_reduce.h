// cp.reduce.async.bulk: bulk copies that combine with what is in global memory. They join the
// thread's bulk group (bulk_copy.h).
#pragma once
#include "hw/address.h"
#include "hw/mnemonic.h"
#include "hw/types.h"
#if !defined(__CUDACC__)
#include "sim/memory/memory.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// What a reducing copy does with each element. f16 and bf16 add, min, max; f32 adds; u32 all.
enum class BulkReduction : uint8_t { add, min, max, inc, dec, and_, or_, xor_ };

template <BulkReduction kReduction>
constexpr auto reduction_name() {
  if constexpr (kReduction == BulkReduction::add) return Text("add");
  if constexpr (kReduction == BulkReduction::min) return Text("min");
  if constexpr (kReduction == BulkReduction::max) return Text("max");
  if constexpr (kReduction == BulkReduction::inc) return Text("inc");
  if constexpr (kReduction == BulkReduction::dec) return Text("dec");
  if constexpr (kReduction == BulkReduction::and_) return Text("and");
  if constexpr (kReduction == BulkReduction::or_) return Text("or");
  if constexpr (kReduction == BulkReduction::xor_) return Text("xor");
}

#if !defined(__CUDACC__)
namespace model {
// none, add, min, max, ... : the simulator's list starts with none.
constexpr sim::TensorReduction simulated(BulkReduction r) {
  return static_cast<sim::TensorReduction>(static_cast<int>(r) + 1);
}
constexpr sim::TensorMapType map_type(Type type) {
  switch (type) {
    case Type::f16:
      return sim::TensorMapType::f16;
    case Type::bf16:
      return sim::TensorMapType::bf16;
    case Type::f32:
      return sim::TensorMapType::f32;
    case Type::f64:
      return sim::TensorMapType::f64;
    case Type::s32:
      return sim::TensorMapType::s32;
    case Type::s64:
      return sim::TensorMapType::s64;
    case Type::u64:
    case Type::b64:
      return sim::TensorMapType::u64;
    default:
      return sim::TensorMapType::u32;
  }
}
}  // namespace model
#endif

// Global memory becomes itself combined with shared memory, element by element, each one
// atomically.
template <BulkReduction kReduction, Type kType, class Target = ThisTarget>
HT_DEVICE void bulk_reduce(void* to, SharedAddress from, uint32_t bytes,
                           Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
  constexpr bool kHalf = kType == Type::f16 || kType == Type::bf16;
  constexpr bool kBits = kReduction >= BulkReduction::and_;
  static_assert(!kHalf || kReduction <= BulkReduction::max, "f16 and bf16: add, min, max");
  static_assert((kType != Type::f32 && kType != Type::f64) || kReduction == BulkReduction::add,
                "f32 and f64: add");
  static_assert(kType != Type::s64 || kReduction != BulkReduction::add, "s64: min and max");
  static_assert(!kBits || kType == Type::b32 || kType == Type::b64, "bitwise: b32, b64");
#if HT_GPU
  if constexpr (kHalf && kReduction == BulkReduction::add) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.%3 [%0], [%1], %2;" ::"l"(to),
        "r"(from.value), "r"(bytes), "C"(TypeName<kType>::text)
        : "memory");
  } else {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.%3.%4 [%0], [%1], %2;" ::"l"(to),
        "r"(from.value), "r"(bytes), "C"(Mnemonic<reduction_name<kReduction>()>::text),
        "C"(TypeName<kType>::text)
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.reduce.async.bulk", site);
  sim::bulk_reduce(sim::self(), to, from.value, bytes, model::map_type(kType),
                   model::simulated(kReduction), site);
#endif
}

template <BulkReduction kReduction, Type kType, class Target = ThisTarget>
HT_DEVICE void bulk_reduce(void* to, SharedAddress from, uint32_t bytes, CachePolicy policy,
                           Site site = Site::current()) {
  static_assert(Target::has(Feature::mbarrier_tx), "bulk copies exist from sm_90 on");
  constexpr bool kHalf = kType == Type::f16 || kType == Type::bf16;
  constexpr bool kBits = kReduction >= BulkReduction::and_;
  static_assert(!kHalf || kReduction <= BulkReduction::max, "f16 and bf16: add, min, max");
  static_assert((kType != Type::f32 && kType != Type::f64) || kReduction == BulkReduction::add,
                "f32 and f64: add");
  static_assert(kType != Type::s64 || kReduction != BulkReduction::add, "s64: min and max");
  static_assert(!kBits || kType == Type::b32 || kType == Type::b64, "bitwise: b32, b64");
#if HT_GPU
  if constexpr (kHalf && kReduction == BulkReduction::add) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.add.noftz.%3 [%0], "
        "[%1], %2, %4;" ::"l"(to),
        "r"(from.value), "r"(bytes), "C"(TypeName<kType>::text), "l"(policy.bits)
        : "memory");
  } else {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.%3.%4 [%0], [%1], %2, "
        "%5;" ::"l"(to),
        "r"(from.value), "r"(bytes), "C"(Mnemonic<reduction_name<kReduction>()>::text),
        "C"(TypeName<kType>::text), "l"(policy.bits)
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::mbarrier_tx, "cp.reduce.async.bulk", site);
  static_cast<void>(policy);
  sim::bulk_reduce(sim::self(), to, from.value, bytes, model::map_type(kType),
                   model::simulated(kReduction), site);
#endif
}

}  // namespace halftone::hw
