// Rules of wgmma and tcgen05, and of tensor memory. The instructions' arithmetic does not matter
// here: small operations of the same engines stand for them.
#include <cstring>

#include "sim/rule_cases.h"

namespace halftone::test {
namespace {

constexpr LaunchShape kGroup{.block = {128}, .shared_bytes = 4096};

struct None {
  int unused = 0;
};

// Issues a wgmma that reads 512 bytes of shared memory and adds their first word to `d`.
void issue_wgmma(uint32_t address, float& d, Site site = Site::current()) {
  struct Operands {
    float* d;
  } mine{&d};
  warpgroup_collective(
      "wgmma.mma_async", mine,
      [&](const GroupLanes<Operands>& lanes) {
        Thread& first = self().block->threads[self().index / 128 * 128];
        AsyncOperation work(Engine::wgmma, "wgmma.mma_async");
        for (uint32_t t = 0; t < 128; ++t) {
          work.writes_registers(*(&first + t), lanes[t].d, sizeof(float));
        }
        work.effect = [address, site](Agent& agent) {
          float values[128];
          read_shared(agent, address, values, sizeof values, site);
          for (uint32_t t = 0; t < 128; ++t) *in_flight<float>(agent, t) += values[0];
        };
        issue({first, 128}, std::move(work), site);
      },
      site);
}
void commit(Thread& me, Site site = Site::current()) {
  None mine;
  warp_collective(
      "wgmma.commit_group", kFullMask, mine,
      [&](const Lanes<None>&) { commit_group(me, Engine::wgmma, site); }, site);
}
void fill(Thread& me, bool fence = true, Site site = Site::current()) {
  write_shared(me, base_of(me) + 4 * me.index, 1.0f, site);
  if (fence) fence_proxy_async(me, site);
  block_sync(site);
}

const RuleCase kWgmma[] = {
    {"accumulator_touched", "registers.touched", kGroup,
     [](Thread& me, bool fixed) {
       fill(me);
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(base_of(me), d, at(1));
       commit(me);
       if (fixed) wait_group(me, Engine::wgmma, 0, false, at());
       d *= 2;
       wait_group(me, Engine::wgmma, 0, false, at());
       EXPECT_TRUE(!fixed || d == 2.0f);
     }},
    {"fence_missing", "wgmma.missing_fence", kGroup,
     [](Thread& me, bool fixed) {
       fill(me);
       float d = 0;
       for (int i = 0; i < 2; ++i) {
         if (fixed || i == 0) wgmma_fence(me, at());
         issue_wgmma(base_of(me), d, at(1));
         commit(me);
         wait_group(me, Engine::wgmma, 0, false, at());
         d *= 2;
       }
     }},
    {"operand_overwritten", "async.source_overwritten", kGroup,
     [](Thread& me, bool fixed) {
       fill(me);
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(base_of(me), d, at(1));
       commit(me);
       if (fixed) {
         wait_group(me, Engine::wgmma, 0, false, at());
         block_sync();
       }
       write_shared(me, base_of(me) + 4 * me.index, 2.0f, at(1));
       wait_group(me, Engine::wgmma, 0, false, at());
     }},
    {"stored_without_proxy_fence", "proxy.missing_fence", kGroup,
     [](Thread& me, bool fixed) {
       fill(me, fixed, at(1));
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(base_of(me), d, at(1));
       commit(me);
       wait_group(me, Engine::wgmma, 0, false, at());
     }},
    {"never_waited", "registers.never_waited", kGroup,
     [](Thread& me, bool fixed) {
       fill(me);
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(base_of(me), d, at(1));
       commit(me);
       if (fixed) wait_group(me, Engine::wgmma, 0, false, at());
     }},
    {"one_warp_has_not_waited_for_the_operand",
     "async.not_waited|race.read_write",
     {.block = {160}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), tile = full + 1024;
       make_barriers(me, {{full, 1}});
       if (me.index == 128) {
         mbarrier_arrive(me, full, {.expect_bytes = 512}, at());
         bulk_load(me, tile, scratch(), 512, full, 0, at(1));
       }
       if (me.index >= 128) return;
       if (fixed || me.warp->index != 2) wait(me, full, 0);
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(tile, d, at(1));
       commit(me);
       wait_group(me, Engine::wgmma, 0, false, at());
     }},
    // A weak arrival says that what its thread has waited for has read the stage, and no more.
    {"stage_given_back_before_it_is_read",
     "async.source_overwritten|async.not_waited",
     {.block = {160}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), empty = full + 8, tile = full + 1024;
       make_barriers(me, {{full, 1}, {empty, 128}});
       if (me.index == 128) {
         for (uint32_t round = 0; round < 2; ++round) {
           if (round == 1) wait(me, empty, 0);
           mbarrier_arrive(me, full, {.expect_bytes = 512}, at());
           bulk_load(me, tile, scratch(), 512, full, 0, at(1));
         }
         wait(me, full, 1);
       }
       if (me.index >= 128) return;
       wait(me, full, 0);
       float d = 0;
       wgmma_fence(me, at());
       issue_wgmma(tile, d, at(1));
       commit(me);
       if (fixed) wait_group(me, Engine::wgmma, 0, false, at());
       mbarrier_arrive(me, empty, {.order = Order::relaxed}, at());
       wait_group(me, Engine::wgmma, 0, false, at());
     }},
};
HALFTONE_RULE_CASES(WgmmaRules, kWgmma);

