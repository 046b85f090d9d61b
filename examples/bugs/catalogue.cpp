#include "asynchronous.h"
#include "bug.h"
#include "cluster.h"
#include "hw/entry.h"
#include "proxies.h"
#include "roles.h"
#include "tensor_memory.h"

namespace halftone::bugs {
namespace {

template <class Kernel>
KernelImage image(const char* name, Arch arch) {
  return {name,
          arch,
          nullptr,
          &hw::sim_body<Kernel>,
          sizeof(Params),
          Kernel::kThreads,
          Kernel::kMinBlocks};
}

struct Text {
  const char *name, *summary, *seen_in, *rule, *file;
};

template <template <bool> class Kernel>
Bug bug(const Text& text, uint32_t shared_bytes, Arch arch = Arch::sm_90a, uint32_t blocks = 1,
        uint32_t cluster = 1) {
  LaunchShape shape;
  shape.grid.x = blocks;
  shape.block.x = Kernel<true>::kThreads;
  shape.cluster.x = cluster;
  shape.shared_bytes = shared_bytes;
  return {text.name,
          text.summary,
          text.seen_in,
          text.rule,
          arch,
          shape,
          image<Kernel<false>>(text.name, arch),
          image<Kernel<true>>(text.name, arch),
          text.file};
}

}  // namespace

const std::vector<Bug>& catalogue() {
  static const char proxies[] = "proxies.h", asynchronous[] = "asynchronous.h", roles[] = "roles.h",
                    cluster[] = "cluster.h", tensor_memory[] = "tensor_memory.h";
  static const std::vector<Bug> all = {
      bug<MissingProxyFence>(
          {"missing-proxy-fence", "stores, then a bulk copy of them, without a proxy fence",
           "DeepEP #621 and #642, TransformerEngine #2695, flash-attention 20cda05e",
           "proxy.missing_fence", proxies},
          512),
      bug<OperandWithoutFence>(
          {"operand-without-fence", "threads write the operand of wgmma, without a proxy fence",
           "FlashKDA #24, sglang #39124", "proxy.missing_fence", proxies},
          8192),
      bug<MissingBarrierBeforeCopy>({"missing-barrier-before-copy",
                                     "one thread copies out what its warpgroup is still writing",
                                     "jax acd84d123b", "race.read_write", proxies},
                                    512),
      bug<StagingReused>(
          {"staging-reused", "a staging buffer is refilled while its copy still reads",
           "flash-attention 20cda05e", "async.source_overwritten", proxies},
          128),
      bug<CopyOfAnotherThread>(
          {"copy-of-another-thread", "cp.async.wait_group covers the waiting thread's copies only",
           "tilelang", "cp_async.other_thread", asynchronous},
          256, Arch::sm_80),
      bug<MissingFullWait>(
          {"missing-full-wait", "a tile is read before its full barrier was waited for",
           "DeepGEMM 477618c", "async.not_waited", asynchronous},
          8200),
      bug<WrongByteCount>(
          {"wrong-byte-count", "the barrier expects fewer bytes than the copy brings",
           "DeepGEMM 79f48ee", "mbarrier.too_many_bytes", asynchronous},
          8200),
      bug<StaleParity>(
          {"stale-parity", "a wait with the parity of a phase long over returns at once",
           "no public fix known", "async.not_waited", asynchronous},
          8200),
      bug<UnmappedBase>({"unmapped-base", "a tensor map's base lies outside the allocation",
                         "quack, ragged tensor maps", "tensor_map.unmapped_base", asynchronous},
                        8200),
      bug<OperandOverread>(
          {"operand-overread", "wgmma reads rows that no copy brought",
           "DeepGEMM, padding of bf16 tiles", "shared.uninitialised", asynchronous},
          8200),
      bug<MisalignedSwizzle>({"misaligned-swizzle", "a swizzled tile off its 1024-byte pattern",
                              "tilelang d135bd1cd", "wgmma.descriptor", asynchronous},
                             9216),
      bug<SkippedRelease>(
          {"skipped-release", "a consumer leaves out one arrival on an empty barrier",
           "vllm #26026, cutlass #2879", "deadlock", roles},
          2 * 8192 + 32),
      bug<EmptyRange>({"empty-range", "the loader sees no tiles, the consumer waits for one",
                       "flash-attention 3fa81057", "deadlock", roles},
                      8200),
      bug<ArrivalCount>({"arrival-count", "a warp without rows skips its arrival",
                         "flash-attention fec3a6a1", "deadlock", roles},
                        8208),
      bug<NeverReleased>({"never-released", "an empty range is tested with == instead of >=",
                          "ThunderKittens 277c81f2", "deadlock", roles},
                         8),
      bug<BoolBroadcast>({"bool-broadcast", "a byte is written, a word is read",
                          "CUTLASS 697126019", "shared.uninitialised", roles},
                         4),
      bug<IdleWarpKeepsRegisters>(
          {"idle-warp-keeps-registers", "one warp of the producer never gives its registers back",
           "quack 97c98dc", "setmaxnreg.deadlock", roles},
          0),
      bug<RegistersOversubscribed>(
          {"registers-oversubscribed", "setmaxnreg asks for more registers than the block has",
           "tilelang b07ec47b4", "setmaxnreg.deadlock", roles},
          0),
      bug<BarrierCounts>({"barrier-counts", "two warps enter a named barrier with different counts",
                          "cutlass #3654", "barrier.count_differs", roles},
                         0),
      bug<InitNotVisible>({"init-not-visible", "another block uses an mbarrier before its fence",
                           "CUTLASS c506e1678", "mbarrier.init_not_ordered", cluster},
                          8, Arch::sm_90a, 2, 2),
      bug<BlockScopeWait>(
          {"block-scope-wait", "data of another block, acquired for this block only",
           "DeepGEMM, triton", "race.read_write", cluster},
          136, Arch::sm_90a, 2, 2),
      bug<MulticastMask>({"multicast-mask", "both blocks expect a tile that is sent to one",
                          "DeepGEMM 79f48ee", "deadlock", cluster},
                         8200, Arch::sm_90a, 2, 2),
      bug<EarlyExit>({"early-exit", "a block ends while another reads its shared memory",
                      "DeepGEMM d30fc36", "cluster.peer_exited", cluster},
                     128, Arch::sm_90a, 2, 2),
      bug<LastBlockGate>({"last-block-gate", "partial sums are read behind a relaxed count",
                          "flashinfer 843043b8b", "global.race_read_write", cluster},
                         0, Arch::sm_80, 4),
      bug<FreedEarly>({"freed-early", "tensor memory is freed while other warps use it",
                       "DeepGEMM d30fc36", "tmem.dealloc_in_use", tensor_memory},
                      4, Arch::sm_100a),
      bug<MissingTcgen05Fence>(
          {"missing-tcgen05-fence", "tensor memory handed over without fences",
           "DeepGEMM 477618c, tilelang 0f7c21474", "tcgen05.missing_fence_before", tensor_memory},
          4, Arch::sm_100a),
      bug<TensorMemoryOverallocated>(
          {"tensor-memory-overallocated", "more columns of tensor memory than there are",
           "jax ddc268126a", "deadlock", tensor_memory},
          8, Arch::sm_100a),
      bug<StoreNotWaited>({"store-not-waited", "tensor memory is read before its store has ended",
                           "tilelang 30221e20b", "async.not_waited", tensor_memory},
                          4, Arch::sm_100a),
  };
  return all;
}

}  // namespace halftone::bugs
