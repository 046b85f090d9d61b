// Histograms on GPUs: the CPU's counts.
#include "halftone/histogram.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class HistogramOnDevice : public OnDevice {};

Tensor integers(int64_t count, int64_t below, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const Tensor t = Tensor::empty({count}, Format::i32);
  for (int64_t i = 0; i < count; ++i) {
    t.data<int32_t>()[i] = static_cast<int32_t>(engine() % static_cast<uint64_t>(below));
  }
  return t;
}

TEST_P(HistogramOnDevice, CountsInSharedAndInGlobalMemory) {
  Stream s = stream();
  for (const int64_t bins : {1, 7, 1000, 4096, 5000}) {
    for (const int64_t count : {0, 1, 9001}) {
      const Tensor x = integers(count, bins, 1);
      EXPECT_TRUE(
          same_bits(histogram(x.to(device), bins, s).to(Device::cpu()), histogram(x, bins)));
    }
  }
  s.synchronize();
}

TEST_P(HistogramOnDevice, BetweenEdges) {
  const Tensor edges = Tensor::from({-1.5f, -0.5f, 0, 0, 0.25f, 2}, {6});
  for (const Format format : test::kPlainFormats) {
    const Tensor x = test::random_tensor({3, 700}, format, 2);
    Tensor counts = Tensor::empty({5}, Format::i64, device);
    const HistogramPlan p = plan(HistogramProblem{{3, 700}, format, false, 5, true}, device);
    const HistogramTensors t{x.to(device), counts, edges.to(device)};
    for (uint64_t seed = 1; seed <= (simulated() ? 8 : 1); ++seed) {
      Stream s = stream({.schedule = SimulatorOptions::Schedule::adversarial, .seed = seed});
      run(p, t, s);
      s.synchronize();
      EXPECT_TRUE(same_bits(counts.to(Device::cpu()), histogram(x, edges))) << "seed " << seed;
    }
  }
}

TEST_P(HistogramOnDevice, EveryFormatAndStride) {
  Stream s = stream();
  const Tensor edges = Tensor::from({-200, -1, -0.25f, 0, 0.5f, 1, 300}, {7});
  const auto expect_same = [&](const Tensor& x, const Tensor& there) {
    EXPECT_TRUE(
        same_bits(histogram(there, edges.to(device), s).to(Device::cpu()), histogram(x, edges)))
        << to_string(x);
  };
  const Tensor x = test::random_tensor({2, 37, 96}, Format::f32, 3);
  for (const char* text : {"fp8", "fp8_row", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4", "int8",
                           "int8_g32", "int4", "int4_g64_asym"}) {
    const Tensor q = quantize(x, parse_quantization(text));
    expect_same(q, q.to(device));
  }
  for (const Format f : {Format::i32, Format::i64, Format::u8, Format::int8}) {
    const Tensor ids = Tensor::zeros({3, 5, 44}, f);
    for (int64_t i = 0; i < ids.bytes(); i += bits(f) / 8) {
      ids.data<uint8_t>()[i] = static_cast<uint8_t>(37 * i % 251);
    }
    const Tensor there = ids.to(device);
    expect_same(ids, there);
    expect_same(ids.transpose(0, 2), there.transpose(0, 2));
    expect_same(ids.slice(2, 3, 40).slice(1, 1, 5), there.slice(2, 3, 40).slice(1, 1, 5));
  }
  s.synchronize();
}

TEST_P(HistogramOnDevice, ValuesWithoutAPlaceAreReported) {
  const auto fails = [&](const Tensor& x, const Tensor& edges,
                         const std::vector<std::string>& words) {
    Stream s = stream();
    const Tensor counts = edges.defined() ? histogram(x.to(device), edges.to(device), s)
                                          : histogram(x.to(device), 4, s);
    test::expect_error([&] { s.synchronize(); }, words);
    s.synchronize();
  };
  fails(Tensor::from({1, 4, 2}, {3}), {}, {"x[1]", "4", "bins"});
  fails(Tensor::from({1, 3, -0.5f}, {3}), {}, {"x[2]", "-0.5"});
  fails(Tensor::from({1, NAN}, {2}), Tensor::from({0, 2}, {2}), {"x[1]", "no place"});
  fails(Tensor::from({1, 1}, {2}), Tensor::from({0, 2, 1}, {3}), {"edges[1]", "ascend"});
}

TEST_P(HistogramOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const int64_t bins = draw.extent(20000);
    const Tensor x = integers(draw.extent(50000), bins, seed);
    Stream s = stream();
    EXPECT_TRUE(same_bits(histogram(x.to(device), bins, s).to(Device::cpu()), histogram(x, bins)))
        << to_string(x) << " in " << bins;
  });
}

HALFTONE_ON_DEVICES(HistogramOnDevice);

}  // namespace
}  // namespace halftone
