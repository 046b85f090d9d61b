// Rules of mbarriers and clusters.
#include "sim/rule_cases.h"

namespace halftone::test {
namespace {

constexpr LaunchShape kWarp{.block = {32}, .shared_bytes = 4096};
constexpr LaunchShape kPair{.grid = {2}, .block = {32}, .cluster = {2}, .shared_bytes = 4096};

// One thread loads `sizes` bytes in several copies, `expected` are announced; all wait.
void load_and_wait(Thread& me, uint32_t expected, std::vector<uint32_t> sizes) {
  const uint32_t full = base_of(me);
  make_barriers(me, {{full, 1}});
  if (me.lane == 0) {
    mbarrier_arrive(me, full, {.expect_bytes = expected}, at());
    uint32_t offset = 1024;
    for (const uint32_t bytes : sizes) {
      bulk_load(me, base_of(me) + offset, scratch(), bytes, full, 0, at());
      offset += bytes;
    }
  }
  wait(me, full, 0);
}

// Block 1 writes to block 0's shared memory and arrives there; block 0 waits and reads.
void hand_over(Thread& me, MemoryScope arrive_scope, MemoryScope wait_scope, Site write,
               Site read) {
  const uint32_t full = base_of(me), data = base_of(me) + 128;
  make_barriers(me, {{full, 1}});
  cluster_arrive(true, at());
  cluster_wait(at());
  if (cluster_rank() == 1 && me.lane == 0) {
    write_shared(me, map_shared_rank(me, data, 0, at()), 5u, write);
    mbarrier_arrive(me, map_shared_rank(me, full, 0, at()), {.scope = arrive_scope}, at());
  }
  if (cluster_rank() == 0 && me.lane == 0) {
    wait(me, full, 0, at(), wait_scope);
    read_shared<uint32_t>(me, data, read);
  }
  cluster_arrive(true, at());
  cluster_wait(at());
  // The other block's barrier gets its arrival too, so that it ends complete.
}

const RuleCase kCases[] = {
    {"more_arrivals_than_expected", "mbarrier.underflow", kWarp,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), fixed ? 32u : 5u}});
       if (!fixed && me.lane > 5) return;
       if (!fixed && me.lane == 5) {
         mbarrier_arrive(me, base_of(me), {.count = 6}, at());
         return;
       }
       if (fixed) mbarrier_arrive(me, base_of(me), {}, at());
     }},
    {"more_bytes_than_expected", "mbarrier.too_many_bytes|mbarrier.bytes_left_over", kWarp,
     [](Thread& me, bool fixed) {
       load_and_wait(me, fixed ? 512 : 256, {256, 256});
     }},
    {"one_copy_too_large", "mbarrier.too_many_bytes", kWarp,
     [](Thread& me, bool fixed) { load_and_wait(me, fixed ? 512 : 496, {512}); }},
    {"fewer_bytes_than_expected", "deadlock", kWarp,
     [](Thread& me, bool fixed) {
       load_and_wait(me, fixed ? 512 : 528, {256, 256});
     }},
    {"arrive_before_expect", "mbarrier.bytes_left_over", kWarp,
     [](Thread& me, bool fixed) {  // the phase completes before its bytes are announced
       const uint32_t full = base_of(me);
       make_barriers(me, {{full, 1}});
       if (me.lane != 0) return;
       if (fixed) {
         mbarrier_arrive(me, full, {.expect_bytes = 256}, at());
         bulk_load(me, full + 1024, scratch(), 256, full, 0, at());
         wait(me, full, 0);
       } else {
         bulk_load(me, full + 1024, scratch(), 256, full, 0, at());
         mbarrier_arrive(me, full, {}, at(1));
       }
     }},
    {"too_many_bytes_announced", "mbarrier.bytes_range", kWarp,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), 1}});
       if (me.lane != 0 || fixed) return;
       mbarrier_expect_tx(me, base_of(me), 1 << 20, at(1));
     }},
    {"count_of_zero", "mbarrier.count", kWarp,
     [](Thread& me, bool fixed) {
       if (me.lane == 0) mbarrier_init(me, base_of(me), fixed ? 1 : 0, at(1));
     }},
    {"phase_left_open", "mbarrier.exit", kWarp,
     [](Thread& me, bool fixed) {
       if (me.index == 0) mbarrier_init(me, base_of(me), 32, at(1));
       block_sync();
       if (fixed || me.lane != 7) mbarrier_arrive(me, base_of(me), {}, at());
     }},
    {"phase_aliasing",
     "mbarrier.phase_aliasing",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {  // three phases pass while the other thread waits for one
       const uint32_t full = base_of(me), back = full + 8, go = full + 16;
       make_barriers(me, {{full, 1}, {back, 1}, {go, 1}});
       if (me.index == 0) {
         for (uint32_t phase = 0; phase < 4; ++phase) {
           mbarrier_arrive(me, full, {}, at());
           wait(me, full, phase & 1);
           if (fixed || phase == 0) wait(me, back, phase & 1);
         }
         mbarrier_arrive(me, go, {}, at());
       } else if (me.index == 32) {
         for (uint32_t phase = 0; phase < 2 || (fixed && phase < 4); ++phase) {
           if (!fixed && phase == 1) wait(me, go, 0);
           wait(me, full, phase & 1, at(fixed || phase == 0 ? 0 : 1));
           if (fixed || phase == 0) mbarrier_arrive(me, back, {}, at());
         }
       }
     }},
    {"phase_nobody_waited_for", "mbarrier.unobserved", kWarp,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), 1}});
       if (me.lane != 0) return;
       for (uint32_t phase = 0; phase < 2; ++phase) {
         mbarrier_arrive(me, base_of(me), {}, at(1));
         if (fixed) wait(me, base_of(me), phase);
       }
     }},
    {"use_before_init", "mbarrier.not_live", kWarp,
     [](Thread& me, bool fixed) {
       if (fixed) make_barriers(me, {{base_of(me), 32}});
       mbarrier_arrive(me, base_of(me), {}, at(1));
     }},
    {"init_not_ordered",
     "mbarrier.init_not_ordered|mbarrier.not_live",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       if (me.index == 0) mbarrier_init(me, base_of(me), 64, at());
       if (fixed) block_sync();
       mbarrier_arrive(me, base_of(me), {}, at(1));
     }},
    {"init_of_a_live_one", "mbarrier.init_live", kWarp,
     [](Thread& me, bool fixed) {
       if (me.lane != 0) return;
       mbarrier_init(me, base_of(me), 1, at());
       if (fixed) mbarrier_inval(me, base_of(me), at());
       mbarrier_init(me, base_of(me), 2, at(1));
     }},
    {"plain_access", "mbarrier.plain_access", kWarp,
     [](Thread& me, bool fixed) {
       if (me.lane != 0) return;
       mbarrier_init(me, base_of(me), 1, at());
       if (fixed) mbarrier_inval(me, base_of(me), at());
       write_shared(me, base_of(me) + 4, 1u, at(1));
     }},
    {"init_not_fenced_for_copies", "mbarrier.init_not_fenced", kWarp,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), 1}}, fixed);
       if (me.lane != 0) return;
       mbarrier_arrive(me, base_of(me), {.expect_bytes = 256}, at());
       bulk_load(me, base_of(me) + 1024, scratch(), 256, base_of(me), 0, at(1));
       wait(me, base_of(me), 0);
     }},
    {"init_not_fenced_for_the_cluster", "mbarrier.init_not_fenced", kPair,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), 1}}, fixed);
       cluster_arrive(true, at());
       cluster_wait(at());
       if (me.lane == 0) {
         const uint32_t peer = map_shared_rank(me, base_of(me), cluster_rank() ^ 1, at());
         mbarrier_arrive(me, peer, {.scope = MemoryScope::cluster}, at(1));
         wait(me, base_of(me), 0);
       }
       cluster_arrive(true, at());
       cluster_wait(at());
     }},
    {"wait_on_a_remote_barrier", "mbarrier.remote_wait", kPair,
     [](Thread& me, bool fixed) {
       make_barriers(me, {{base_of(me), 1}});
       cluster_arrive(true, at());
       cluster_wait(at());
       if (me.lane == 0) {
         mbarrier_arrive(me, base_of(me), {}, at());
         wait(me, fixed ? base_of(me) : map_shared_rank(me, base_of(me), cluster_rank() ^ 1, at()),
              0, at(1));
       }
       cluster_arrive(true, at());
       cluster_wait(at());
     }},
    {"arrive_scope_too_small", "race.read_write", kPair,
     [](Thread& me, bool fixed) {
       const auto scope = fixed ? MemoryScope::cluster : MemoryScope::cta;
       hand_over(me, scope, MemoryScope::cluster, at(1), at(1));
     }},
    {"wait_scope_too_small", "race.read_write", kPair,
     [](Thread& me, bool fixed) {
       const auto scope = fixed ? MemoryScope::cluster : MemoryScope::cta;
       hand_over(me, MemoryScope::cluster, scope, at(1), at(1));
     }},
    {"peer_has_returned", "cluster.peer_exited", kPair,
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.lane, 1u, at());
       cluster_arrive(true, at());
       cluster_wait(at());
       if (cluster_rank() == 0) {
         // Without a barrier at the end nothing keeps the other block's memory alive.
         for (int i = 0; i < 20 && !fixed; ++i) spin(at());
         read_shared<uint32_t>(me, map_shared_rank(me, base_of(me) + 4 * me.lane, 1, at()), at(1));
       }
       if (!fixed) return;
       cluster_arrive(true, at());
       cluster_wait(at());
     }},
    {"remote_store_not_waited", "async.not_waited|race.read_write", kPair,
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), data = base_of(me) + 128;
       make_barriers(me, {{full, 1}});
       cluster_arrive(true, at());
       cluster_wait(at());
       if (me.lane == 0) {
         const uint32_t value = 3, peer = cluster_rank() ^ 1;
         mbarrier_arrive(me, full, {.expect_bytes = 4}, at());
         store_async(me, map_shared_rank(me, data, peer, at()), &value, 4,
                     map_shared_rank(me, full, peer, at()), at(1));
         if (fixed) wait(me, full, 0);
         read_shared<uint32_t>(me, data, at(1));
         wait(me, full, 0);
       }
       cluster_arrive(true, at());
       cluster_wait(at());
     }},
};
HALFTONE_RULE_CASES(MbarrierRules, kCases);

}  // namespace
}  // namespace halftone::test
