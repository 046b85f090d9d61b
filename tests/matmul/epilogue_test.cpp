// Activations, gates, residuals and quantised outputs in the epilogue of a GEMM.
#include "matmul/epilogue.h"
#include "halftone/matmul.h"
#include "matmul/weights.h"

namespace halftone {
namespace {

using namespace test;
using F = Format;

const WeightSpec kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};

void check_epilogue(const MatmulOptions& options, const Tensor& x, const Tensor& w) {
  test::check_epilogue(options, x, [&](const MatmulOptions& o) { return matmul(x, w, o); });
}

TEST(Epilogue, EveryActivation) {
  at_every_level([] {
    const int64_t m = 3, n = 70, k = 96;
    const Tensor w = random_weight(kFp8, n, k, 5).tensor;
    std::vector<float> small = random_values(m * k, 4);
    for (float& v : small) v *= 0.01f;
    const Tensor x = Tensor::from<float>(small, {m, k}, F::f32);
    const Tensor bias = random_tensor({n}, F::f32, 6), residual = random_tensor({m, n}, F::f32, 7);
    for (int kind = 0; kind < kActivationCount; ++kind) {
      SCOPED_TRACE(name(static_cast<Activation>(kind)));
      MatmulOptions o;
      o.activation.kind = static_cast<Activation>(kind);
      o.bias = bias;
      check_epilogue(o, x, w);
      o.residual = residual;  // after the activation
      check_epilogue(o, x, w);
      const Tensor first = x.slice(0, 0, 1);
      EXPECT_EQ(to_floats(matmul(first, w,
                                 [&] {
                                   MatmulOptions one = o;
                                   one.residual = residual.slice(0, 0, 1);
                                   return one;
                                 }())),
                to_floats(matmul(x, w, o).slice(0, 0, 1)));
    }
  });
}

TEST(Epilogue, Gated) {
  at_every_level([] {
    const int64_t n = 128, k = 64;
    for (const int64_t m : {1, 5, 70}) {
      const Tensor w = random_weight(kFp8, 2 * n, k, 5).tensor;
      std::vector<float> small = random_values(m * k, 4);
      for (float& v : small) v *= 0.01f;
      const Tensor x = convert(Tensor::from<float>(small, {m, k}, F::f32), F::bf16);
      for (const GatedActivation& g : {GatedActivation::swiglu(), GatedActivation::geglu_tanh(),
                                       GatedActivation::gpt_oss(), GatedActivation::geglu_erf()}) {
        for (bool interleaved : {false, true}) {
          MatmulOptions o;
          o.gated = g, o.interleaved = interleaved;
          check_epilogue(o, x, w);
          o.bias = random_tensor({2 * n}, F::bf16, 6);
          o.residual = random_tensor({m, n}, F::bf16, 7);
          check_epilogue(o, x, w);
        }
      }
    }
  });
}

// Halves of a gate that are tensors of their own: the bits of one tensor with both.
TEST(Epilogue, GatedSeparateUp) {
  at_every_level([] {
    const int64_t n = 128, k = 256;
    for (const WeightSpec& spec :
         {WeightSpec{F::bf16}, kFp8, WeightSpec{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true}}) {
      const Tensor w = random_weight(spec, 2 * n, k, 5).tensor;
      const Tensor gate = w.slice(0, 0, n), up = w.slice(0, n, 2 * n);
      for (const int64_t m : {1, 5, 70}) {
        const Tensor x = random_tensor({m, k}, F::bf16, 4);
        MatmulOptions o;
        o.gated = GatedActivation::swiglu();
        o.bias = random_tensor({2 * n}, F::bf16, 6);
        o.residual = random_tensor({m, n}, F::bf16, 7);
        const std::vector<float> joint = to_floats(matmul(x, w, o));
        o.up = up;
        EXPECT_EQ(to_floats(matmul(x, gate, o)), joint);
        const std::vector<float> want = to_floats(matmul_reference(x, gate, o));
        o.up = {};
        EXPECT_EQ(want, to_floats(matmul_reference(x, w, o)));
      }
    }
  });
}

// The quantised output is the f32 result quantised, bit for bit.
TEST(Epilogue, QuantisedOutput) {
  at_every_level([] {
    const int64_t k = 128, n = 288;
    const Tensor w = random_weight(kFp8, n, k, 5).tensor;
    for (const int64_t m : {1, 4, 300}) {
      const Tensor x = random_tensor({m, k}, F::bf16, 4, Data::outliers);
      for (const char* text : {"fp8_tensor", "fp8_row", "fp8_1x128", "mxfp8", "mxfp4", "nvfp4",
                               "int8", "int8_g128", "fp8_e5m2_row"}) {
        SCOPED_TRACE(concat(text, " m ", m));
        MatmulOptions o;
        o.out = F::f32;
        o.activation.kind = Activation::gelu_erf;
        o.residual = random_tensor({m, n}, F::f32, 7);
        const Tensor y = matmul(x, w, o);
        o.quantize_out = parse_quantization(text);
        const Tensor q = matmul(x, w, o), want = quantize(y, *o.quantize_out);
        expect_same_bits(q, want);
      }
    }
  });
}

// With a given scale, rows do not depend on one another.
TEST(Epilogue, QuantisedOutputWithAStaticScale) {
  const int64_t m = 5, n = 64, k = 64;
  const Tensor w = random_weight(kFp8, n, k, 5).tensor;
  const Tensor x = random_tensor({m, k}, F::bf16, 4);
  for (const char* text : {"fp8_tensor", "nvfp4"}) {
    MatmulOptions o;
    o.quantize_out = parse_quantization(text);
    o.quantize_out->tensor_scale = 0.25f;
    const Tensor all = dequantize(matmul(x, w, o));
    EXPECT_EQ(to_floats(dequantize(matmul(x.slice(0, 3, 4), w, o))), to_floats(all.slice(0, 3, 4)));
  }
}

TEST(Epilogue, Errors) {
  MatmulProblem p;
  p.m = 2, p.n = 96, p.k = 64;
  const auto refused = [&](const char* word) {
    const Support s = can_run(p, Device::cpu());
    EXPECT_FALSE(s.ok);
    EXPECT_NE(s.reason.find(word), std::string::npos) << s.reason;
  };
  p.interleaved = true;
  refused("only gated");
  p.interleaved = false;
  p.gated = GatedActivation{};
  p.gated->limit = -1;
  refused("limit is -1");
  p.gated->limit = 7;
  p.activation.kind = Activation::relu;
  refused("beside gated");
  p.activation.kind = Activation::identity;
  p.weight = F::fp8_e4m3, p.scaled = true, p.scaling = {F::f32, 128, 128};
  refused("both halves");
  p.gated.reset();
  p.out = F::fp8_e4m3;
  refused("say quantize_out");
  p.quantize_out = parse_quantization("mxfp8");
  refused("must be the same");
  p.quantize_out = parse_quantization("fp8");
  refused("within one row");
  const Tensor x = random_tensor({2, 64}, F::bf16, 3), w = random_tensor({5, 64}, F::bf16, 4);
  MatmulOptions o;
  o.up = w;
  expect_error([&] { matmul(x, w, o); }, {"separate_up is set", "only gated"});
  expect_error([&] { matmul_reference(x, w, o); }, {"up is given", "only gated"});
  o.gated = GatedActivation{};
  o.interleaved = true;
  expect_error([&] { matmul(x, w, o); }, {"separate_up is set beside interleaved"});
  o.interleaved = false;
  o.up = random_tensor({4, 64}, F::bf16, 4);
  expect_error([&] { matmul(x, w, o); }, {"up is", "the plan needs [5, 64]"});
  o.up = random_tensor({5, 128}, F::bf16, 4).slice(1, 0, 64);
  expect_error([&] { matmul(x, w, o); }, {"up has strides", "must lie alike"});
  o.up = {};
  expect_error([&] { matmul(x, w, o); }, {"odd number of rows"});
}

}  // namespace
}  // namespace halftone
