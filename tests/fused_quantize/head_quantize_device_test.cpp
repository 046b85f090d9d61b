// Rotation, smoothing and Walsh-Hadamard transforms with quantisation, here and on GPUs: bit for
// bit what the operations give one after the other.
#include <tuple>
#include <utility>

#include "halftone/elementwise.h"
#include "halftone/fused_quantize.h"
#include "halftone/hadamard.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

std::vector<QuantizeOptions> options_for(int64_t head_dim) {
  QuantizeOptions nvfp4(Format::nvfp4);
  nvfp4.tensor_scale = 0.01f;
  QuantizeOptions tiled = nvfp4, packed(Format::mxfp8);
  tiled.scaling.layout = ScaleLayout::tiled_128x4, packed.scaling.layout = ScaleLayout::packed;
  std::vector<QuantizeOptions> all{nvfp4, tiled, packed, QuantizeOptions(Format::mxfp4)};
  for (const char* name : {"fp8_row", "fp8_1x128", "int8", "int4_g64_asym", "mxfp8_adaptive"}) {
    all.push_back(parse_quantization(name));
  }
  std::erase_if(all, [&](const QuantizeOptions& o) { return !can_quantize({2, head_dim}, o).ok; });
  return all;
}

void expect_same(const Tensor& there, const Tensor& separate) {
  const Tensor x = there.to(Device::cpu()), y = separate.to(Device::cpu());
  EXPECT_TRUE(same_bits(Tensor::view(x.data(), x.shape(), x.format()),
                        Tensor::view(y.data(), y.shape(), y.format())))
      << "codes";
  EXPECT_TRUE(same_bits(x.scales(), y.scales())) << "scales";
  if (y.tensor_scale().defined()) {
    EXPECT_TRUE(same_bits(x.tensor_scale(), y.tensor_scale())) << "tensor scale";
  }
  if (y.scaling().asymmetric) {
    EXPECT_TRUE(same_bits(x.zero_points(), y.zero_points())) << "zero points";
  }
}

// [4, heads, head_dim] out of a projection of twice as many heads.
Tensor slice_on(const Device& device, int64_t heads, int64_t head_dim, Format f, uint64_t seed) {
  return test::random_tensor({4, 2 * heads, head_dim}, f, seed, test::Data::outliers)
      .to(device)
      .slice(1, heads, 2 * heads);
}

// With `transforms`, heads that the device does not transform are left out.
void rope_equals_rope_then_quantize(const Device& device, Stream& s, bool transforms = false) {
  uint64_t seed = 0;
  for (const auto& [head_dim, format, style, rotary] :
       {std::tuple{int64_t{128}, Format::bf16, RopeStyle::half_split, int64_t{0}},
        {64, Format::f16, RopeStyle::half_split, 0},
        {256, Format::bf16, RopeStyle::half_split, 0},
        {128, Format::f32, RopeStyle::half_split, 0},
        {96, Format::bf16, RopeStyle::half_split, 0},
        {64, Format::bf16, RopeStyle::interleaved, 0},
        {128, Format::bf16, RopeStyle::half_split, 64}}) {
    RopeOptions rope_options;
    rope_options.style = style, rope_options.rotary_dim = rotary;
    if (transforms && !can_run(HadamardProblem{head_dim, format}, device).ok) continue;
    const Tensor positions =
        Tensor::from<int32_t>(std::vector<int32_t>{7, 0, 100000, 3}, {4}, Format::i32).to(device);
    for (const QuantizeOptions& o : options_for(head_dim)) {
      SCOPED_TRACE(to_string(o) + " of " + std::to_string(head_dim) + " " + name(format));
      const Tensor x = slice_on(device, 3, head_dim, format, ++seed);
      const Tensor fused = rope_quantize(x, positions, rope_options, o, s, transforms);
      const Tensor before = slice_on(device, 3, head_dim, format, seed);
      Tensor turned = convert(x, format, s);  // dense, and other memory
      rope(turned, positions, rope_options, s);
      if (transforms) hadamard_into(turned, turned, s);
      const Tensor separate = quantize(turned, o, s);
      s.synchronize();
      expect_same(fused, separate);
      EXPECT_TRUE(same_bits(convert(x, Format::f32, s).to(Device::cpu()),
                            convert(before, Format::f32, s).to(Device::cpu())));
    }
  }
}

// [2, 5, heads, head_dim] out of a projection of twice as many, its batches one behind the other or
// apart, where a GPU has a kernel for each step.
void hadamard_equals_hadamard_then_quantize(const Device& device, Stream& s) {
  uint64_t seed = 200;
  for (const auto& [head_dim, format] : {std::pair{int64_t{64}, Format::f16},
                                         {128, Format::bf16},
                                         {512, Format::bf16},
                                         {128, Format::f32},
                                         {96, Format::bf16},
                                         {20, Format::f16}}) {
    if (!can_run(HadamardProblem{head_dim, format}, device).ok) continue;
    for (const QuantizeOptions& o : options_for(head_dim)) {
      SCOPED_TRACE(to_string(o) + " of " + std::to_string(head_dim) + " " + name(format));
      const Tensor all =
          test::random_tensor({2, 6, 4, head_dim}, format, ++seed, test::Data::outliers).to(device);
      for (const Tensor& x : {all.slice(2, 1, 3), all.slice(1, 0, 5)}) {
        const Tensor fused = hadamard_quantize(x, o, s);
        const Tensor separate = quantize(hadamard(x, s), o, s);
        s.synchronize();
        expect_same(fused, separate);
      }
      const Tensor tokens = slice_on(device, 3, head_dim, format, seed);
      const Tensor fused = hadamard_quantize(tokens, o, s);
      const Tensor separate = quantize(hadamard(tokens, s), o, s);
      s.synchronize();
      expect_same(fused, separate);
    }
  }
}

