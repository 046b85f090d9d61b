// Kernels of verify.h around atomics, reducing copies, cp.async and what blocks of a cluster hand
// to each other.
#pragma once
#include "hw/atomic.h"
#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/copy/bulk_copy.h"
#include "hw/copy/bulk_reduce.h"
#include "hw/copy/cp_async.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "verify.h"

namespace halftone::verify {

// Each thread has a word of its own, d[i] of 2 n, which the operation combines with a[i] (and
// c[i]); d[n + i] = the word it found.
template <class Operation>
struct AtomicGlobal {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kSharedBytes = 0;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    const uint32_t n = hw::grid_size().x * kThreads;
    const uint32_t found =
        Operation::of(p.d + i, hw::load_global(p.a + i), hw::load_global(p.c + i));
    hw::store_global(p.d + n + i, found);
  }
};
template <class Operation>
struct AtomicShared {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kSharedBytes = 512;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    const uint32_t n = hw::grid_size().x * kThreads;
    const hw::SharedAddress at = hw::shared_memory_base() + 4 * hw::thread_index().x;
    hw::store_shared(at, hw::load_global(p.b + i));
    hw::barrier_sync();
    const uint32_t found = Operation::of(at, hw::load_global(p.a + i), hw::load_global(p.c + i));
    hw::store_global(p.d + n + i, found);
    hw::store_global(p.d + i, hw::load_shared<uint32_t>(at));
  }
};

using hw::Atomic;
using hw::BulkReduction;
using hw::Type;

HT_HOST_DEVICE uint32_t as_word(float x) { return std::bit_cast<uint32_t>(x); }
HT_HOST_DEVICE uint32_t as_word(int32_t x) { return static_cast<uint32_t>(x); }
HT_HOST_DEVICE uint32_t as_word(uint32_t x) { return x; }

#define HT_GLOBAL(name, operation, T)                                                           \
  struct name {                                                                                 \
    HT_DEVICE static uint32_t of(uint32_t* at, uint32_t x, uint32_t) {                          \
      return as_word(                                                                           \
          hw::atomic_global<Atomic::operation>(reinterpret_cast<T*>(at), std::bit_cast<T>(x))); \
    }                                                                                           \
  };
#define HT_SHARED(name, operation, T)                                                \
  struct name {                                                                      \
    HT_DEVICE static uint32_t of(hw::SharedAddress at, uint32_t x, uint32_t) {       \
      return as_word(hw::atomic_shared<Atomic::operation>(at, std::bit_cast<T>(x))); \
    }                                                                                \
  };
// X(name, operation, type)
// clang-format off
#define HT_ATOMICS(X)                                                            \
  X(add_u32, add, uint32_t) X(add_f32, add, float) X(min_s32, min, int32_t)      \
  X(max_s32, max, int32_t) X(min_u32, min, uint32_t) X(max_u32, max, uint32_t)   \
  X(inc_u32, inc, uint32_t) X(dec_u32, dec, uint32_t) X(and_u32, and_, uint32_t) \
  X(or_u32, or_, uint32_t) X(xor_u32, xor_, uint32_t) X(exch_u32, exch, uint32_t)
// clang-format on
namespace global_memory {
HT_ATOMICS(HT_GLOBAL)
struct cas_u32 {
  HT_DEVICE static uint32_t of(uint32_t* at, uint32_t x, uint32_t y) {
    const uint32_t expected = (y & 1) != 0 ? hw::load_global(at) : y;
    return hw::atomic_cas_global(at, expected, x);
  }
};
struct add_f16x2 {
  HT_DEVICE static uint32_t of(uint32_t* at, uint32_t x, uint32_t) {
    return hw::atomic_add_pair_global<Type::f16x2>(at, x);
  }
};
struct add_bf16x2 {
  HT_DEVICE static uint32_t of(uint32_t* at, uint32_t x, uint32_t) {
    return hw::atomic_add_pair_global<Type::bf16x2>(at, x);
  }
};
}  // namespace global_memory
namespace shared_memory {
HT_ATOMICS(HT_SHARED)
}  // namespace shared_memory
#undef HT_GLOBAL
#undef HT_SHARED

