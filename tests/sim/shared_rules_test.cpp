// Rules of shared memory, of the proxies and of copies by threads and engines.
#include "sim/rule_cases.h"

namespace halftone::test {
namespace {

const RuleCase kCases[] = {
    {"read_after_write",
     "race.read_write",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       if (me.index == 0) write_shared(me, base_of(me), 7u, at(1));
       if (fixed) block_sync();
       if (me.index == 40) read_shared<uint32_t>(me, base_of(me), at(1));
     }},
    {"write_after_read",
     "race.read_write",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.index, 7u, at());
       block_sync();
       if (me.index == 0) read_shared<uint32_t>(me, base_of(me) + 160, at(1));
       if (fixed) block_sync();
       if (me.index == 40) write_shared(me, base_of(me) + 160, 8u, at(1));
     }},
    {"write_after_write",
     "race.write_write",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       if (me.index == 0) write_shared(me, base_of(me), 7u, at(1));
       if (fixed) block_sync();
       if (me.index == 32) write_shared(me, base_of(me), 8u, at(1));
     }},
    {"lanes_of_a_warp",
     "race.read_write",
     {.block = {32}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.lane, me.lane, at(1));
       if (fixed) warp_sync(kFullMask, at());
       read_shared<uint32_t>(me, base_of(me) + 4 * (me.lane ^ 1), at(1));
     }},
    {"bytes_of_a_word",
     "race.read_write",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {  // two writers share a word; a reader of one byte races
       if (me.index < 2) write_shared(me, base_of(me) + 2 * me.index, uint16_t{1}, at());
       block_sync();
       if (me.index == 1) write_shared(me, base_of(me) + 2, uint16_t{2}, at(1));
       if (me.index == 33) read_shared<uint8_t>(me, base_of(me) + 1, at());
       if (fixed) block_sync();
       if (me.index == 33) read_shared<uint8_t>(me, base_of(me) + 2, at(1));
     }},
    {"uninitialised",
     "shared.uninitialised",
     {.block = {32}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       if (fixed || me.lane != 5) write_shared(me, base_of(me) + 4 * me.lane, 1u, at());
       read_shared<uint32_t>(me, base_of(me) + 4 * me.lane, at(1));
     }},
    {"elected_lane_waits",
     "async.not_waited|race.read_write",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {  // the others read without having waited
       const uint32_t full = base_of(me), tile = base_of(me) + 1024;
       make_barriers(me, {{full, 1}});
       if (me.warp->index == 0) {
         if (me.lane != 0) return;
         mbarrier_arrive(me, full, {.expect_bytes = 1024}, at());
         bulk_load(me, tile, scratch(), 1024, full, 0, at(1));
       } else {
         if (me.lane == 0) wait(me, full, 0);
         if (fixed) warp_sync(kFullMask, at());
         read_shared<uint32_t>(me, tile + 4 * me.lane, at(1));
       }
     }},
    {"cp_async_not_waited",
     "async.not_waited",
     {.block = {32}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       const uint32_t mine = base_of(me) + 16 * me.lane;
       cp_async(me, mine, scratch() + 4 * me.lane, 16, 16, at(1));
       commit_group(me, Engine::cp_async, at());
       wait_group(me, Engine::cp_async, fixed ? 0 : 1, false, at());
       read_shared<uint32_t>(me, mine, at(1));
       if (!fixed) wait_group(me, Engine::cp_async, 0, false, at());
     }},
    {"cp_async_of_another_thread",
     "cp_async.other_thread",
     {.block = {64}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       cp_async(me, base_of(me) + 16 * me.index, scratch() + 4 * me.index, 16, 16, at(1));
       commit_group(me, Engine::cp_async, at());
       wait_group(me, Engine::cp_async, 0, false, at());
       if (fixed) block_sync();
       read_shared<uint32_t>(me, base_of(me) + 16 * (63 - me.index), at(1));
     }},
    {"cp_async_arrives_on_mbarrier",
     "cp_async.other_thread|race.read_write",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), tile = base_of(me) + 1024;
       make_barriers(me, {{full, 32}});
       if (me.warp->index == 0) {
         cp_async(me, tile + 16 * me.lane, scratch() + 4 * me.lane, 16, 16, at(1));
         cp_async_mbarrier_arrive(me, full, true, at());
       } else {
         if (fixed) wait(me, full, 0);
         read_shared<uint32_t>(me, tile + 16 * me.lane, at(1));
       }
     }},
    {"store_without_proxy_fence",
     "proxy.missing_fence",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.index, 3u, at(1));
       if (fixed) fence_proxy_async(me, at());
       block_sync();
       if (me.index != 0) return;
       bulk_store(me, scratch(), base_of(me), 256, at(1));
       commit_group(me, Engine::bulk, at());
       wait_group(me, Engine::bulk, 0, true, at());
     }},
    {"proxy_fence_by_the_wrong_thread",
     "proxy.missing_fence",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {  // fence before the barrier by the writers, or not at all
       if (!fixed && me.index == 0) fence_proxy_async(me, at());
       write_shared(me, base_of(me) + 4 * me.index, 3u, at());
       if (fixed) fence_proxy_async(me, at());
       block_sync();
       if (me.index != 0) return;
       bulk_store(me, scratch(), base_of(me), 256, at(1));
       commit_group(me, Engine::bulk, at());
       wait_group(me, Engine::bulk, 0, true, at());
     }},
    {"cp_async_without_proxy_fence",
     "proxy.cp_async",
     {.block = {64}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       cp_async(me, base_of(me) + 16 * me.index, scratch() + 4 * me.index, 16, 16, at(1));
       commit_group(me, Engine::cp_async, at());
       wait_group(me, Engine::cp_async, 0, false, at());
       if (fixed) fence_proxy_async(me, at());
       block_sync();
       if (me.index != 0) return;
       bulk_store(me, scratch(), base_of(me), 256, at(1));
       commit_group(me, Engine::bulk, at());
       wait_group(me, Engine::bulk, 0, true, at());
     }},
    {"read_then_async_overwrite",
     "proxy.read_then_async_write",
     {.block = {32}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), tile = base_of(me) + 1024;
       make_barriers(me, {{full, 1}});
       for (uint32_t phase = 0; phase < 2; ++phase) {
         if (me.lane == 0) {
           mbarrier_arrive(me, full, {.expect_bytes = 1024}, at());
           bulk_load(me, tile, scratch(), 1024, full, 0, at(1));
         }
         wait(me, full, phase);
         read_shared<uint32_t>(me, tile + 4 * me.lane, at(1));
         if (fixed) fence_proxy_async(me, at());
         block_sync();
       }
     }},
    {"source_overwritten",
     "async.source_overwritten",
     {.block = {32}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.lane, 3u, at());
       fence_proxy_async(me, at());
       warp_sync(kFullMask, at());
       if (me.lane == 0) {
         bulk_store(me, scratch(), base_of(me), 128, at(1));
         commit_group(me, Engine::bulk, at());
         if (fixed) wait_group(me, Engine::bulk, 0, true, at());
         write_shared(me, base_of(me), 4u, at(1));
         wait_group(me, Engine::bulk, 0, true, at());
       }
     }},
    {"two_loads_into_one_buffer",
     "async.destination_overwritten",
     {.block = {32}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me), tile = base_of(me) + 1024;
       make_barriers(me, {{full, 1}});
       if (me.lane != 0) return;
       mbarrier_arrive(me, full, {.expect_bytes = 1024}, at());
       bulk_load(me, tile, scratch(), 512, full, 0, at(1));
       bulk_load(me, tile + (fixed ? 512 : 256), scratch(), 512, full, 0, at(1));
       wait(me, full, 0);
     }},
    {"exit_before_store_has_read",
     "bulk.exit",
     {.block = {32}, .shared_bytes = 4096},
     [](Thread& me, bool fixed) {
       if (me.lane != 0) return;
       for (uint32_t i = 0; i < 128; i += 16) {
         const uint32_t data[4] = {};
         write_shared(me, base_of(me) + i, data, 16, at());
       }
       fence_proxy_async(me, at());
       bulk_store(me, scratch(), base_of(me), 128, at());
       commit_group(me, Engine::bulk, at());
       if (fixed) wait_group(me, Engine::bulk, 0, true, at());
     }},
    {"out_of_range",
     "shared.out_of_range",
     {.block = {32}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       write_shared(me, base_of(me) + 4 * me.lane + (fixed ? 0 : 1000), 3u, at(1));
     }},
    {"misaligned",
     "shared.misaligned",
     {.block = {32}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       const uint32_t data[4] = {};
       write_shared(me, base_of(me) + (fixed ? 16 : 8) * me.lane, data, 16, at(1));
     }},
    {"copy_size",
     "bulk.alignment",
     {.block = {1}, .shared_bytes = 1024},
     [](Thread& me, bool fixed) {
       const uint32_t full = base_of(me);
       make_barriers(me, {{full, 1}});
       mbarrier_arrive(me, full, {.expect_bytes = 16}, at());
       bulk_load(me, base_of(me) + 64, scratch(), fixed ? 16 : 12, full, 0, at(1));
       wait(me, full, 0);
     }},
};
HALFTONE_RULE_CASES(SharedMemory, kCases);

}  // namespace
}  // namespace halftone::test
