// Attention on the simulated Hopper and on the chip, to the bit. Of all that its kernels do, the
// special-function unit alone has no published bits: the chip is asked for those of every fraction,
// and the simulator takes them for its own. What is left to differ is nothing.
#include <algorithm>
#include <bit>
#include <cmath>

#include "attention/sm80/cases.h"
#include "attention/sm90/cases.h"
#include "halftone/simulator.h"
#include "sim/numerics/math.h"
#include "verify_host.h"
#include "verify_mufu.h"

namespace halftone::verify {
namespace {

using sim::MeasuredFunctions;
using test::Case;

constexpr const char* kNames[] = {
#define HT_NAME(name) #name,
    HT_VERIFY_MUFU(HT_NAME)};
#undef HT_NAME

std::vector<float> results(const Device& device, std::string_view name,
                           const std::vector<float>& in) {
  const auto index =
      static_cast<size_t>(std::find(std::begin(kNames), std::end(kNames), name) - kNames);
  Stream stream(device);
  const Buffer a(device, in), d(device, in);
  Params params;
  params.a = a.words(), params.d = d.words();
  constexpr uint32_t kThreads = Mufu<mufu::ex2_approx_ftz>::kThreads;
  run(kMufuEntries, index, kNames[index], kThreads, 0, static_cast<uint32_t>(in.size()) / kThreads,
      params, stream);
  return d.read<float>();
}

std::vector<float> fractions(float first, float step) {
  std::vector<float> x(MeasuredFunctions::kCount);
  for (size_t i = 0; i < x.size(); ++i) x[i] = first + step * static_cast<float>(i);
  return x;
}
MeasuredFunctions measured_on(const Device& device) {
  return {results(device, "ex2_approx_ftz", fractions(0, -0x1p-23f)),
          results(device, "rcp_approx_ftz", fractions(1, 0x1p-23f))};
}

// Problems of every mode, mask and rule, and those of the kernels for many rows alone.
std::vector<Case> problems() {
  std::vector<Case> cases = test::sm80_cases();
  uint64_t seed = 1;
  for (const test::Sm90Case& c : test::sm90_cases()) cases.push_back(make_case(c, ++seed));
  return cases;
}
Tensor result_of(Case c, const Device& device) {
  Stream stream(device);
  if (device.kind() == Device::Kind::simulator) {
    configure(stream, {.severity = SimulatorOptions::Severity::off});
  }
  run_on(stream, &c);
  return c.tensors.out.contiguous_copy();
}
bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::equal(a.data<uint8_t>(), a.data<uint8_t>() + a.bytes(), b.data<uint8_t>());
}

// Of arguments of every size: the tables and an exponent are all there is.
TEST(VerifyAttention, TablesTellEveryArgument) {
  if (const std::string reason = missing("cuda"); !reason.empty()) GTEST_SKIP() << reason;
  const Device chip = device_named("cuda");
  const MeasuredFunctions tables = measured_on(chip);
  std::mt19937_64 random(1);
  std::vector<float> exponents(1 << 20), divisors(1 << 20);
  for (float& x : exponents) {
    x = std::ldexp(static_cast<float>(random() >> 40), static_cast<int>(random() % 40) - 58);
    if (random() % 2 == 0) x = -x;
  }
  for (float& x : divisors) {
    x = std::ldexp(1 + static_cast<float>(random() >> 41) * 0x1p-23f,
                   static_cast<int>(random() % 240) - 120);
  }
  const auto ex2 = results(chip, "ex2_approx_ftz", exponents);
  const auto rcp = results(chip, "rcp_approx_ftz", divisors);
  const auto ex2_alike = results(chip, "ex2_approx", exponents);
  const auto rcp_alike = results(chip, "rcp_approx", divisors);
  size_t differ[4] = {};
  for (size_t i = 0; i < ex2.size(); ++i) {
    differ[0] += ex2[i] != sim::ex2_approx(exponents[i], true);
    differ[1] += rcp[i] != sim::rcp_approx(divisors[i], true);
    differ[2] += ex2_alike[i] != sim::ex2_approx(exponents[i], false);
    differ[3] += rcp_alike[i] != sim::rcp_approx(divisors[i], false);
  }
  for (const size_t each : differ) EXPECT_EQ(each, 0u) << "of " << ex2.size();
}

TEST(VerifyAttention, TheChipAndTheSimulatorGiveTheSameBits) {
  if (const std::string reason = missing("cuda"); !reason.empty()) GTEST_SKIP() << reason;
  const Device chip = device_named("cuda");
  const MeasuredFunctions tables = measured_on(chip);
  int equal = 0;
  const std::vector<Case> cases = problems();
  for (const Case& c : cases) {
    const bool same = same_bits(result_of(c, chip), result_of(c, device_named("sim")));
    if (!same) std::printf("other bits: %s\n", describe(plan(c.problem, chip)).c_str());
    equal += same;
  }
  std::printf("%d of %zu problems with equal bits\n", equal, cases.size());
  EXPECT_GE(equal, 50);
}

// Tables of correctly rounded values change nothing, and others do: the comparison can fail.
TEST(VerifyAttention, OtherExponentialsAreOtherBits) {
  ASSERT_EQ(missing("sim"), "");
  const Device simulated = device_named("sim");
  const Case c = make_case(test::Sm90Case{{1, 70, 200, 1, 1, 64}, Format::bf16, true}, 1);
  const Tensor without = result_of(c, simulated);
  std::vector<float> ex2 = fractions(0, -0x1p-23f), rcp = fractions(1, 0x1p-23f);
  for (float& x : ex2) x = sim::ex2_approx(x, true);
  for (float& x : rcp) x = sim::rcp_approx(x, true);
  {
    const MeasuredFunctions rounded(ex2, rcp);
    EXPECT_TRUE(same_bits(result_of(c, simulated), without));
  }
  // An eighth of a percent is less than P keeps, and falls to the other side for some.
  for (float& x : ex2) x *= 1 + 0x1p-10f;
  ex2[0] = 1;
  const MeasuredFunctions wrong(ex2, rcp);
  EXPECT_FALSE(same_bits(result_of(c, simulated), without));
}

}  // namespace
}  // namespace halftone::verify