// 512 words of a, by way of shared memory, are combined with those of d.
template <BulkReduction kReduction, Type kType>
struct Reduce {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kSharedBytes = 2048;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t thread = hw::thread_index().x, block = hw::block_index().x;
    const hw::SharedAddress shared = hw::shared_memory_base();
    for (uint32_t i = thread; i < 512; i += kThreads)
      hw::store_shared(shared + 4 * i, hw::load_global(p.a + block * 512 + i));
    hw::fence_proxy_async_shared();
    hw::barrier_sync();
    if (thread != 0) return;
    hw::bulk_reduce<kReduction, kType>(p.d + block * 512, shared, 2048);
    hw::bulk_commit();
    hw::bulk_wait<0>();
  }
};

// cp.async of 4, 8 and 16 bytes whose source ends early: the rest is zero. c tells where.
struct ShortCopies {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1, kSharedBytes = 128 * 32;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    const hw::SharedAddress to = hw::shared_memory_base() + 32 * hw::thread_index().x;
    const uint32_t ends = hw::load_global(p.c + i);
    for (uint32_t j = 0; j < 8; j++) hw::store_shared(to + 4 * j, 0xEEEEEEEEu);
    hw::cp_async_zero_fill<16>(to, p.a + 8 * i, ends % 17);
    hw::cp_async_zero_fill<8>(to + 16, p.a + 8 * i + 4, (ends >> 8) % 9);
    hw::cp_async_zero_fill<4>(to + 24, p.a + 8 * i + 6, (ends >> 16) % 5);
    hw::cp_async_commit();
    hw::cp_async_wait<0>();
    for (uint32_t j = 0; j < 8; j++)
      hw::store_global(p.d + 8 * i + j, hw::load_shared<uint32_t>(to + 4 * j));
  }
};

// Two blocks of a cluster, 32 words each way: by st.shared::cluster, st.async, a copy to the other
// block, a multicast to both, and ld.shared::cluster. d = 160 words of each block.
struct Exchange {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 32, kMinBlocks = 1, kSharedBytes = 2048;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t lane = hw::lane_index(), rank = hw::cluster_rank(), other = rank ^ 1;
    const uint32_t block = hw::block_index().x;
    const uint32_t* a = p.a + block * 64;
    const hw::SharedAddress shared = hw::shared_memory_base();
    const hw::Mbarrier full{shared};
    const hw::SharedAddress stored = shared + 128, posted = shared + 256, sent = shared + 384;
    const hw::SharedAddress cast = shared + 512, source = shared + 768, kept = shared + 1024;
    if (lane == 0) {
      hw::mbarrier_init(full, 1);
      hw::fence_mbarrier_init();
      // st.async and the copy from the other block, the multicasts of both.
      hw::mbarrier_arrive_expect_tx(full, 128 + 128 + 2 * 128);
    }
    hw::store_shared(source + 4 * lane, hw::load_global(a + lane));
    hw::store_shared(kept + 4 * lane, ~hw::load_global(a + lane));
    hw::fence_proxy_async_shared();
    hw::cluster_arrive();
    hw::cluster_wait();
    hw::store_cluster(hw::map_shared_rank(stored, other) + 4 * lane, hw::load_global(a + lane));
    hw::st_async(hw::map_shared_rank(posted, other) + 4 * lane, hw::load_global(a + 32 + lane),
                 hw::map_shared_rank(full.address, other));
    if (lane == 0) {
      hw::bulk_send(hw::map_shared_rank(sent, other), source, 128,
                    hw::map_shared_rank(full.address, other));
      hw::bulk_load_multicast(cast + 128 * rank, a, 128, full, 3);
    }
    const uint32_t peeked = hw::load_cluster<uint32_t>(hw::map_shared_rank(kept, other) + 4 * lane);
    uint32_t done = 0;
    for (uint32_t i = 0; i < 2000 && done == 0; i++)
      done = hw::mbarrier_try_wait<hw::Scope::cluster>(full, 0) ? 1 : 0;
    hw::cluster_arrive();
    hw::cluster_wait();
    uint32_t* d = p.d + block * 256 + lane;
    hw::store_global(d, hw::load_shared<uint32_t>(stored + 4 * lane));
    hw::store_global(d + 32, hw::load_shared<uint32_t>(posted + 4 * lane));
    hw::store_global(d + 64, hw::load_shared<uint32_t>(sent + 4 * lane));
    hw::store_global(d + 96, hw::load_shared<uint32_t>(cast + 4 * lane));
    hw::store_global(d + 128, hw::load_shared<uint32_t>(cast + 128 + 4 * lane));
    hw::store_global(d + 160, peeked);
    hw::store_global(d + 192, done);
  }
};

