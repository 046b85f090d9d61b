// The BF16/FP16 attention kernel of sm_90a on the GPU.
#include <atomic>
#include <thread>

#include "attention/sm90/layouts.h"
#include "base/device_memory.h"
#include "cuda/gpu.h"
#include "halftone/graph.h"

namespace halftone::test {
namespace {

class AttentionOnGpu : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && device.arch() != Arch::sm_90a) GTEST_SKIP() << "no Hopper";
  }
};

TEST_F(AttentionOnGpu, EveryInstanceAndMaskWithinTheBound) {
  Stream stream(device);
  uint64_t seed = 1;
  for (const Sm90Case& s : sm90_cases()) expect_case(stream, s, ++seed);
}

TEST_F(AttentionOnGpu, EveryLayoutWithinTheBound) {
  Stream stream(device);
  uint64_t seed = 1;
  for (const LayoutCase& l : layout_cases()) expect_layout(stream, l, ++seed);
}

TEST_F(AttentionOnGpu, AMillionKeys) {
  Stream stream(device);
  const Sizes sizes{1, 3, kMillion, 2, 1, 64};
  Case c = needle_case(sizes, {}, Format::bf16, Format::bf16, 2);
  c.problem.out = Format::bf16;
  expect_case(stream, c);
  LayoutCase l{Sm90Case{sizes}, {}, {kMillion - 5}, Keys::paged};
  expect_layout(stream, LaidOut(l, 4, c));
  l.layout = Keys::padded, l.batch_invariant = true;
  expect_layout(stream, LaidOut(l, 5, c));
  expect_case(stream, kLongWindow, 3);
}

// On all cores, each with a stream: the references take the time.
TEST_F(AttentionOnGpu, RandomProblems) {
  std::atomic<uint64_t> next{1};
  std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::jthread& thread : threads) {
    thread = std::jthread([&] {
      Stream stream(device);
      for (uint64_t seed; (seed = next++) <= 1000 && !HasFailure();) {
        SCOPED_TRACE("problem " + std::to_string(seed));
        expect_layout(stream, random_layout(seed, 400, 3000), seed);
      }
    });
  }
}

// Runs again in a graph, and gives the same bits.
TEST_F(AttentionOnGpu, CapturedInAGraph) {
  Stream stream(device);
  Case c = make_case(Sm90Case{{2, 300, 400, 4, 2, 128}, Format::bf16, true}, 4);
  run_on(stream, &c);
  AttentionTensors t = on(device, c);
  const AttentionPlan again = planned(c.problem, device);
  run(again, t, stream);  // the maps are made
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(again, t, s); });
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(t.out.to(Device::cpu())), to_floats(c.tensors.out));
}

// The lengths of a captured run are those in memory when it is replayed; splits and their sum are
// two kernels of the graph.
TEST_F(AttentionOnGpu, LengthsOfAGraphAreReadWhenItRuns) {
  Stream stream(device);
  LayoutCase l{Sm90Case{{2, 2, 4000, 4, 2, 128}}, {}, {4000, 900}, Keys::paged, 16};
  LaidOut laid(l, 4);
  AttentionTensors t = laid.on(device);
  const AttentionPlan made = planned(laid.whole.problem, device);
  run(made, t, stream);
  const Graph graph = Graph::capture(stream, [&](Stream& s) { run(made, t, s); });
  const auto replayed = [&](const std::vector<int32_t>& lengths) {
    const Tensor now = i32(lengths).to(device);
    copy_memory(device, const_cast<void*>(std::as_const(t.seqused_k).data()), device, now.data(),
                8);
    graph.replay(stream);
    stream.synchronize();
    return to_floats(t.lse.to(Device::cpu()));
  };
  const std::vector<float> longest = replayed({4000, 900}), shorter = replayed({3000, 900});
  EXPECT_NE(longest, shorter);
  EXPECT_EQ(longest, replayed({4000, 900}));
}

}  // namespace
}  // namespace halftone::test
