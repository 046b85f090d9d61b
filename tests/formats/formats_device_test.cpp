// Quantisation and dequantisation on GPUs: the CPU's bits.
#include "halftone/quantize.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class FormatsOnDevice : public OnDevice {
 protected:
  // Codes, scales, zero points and tensor scale.
  static void expect_same_parts(const Tensor& there, const Tensor& expected) {
    const Tensor x = there.to(Device::cpu());
    EXPECT_TRUE(same_bits(Tensor::view(x.data(), x.shape(), x.format()),
                          Tensor::view(expected.data(), x.shape(), x.format())))
        << "codes";
    EXPECT_TRUE(same_bits(x.scales(), expected.scales())) << "scales";
    if (expected.tensor_scale().defined()) {
      EXPECT_TRUE(same_bits(x.tensor_scale(), expected.tensor_scale())) << "tensor scale";
    }
    if (expected.scaling().asymmetric) {
      EXPECT_TRUE(same_bits(x.zero_points(), expected.zero_points())) << "zero points";
    }
  }
  void expect_quantised(const Tensor& x, const QuantizeOptions& options) const {
    SCOPED_TRACE(to_string(options) + " of " + to_string(x));
    Stream s = stream();
    const Tensor expected = quantize(x, options);
    const Tensor y = quantize(x.to(device), options, s);
    s.synchronize();
    expect_same_parts(y, expected);
    for (const Format out : test::kPlainFormats) {
      const Tensor back = dequantize(y, out, s);
      s.synchronize();
      const std::vector<float> values = test::to_floats(dequantize(expected, out));
      EXPECT_TRUE(test::within(test::to_floats(back.to(Device::cpu())), values,
                               std::vector<double>(values.size(), 0)))
          << "dequantised to " << name(out);
    }
  }
};

TEST_P(FormatsOnDevice, EveryQuantisationGivesTheBitsOfTheCpu) {
  uint64_t seed = 0;
  for (const std::string& text : quantization_names()) {
    const QuantizeOptions options = parse_quantization(text);
    for (const Shape& shape : {Shape{3, 64}, Shape{130, 160}, Shape{2, 5, 96}, Shape{35, 128}}) {
      ++seed;
      expect_quantised(
          test::random_tensor(shape, test::kPlainFormats[seed % 3], seed, test::Data::outliers),
          options);
    }
    if (can_quantize({3, 21}, options)) {
      expect_quantised(test::random_tensor({3, 21}, Format::bf16, ++seed), options);
    }
  }
}

TEST_P(FormatsOnDevice, AdaptiveScalesAreThoseOfTheCpu) {
  uint64_t seed = 100;
  for (const std::string& text : quantization_names()) {
    const QuantizeOptions options = parse_quantization(text + "_adaptive");
    for (const Shape& shape : {Shape{3, 64}, Shape{130, 160}, Shape{2, 5, 96}, Shape{3, 21}}) {
      ++seed;
      if (!can_quantize(shape, options)) continue;
      const test::Data data = seed % 2 == 0 ? test::Data::outliers : test::Data::normal;
      expect_quantised(test::random_tensor(shape, test::kPlainFormats[seed % 3], seed, data),
                       options);
    }
  }
  for (const char* text : {"nvfp4_adaptive", "mxfp4_adaptive", "int4_g64_asym_adaptive"}) {
    const QuantizeOptions options = parse_quantization(text);
    for (const test::Data data : {test::Data::tiny, test::Data::all_equal}) {
      expect_quantised(test::random_tensor({4, 128}, Format::f32, 2, data), options);
    }
    expect_quantised(Tensor::zeros({4, 128}, Format::bf16), options);
    Tensor special = test::random_tensor({4, 128}, Format::f32, 3);
    special.data<float>()[5] = NAN;
    special.data<float>()[200] = INFINITY;
    expect_quantised(special, options);
  }
  QuantizeOptions tiled = parse_quantization("nvfp4_adaptive");
  tiled.scaling.layout = ScaleLayout::tiled_128x4;
  tiled.tensor_scale = 0.01f;
  const Tensor x = test::random_tensor({2, 9, 160}, Format::bf16, 1);
  expect_quantised(x, tiled);
  // Alternatives are chosen, or the test would see none of this.
  const Tensor best = quantize(x, parse_quantization("nvfp4_adaptive"));
  EXPECT_FALSE(same_bits(best.scales(), quantize(x, parse_quantization("nvfp4")).scales()));
}

