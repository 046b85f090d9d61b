// How the benchmarks of a GPU measure, tried where no GPU is.
#include "bench/gpu.h"
#include "bench/gpu_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/message.h"
#include "halftone/quantize.h"
#include "halftone/simulator.h"

namespace halftone {
namespace {

TEST(GpuTiming, CountsEveryCallOnceInTurn) {
  Stream stream;
  std::vector<int> seen;
  const GpuTiming time = time_on_gpu(
      stream, [&](int i) { seen.push_back(i); }, GpuTimingOptions::quick());
  ASSERT_FALSE(seen.empty());
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int>(i));
  EXPECT_GE(time.burst.high, time.burst.low);
  EXPECT_GE(time.sustained, 0);
}

TEST(GpuTiming, GraphsCountEveryCallOfATurn) {
  Stream stream;
  int calls = 0;
  const auto f = [&](int i, Stream&) { EXPECT_EQ(i, calls++ % 3); };
  const GpuTiming time = time_in_graph(stream, 3, f, GpuTimingOptions::quick());
  EXPECT_EQ(calls % 3, 0);
  EXPECT_GE(time.burst.high, time.burst.low);
}

TEST(GpuBench, DataHasTheSameBitsHoweverLong) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Tensor x = normal_on_device({3, 40}, 7, stream);
  const Tensor same = in_format(x, "bf16", stream);
  EXPECT_NE(same.data(), x.data());
  const Tensor expected = convert(normal_data({3, 40}, 7), Format::bf16);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 40; ++j) EXPECT_EQ(same.at({i, j}), expected.at({i, j}));
  }
}

TEST(GpuBench, TheLongerOfTwoRoofsCounts) {
  const GpuRoofs roofs{4e12, 4e12, 800e12};
  GpuTiming time;
  time.burst = 1e-3, time.sustained = 2e-3;
  BenchRow row;
  row.bytes = 2e9, row.flops = 2e11;  // 0.5 ms, 0.25 ms
  set_either(time, roofs, &row);
  EXPECT_EQ(row.unit, "TB/s");
  EXPECT_DOUBLE_EQ(row.value, 2);
  EXPECT_DOUBLE_EQ(row.sustained, 1);
  EXPECT_DOUBLE_EQ(row.roof, 4);
  row.flops = 6e11;  // 0.75 ms
  set_either(time, roofs, &row);
  EXPECT_EQ(row.unit, "TFLOP/s");
  EXPECT_DOUBLE_EQ(row.value, 600);
  EXPECT_DOUBLE_EQ(row.roof, 800);
}

TEST(GpuBench, RowsAreChosenByAnyPartOfTheirNames) {
  Stream stream(Device::simulator(Arch::sm_90a));
  GpuBench bench{stream};
  EXPECT_TRUE(bench.choice.asks_for("prefill 1 x 64"));
  bench.choice.rows = {"heads of 64, causal", "decode"};
  EXPECT_TRUE(bench.choice.asks_for("prefill 1 x 64, 2 heads of 64, causal bf16+bf16"));
  EXPECT_FALSE(bench.choice.asks_for("prefill 1 x 64, 2 heads of 64, full bf16+bf16"));
  bench.choice.rows = {"no such row"};
  EXPECT_TRUE(bench_gpu_decode(bench).empty());
}

TEST(GpuBench, BuffersInTurnExceedTheSecondLevelCache) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const GpuBench bench{stream};
  const int64_t cache = properties(stream.device()).l2_bytes;
  EXPECT_EQ(bench.copies(100 * cache), 2);
  EXPECT_GE(bench.copies(cache / 8) * (cache / 8), 4 * cache);
}

