// How the benchmarks of a GPU measure, tried where no GPU is.
#include "bench_gpu.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace halftone