TEST_P(FormatsOnDevice, ScaleLayouts) {
  for (const Format format : {Format::nvfp4, Format::mxfp8, Format::mxfp4}) {
    for (const ScaleLayout layout :
         {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
      QuantizeOptions options(format);
      options.scaling.layout = layout;
      expect_quantised(test::random_tensor({2, 9, 160}, Format::bf16, 1), options);
    }
  }
}

TEST_P(FormatsOnDevice, ExtremesAndSpecialValues) {
  for (const char* text :
       {"nvfp4", "mxfp8", "mxfp8_down", "mxfp4", "fp8", "fp8_row", "int8", "fp8_tensor"}) {
    const QuantizeOptions options = parse_quantization(text);
    for (const test::Data data : {test::Data::tiny, test::Data::huge, test::Data::all_equal}) {
      expect_quantised(test::random_tensor({4, 96}, Format::f32, 2, data), options);
    }
    expect_quantised(Tensor::zeros({4, 96}, Format::f32), options);
    Tensor special = test::random_tensor({4, 96}, Format::f32, 3);
    special.data<float>()[5] = NAN;
    special.data<float>()[100] = INFINITY;
    expect_quantised(special, options);
  }
  QuantizeOptions given(Format::nvfp4);
  given.tensor_scale = 0.01f;
  const Tensor x = test::random_tensor({4, 96}, Format::bf16, 4);
  expect_quantised(x, given);
  // Scales are cut off at 448, so that elements are far beyond the largest code.
  given.tensor_scale = 1e-5f;
  expect_quantised(x, given);
}

TEST_P(FormatsOnDevice, AnOverflowingScaleIsReported) {
  const Tensor x = test::random_tensor({2, 64}, Format::f32, 5, test::Data::huge).to(device);
  Stream s = stream();
  const Tensor y = quantize(x, parse_quantization("int4"), s);
  test::expect_error([&] { s.synchronize(); }, {"quantize", "65504"});
}

TEST_P(FormatsOnDevice, StridedRowsInAnyOrder) {
  const Tensor rows = test::random_tensor({6, 128}, Format::bf16, 6);
  const Tensor x = test::shifted(rows, device, 1, 3);
  const QuantizeOptions options(Format::mxfp8);
  Tensor out = empty_quantized(x.shape(), options).to(device);
  expect_any_order(out.scales(), [&](Stream& s) { quantize_into(x, options, out, s); });
  expect_same_parts(out, quantize(rows, options));
}

TEST_P(FormatsOnDevice, PlainFormatsConvert) {
  Stream s = stream();
  for (const Format from : test::kPlainFormats) {
    const Tensor x = test::random_tensor({3, 77}, from, 8, test::Data::outliers);
    for (const Format to : test::kPlainFormats) {
      EXPECT_TRUE(same_bits(convert(x.to(device), to, s).to(Device::cpu()), convert(x, to)));
      EXPECT_TRUE(same_bits(convert(x.to(device).slice(1, 5, 70), to, s).to(Device::cpu()),
                            convert(x.slice(1, 5, 70), to)));
    }
  }
}

TEST_P(FormatsOnDevice, WhatAGpuDoesNotDoIsNamed) {
  const Tensor x = test::random_tensor({2, 64}, Format::f32, 7).to(device);
  Stream s = stream();
  test::expect_error([&] { quantize(x, parse_quantization("mxfp8")); }, {"stream", "same device"});
  const Tensor large = Tensor::empty({1025, 1024}, Format::bf16, device);
  test::expect_error([&] { quantize(large, parse_quantization("fp8_tensor_adaptive"), s); },
                     {"adaptive", "1025 x 1024", device.name()});
}

TEST_P(FormatsOnDevice, RandomProblems) {
  const std::vector<std::string> names = quantization_names();
  random_problems([&](test::Draw& draw, uint64_t seed) {
    QuantizeOptions options = parse_quantization(draw.of(names));
    const ScaleLayout layouts[] = {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
                                   ScaleLayout::packed};
    Shape shape{draw.extent(3), draw.extent(150), draw.extent(900)};
    if (!can_quantize(shape, options)) shape[2] = (shape[2] + 127) / 128 * 128;
    if (draw.one_in(4)) {
      QuantizeOptions other = options;
      other.scaling.layout = draw.of(layouts);
      if (can_quantize(shape, other)) options = other;
    }
    const test::Data data = draw.one_in(2) ? test::Data::outliers : test::Data::normal;
    expect_quantised(test::random_tensor(shape, draw.plain_format(), seed, data), options);
  });
}

HALFTONE_ON_DEVICES(FormatsOnDevice);

}  // namespace
}  // namespace halftone