void smooth_equals_subtract_then_quantize(const Device& device, Stream& s) {
  uint64_t seed = 100;
  for (const int64_t head_dim : {64, 128, 96}) {
    for (const QuantizeOptions& o : options_for(head_dim)) {
      SCOPED_TRACE(to_string(o) + " of " + std::to_string(head_dim));
      const Tensor k =
          test::random_tensor({2, 5, 3, head_dim}, Format::bf16, ++seed, test::Data::outliers)
              .to(device);
      const Tensor fused = smooth_quantize(k, o, s), mean = key_mean(k, s);
      const Tensor shared = mean.reshape({2, 1, 3, head_dim});
      ElementwiseOptions subtract;
      subtract.out = Format::bf16;
      const Tensor smooth = elementwise(Elementwise::subtract, k, shared, {}, subtract, s);
      const Tensor separate = quantize(smooth, o, s);
      s.synchronize();
      expect_same(fused, separate);
      // The mean is that of the keys, and not of something else.
      const std::vector<float> values = test::to_floats(k.to(Device::cpu()));
      double sum = 0;
      for (int64_t key = 0; key < 5; ++key) {
        sum += values[static_cast<size_t>(((5 + key) * 3 + 2) * head_dim + 9)];
      }
      const float found =
          test::to_floats(mean.to(Device::cpu()))[static_cast<size_t>((3 + 2) * head_dim + 9)];
      EXPECT_NEAR(found, sum / 5, 1e-5 * (1 + std::abs(sum)));
    }
  }
}

TEST(HeadQuantize, RopeOnTheCpu) {
  rope_equals_rope_then_quantize(Device::cpu(), Stream::default_stream());
}
TEST(HeadQuantize, RopeAndHadamardOnTheCpu) {
  rope_equals_rope_then_quantize(Device::cpu(), Stream::default_stream(), true);
}
TEST(HeadQuantize, HadamardOnTheCpu) {
  hadamard_equals_hadamard_then_quantize(Device::cpu(), Stream::default_stream());
}
TEST(HeadQuantize, SmoothingOnTheCpu) {
  smooth_equals_subtract_then_quantize(Device::cpu(), Stream::default_stream());
}

TEST(HeadQuantize, WrongArgumentsAreNamed) {
  const Tensor k = test::random_tensor({2, 5, 3, 64}, Format::bf16, 1);
  const QuantizeOptions o = parse_quantization("fp8_row");
  test::expect_error([&] { smooth_quantize(k.reshape({10, 3, 64}), o); }, {"smooth_quantize", "4"});
  Tensor out = empty_quantized(k.shape(), o);
  test::expect_error(
      [&] {
        smooth_quantize_into(k, Tensor::zeros({2, 3, 32}, Format::f32), o, out);
      },
      {"mean", "[2, 3, 64]"});
  test::expect_error(
      [&] {
        hadamard_quantize(k.reshape({30, 64}), o);
      },
      {"hadamard_quantize", "3"});
  test::expect_error([&] { smooth_quantize(k, parse_quantization("nvfp4")); }, {"tensor_scale"});
}

class HeadQuantizeOnDevice : public OnDevice {};

TEST_P(HeadQuantizeOnDevice, RopeEqualsTheSeparateOperations) {
  Stream s = stream();
  rope_equals_rope_then_quantize(device, s);
}
TEST_P(HeadQuantizeOnDevice, RopeAndHadamardEqualTheSeparateOperations) {
  Stream s = stream();
  rope_equals_rope_then_quantize(device, s, true);
}
TEST_P(HeadQuantizeOnDevice, HadamardEqualsTheSeparateOperations) {
  Stream s = stream();
  hadamard_equals_hadamard_then_quantize(device, s);
  const Tensor x = Tensor::zeros({2, 1, 96}, Format::bf16).to(device);
  test::expect_error([&] { hadamard_quantize(x, parse_quantization("fp8_row"), s); },
                     {"head_dim 96", "64, 128, 256 or 512"});
}
TEST_P(HeadQuantizeOnDevice, SmoothingEqualsTheSeparateOperations) {
  Stream s = stream();
  smooth_equals_subtract_then_quantize(device, s);
}

TEST_P(HeadQuantizeOnDevice, SameBitsInAnyOrder) {
  const Tensor x = slice_on(device, 3, 128, Format::bf16, 1);
  const Tensor positions =
      Tensor::from<int32_t>(std::vector<int32_t>{7, 0, 100000, 3}, {4}, Format::i32).to(device);
  const RopePlan made = plan(RopeProblem{4, 3, 128, Format::bf16, {}}, device);
  const QuantizeOptions o(Format::mxfp8);
  Tensor out = empty_quantized(x.shape(), o).to(device);
  expect_any_order(out.scales(),
                   [&](Stream& s) { rope_quantize_into(made, x, positions, o, out, s, true); });
}

HALFTONE_ON_DEVICES(HeadQuantizeOnDevice);

}  // namespace
}  // namespace halftone