// clang-format off
#define HT_GLOBAL_ROW(X, name) X((AtomicGlobal<global_memory::name>), "atom.global " #name)
#define HT_SHARED_ROW(X, name) X((AtomicShared<shared_memory::name>), "atom.shared " #name)
#define HT_ATOMIC_ROWS(X, row)                                                              \
  row(X, add_u32) row(X, add_f32) row(X, min_s32) row(X, max_s32) row(X, min_u32)           \
  row(X, max_u32) row(X, inc_u32) row(X, dec_u32) row(X, and_u32) row(X, or_u32)            \
  row(X, xor_u32) row(X, exch_u32)
// X(kernel, name): d has two words a thread, the first of which b fills.
#define HT_VERIFY_ATOMIC(X)                                                                 \
  HT_ATOMIC_ROWS(X, HT_GLOBAL_ROW) HT_GLOBAL_ROW(X, cas_u32) HT_GLOBAL_ROW(X, add_f16x2)    \
  HT_GLOBAL_ROW(X, add_bf16x2) HT_ATOMIC_ROWS(X, HT_SHARED_ROW)
// X(kernel, name): 512 words a block.
#define HT_VERIFY_REDUCE(X)                                                                 \
  X((Reduce<BulkReduction::add, Type::u32>), "cp.reduce.async.bulk add.u32")                \
  X((Reduce<BulkReduction::add, Type::f32>), "cp.reduce.async.bulk add.f32")                \
  X((Reduce<BulkReduction::add, Type::f16>), "cp.reduce.async.bulk add.noftz.f16")          \
  X((Reduce<BulkReduction::add, Type::bf16>), "cp.reduce.async.bulk add.noftz.bf16")        \
  X((Reduce<BulkReduction::min, Type::f16>), "cp.reduce.async.bulk min.f16")                \
  X((Reduce<BulkReduction::max, Type::f16>), "cp.reduce.async.bulk max.f16")                \
  X((Reduce<BulkReduction::min, Type::bf16>), "cp.reduce.async.bulk min.bf16")              \
  X((Reduce<BulkReduction::max, Type::bf16>), "cp.reduce.async.bulk max.bf16")              \
  X((Reduce<BulkReduction::min, Type::u32>), "cp.reduce.async.bulk min.u32")                \
  X((Reduce<BulkReduction::max, Type::s32>), "cp.reduce.async.bulk max.s32")                \
  X((Reduce<BulkReduction::inc, Type::u32>), "cp.reduce.async.bulk inc.u32")                \
  X((Reduce<BulkReduction::dec, Type::u32>), "cp.reduce.async.bulk dec.u32")                \
  X((Reduce<BulkReduction::and_, Type::b32>), "cp.reduce.async.bulk and.b32")               \
  X((Reduce<BulkReduction::or_, Type::b32>), "cp.reduce.async.bulk or.b32")                 \
  X((Reduce<BulkReduction::xor_, Type::b32>), "cp.reduce.async.bulk xor.b32")
#define HT_VERIFY_TRAFFIC(X) \
  HT_VERIFY_ATOMIC(X) HT_VERIFY_REDUCE(X) X((ShortCopies), "cp.async") X((Exchange), "cluster")
// clang-format on

extern const Entries kTrafficEntries;

}  // namespace halftone::verify