// ---- tcgen05 ------------------------------------------------------------------------------------

void issue_mma(Thread& me, uint32_t d, bool accumulate, Site site = Site::current()) {
  AsyncOperation work(Engine::tcgen05_mma, "tcgen05.mma");
  work.effect = [=, block = me.block](Agent& agent) {
    for (uint32_t lane = 0; lane < 128; ++lane) {
      uint32_t cells[8] = {};
      if (accumulate) read_tensor(agent, *block, d + (lane << 16), 8, cells, site);
      for (uint32_t& cell : cells) cell += lane;
      write_tensor(agent, *block, d + (lane << 16), 8, cells, site);
    }
  };
  issue(me, std::move(work), site);
}
void move_tensor(Thread& me, Engine engine, uint32_t address, uint32_t& value,
                 Site site = Site::current()) {
  struct Operands {
    uint32_t* value;
  } mine{&value};
  const char* name = engine == Engine::tcgen05_ld ? "tcgen05.ld" : "tcgen05.st";
  warp_collective(
      name, kFullMask, mine,
      [&](const Lanes<Operands>& lanes) {
        if (!check_tensor_window(me, address, site)) return;
        AsyncOperation work(engine, name);
        for (const uint32_t lane : lanes) {
          if (engine == Engine::tcgen05_ld) {
            work.writes_registers(me.warp->thread(lane), lanes[lane].value, 4);
          } else {
            work.reads_registers(me.warp->thread(lane), lanes[lane].value, 4);
          }
        }
        work.effect = [=, block = me.block](Agent& agent) {
          for (uint32_t lane = 0; lane < 32; ++lane) {
            auto* cell = in_flight<uint32_t>(agent, lane);
            const uint32_t from = address + (lane << 16);
            if (engine == Engine::tcgen05_ld) {
              read_tensor(agent, *block, from, 1, cell, site);
            } else {
              write_tensor(agent, *block, from, 1, cell, site);
            }
          }
        };
        issue(*me.warp, std::move(work), site);
      },
      site);
}
uint32_t window(const Thread& me) { return (me.warp->index % 4) << 21; }

// Allocates 32 columns and makes an mbarrier; the address is at base + 64.
uint32_t set_up(Thread& me, uint32_t arrivals = 1) {
  if (me.index == 0) {
    mbarrier_init(me, base_of(me), arrivals, at());
    mbarrier_init(me, base_of(me) + 8, 128, at());
    fence_mbarrier_init(me, at());
  }
  if (me.warp->index == 0) tensor_alloc(me, 1, base_of(me) + 64, 32, at());
  tcgen05_fence_before(me, at());
  block_sync();
  tcgen05_fence_after(me, at());
  return read_shared<uint32_t>(me, base_of(me) + 64, at());
}
void tear_down(Thread& me, uint32_t address) {
  tcgen05_fence_before(me, at());
  block_sync();
  if (me.warp->index == 0) tensor_dealloc(me, 1, address, 32, at());
}

