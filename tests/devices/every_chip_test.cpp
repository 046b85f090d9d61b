// One small problem of each family on the simulated GPUs that the tests of the families, which run
// on sm_80 and sm_90a, leave out: instructions that one of them has and another has not, and limits
// of shared memory and threads. Strict: a launch with a finding throws.
#include <gtest/gtest.h>

#include "attention/decode/decode_cases.h"
#include "attention/sm80/cases.h"
#include "halftone/halftone.h"
#include "moe/gpu_cases.h"
#include "moe/grouped_cases.h"
#include "nms/scene.h"
#include "support/devices.h"

namespace halftone::test {
namespace {

class EveryChip : public OnDevice {
 protected:
  // Results in bf16 of sums that differ by their order: of one sign, so that they differ by less
  // than a rounding, and land on the same or on neighbouring numbers.
  static void expect_neighbours(const Tensor& there, const Tensor& here) {
    const std::vector<float> a = to_floats(there.to(Device::cpu())), b = to_floats(here);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_LE(std::abs(a[i] - b[i]), 0x1p-7 * std::max(std::abs(a[i]), std::abs(b[i]))) << i;
    }
  }
  static void expect_bits(const Tensor& there, const Tensor& here) {
    EXPECT_TRUE(same_bits(there.to(Device::cpu()).contiguous_copy(), here.contiguous_copy()));
  }
  static Tensor positive(const Shape& shape, Format format, uint64_t seed) {
    const Tensor x = random_tensor(shape, Format::f32, seed);
    for (int64_t i = 0; i < x.numel(); ++i) {
      x.data<float>()[i] = 0.1f + std::abs(x.data<float>()[i]);
    }
    return convert(x, format);
  }
};

TEST_P(EveryChip, Gemm) {
  Stream s = stream();
  const WeightSpec bf16{Format::bf16}, fp8{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
  const WeightSpec nvfp4{Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true};
  const WeightSpec rows{Format::fp8_e4m3, true, {Format::f32, 1, 128}};
  for (const int64_t m : {1, 5, 20}) {
    for (const WeightSpec& weight : {bf16, fp8, nvfp4}) {
      expect_product(s, {weight, bf16, m, 40, 256}, 3);
    }
  }
  expect_product(s, {fp8, rows, 20, 40, 256}, 3);
}

TEST_P(EveryChip, GroupedGemm) {
  for (const bool masked : {false, true}) expect_groups({device}, kGroupedSpecs[0], masked);
}

TEST_P(EveryChip, Experts) {
  Stream s = stream();
  for (const WeightSpec& spec :
       {WeightSpec{Format::bf16}, WeightSpec{Format::mxfp4, true, {Format::ue8m0, 1, 32}}}) {
    for (const int64_t tokens : {1, 20}) expect_experts(s, spec, Format::bf16, tokens, 4, 2);
  }
  RoutingOptions options;
  options.top_k = 2;
  const Tensor logits = random_tensor({7, 16}, Format::f32, 5);
  const Routing there = route(logits.to(device), options, s), here = route(logits, options);
  expect_bits(there.experts, here.experts);
}

TEST_P(EveryChip, Attention) {
  Stream s = stream();
  const Format bf16 = Format::bf16, fp8 = Format::fp8_e4m3;
  for (const AttentionMode& mode :
       {AttentionMode{bf16, bf16}, {fp8, fp8}, {Format::nvfp4, bf16}, {Format::int8, bf16}}) {
    Case c = make_case({1, 9, 70, 2, 1, 64}, mode, 3);
    c.problem.causal = true;
    expect_on(s, c);
  }
  expect_decode(s, decode_case({1, 1, 300, 4, 2, 64}, kDecodeFormats[0], 3));
}

TEST_P(EveryChip, Norms) {
  Stream s = stream();
  const Tensor x = positive({5, 200}, Format::bf16, 1), w = positive({200}, Format::bf16, 2);
  const Tensor there = x.to(device), weight = w.to(device);
  expect_neighbours(rms_norm(there, weight, 1e-5f, s), rms_norm(x, w, 1e-5f));
}

TEST_P(EveryChip, Activations) {
  Stream s = stream();
  const Tensor x = positive({5, 200}, Format::bf16, 1), up = positive({5, 200}, Format::bf16, 2);
  const Tensor there = x.to(device), up_there = up.to(device);
  for (int i = 0; i < kActivationCount; ++i) {
    const ActivationFunction function{.kind = static_cast<Activation>(i)};
    SCOPED_TRACE(name(function.kind));
    expect_neighbours(activation(there, function, s), activation(x, function));
  }
  expect_neighbours(swiglu(there, up_there, s), swiglu(x, up));
}

TEST_P(EveryChip, Softmax) {
  Stream s = stream();
  const Tensor x = random_tensor({3, 300}, Format::bf16, 1);
  expect_neighbours(softmax(x.to(device), s), softmax(x));
}

TEST_P(EveryChip, Rope) {
  Stream s = stream();
  const Tensor positions =
      Tensor::from<int32_t>(std::vector<int32_t>{0, 5, 1000}, {3}, Format::i32);
  Tensor here = random_tensor({3, 2, 64}, Format::bf16, 1), there = here.to(device);
  rope(there, positions.to(device), {}, s);
  rope(here, positions, {});
  s.synchronize();
  expect_bits(there, here);
}

TEST_P(EveryChip, Elementwise) {
  Stream s = stream();
  const Tensor a = random_tensor({5, 70}, Format::f32, 1),
               b = random_tensor({5, 70}, Format::f32, 2);
  expect_bits(elementwise(Elementwise::add, a.to(device), b.to(device), {}, {}, s),
              elementwise(Elementwise::add, a, b));
}

TEST_P(EveryChip, Embedding) {
  Stream s = stream();
  const Tensor ids = Tensor::from<int32_t>(std::vector<int32_t>{3, 0, 9}, {3}, Format::i32);
  const Tensor table =
      quantize(random_tensor({10, 64}, Format::f32, 1), parse_quantization("nvfp4"));
  expect_bits(embedding(ids.to(device), table.to(device), Format::bf16, s), embedding(ids, table));
}

TEST_P(EveryChip, Reductions) {
  Stream s = stream();
  const Tensor x = random_tensor({5, 300}, Format::bf16, 1);
  for (const Reduction operation : {Reduction::max, Reduction::argmax}) {
    expect_bits(reduce(operation, x.to(device), 1, s), reduce(operation, x, 1));
  }
  const Tensor some = positive({5, 300}, Format::bf16, 1);
  expect_neighbours(reduce(Reduction::sum, some.to(device), 1, s), reduce(Reduction::sum, some, 1));
}

TEST_P(EveryChip, Transpose) {
  Stream s = stream();
  for (const Format format : {Format::f32, Format::bf16}) {
    const Tensor x = random_tensor({37, 70}, format, 1);
    expect_bits(transpose(x.to(device), s), transpose(x));
  }
}

TEST_P(EveryChip, Histogram) {
  Stream s = stream();
  const Tensor x = Tensor::zeros({900}, Format::i32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int32_t>()[i] = static_cast<int32_t>(i * 7 % 50);
  expect_bits(histogram(x.to(device), 50, s), histogram(x, 50));
}

TEST_P(EveryChip, Conv1d) {
  Stream s = stream();
  const Tensor x = positive({1, 8, 60}, Format::bf16, 1), w = positive({8, 8, 3}, Format::bf16, 2);
  expect_neighbours(conv1d(x.to(device), w.to(device), {}, {}, s), conv1d(x, w));
}

TEST_P(EveryChip, Nms) {
  Stream s = stream();
  const Scene all = scene(60, 7);
  expect_bits(nms(all.boxes.to(device), all.scores.to(device), 0.5f, {}, 0.2f, s),
              nms(all.boxes, all.scores, 0.5f, {}, 0.2f));
}

TEST_P(EveryChip, Sampling) {
  Stream s = stream();
  const Tensor logits = random_tensor({2, 500}, Format::f32, 2);
  const SamplingOptions options{.temperature = 0.8f, .top_k = 40, .top_p = 0.9f, .seed = 3};
  const auto tokens = [&](const Tensor& from, Stream& on) {
    std::vector<Sampler> samplers;
    for (uint64_t i = 0; i < 2; ++i) samplers.emplace_back(options, i);
    std::vector<SampledToken> sampled(2);
    sample_rows(from, samplers, {}, sampled, on);
    return std::pair{sampled[0].token, sampled[1].token};
  };
  EXPECT_EQ(tokens(logits.to(device), s), tokens(logits, Stream::default_stream()));
}

TEST_P(EveryChip, KvCache) {
  Stream s = stream();
  for (const Format format : {Format::bf16, Format::fp8_e4m3, Format::nvfp4}) {
    KvCacheOptions options;
    options.format = format, options.layers = 1, options.kv_heads = 2, options.head_dim = 64;
    options.max_length = 64;
    KvCache here(options), there(options, device);
    const Tensor k = random_tensor({9, 2, 64}, Format::bf16, 1);
    here.append(0, k, k, Stream::default_stream());
    there.append(0, k.to(device), k.to(device), s);
    s.synchronize();
    const Tensor a = there.keys(0).to(Device::cpu()), b = here.keys(0);
    EXPECT_TRUE(same_bits(Tensor::view(a.data(), a.shape(), format),
                          Tensor::view(b.data(), a.shape(), format)));
  }
}

TEST_P(EveryChip, Quantisers) {
  Stream s = stream();
  const Tensor x = random_tensor({5, 256}, Format::bf16, 1);
  for (const std::string& text : quantization_names()) {
    SCOPED_TRACE(text);
    const QuantizeOptions options = parse_quantization(text);
    const Tensor q = quantize(x.to(device), options, s), back = dequantize(q, Format::bf16, s);
    s.synchronize();
    const Tensor there = q.to(Device::cpu()), here = quantize(x, options);
    EXPECT_TRUE(same_bits(Tensor::view(there.data(), x.shape(), there.format()),
                          Tensor::view(here.data(), x.shape(), here.format())));
    EXPECT_TRUE(same_bits(there.scales(), here.scales()));
    expect_bits(back, dequantize(here, Format::bf16));
  }
}

TEST_P(EveryChip, FusedQuantisers) {
  Stream s = stream();
  const Tensor x = random_tensor({5, 256}, Format::bf16, 1).to(device);
  const QuantizeOptions options = parse_quantization("mxfp8");
  const Tensor fused = gated_quantize(x, x, {}, options, s),
               apart = quantize(swiglu(x, x, s), options, s);
  s.synchronize();
  const Tensor a = fused.to(Device::cpu()), b = apart.to(Device::cpu());
  EXPECT_TRUE(same_bits(Tensor::view(a.data(), x.shape(), a.format()),
                        Tensor::view(b.data(), x.shape(), b.format())));
  EXPECT_TRUE(same_bits(a.scales(), b.scales()));
}

INSTANTIATE_TEST_SUITE_P(Devices, EveryChip,
                         ::testing::Values("sim:sm_89", "sim:sm_100a", "sim:sm_120a"), device_name);

}  // namespace
}  // namespace halftone::test
