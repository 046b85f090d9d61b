// Every step on the GPU, at sizes with partial tiles and with several tiles for each block.
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

#include "halftone/error.h"
#include "ladder.h"
#include "matrices.h"

namespace halftone::ladder {
namespace {

class LadderGpu : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Steps, LadderGpu, testing::Range(1, 10),
                         [](const auto& info) { return "step" + std::to_string(info.param); });

TEST_P(LadderGpu, IsRight) {
  std::string reason;
  if (cuda_device_count(&reason) == 0) GTEST_SKIP() << reason;
  const Device device = Device::cuda();
  const Step& step = steps()[static_cast<size_t>(GetParam() - 1)];
  if (properties(device).arch != Arch::sm_90a) GTEST_SKIP() << "the steps are built for sm_90a";
  Stream stream(device);
  struct Size {
    int64_t m, n, k;
  };
  for (const Size& s : {Size{1, 8, 8}, Size{72, 136, 88}, Size{264, 520, 392}, Size{1000, 904, 72},
                        Size{520, 776, 2056}}) {
    for (int sms : {2, 0}) {
      const auto a = random_matrix(s.m, s.k, 1), b = random_matrix(s.n, s.k, 2);
      const std::vector<uint16_t> nan(size_t(s.m * s.n), 0xffff);
      const auto on_device = [&](const std::vector<uint16_t>& values, int64_t rows, int64_t cols) {
        return Tensor::copy_of(values.data(), values.size() * 2, {rows, cols}, Format::bf16)
            .to(device);
      };
      const Tensor ta = on_device(a, s.m, s.k), tb = on_device(b, s.n, s.k);
      const Tensor tc = on_device(nan, s.m, s.n);
      multiply(GetParam(), ta, tb, tc, stream, {.multiprocessors = sms});
      stream.synchronize();
      const Tensor back = tc.to(Device::cpu());
      const auto* values = back.data<uint16_t>();
      const Distance d = distance(a, b, {values, values + nan.size()}, s.m, s.n, s.k, s.m);
      EXPECT_EQ(d.unwritten, 0) << step.name << " " << s.m << "x" << s.n << "x" << s.k;
      EXPECT_LE(d.worst, 1.0) << step.name << " " << s.m << "x" << s.n << "x" << s.k << " row "
                              << d.row << " column " << d.column;
      if (GetParam() != 9) break;
    }
  }
}

}  // namespace
}  // namespace halftone::ladder
