// The fused operations against the separate ones, bit for bit.
#include "halftone/fused_quantize.h"

#include <cstring>

#include "halftone/activation.h"
#include "halftone/norm.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::random_tensor;

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.shape() == y.shape() &&
           std::memcmp(x.data(), y.data(), static_cast<size_t>(x.numel() * bits(x.format()) / 8)) ==
               0;
  };
  return same(a, b) && same(a.scales(), b.scales()) &&
         (!a.scaling().asymmetric || same(a.zero_points(), b.zero_points())) &&
         a.tensor_scale_value() == b.tensor_scale_value();
}

// Every name whose scales lie within rows, and the tiled layouts.
std::vector<QuantizeOptions> row_wise() {
  std::vector<QuantizeOptions> all;
  for (const std::string& name : quantization_names()) {
    QuantizeOptions o = parse_quantization(name);
    if (o.scaling.block_rows != 1) continue;
    if (o.format == Format::nvfp4) o.tensor_scale = 0.01f;
    all.push_back(o);
    if (bits(o.scaling.format) != 8) continue;
    for (const ScaleLayout layout :
         {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
      o.scaling.layout = layout;
      all.push_back(o);
    }
  }
  return all;
}

template <class Fused, class Separate>
void compare(const QuantizeOptions& o, const Fused& fused, const Separate& separate) {
  SCOPED_TRACE(to_string(o));
  const Tensor expected = quantize(separate(), o);
  for (const int threads : {1, 3}) {
    Stream stream(Device::cpu(), threads);
    EXPECT_TRUE(same_bits(fused(stream), expected)) << threads << " threads";
  }
}

TEST(FusedQuantize, BitsOfTheSeparateOperations) {
  test::at_every_level([] {
    for (const Format format : {Format::bf16, Format::f32}) {
      for (const Shape& shape : {Shape{3, 7, 192}, Shape{2, 10240}}) {
        const Tensor x = random_tensor(shape, format, 1), up = random_tensor(shape, format, 2);
        const Tensor weight = random_tensor({shape[shape.rank() - 1]}, format, 3);
        for (const QuantizeOptions& o : row_wise()) {
          if (!can_quantize(shape, o).ok) continue;
          compare(
              o, [&](Stream& s) { return rms_norm_quantize(x, weight, 1e-5f, o, s); },
              [&] { return rms_norm(x, weight, 1e-5f); });
          compare(
              o, [&](Stream& s) { return layer_norm_quantize(x, weight, weight, 1e-5f, o, s); },
              [&] { return layer_norm(x, weight, weight, 1e-5f); });
          compare(
              o, [&](Stream& s) { return gated_quantize(x, up, GatedActivation{}, o, s); },
              [&] { return gated(x, up, GatedActivation{}); });
          compare(
              o, [&](Stream& s) { return activation_quantize(x, ActivationFunction{}, o, s); },
              [&] { return activation(x, ActivationFunction{}); });
        }
      }
    }
  });
}

TEST(FusedQuantize, TheResidualIsUpdatedOnce) {
  const Tensor x = random_tensor({9, 128}, Format::bf16, 1);
  const Tensor weight = random_tensor({128}, Format::f32, 2);
  Tensor residual = random_tensor({9, 128}, Format::bf16, 3);
  Tensor copy = residual.contiguous_copy();
  const QuantizeOptions o(Format::mxfp8);
  const Tensor fused = rms_norm_residual_quantize(x, residual, weight, 1e-5f, o);
  const Tensor expected = quantize(rms_norm_residual(x, copy, weight, 1e-5f), o);
  EXPECT_TRUE(same_bits(fused, expected));
  EXPECT_EQ(std::memcmp(residual.data(), copy.data(), static_cast<size_t>(copy.bytes())), 0);
  // A residual that is off by one bit is seen.
  residual.data<uint16_t>()[0] ^= 0x100;
  EXPECT_FALSE(same_bits(rms_norm_residual_quantize(x, residual, weight, 1e-5f, o), expected));
}

TEST(FusedQuantize, EmptyAndInterleaved) {
  const QuantizeOptions o(Format::mxfp8);
  EXPECT_EQ(rms_norm_quantize(Tensor::empty({0, 64}, Format::bf16),
                              random_tensor({64}, Format::bf16, 1), 1e-5f, o)
                .numel(),
            0);
  const Tensor pairs = random_tensor({5, 128}, Format::bf16, 4);
  EXPECT_TRUE(same_bits(gated_quantize(pairs, Tensor(), GatedActivation{}, o),
                        quantize(gated(pairs, Tensor(), GatedActivation{}), o)));
}

TEST(FusedQuantize, RefusesWhatOnePassCannotDo) {
  const Tensor x = random_tensor({4, 128}, Format::bf16, 1);
  const Tensor weight = random_tensor({128}, Format::bf16, 2);
  test::expect_error([&] { rms_norm_quantize(x, weight, 1e-5f, QuantizeOptions(Format::nvfp4)); },
                     {"nvfp4", "tensor_scale"});
  test::expect_error([&] { rms_norm_quantize(x, weight, 1e-5f, parse_quantization("fp8")); },
                     {"one pass", "several rows"});
  test::expect_error(
      [&] { gated_quantize(x, weight, GatedActivation{}, QuantizeOptions(Format::mxfp8)); },
      {"gated_quantize", "up", "[128]"});
  Tensor residual = random_tensor({4, 64}, Format::bf16, 1);
  test::expect_error(
      [&] {
        rms_norm_residual_quantize(x, residual, weight, 1e-5f, QuantizeOptions(Format::mxfp8));
      },
      {"residual", "[4, 64]"});
  test::expect_error(
      [&] {
        activation_quantize(random_tensor({64, 32}, Format::f32, 1).transpose(0, 1), {},
                            QuantizeOptions(Format::mxfp8));
      },
      {"activation_quantize", "row-major"});
}

}  // namespace
}  // namespace halftone
