// The grouped GEMM against FP64, its invariance and its errors.
#include "halftone/moe.h"

#include <array>

#include "moe/experts.h"

namespace halftone {
namespace {

using namespace test;

TEST(Moe, EveryFormatAndLevel) {
  at_every_level([] {
    for (const WeightSpec& spec : weight_specs()) {
      for (Format format : {Format::f32, Format::bf16}) {
        SCOPED_TRACE(concat(label(spec), " x ", name(format)));
        const int64_t hidden = 128, inter = k_step(spec) > 64 ? 128 : 64;
        const Experts w = random_experts(spec, 3, hidden, inter);
        const Tensor x = small_input(4, hidden, format);
        const Routing r = random_routing(4, 3, 2, 3);
        const Expected e = expected_moe(x, r, w, inter);
        EXPECT_TRUE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
      }
    }
  });
}

TEST(Moe, ShapesAndReference) {
  const WeightSpec spec{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
  for (auto [tokens, hidden, inter] :
       {std::array<int64_t, 3>{1, 1, 1}, {7, 37, 150}, {3, 200, 9}}) {
    for (Format format : {Format::f32, Format::f16, Format::bf16}) {
      const Experts w = random_experts(spec, 5, hidden, inter);
      const Tensor x = small_input(tokens, hidden, format);
      const Routing r = random_routing(tokens, 5, 3, 8);
      const Expected e = expected_moe(x, r, w, inter);
      EXPECT_TRUE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
      const std::vector<float> reference = to_floats(moe_reference(x, r, w.gate, w.up, w.down));
      for (size_t i = 0; i < reference.size(); ++i) {
        EXPECT_NEAR(reference[i], e.values[i], 1e-6 * std::abs(e.values[i]) + 1e-12);
      }
    }
  }
}

// One expert's weight, one exponent of a scale, or the order of two experts: each is noticed.
TEST(Moe, ToleranceBreaksOnSmallErrors) {
  const WeightSpec spec{Format::int8, true, {Format::f32, 1, 32}};
  const Experts w = random_experts(spec, 4, 64, 64);
  const Tensor x = small_input(3, 64, Format::f32);
  const Routing r = random_routing(3, 4, 2, 3);
  const Expected e = expected_moe(x, r, w, 64);
  ASSERT_TRUE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
  r.weights.data<float>()[0] *= 1.001f;
  EXPECT_FALSE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
  r.weights.data<float>()[0] /= 1.001f;
  std::swap(r.experts.data<int32_t>()[2], r.experts.data<int32_t>()[3]);
  EXPECT_FALSE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
  std::swap(r.experts.data<int32_t>()[2], r.experts.data<int32_t>()[3]);
  w.down[static_cast<size_t>(r.experts.data<int32_t>()[0])].scales().data<float>()[0] *= 2;
  EXPECT_FALSE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
}

TEST(Moe, TokensDoNotDependOnTheBatchOrThreads) {
  at_every_level([] {
    for (Format format : {Format::f32, Format::bf16}) {
      const WeightSpec spec{Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true};
      const Experts w = random_experts(spec, 6, 96, 80);
      const int64_t tokens = 290;  // beyond one group of tokens and one panel
      const Tensor x = small_input(tokens, 96, format);
      const Routing r = random_routing(tokens, 6, 2, 3);
      const Tensor all = moe(x, r, w.gate, w.up, w.down);
      for (int64_t t : {0, 5, 255, 256, 289}) {
        const Routing one{r.experts.slice(0, t, t + 1), r.weights.slice(0, t, t + 1)};
        EXPECT_EQ(to_floats(moe(x.slice(0, t, t + 1), one, w.gate, w.up, w.down)),
                  to_floats(all.slice(0, t, t + 1)));
      }
      for (int threads : {1, 3}) {
        Stream stream(Device::cpu(), threads);
        EXPECT_EQ(to_floats(moe(x, r, w.gate, w.up, w.down, stream)), to_floats(all));
      }
    }
  });
}

TEST(Moe, OneExpertForAllAndNoTokens) {
  const Experts w = random_experts({Format::bf16}, 2, 16, 24);
  const int64_t tokens = 270;
  const Tensor x = random_tensor({tokens, 16}, Format::f32, 3);
  Routing r{Tensor::zeros({tokens, 1}, Format::i32), Tensor::empty({tokens, 1}, Format::f32)};
  std::fill_n(r.weights.data<float>(), tokens, 1.0f);
  const Expected e = expected_moe(x, r, w, 24);
  EXPECT_TRUE(within(to_floats(moe(x, r, w.gate, w.up, w.down)), e.values, e.magnitudes));
  const Tensor none = Tensor::empty({0, 16}, Format::f32);
  EXPECT_EQ(moe(none, route(Tensor::empty({0, 2}, Format::f32), {}), w.gate, w.up, w.down).shape(),
            (Shape{0, 16}));
}

TEST(Moe, Errors) {
  Experts w = random_experts({Format::bf16}, 2, 16, 24);
  const Tensor x = random_tensor({2, 16}, Format::f32, 3);
  const Routing r = random_routing(2, 2, 1, 1);
  MoeProblem p;
  p.tokens = 2, p.hidden = 16, p.intermediate = 24, p.experts = 2, p.top_k = 3;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("top_k is 3"), std::string::npos);
  p.top_k = 1;
  EXPECT_TRUE(can_run(p, Device::cpu()).ok);
  EXPECT_NE(describe(plan(p, Device::cpu())).find("2 experts"), std::string::npos);
  p.weight = Format::nvfp4;
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("gate and up: weight format nvfp4"),
            std::string::npos);
  p.scaled = true, p.scaling = {Format::fp8_e4m3, 1, 16};
  EXPECT_NE(can_run(p, Device::cpu()).reason.find("down: "), std::string::npos);

  r.experts.data<int32_t>()[1] = 2;
  expect_error([&] { moe(x, r, w.gate, w.up, w.down); },
               {"routing.experts[1, 0] is 2", "2 experts"});
  r.experts.data<int32_t>()[1] = 1;
  w.up.pop_back();
  expect_error([&] { moe(x, r, w.gate, w.up, w.down); }, {"up has 1 tensors"});
  w.up.push_back(Tensor::zeros({16, 24}, Format::bf16));
  expect_error([&] { moe(x, r, w.gate, w.up, w.down); }, {"up[1] is bf16 [16, 24]", "[24, 16]"});
}

}  // namespace
}  // namespace halftone
