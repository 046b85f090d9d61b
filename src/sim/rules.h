// Every rule the simulator reports, for documentation: what breaks it, and what fixes it. Reports
// carry the same ids, with the values of the case at hand.
#pragma once
#include <string_view>

#include "halftone/simulator.h"

namespace halftone::sim {

struct Rule {
  const char* id;
  SimulatorViolation::Level level;  // the usual one
  const char* sentence;
  const char* fix;
};

namespace detail {
inline constexpr auto kFatal = SimulatorViolation::Level::fatal;
inline constexpr auto kError = SimulatorViolation::Level::error;
inline constexpr auto kStrict = SimulatorViolation::Level::strict;
inline constexpr auto kWarning = SimulatorViolation::Level::warning;
}  // namespace detail

// clang-format off
inline constexpr Rule kRules[] = {
  // Order of accesses to shared memory.
  {"race.read_write", detail::kError, "A read and a write of the same bytes by two agents, and nothing orders them.", "a barrier between the two; within a warp, __syncwarp"},
  {"race.write_write", detail::kError, "Two writes of the same bytes by two agents, and nothing orders them.", "a barrier between the two"},
  {"shared.uninitialised", detail::kError, "Bytes are read that nobody has written in this kernel; their value is NaN.", "write them first, or wait for what fills them"},
  {"shared.out_of_range", detail::kFatal, "The address is outside the block's shared memory.", "ask for more at the launch, or fix the address"},
  {"shared.misaligned", detail::kFatal, "The address is not a multiple of the access's size.", "align the shared-memory plan"},
  {"shared.no_such_block", detail::kFatal, "The address names a block that the cluster does not have.", "use ranks below the cluster's size"},
  {"cluster.peer_exited", detail::kError, "Shared memory of a block is accessed all of whose threads have returned.", "a cluster barrier at the end of the kernel"},

  // Generic and asynchronous proxy.
  {"proxy.missing_fence", detail::kError, "Asynchronous work uses what a thread wrote, with no proxy fence between.", "fence.proxy.async by the writing thread after its stores, before the barrier"},
  {"proxy.cp_async", detail::kStrict, "Asynchronous work uses what cp.async wrote, with no proxy fence between.", "fence.proxy.async after cp.async.wait_group, before the barrier"},
  {"proxy.read_then_async_write", detail::kStrict, "Asynchronous work overwrites what a thread read, with no proxy fence between.", "fence.proxy.async after the reads, before the barrier that hands the buffer over"},

  // Asynchronous work.
  {"async.not_waited", detail::kError, "What asynchronous work writes is read before its completion was waited for by the reader, or by somebody the reader has synchronised with.", "wait for its completion mechanism, in every reading thread or followed by a barrier"},
  {"async.source_overwritten", detail::kError, "What asynchronous work reads is overwritten before its completion was waited for.", "wait for it before the buffer is reused"},
  {"async.destination_overwritten", detail::kError, "What asynchronous work writes is written by somebody else before its completion was waited for.", "wait for it first; check the stage that the copy goes to"},
  {"cp_async.other_thread", detail::kError, "A thread reads what another's cp.async copied: wait_group covers the executing thread alone.", "cp.async.wait_group, then a barrier"},
  {"cp_async.beyond_allocation", detail::kStrict, "The bytes that cp.async fills with zeros lie outside the allocation it reads. They are not read, but checkers of memory count them.", "copy what is left element by element, or pad the rows"},
  {"cp_async.size", detail::kFatal, "cp.async of other than 4, 8 or 16 bytes.", "one of these sizes"},
  {"bulk.exit", detail::kError, "A thread returns while its bulk stores may still read shared memory.", "commit the group and wait_group.read 0 before returning"},
  {"bulk.alignment", detail::kFatal, "An address or the size of a copy is not a multiple of what the engine asks for.", "multiples of 16 bytes, of 128 for tensor copies"},
  {"bulk.multicast_mask", detail::kFatal, "A multicast names blocks that the cluster does not have.", "bits below the cluster's size"},
  {"registers.touched", detail::kError, "Registers that wgmma or tcgen05.ld works on are changed, or used in another shape, before it was waited for.", "wait for the group (tcgen05.wait::ld) first"},
  {"registers.never_waited", detail::kError, "A thread returns before the registers of an instruction were waited for.", "commit the group and wait for it"},
  {"wgmma.descriptor", detail::kFatal, "A wgmma descriptor with a base offset, or whose operand does not start on its swizzle's pattern.", "align the tile to 1024, 512 or 256 bytes"},
  {"wgmma.missing_fence", detail::kError, "Registers of a wgmma were written by other instructions since the last wgmma.fence.", "wgmma.fence after they are written, before the first wgmma"},

  // mbarriers.
  {"mbarrier.not_live", detail::kFatal, "An mbarrier instruction on memory where none is live.", "mbarrier.init first, and a barrier of the block after it"},
  {"mbarrier.plain_access", detail::kError, "A load, store or copy touches a live mbarrier.", "mbarrier.inval before the memory is reused; check the shared-memory plan"},
  {"mbarrier.init_live", detail::kError, "mbarrier.init where one is live.", "mbarrier.inval first"},
  {"mbarrier.inval_in_use", detail::kError, "mbarrier.inval while bytes are on their way to it.", "wait for the last phase"},
  {"mbarrier.count", detail::kFatal, "A count outside 1 to 2^20 - 1.", "count the arrivals of one phase"},
  {"mbarrier.underflow", detail::kError, "More arrivals in a phase than the barrier was made for.", "initialise it with the number of arrivals a phase gets"},
  {"mbarrier.bytes_range", detail::kError, "The byte count leaves -(2^20 - 1) to 2^20 - 1.", "expect and copy less than 1 MiB a phase"},
  {"mbarrier.too_many_bytes", detail::kError, "All have arrived and more bytes have come than were expected: the phase can never complete.", "expect_tx with the sum of the bytes of all copies of the phase"},
  {"mbarrier.bytes_left_over", detail::kError, "A phase completes while copies that signal the barrier are still on their way.", "expect_tx with the sum of all copies, in the instruction that makes the last arrival"},
  {"mbarrier.phase_aliasing", detail::kError, "A wait by parity for a phase that two more have followed: the parity stands for another one.", "return the buffer only after the wait"},
  {"mbarrier.unobserved", detail::kStrict, "A phase was completed and nobody waited for it before the next one began.", "each phase must be observed by a successful wait"},
  {"mbarrier.remote_wait", detail::kFatal, "A wait or inval on an mbarrier of another block.", "wait on one of the block's own, and have the others arrive there"},
  {"mbarrier.remote_init", detail::kFatal, "mbarrier.init in another block's shared memory.", "each block initialises its own"},
  {"mbarrier.init_not_ordered", detail::kError, "A use that is not in order after the initialisation.", "a barrier after mbarrier.init; in a cluster fence.mbarrier_init and a cluster barrier"},
  {"mbarrier.init_not_fenced", detail::kStrict, "Another block, or (strict) asynchronous work, uses an mbarrier whose initialisation no fence made visible.", "fence.mbarrier_init.release.cluster after mbarrier.init, before the barrier"},
  {"mbarrier.exit", detail::kError, "The kernel ends in the middle of a phase: arrivals or bytes are missing.", "the last phase must be complete, or not begun"},

  // tcgen05 and tensor memory.
  {"tcgen05.missing_fence_before", detail::kError, "What one thread did to tensor memory reaches another's tcgen05 instruction without a fence before the synchronisation.", "tcgen05.fence::before_thread_sync before the arrive"},
  {"tcgen05.missing_fence_after", detail::kError, "The same without a fence after the synchronisation; strict where mma or cp follows a wait.", "tcgen05.fence::after_thread_sync after the wait"},
  {"tcgen05.not_pipelined", detail::kStrict, "Two instructions of one thread on the same cells that the specification does not keep in order.", "tcgen05.commit and a wait between them"},
  {"tcgen05.unverified", detail::kFatal, "A form of which no source says clearly what it does.", "another form"},
  {"tcgen05.instruction", detail::kFatal, "The instruction descriptor is not valid for the kind.", "build it with tile::Tcgen05Instruction"},
  {"tcgen05.descriptor", detail::kFatal, "A shared-memory descriptor is not valid.", "build it with tile::Tcgen05Descriptor"},
  {"tcgen05.address", detail::kFatal, "The lane of a tensor-memory address is not one the instruction takes.", "lane 0, or 16 where the shape allows"},
  {"tcgen05.pair", detail::kFatal, "cta_group::2 by a block that leads no pair.", "issue it from the block of even rank"},
  {"tmem.columns", detail::kFatal, "An allocation of other than 32, 64, 128, 256 or 512 columns.", "round up to a power of two"},
  {"tmem.increasing", detail::kError, "An allocation larger than the one before.", "allocate the largest part first"},
  {"tmem.relinquished", detail::kError, "An allocation after relinquish_alloc_permit.", "relinquish after the last one"},
  {"tmem.cta_group", detail::kError, "Instructions of one kernel with different cta_group.", "one for all"},
  {"tmem.no_pair", detail::kFatal, "cta_group::2 in a cluster without a second block.", "clusters of an even size"},
  {"tmem.co_resident", detail::kStrict, "Blocks that share a multiprocessor allocate more than 512 columns together: one waits for another.", "fewer columns, or one block a multiprocessor"},
  {"tmem.dealloc", detail::kFatal, "A deallocation that is not exactly one allocation.", "pass what tcgen05.alloc wrote, and the same number of columns"},
  {"tmem.dealloc_in_use", detail::kError, "A deallocation while work on the columns has not been waited for.", "wait for the last instruction, and a barrier, first"},
  {"tmem.out_of_allocation", detail::kError, "An access outside the block's allocations.", "use the address that tcgen05.alloc wrote"},
  {"tmem.lane_window", detail::kError, "tcgen05.ld or st of lanes that are another warp's.", "add 32 * (warp % 4) << 16 to the address"},
  {"tmem.uninitialised", detail::kError, "Cells are read that nobody has written since their allocation.", "the first product of a tile must not accumulate"},
  {"tmem.exit", detail::kError, "The kernel ends with tensor memory allocated.", "tcgen05.dealloc after the last use"},

  // Global memory, between blocks.
  {"global.out_of_range", detail::kFatal, "An access outside every allocation of the device.", "fix the address, or the bounds check before it"},
  {"global.freed", detail::kFatal, "An access to memory that has been freed.", "keep it until the stream is synchronised"},
  {"global.misaligned", detail::kFatal, "The address is not a multiple of the access's size.", "align rows to the access"},
  {"global.race_read_write", detail::kError, "Two blocks read and write the same bytes, and nothing orders them.", "a release by the one and an acquire by the other"},
  {"global.race_write_write", detail::kError, "Two blocks write the same bytes, and nothing orders them.", "atomics, or a release by the one and an acquire by the other"},

  // Tensor maps.
  {"tensor_map.invalid", detail::kFatal, "The operand is not a tensor map.", "make it with make_tensor_map"},
  {"tensor_map.misaligned", detail::kFatal, "The tensor map is not aligned to 64 bytes.", "pass it as a kernel parameter"},
  {"tensor_map.unmapped_base", detail::kError, "A load through a map whose base address lies in no live allocation; loads fault there wherever the box lies.", "make the map from an address of the tensor's own allocation"},
  {"tensor_map.rank", detail::kFatal, "The instruction has another number of dimensions than the map.", "the form of the map's rank"},
  {"tensor_map.coordinate", detail::kError, "A coordinate that the instruction does not take: negative in a store, inside a group of packed elements, the first of a load no multiple of 16 bytes.", "clip on the host, begin at 16 bytes"},
  {"tensor_map.swizzle_alignment", detail::kStrict, "A swizzled tile does not begin where the swizzle's pattern does.", "align tiles to 1024 (128-byte swizzle), 512 (64) or 256 (32) bytes"},
  {"tma.alignment", detail::kFatal, "The shared address of a tensor copy is not a multiple of 128.", "align the tile"},
  {"tma.gather4", detail::kFatal, "A map that gather4 and scatter4 do not take.", "rank 2, one row in the box"},
  {"tma.multicast", detail::kFatal, "A multicast names blocks that the cluster does not have.", "bits below the cluster's size"},
  {"tma.unverified", detail::kFatal, "A form that is not verified.", "another form"},

  // Execution: barriers, collectives, registers.
  {"barrier.id", detail::kFatal, "A named barrier of 16 or above.", "0 to 15"},
  {"barrier.count", detail::kFatal, "A thread count that is not a multiple of 32, or none where one is needed.", "count whole warps"},
  {"barrier.count_differs", detail::kFatal, "One barrier with two counts while incomplete.", "one count a phase"},
  {"barrier.diverged", detail::kFatal, "Lanes of one warp arrive from different places.", "move the barrier out of the divergent branch"},
  {"barrier.exited", detail::kFatal, "The barrier waits for threads that have returned.", "name the count of those that take part"},
  {"barrier.overrun", detail::kFatal, "More arrivals than the barrier's count.", "count all that sync and arrive"},
  {"barrier.twice", detail::kFatal, "A warp arrives again before the barrier completes.", "another barrier, or wait first"},
  {"barrier.pending_at_exit", detail::kWarning, "A block ends with a barrier incomplete.", "every arrive needs its sync"},
  {"cluster.twice", detail::kFatal, "barrier.cluster.arrive twice without a wait.", "one wait for each arrive"},
  {"cluster.wait_without_arrive", detail::kFatal, "barrier.cluster.wait without an arrive.", "arrive first"},
  {"cluster.arrive_without_wait", detail::kStrict, "A thread returns between barrier.cluster.arrive and wait.", "wait before returning"},
  {"collective.exited", detail::kFatal, "A warp instruction waits for lanes that have returned.", "leave them out of the mask"},
  {"collective.instruction", detail::kFatal, "Lanes of one mask meet in different instructions.", "converge first"},
  {"collective.mask", detail::kFatal, "A lane executes a mask it is not in, or masks cross.", "the same mask in all lanes of it"},
  {"collective.site", detail::kFatal, "Lanes of one mask execute the instruction at different places.", "move it out of the divergent branch"},
  {"collective.uniform", detail::kFatal, "An operand that must be uniform is not.", "broadcast it first"},
  {"collective.warpgroup", detail::kFatal, "A warpgroup instruction without four whole warps.", "launch a multiple of 128 threads"},
  {"setmaxnreg.value", detail::kFatal, "A register count outside 24 to 256 in steps of 8.", "a multiple of 8"},
  {"setmaxnreg.direction", detail::kFatal, "inc to fewer, or dec to more registers than the warp has.", "the other form"},
  {"setmaxnreg.deadlock", detail::kFatal, "setmaxnreg.inc waits for registers that nobody will give back.", "every other warp must dec, and the sum must fit"},
  {"launch.no_dependency_wait", detail::kStrict, "A programmatic launch that never waits for the kernel before it.", "griddepcontrol.wait before the first use of its results"},
  {"deadlock", detail::kFatal, "No thread can run and no asynchronous work can complete.", "see the report: who waits for what, and who is missing"},
  {"hang", detail::kFatal, "Every thread of the grid polls and nothing changes, or a cluster takes more steps than allowed.", "see the report: where each polls, and which clusters the chip had no room for"},
  {"kernel.exception", detail::kFatal, "A model refuses its operands by an exception.", "see the report"},
  {"target.unavailable", detail::kFatal, "An instruction that the simulated chip does not have.", "a kernel for this architecture"},
};
// clang-format on

constexpr const Rule* find_rule(std::string_view id) {
  for (const Rule& rule : kRules) {
    if (id == rule.id) return &rule;
  }
  return nullptr;
}

}  // namespace halftone::sim