// One product, read by all four warps; which of the steps are there?
struct Steps {
  bool wait = true, after = true, wait_ld = true;
};
void product(Thread& me, Steps steps, Site mma, Site load) {
  const uint32_t d = set_up(me);
  if (me.index == 0) {
    issue_mma(me, d, false, mma);
    tcgen05_commit(me, 1, base_of(me), 0, at());
  }
  if (steps.wait) wait(me, base_of(me), 0);
  if (steps.after) tcgen05_fence_after(me, at());
  uint32_t value = 0;
  warp_sync(kFullMask, at());
  move_tensor(me, Engine::tcgen05_ld, d + window(me), value, load);
  if (steps.wait_ld) {
    tcgen05_wait(me, Engine::tcgen05_ld, at());
    EXPECT_TRUE(!steps.wait || value == me.index);
  } else {
    value += 1;
    tcgen05_wait(me, Engine::tcgen05_ld, at());
  }
  wait(me, base_of(me), 0);
  tear_down(me, d);
}

// A second product overwrites the accumulator that four warps have read.
void reuse(Thread& me, bool before, bool after, Site load, Site mma) {
  const uint32_t d = set_up(me), done = base_of(me), read = base_of(me) + 8;
  for (uint32_t phase = 0; phase < 2; ++phase) {
    if (me.index == 0) {
      if (phase == 1) {
        wait(me, read, 0);
        if (after) tcgen05_fence_after(me, at());
      }
      issue_mma(me, d, false, mma);
      tcgen05_commit(me, 1, done, 0, at());
    }
    wait(me, done, phase);
    tcgen05_fence_after(me, at());
    uint32_t value = 0;
    warp_sync(kFullMask, at());
    move_tensor(me, Engine::tcgen05_ld, d + window(me), value, load);
    tcgen05_wait(me, Engine::tcgen05_ld, at());
    if (before) tcgen05_fence_before(me, at());
    mbarrier_arrive(me, read, {}, at());
  }
  tear_down(me, d);
}

