// The same kernels on the GPU.
#include "pipe/cases.h"

namespace halftone::test {
namespace {

class PipeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (cuda_device_count(&reason) == 0) GTEST_SKIP() << reason;
  }
};

TEST_F(PipeOnGpu, Rings) {
  Stream stream(Device::cuda(0));
  double_tiles(stream, 100, 1024, 2048);
  double_tiles(stream, 4, 32, 64);
  store_ring(stream, 1000);
}

TEST_F(PipeOnGpu, Epilogues) {
  Stream stream(Device::cuda(0));
  write_sums(stream, 64, 256);
  write_sums(stream, 50, 200);
}

}  // namespace
}  // namespace halftone::test
