#include "halftone/device.h"

#include <gtest/gtest.h>

#include "base/message.h"
#include "support/compare.h"

namespace halftone {
namespace {

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::cpu().name(), "cpu");
  test::expect_error([] { Device::parse("cuda:0"); }, {"cuda:0", "no CUDA backend"});
  test::expect_error([] { Device::parse("sim:sm_90a"); }, {"sim:sm_90a", "no simulator"});
  test::expect_error([] { Device::parse("cuda:x"); }, {"cuda:x", "number"});
  test::expect_error([] { Device::parse("tpu"); }, {"tpu", "cpu, cuda:N"});
}

TEST(CpuLevel, FollowsTheEnvironment) {
  test::at_every_level([] { EXPECT_STREQ(name(cpu_level()), std::getenv("HALFTONE_CPU")); });
  EXPECT_EQ(cpu_level(), detected_cpu_level());
  setenv("HALFTONE_CPU", "mmx", 1);
  test::expect_error([] { cpu_level(); }, {"mmx", "baseline, avx2"});
  unsetenv("HALFTONE_CPU");
}

TEST(Message, NearestName) {
  EXPECT_EQ(nearest("nvpf4", {"bf16", "nvfp4", "mxfp4"}), "nvfp4");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Format, ParsesEveryNameAndSuggests) {
  for (int i = 0; i < kFormatCount; ++i) {
    EXPECT_EQ(parse_format(name(static_cast<Format>(i))), static_cast<Format>(i));
  }
  EXPECT_EQ(parse_format("bfloat16"), Format::bf16);
  test::expect_error([] { parse_format("nvfp5"); }, {"nvfp5", "nvfp4"});
}

}  // namespace
}  // namespace halftone
