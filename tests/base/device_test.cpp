#include "halftone/device.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/bf16_dots.h"
#include "base/launch.h"
#include "base/message.h"
#include "halftone/graph.h"
#include "support/compare.h"

namespace halftone {
namespace {

TEST(Device, ParsesAndPrints) {
  EXPECT_EQ(Device::parse("cpu"), Device::cpu());
  EXPECT_EQ(Device::cpu().name(), "cpu");
  test::expect_error([] { Device::parse("cuda:999"); }, {"cuda:999", "use cpu"});
  EXPECT_EQ(Device::parse("sim:sm_90a"), Device::simulator(Arch::sm_90a));
  test::expect_error([] { Device::parse("sim:sm_91"); }, {"sim:sm_91", "sim:ARCH"});
  test::expect_error([] { Device::parse("cuda:x"); }, {"cuda:x", "number"});
  test::expect_error([] { Device::parse("tpu"); }, {"tpu", "cpu, cuda:N"});
}

TEST(Device, CudaSaysWhyItIsMissing) {
  std::string reason;
  const int count = cuda_device_count(&reason);
  EXPECT_EQ(reason.empty(), count > 0) << reason;
  if (count > 0) {
    EXPECT_EQ(Device::parse("cuda").name(), "cuda:0");
    EXPECT_GT(properties(Device::cuda(0)).sm_count, 0);
  } else {
    test::expect_error([] { Device::cuda(0); }, {"cuda:0", reason.c_str(), "use cpu"});
  }
  test::expect_error([] { properties(Device::cpu()); }, {"GPUs"});
}

TEST(Stream, BorrowsOnlyFromCuda) {
  test::expect_error([] { Stream::borrow(Device::cpu(), nullptr); }, {"CUDA device", "cpu"});
}

TEST(Event, OfTheHostMeasuresTime) {
  Stream stream;
  Event begin, end;
  test::expect_error([&] { end.milliseconds_since(begin); }, {"never recorded"});
  begin.record(stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end.record(stream);
  EXPECT_TRUE(end.done());
  EXPECT_GE(end.milliseconds_since(begin), 5.0f);
}

TEST(Graph, IsForGpus) {
  Stream stream;
  EXPECT_NE(why_no_graph(Device::cpu()), "");
  test::expect_error([&] { Graph::capture(stream, [](Stream&) {}); }, {"cpu", "no graphs"});
}

TEST(Launch, IsForGpus) {
  Stream stream;
  const KernelImage kernel{"nothing", Arch::sm_80, nullptr, nullptr, 0, 32};
  test::expect_error([&] { launch(kernel, {}, nullptr, stream); }, {"nothing", "cpu"});
}

TEST(CpuLevel, FollowsTheEnvironment) {
  test::at_every_level([] { EXPECT_STREQ(name(cpu_level()), std::getenv("HALFTONE_CPU")); });
  EXPECT_EQ(cpu_level(), detected_cpu_level());
  setenv("HALFTONE_CPU", "mmx", 1);
  test::expect_error([] { cpu_level(); }, {"mmx", "baseline, avx2"});
  unsetenv("HALFTONE_CPU");
  setenv("HALFTONE_BF16", "half", 1);
  test::expect_error([] { multiply_bf16_in_f32(); }, {"half", "dot or f32"});
  unsetenv("HALFTONE_BF16");
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