const RuleCase kTcgen05[] = {
    {"load_before_commit_was_waited_for", "async.not_waited|race.read_write", kGroup,
     [](Thread& me, bool fixed) { product(me, {.wait = fixed}, at(1), at(1)); }, Arch::sm_100a},
    {"load_without_fence_after", "tcgen05.missing_fence_after", kGroup,
     [](Thread& me, bool fixed) { product(me, {.after = fixed}, at(1), at(1)); }, Arch::sm_100a},
    {"registers_used_before_wait_ld", "registers.touched", kGroup,
     [](Thread& me, bool fixed) { product(me, {.wait_ld = fixed}, at(), at(1)); }, Arch::sm_100a},
    {"accumulator_reused_without_fence_before", "tcgen05.missing_fence_before", kGroup,
     [](Thread& me, bool fixed) { reuse(me, fixed, true, at(1), at(1)); }, Arch::sm_100a},
    {"accumulator_reused_without_fence_after", "tcgen05.missing_fence_after", kGroup,
     [](Thread& me, bool fixed) { reuse(me, true, fixed, at(1), at(1)); }, Arch::sm_100a},
    {"store_not_waited_for_before_product", "async.not_waited|race.read_write", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       uint32_t value = 7;
       for (uint32_t column = 0; column < 8; ++column) {
         move_tensor(me, Engine::tcgen05_st, d + column + window(me), value, at(1));
       }
       if (fixed) tcgen05_wait(me, Engine::tcgen05_st, at());
       tcgen05_fence_before(me, at());
       block_sync();
       tcgen05_fence_after(me, at());
       if (me.index == 0) {
         issue_mma(me, d, true, at(1));
         tcgen05_commit(me, 1, base_of(me), 0, at());
       }
       wait(me, base_of(me), 0);
       tcgen05_wait(me, Engine::tcgen05_st, at());
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"accumulator_never_written", "tmem.uninitialised", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       if (me.index == 0) {
         if (fixed) issue_mma(me, d, false, at());
         issue_mma(me, d, true, at(1));
         tcgen05_commit(me, 1, base_of(me), 0, at());
       }
       wait(me, base_of(me), 0);
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"outside_the_allocation", "tmem.out_of_allocation", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       if (me.index == 0) {
         issue_mma(me, d + (fixed ? 24 : 28), false, at(1));
         tcgen05_commit(me, 1, base_of(me), 0, at());
       }
       wait(me, base_of(me), 0);
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"another_warps_lanes", "tmem.lane_window", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       uint32_t value = 1;
       move_tensor(me, Engine::tcgen05_st, d + (fixed ? window(me) : 0), value, at(1));
       tcgen05_wait(me, Engine::tcgen05_st, at());
       if (me.index == 0) mbarrier_arrive(me, base_of(me), {}, at());
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"not_freed", "tmem.exit", kGroup,
     [](Thread& me, bool fixed) {
       if (me.warp->index != 0) return;
       tensor_alloc(me, 1, base_of(me) + 64, 32, at(1));
       warp_sync(kFullMask, at());
       const uint32_t d = read_shared<uint32_t>(me, base_of(me) + 64, at());
       if (fixed) tensor_dealloc(me, 1, d, 32, at());
     },
     Arch::sm_100a},
    {"freed_in_use", "tmem.dealloc_in_use", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       if (me.index == 0) {
         issue_mma(me, d, false, at(1));
         tcgen05_commit(me, 1, base_of(me), 0, at());
       }
       if (fixed) wait(me, base_of(me), 0);
       // Let the product run first: this is about the order, not about the moment.
       for (int i = 0; i < 30; ++i) spin(at());
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"freed_twice", "tmem.dealloc", kGroup,
     [](Thread& me, bool fixed) {
       const uint32_t d = set_up(me);
       if (me.index == 0) mbarrier_arrive(me, base_of(me), {}, at());
       if (!fixed && me.warp->index == 0) tensor_dealloc(me, 1, d, 32, at());
       tear_down(me, d);
     },
     Arch::sm_100a},
    {"odd_number_of_columns", "tmem.columns", kGroup,
     [](Thread& me, bool fixed) {
       if (me.warp->index != 0) return;
       tensor_alloc(me, 1, base_of(me) + 64, fixed ? 64 : 48, at(1));
       tensor_dealloc(me, 1, 0, 64, at());
     },
     Arch::sm_100a},
    {"growing_allocations", "tmem.increasing", kGroup,
     [](Thread& me, bool fixed) {
       if (me.warp->index != 0) return;
       tensor_alloc(me, 1, base_of(me) + 64, fixed ? 64 : 32, at());
       tensor_alloc(me, 1, base_of(me) + 68, fixed ? 32 : 64, at(1));
       tensor_dealloc(me, 1, 0, fixed ? 64 : 32, at());
       tensor_dealloc(me, 1, fixed ? 64 : 32, fixed ? 32 : 64, at());
     },
     Arch::sm_100a},
    {"allocation_after_relinquish", "tmem.relinquished", kGroup,
     [](Thread& me, bool fixed) {
       if (me.warp->index != 0) return;
       if (!fixed) tensor_relinquish(me, 1, at());
       tensor_alloc(me, 1, base_of(me) + 64, 32, at(1));
       if (fixed) tensor_relinquish(me, 1, at());
       tensor_dealloc(me, 1, 0, 32, at());
     },
     Arch::sm_100a},
    {"more_than_there_is", "deadlock", kGroup,
     [](Thread& me, bool fixed) {
       if (me.warp->index != 0) return;
       tensor_alloc(me, 1, base_of(me) + 64, 512, at());
       if (fixed) tensor_dealloc(me, 1, 0, 512, at());
       tensor_alloc(me, 1, base_of(me) + 68, 32, at(1));
       tensor_dealloc(me, 1, 0, 32, at());
     },
     Arch::sm_100a},
    {"mixed_cta_groups",
     "tmem.cta_group",
     {.grid = {2}, .block = {32}, .cluster = {2}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       tensor_alloc(me, 2, base_of(me) + 64, 32, at());
       tensor_dealloc(me, 2, 0, 32, at());
       if (!fixed) tensor_relinquish(me, 1, at(1));
     },
     Arch::sm_100a},
};
HALFTONE_RULE_CASES(Tcgen05Rules, kTcgen05);

}  // namespace
}  // namespace halftone::test