TEST(GpuBench, RowOfAPrefillCountsCausalAsHalf) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const PrefillShape full{1, 64, 2, 1, 64, false};
  PrefillShape causal = full;
  causal.causal = true;
  const AttentionMode mode{Format::bf16, Format::bf16};
  const BenchRow a = bench_prefill(full, mode, stream, GpuTimingOptions::quick());
  const BenchRow b = bench_prefill(causal, mode, stream, GpuTimingOptions::quick());
  EXPECT_EQ(a.name, "prefill 1 x 64, 2/1 heads of 64, full bf16+bf16");
  EXPECT_EQ(b.name, "prefill 1 x 64, 2/1 heads of 64, causal bf16+bf16");
  EXPECT_EQ(a.flops, 4.0 * 2 * 64 * 64 * 64);  // 4 x heads x head_dim x queries x keys
  EXPECT_EQ(b.flops, a.flops / 2);
  EXPECT_GT(a.value, 0);
  EXPECT_GT(a.sustained, 0);
}

TEST(GpuBench, CodesAreMadeAgainAsTheyWere) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const Tensor x = normal_on_device({1, 256, 2, 64}, 1, stream);
  const auto expect_again = [&](const Tensor& codes, int64_t scale_tokens, bool values) {
    const auto again = quantise_again(x, codes, scale_tokens, values, stream);
    stream.synchronize();
    const auto bytes_of = [](const Tensor& t) {  // simulated memory is the host's
      return std::span(static_cast<char*>(t.data()),
                       static_cast<size_t>(packed_bytes(t.format(), t.numel())));
    };
    const auto all = bytes_of(codes), scales = bytes_of(codes.scales());
    const std::vector<char> before(all.begin(), all.end());
    const std::vector<char> scales_before(scales.begin(), scales.end());
    std::ranges::fill(all, '\0');
    std::ranges::fill(scales, '\0');
    again();
    stream.synchronize();
    const std::string what = concat(name(codes.format()), ", ", scale_tokens, values ? ", V" : "");
    EXPECT_TRUE(std::ranges::equal(all, before)) << what;
    EXPECT_TRUE(std::ranges::equal(scales, scales_before)) << what;
  };
  for (const int64_t scale_tokens : {0, 1, 128}) {
    for (const Format format : {Format::fp8_e4m3, Format::int8}) {
      expect_again(attention_operand(x, format, stream, scale_tokens), scale_tokens, false);
    }
    expect_again(attention_values(x, Format::fp8_e4m3, stream, scale_tokens), scale_tokens, true);
  }
  for (const Format format : {Format::nvfp4, Format::mxfp4, Format::mxfp8}) {
    expect_again(quantize(x, QuantizeOptions(format), stream), 1, false);
  }
}

TEST(GpuBench, RowsFromBf16QuantiseWithinTheTime) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const PrefillShape shape{1, 128, 2, 2, 64, false, "from bf16"};
  const AttentionMode fp8{Format::fp8_e4m3, Format::fp8_e4m3};
  const BenchRow row = bench_prefill(shape, fp8, stream, GpuTimingOptions::quick(), 128);
  EXPECT_EQ(row.name, "prefill 1 x 128, 2 heads of 64, full fp8+fp8, from bf16, blocks");
  EXPECT_GT(row.value, 0);
  // As many calls as without, each with three kernels more.
  Stream other(Device::simulator(Arch::sm_90a));
  PrefillShape plain = shape;
  plain.rule.clear();
  bench_prefill(plain, fp8, other, GpuTimingOptions::quick(), 128);
  EXPECT_GT(simulator_report(stream).launches, simulator_report(other).launches);
}

TEST(GpuBench, RowOfADecodeCountsTheCacheWithItsScales) {
  Stream stream(Device::simulator(Arch::sm_90a));
  GpuBench bench{stream, true};
  bench.roofs.read = 4e12;
  const BenchRow plain = bench_decode({1, 64, "bf16", true}, bench);
  const BenchRow narrow = bench_decode({1, 64, "nvfp4"}, bench);
  EXPECT_EQ(plain.name, "decode 1 x 64, 32/8 heads of 128, bf16 cache, batch-invariant");
  EXPECT_EQ(plain.bytes, 2.0 * 64 * 8 * 128 * 2);
  EXPECT_EQ(narrow.bytes,
            2.0 * (64 * 8 * (64 + 128 / 16) + 4));  // codes, a scale for 16, a tensor's
}

}  // namespace
}  // namespace halftone
