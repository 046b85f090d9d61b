// The simulated Hopper beside the chip: the same kernel, the same inputs, the same bits. Only the
// special-function unit may differ, whose results the simulator rounds correctly and the chip gives
// within 2 units in the last place.
#include <cstdio>
#include <functional>

#include "attention/sm80/cases.h"
#include "cuda/gpu.h"
#include "halftone/norm.h"
#include "halftone/quantize.h"
#include "halftone/softmax.h"
#include "matmul/gpu_cases.h"
#include "support/draw.h"

namespace halftone::test {
namespace {

class Silicon : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && device.arch() != Arch::sm_90a) GTEST_SKIP() << "no Hopper";
  }
  // body(stream) gives a result on the CPU.
  void expect_same_bits(const std::function<Tensor(Stream&)>& body) const {
    Stream chip(device), simulated(Device::simulator(Arch::sm_90a));
    configure(simulated, {.severity = SimulatorOptions::Severity::off});
    const Tensor there = body(chip).contiguous_copy(), here = body(simulated).contiguous_copy();
    ASSERT_EQ(there.bytes(), here.bytes());
    const auto *a = there.data<uint8_t>(), *b = here.data<uint8_t>();
    EXPECT_TRUE(std::equal(a, a + there.bytes(), b)) << to_string(there);
  }
};

TEST_F(Silicon, ProductsOfEveryFormat) {
  uint64_t seed = 0;
  for (const int64_t m : {5, 45}) {
    for (const GpuCase& c : plain_cases(m, 37, 700)) {
      SCOPED_TRACE(concat(label(c.x), " x ", label(c.weight), ", ", m, " rows"));
      const Data data = ++seed % 2 == 0 ? Data::outliers : Data::normal;
      const Weight w = random_weight(c.weight, c.n, c.k, seed, data);
      const Weight x = random_weight(c.x, c.m, c.k, seed + 1, data);
      expect_same_bits([&](Stream& s) { return matmul_on(s, x.tensor, w.tensor, {}); });
    }
  }
}

TEST_F(Silicon, SmallOperations) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("problem " + std::to_string(seed));
    Draw draw(seed);
    const Format format = draw.plain_format();
    const Shape shape{draw.extent(20), 32 * draw.extent(100)};
    const Tensor x = random_tensor(shape, format, seed);
    const Tensor weight = random_tensor({shape[1]}, format, seed + 100);
    expect_same_bits([&](Stream& s) {
      const Tensor y = rms_norm(x.to(s.device()), weight.to(s.device()), 1e-6f, s);
      return y.to(Device::cpu());
    });
    expect_same_bits([&](Stream& s) {
      const Tensor there = x.to(s.device());
      const Tensor y = Tensor::empty(shape, Format::f32, s.device());
      run(plan(SoftmaxProblem{shape[0], shape[1], format, Format::f32}, s.device()), {there, y}, s);
      s.synchronize();
      return y.to(Device::cpu());
    });
    expect_same_bits([&](Stream& s) {
      const Tensor y = quantize(x.to(s.device()), QuantizeOptions(Format::nvfp4), s);
      return dequantize(y, Format::f32, s).to(Device::cpu());
    });
  }
}

// P of the chip is within 2^-22 of the simulator's, which its rounding to the type of the product
// and the rounding of the result mostly hide. Where a rounding falls to the other side, the results
// are a unit of the output apart; no result is further away than both may be from the truth.
TEST_F(Silicon, AttentionInEveryModeAndMask) {
  int problems = 0, equal = 0;
  int64_t results = 0, same = 0;
  for (Case c : sm80_cases()) {
    if (c.problem.out == Format::f32) c.problem.out = Format::bf16;
    SCOPED_TRACE(describe(plan(c.problem, device)));
    Case other = c;
    Stream chip(device), simulated(Device::simulator(Arch::sm_90a));
    configure(simulated, {.severity = SimulatorOptions::Severity::off});
    run_on(chip, &c);
    run_on(simulated, &other);
    const Tensor &a = c.tensors.out, &b = other.tensors.out;
    ASSERT_EQ(a.format(), b.format());
    std::vector<double> bound = bounded(c).out_bound;
    for (double& x : bound) x *= 2;
    EXPECT_TRUE(within(to_floats(a), to_floats(b), bound));
    int64_t alike = 0;
    for (int64_t i = 0; i < a.numel(); ++i) alike += a.data<uint16_t>()[i] == b.data<uint16_t>()[i];
    ++problems, equal += alike == a.numel();
    results += a.numel(), same += alike;
  }
  std::printf("%d problems, %d of them with equal bits; %lld of %lld results\n", problems, equal,
              static_cast<long long>(same), static_cast<long long>(results));
  EXPECT_GE(equal, 50);
  EXPECT_GT(same * 1000, results * 999);
}

}  // namespace
}  // namespace halftone::test
