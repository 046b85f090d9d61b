// Instructions on registers: the GPU gives the bits of the simulator.
#include "verify_lane.h"
#include "verify_convert.h"
#include "verify_host.h"

namespace halftone::verify {
namespace {

constexpr const char* kLaneNames[] = {
#define HT_NAME(name, ...) #name,
    HT_VERIFY_LANE(HT_NAME)};
constexpr const char* kConvertNames[] = {HT_VERIFY_CONVERT(HT_NAME)};
#undef HT_NAME

std::vector<uint32_t> results(const Device& device, size_t index,
                              const std::vector<uint32_t> (&in)[3]) {
  Stream stream(device);
  const Buffer a(device, in[0]), b(device, in[1]), c(device, in[2]);
  const Buffer d(device, std::vector<uint32_t>(in[0].size(), 0xa5a5a5a5u));
  constexpr uint32_t kThreads = Lanewise<lane::popc>::kThreads;
  run(kLaneEntries, index, kLaneNames[index], kThreads, 0,
      static_cast<uint32_t>(in[0].size()) / kThreads, {a.words(), b.words(), c.words(), d.words()},
      stream);
  return d.read<uint32_t>();
}

// Every code of 16 bits comes first, so that conversions from halves and pairs of FP8 are complete.
TEST(Lane, GpuGivesTheBitsOfTheSimulator) {
  ASSERT_EQ(missing("sim"), "");
  const bool gpu = missing("cuda").empty();
  const size_t n = gpu ? 1 << 17 : 1 << 9;
  std::vector<uint32_t> in[3] = {operands(n, 1), operands(n, 2), operands(n, 3)};
  for (uint32_t i = 0; i < 1 << 16 && i < n; ++i) in[0][i] = i | (i * 40503u) << 16;
  for (size_t index = 0; index < std::size(kLaneNames); ++index) {
    const auto simulated = results(device_named("sim"), index, in);
    if (!gpu) continue;  // the bodies ran without a violation
    const auto chip = results(device_named("cuda"), index, in);
    size_t wrong = 0;
    for (size_t i = 0; i < n; ++i) {
      if (chip[i] == simulated[i]) continue;
      if (++wrong <= 3) {
        ADD_FAILURE() << kLaneNames[index] << std::hex << " of " << in[0][i] << ", " << in[1][i]
                      << ", " << in[2][i] << ": GPU " << chip[i] << ", simulator " << simulated[i];
      }
    }
    report("cuda", kLaneNames[index], n, wrong);
  }
  if (!gpu) GTEST_SKIP() << missing("cuda");
}

class Convert : public OnDevice {};

TEST_P(Convert, EveryFloatGivesTheModelsCode) {
  const uint32_t threads = on_gpu() ? 132 * 8 * 256 : 256;
  const uint32_t stride = on_gpu() ? 1 : 104729;
  Stream stream(device_);
  for (size_t index = 0; index < std::size(kConvertNames); ++index) {
    const Buffer counts(device_, std::vector<uint32_t>(2 * threads, ~0u));
    Params params;
    params.d = counts.words();
    params.option = stride;
    constexpr uint32_t kThreads = EveryFloat<conversion::f16_rn>::kThreads;
    run(kConvertEntries, index, kConvertNames[index], kThreads, 0, threads / kThreads, params,
        stream);
    const auto words = counts.read<uint32_t>();
    size_t wrong = 0;
    for (size_t i = 0; i < threads; ++i) {
      if (words[i] != 0 && wrong == 0) {
        ADD_FAILURE() << kConvertNames[index] << " differs for the float " << std::hex
                      << words[threads + i];
      }
      wrong += words[i];
    }
    report(GetParam(), std::string("cvt ") + kConvertNames[index],
           (uint64_t{1} << 32) / stride + (stride != 1), wrong);
  }
}

HT_ON_DEVICES(Convert);

}  // namespace
}  // namespace halftone::verify
