// Rules of global memory: ranges, and races between blocks.
#include "sim/rule_cases.h"

namespace halftone::test {
namespace {

constexpr LaunchShape kTwo{.grid = {2}, .block = {32}, .shared_bytes = 1024};

// Block 0 writes and raises a flag; block 1 polls it and reads.
struct Handover {
  Order store = Order::release, load = Order::acquire;
  bool fence_before = false, fence_after = false;
};
void hand_over(Thread& me, Handover how, Site write, Site read) {
  uint32_t* data = scratch();
  uint32_t* flag = scratch() + 64;
  if (me.lane != 0) return;
  if (block_index().x == 0) {
    write_global(me, data, 5u, write);
    if (how.fence_before) fence_acq_rel(me, MemoryScope::gpu, at());
    const uint32_t one = 1;
    write_global_ordered(me, flag, &one, 4, how.store, MemoryScope::gpu, at());
  } else {
    uint32_t seen = 0;
    while (seen == 0) {
      read_global_ordered(me, flag, &seen, 4, how.load, MemoryScope::gpu, at());
    }
    if (how.fence_after) fence_acq_rel(me, MemoryScope::gpu, at());
    EXPECT_EQ(read_global<uint32_t>(me, data, read), 5u);
    const uint32_t zero = 0;  // for the next launch
    write_global_ordered(me, flag, &zero, 4, Order::relaxed, MemoryScope::gpu, at());
  }
}

const RuleCase kCases[] = {
    {"beyond_the_allocation",
     "global.out_of_range",
     {.block = {32}},
     [](Thread& me, bool fixed) {
       write_global(me, scratch() + (fixed ? 65504 : 65505) + me.lane, 1u, at(1));
     }},
    {"tail_beyond_the_allocation",
     "cp_async.beyond_allocation",
     {.block = {1}, .shared_bytes = 16},
     [](Thread& me, bool fixed) {
       static DeviceArray<uint32_t> six(6);
       cp_async(me, base_of(me), six.data + 4, fixed ? 8 : 16, 8, at(1));
       commit_group(me, Engine::cp_async, at());
       wait_group(me, Engine::cp_async, 0, false, at());
     }},
    {"no_allocation",
     "global.out_of_range",
     {.block = {1}},
     [](Thread& me, bool fixed) {
       uint32_t mine = 0;
       read_global<uint32_t>(me, fixed ? scratch() : &mine, at(1));
     }},
    {"misaligned",
     "global.misaligned",
     {.block = {1}},
     [](Thread& me, bool fixed) {
       uint32_t to[4];
       read_global(me, scratch() + (fixed ? 4 : 2), to, 16, at(1));
     }},
    {"blocks_write_one_word", "global.race_write_write", kTwo,
     [](Thread& me, bool fixed) {
       const uint32_t block = block_index().x;
       if (me.lane == 0) write_global(me, scratch() + (fixed ? block : 0), block, at(1));
     }},
    {"blocks_write_parts_of_a_word", "global.race_write_write", kTwo,
     [](Thread& me, bool fixed) {  // neighbouring halves are no race
       auto* half = reinterpret_cast<uint16_t*>(scratch()) + (fixed ? block_index().x : 0);
       if (me.lane == 0) write_global(me, half, uint16_t{1}, at(1));
     }},
    {"atomics_do_not_race", "global.race_write_write", kTwo,
     [](Thread& me, bool fixed) {
       if (fixed) {
         atomic_global(
             me, scratch(), 4, Order::relaxed, MemoryScope::gpu,
             [](void* word) { ++*static_cast<uint32_t*>(word); }, at());
       } else if (me.lane == 0) {
         write_global(me, scratch(), 1u, at(1));
       }
     }},
    {"bulk_stores_of_two_blocks", "global.race_write_write", kTwo,
     [](Thread& me, bool fixed) {
       if (me.lane != 0) return;
       for (uint32_t i = 0; i < 64; i += 4) write_shared(me, base_of(me) + i, 1u, at());
       fence_proxy_async(me, at());
       bulk_store(me, scratch() + (fixed ? 16 * block_index().x : 0), base_of(me), 64, at(1));
       commit_group(me, Engine::bulk, at());
       wait_group(me, Engine::bulk, 0, false, at());
     }},
    {"flag_without_release", "global.race_read_write", kTwo,
     [](Thread& me, bool fixed) {
       hand_over(me, {.store = fixed ? Order::release : Order::relaxed}, at(1), at(1));
     }},
    {"flag_without_acquire", "global.race_read_write", kTwo,
     [](Thread& me, bool fixed) {
       hand_over(me, {.load = fixed ? Order::acquire : Order::relaxed}, at(1), at(1));
     }},
    {"flag_without_fence", "global.race_read_write", kTwo,
     [](Thread& me, bool fixed) {
       hand_over(me,
                 {.store = Order::relaxed,
                  .load = Order::relaxed,
                  .fence_before = fixed,
                  .fence_after = true},
                 at(1), at(1));
     }},
};
HALFTONE_RULE_CASES(GlobalRules, kCases);

}  // namespace
}  // namespace halftone::test
