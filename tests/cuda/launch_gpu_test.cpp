// Kernels on a CUDA device: launches, what they refuse, graphs, events.
#include "base/backend.h"
#include "cuda/gpu.h"
#include "cuda/images.h"
#include "cuda/kernels.h"
#include "cuda/kernels_sm90.h"
#include "halftone/graph.h"

namespace halftone {
namespace {

using test::counting;
using test::Gpu;
using test::values_of;

constexpr int64_t kCount = 1000;

// The same call on any device.
std::vector<float> scaled_on(const Device& device) {
  Tensor in = Tensor::empty({kCount}, Format::f32);
  for (int64_t i = 0; i < kCount; ++i) in.data<float>()[i] = 0.1f * static_cast<float>(i) - 7;
  const Tensor there = in.to(device);
  const Tensor out = Tensor::zeros({kCount}, Format::f32, device);
  Stream stream(device);
  launch(test::kScale, {{(kCount + 127) / 128}, {128}, {}},
         test::Scale::Params{there.data<float>(), out.data<float>(), kCount, 1.7f}, stream);
  stream.synchronize();
  return values_of<float>(out);
}

std::vector<int32_t> reversed_on(const Device& device, uint32_t block_words) {
  const Tensor words = counting(3 * block_words).to(device);
  Stream stream(device);
  launch(test::kReverse, {{3}, {128}, {}, 4 * block_words},
         test::Reverse::Params{words.data<uint32_t>(), block_words}, stream);
  stream.synchronize();
  return values_of<int32_t>(words);
}

std::vector<float> scaled() {
  std::vector<float> all;
  for (int64_t i = 0; i < kCount; ++i) all.push_back(1.7f * (0.1f * static_cast<float>(i) - 7));
  return all;
}

std::vector<int32_t> reversed(uint32_t block_words) {
  std::vector<int32_t> all;
  for (uint32_t b = 0; b < 3; ++b) {
    for (uint32_t i = 0; i < block_words; ++i) {
      all.push_back(static_cast<int32_t>((b + 1) * block_words - 1 - i));
    }
  }
  return all;
}

TEST(Simulated, RunsTheSameCall) {
  const Device device = Device::simulator(Arch::sm_90a);
  EXPECT_EQ(scaled_on(device), scaled());
  EXPECT_EQ(reversed_on(device, 500), reversed(500));
}

TEST_F(Gpu, RunsAKernel) { EXPECT_EQ(scaled_on(device), scaled()); }

TEST_F(Gpu, SharedMemoryUpToTheLimit) {
  EXPECT_EQ(reversed_on(device, 500), reversed(500));
  const auto most = static_cast<uint32_t>(properties(device).shared_per_block) / 4;
  EXPECT_EQ(reversed_on(device, most), reversed(most));
  EXPECT_EQ(reversed_on(device, most / 2), reversed(most / 2));
  test::expect_error([&] { reversed_on(device, most + 1); },
                     {"Reverse", "cuda:0", std::to_string(4 * most + 4), std::to_string(4 * most)});
}

TEST_F(Gpu, RefusesWhatTheDeviceCannot) {
  Stream stream(device);
  const Tensor out = Tensor::zeros({64}, Format::f32, device);
  const test::Scale::Params params{out.data<float>(), out.data<float>(), 64, 2};
  const auto refused = [&](const LaunchShape& shape, const std::vector<std::string>& words) {
    test::expect_error([&] { launch(test::kScale, shape, params, stream); }, words);
  };
  refused({{1}, {129}, {}}, {"Scale", "129x1x1", "128"});
  refused({{0}, {128}, {}}, {"Scale", "0x1x1"});
  refused({{3}, {128}, {2}}, {"Scale", "2x1x1", "3x1x1"});
  refused({{32}, {128}, {32}}, {"Scale", "cluster", "32x1x1"});
  KernelImage missing = test::kScale;
  missing.gpu_entry = nullptr;
  test::expect_error(
      [&] {
        launch(missing, {{1}, {128}, {}}, params, stream);
      },
      {"Scale", "not compiled for GPUs"});
  missing.arch = Arch::sm_120a;
  if (device.arch() < Arch::sm_120a) {
    test::expect_error(
        [&] {
          launch(missing, {{1}, {128}, {}}, params, stream);
        },
        {"Scale", "sm_120a", name(device.arch())});
  }
  EXPECT_EQ(scaled_on(device), scaled());  // nothing of this sticks
}

TEST_F(Gpu, SaysWhenAKernelHasNoCodeForIt) {
  if (device.arch() == Arch::sm_90a) GTEST_SKIP() << "compiled for this one";
  Stream stream(device);
  KernelImage ranks = test::kRanks;
  ranks.arch = Arch::sm_80;
  test::expect_error(
      [&] {
        launch(ranks, {{1}, {32}, {}}, test::Ranks::Params{}, stream);
      },
      {"Ranks", "not compiled for", name(device.arch())});
}

TEST_F(Gpu, Clusters) {
  if (device.arch() != Arch::sm_90a) GTEST_SKIP() << "compiled for sm_90a";
  Stream stream(device);
  for (const uint32_t size : {1u, 2u, 8u}) {
    const Tensor ranks = Tensor::zeros({16}, Format::i32, device);
    launch(test::kRanks, {{16}, {32}, {size}}, test::Ranks::Params{ranks.data<uint32_t>()}, stream);
    stream.synchronize();
    const std::vector<int32_t> found = values_of<int32_t>(ranks);
    for (uint32_t i = 0; i < 16; ++i) {
      EXPECT_EQ(static_cast<uint32_t>(found[i]), i % size + 100 * size) << "block " << i;
    }
  }
}

// x -> 2 x + 1, eight times over, on two buffers.
void eight_steps(const Tensor& a, const Tensor& b, bool programmatic, Stream& stream) {
  const uint32_t blocks = static_cast<uint32_t>(a.numel()) / test::Step::kThreads;
  for (int i = 0; i < 8; ++i) {
    const Tensor& in = i % 2 == 0 ? a : b;
    const Tensor& out = i % 2 == 0 ? b : a;
    LaunchShape shape{{blocks}, {test::Step::kThreads}, {}};
    shape.programmatic = programmatic;
    launch(test::kStep, shape, test::Step::Params{in.data<uint32_t>(), out.data<uint32_t>()},
           stream);
  }
}

TEST_F(Gpu, ProgrammaticLaunchesKeepTheOrder) {
  if (device.arch() != Arch::sm_90a) GTEST_SKIP() << "compiled for sm_90a";
  Stream stream(device);
  for (const bool programmatic : {false, true}) {
    const Tensor a = Tensor::zeros({64 * 500}, Format::i32, device);
    const Tensor b = Tensor::zeros({64 * 500}, Format::i32, device);
    eight_steps(a, b, programmatic, stream);
    stream.synchronize();
    for (const int32_t v : values_of<int32_t>(a)) ASSERT_EQ(v, 255);
  }
}

TEST_F(Gpu, GraphsReplayWhatWasCaptured) {
  if (device.arch() != Arch::sm_90a) GTEST_SKIP() << "compiled for sm_90a";
  Stream stream(device);
  const Tensor a = Tensor::zeros({64}, Format::i32, device);
  const Tensor b = Tensor::zeros({64}, Format::i32, device);
  for (const bool programmatic : {false, true}) {
    const Tensor zeros = Tensor::zeros({64}, Format::i32, device);
    copy(zeros, a, stream);
    const Graph graph =
        Graph::capture(stream, [&](Stream& s) { eight_steps(a, b, programmatic, s); });
    EXPECT_EQ(graph.size(), 8);
    stream.synchronize();
    for (const int32_t v : values_of<int32_t>(a)) ASSERT_EQ(v, 0) << "captured, not carried out";
    graph.replay(stream);
    graph.replay(stream);
    stream.synchronize();
    for (const int32_t v : values_of<int32_t>(a)) ASSERT_EQ(v, 65535);
  }
}

TEST_F(Gpu, CapturesRefuseAllocationAndPassErrorsOn) {
  Stream stream(device);
  test::expect_error(
      [&] { Graph::capture(stream, [&](Stream&) { Tensor::empty({8}, Format::f32, device); }); },
      {"capture of a graph", "cuda:0"});
  test::expect_error(
      [&] {
        Graph::capture(stream, [&](Stream& s) { launch(test::kScale, {{1}, {999}, {}}, 0, s); });
      },
      {"Scale", "999"});
  EXPECT_EQ(Graph::capture(stream, [](Stream&) {}).size(), 0);
  EXPECT_EQ(scaled_on(device), scaled());
}

TEST_F(Gpu, EventsMeasureAndOrder) {
  Stream stream(device), other(device);
  Event begin(device), end(device);
  test::expect_error([&] { end.milliseconds_since(begin); }, {"never recorded"});
  begin.record(stream);
  launch(test::kBusy, {{1}, {32}, {}}, test::Busy::Params{5'000'000}, stream);
  end.record(stream);
  end.wait(other);
  const Tensor a = Tensor::zeros({64}, Format::i32, device);
  copy(a, a.contiguous_copy(), other);
  other.synchronize();
  EXPECT_TRUE(end.done());  // the other stream waited for it
  EXPECT_GE(end.milliseconds_since(begin), 4.5f);
  EXPECT_LE(end.milliseconds_since(begin), 500.0f);
  test::expect_error([&] { Event().record(stream); }, {"cpu", "cuda:0"});
}

// Memory released while a kernel still writes it is given out again only after that kernel.
TEST_F(Gpu, ReleasedMemoryIsNotReusedTooEarly) {
  Stream busy(device), other(device);
  for (int round = 0; round < 20; ++round) {
    Tensor out = Tensor::zeros({4096}, Format::f32, device);
    Tensor in = Tensor::zeros({4096}, Format::f32, device);
    launch(test::kBusy, {{1}, {32}, {}}, test::Busy::Params{300'000}, busy);
    launch(test::kScale, {{32}, {128}, {}},
           test::Scale::Params{in.data<float>(), out.data<float>(), 4096, 1.0f}, busy);
    out = Tensor();
    in = Tensor();
    const Tensor next = counting(4096).to(device);  // likely the same memory
    other.synchronize();
    busy.synchronize();
    const std::vector<int32_t> found = values_of<int32_t>(next);
    for (int32_t i = 0; i < 4096; ++i) ASSERT_EQ(found[static_cast<size_t>(i)], i);
  }
}

TEST_F(Gpu, BorrowsAStream) {
  Stream mine(device);
  Stream borrowed = Stream::borrow(device, mine.native());
  EXPECT_EQ(borrowed.native(), mine.native());
  Stream legacy = Stream::borrow(device, nullptr);
  EXPECT_NE(legacy.native(), nullptr);
  const Tensor out = Tensor::zeros({64}, Format::f32, device);
  launch(test::kScale, {{1}, {128}, {}},
         test::Scale::Params{out.data<float>(), out.data<float>(), 64, 2}, borrowed);
  launch(test::kScale, {{1}, {128}, {}},
         test::Scale::Params{out.data<float>(), out.data<float>(), 64, 2}, legacy);
  borrowed.synchronize();
  legacy.synchronize();
  EXPECT_EQ(Stream::default_stream(device).device(), device);
  EXPECT_EQ(&Stream::default_stream(device), &Stream::default_stream(device));
}

TEST_F(Gpu, DriverFunctionsAreFoundByName) {
  EXPECT_NE(cuda::driver_function("cuTensorMapEncodeTiled"), nullptr);
  test::expect_error([] { cuda::driver_function("cuNoSuchThing"); }, {"cuNoSuchThing"});
}

}  // namespace
}  // namespace halftone
