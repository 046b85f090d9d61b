// Names of quantisations, and what can_quantize refuses.
#include <algorithm>

#include "formats/codec.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::expect_error;

TEST(QuantizationNames, EveryNameParsesAndPrintsItself) {
  for (const std::string& name : quantization_names()) {
    EXPECT_EQ(to_string(parse_quantization(name)), name);
    EXPECT_EQ(to_string(parse_quantization(name + "_adaptive")), name + "_adaptive");
    EXPECT_TRUE(can_quantize({128, 256}, parse_quantization(name))) << name;
  }
}

TEST(QuantizationNames, EveryElementFormatHasOneWithItsDefaultScaling) {
  const std::vector<std::string> names = quantization_names();
  for (Format format : kElementFormats) {
    const std::string text = to_string(QuantizeOptions(format));
    EXPECT_NE(std::find(names.begin(), names.end(), text), names.end()) << text;
  }
}

TEST(QuantizationNames, MeanWhatTheySay) {
  const QuantizeOptions fp8 = parse_quantization("fp8");
  EXPECT_EQ(fp8.format, Format::fp8_e4m3);
  EXPECT_EQ(fp8.scaling, (Scaling{Format::f32, 128, 128}));
  const QuantizeOptions row = parse_quantization("fp8_e5m2_row");
  EXPECT_EQ(row.format, Format::fp8_e5m2);
  EXPECT_EQ(row.scaling, (Scaling{Format::f32, 1, 0}));
  EXPECT_FALSE(row.adaptive);
  const QuantizeOptions int4 = parse_quantization("int4_g128_asym_adaptive");
  EXPECT_EQ(int4.scaling.block_cols, 128);
  EXPECT_TRUE(int4.scaling.asymmetric);
  EXPECT_TRUE(int4.adaptive);
  EXPECT_EQ(parse_quantization("mxfp4_down").ue8m0, Ue8m0Rounding::down);
}

TEST(QuantizationNames, ATypoGetsTheNearestName) {
  expect_error([] { parse_quantization("nvpf4"); }, {"nvpf4", "\"nvfp4\""});
  expect_error([] { parse_quantization("int4g64"); }, {"\"int4_g64\""});
  expect_error([] { parse_quantization("mxfp9_adaptive"); }, {"_adaptive\""});
  expect_error([] { parse_quantization(""); }, {"not known"});
}

TEST(QuantizationNames, WhatHasNoNameIsDescribed) {
  QuantizeOptions options(Format::nvfp4);
  options.scaling.layout = ScaleLayout::tiled_128x4;
  EXPECT_EQ(to_string(options), "nvfp4 (1x16 fp8_e4m3 128x4)");
}

TEST(CanQuantize, NamesTheRule) {
  struct Case {
    Shape shape;
    QuantizeOptions options;
    std::vector<std::string> words;
  };
  const auto with = [](Format format, auto change) {
    QuantizeOptions options(format);
    change(options);
    return options;
  };
  QuantizeOptions bf16;
  bf16.format = Format::bf16;
  const std::vector<Case> cases = {
      {{4, 24}, QuantizeOptions(Format::nvfp4), {"last dimension", "24", "16"}},
      {{4, 48}, QuantizeOptions(Format::mxfp8), {"48", "32"}},
      {{4, 16}, QuantizeOptions(Format::mxfp4), {"16", "32"}},
      {{4, 7}, QuantizeOptions(Format::int4), {"7", "even"}},
      {Shape{}, QuantizeOptions(Format::int8), {"rank 0"}},
      {{4, 4}, bf16, {"bf16", "no quantisation"}},
      {{4, 32}, with(Format::nvfp4, [](auto& o) { o.scaling.block_cols = 32; }), {"1x32", "1x16"}},
      {{4, 32}, with(Format::int8, [](auto& o) { o.scaling.format = Format::ue8m0; }), {"ue8m0"}},
      {{4, 32}, with(Format::int4, [](auto& o) { o.scaling.block_rows = 2; }), {"block_rows", "2"}},
      {{4, 32}, with(Format::int4, [](auto& o) { o.scaling.block_cols = 3; }), {"even"}},
      {{4, 32}, with(Format::int8, [](auto& o) { o.scaling.asymmetric = true; }), {"symmetric"}},
      {{4, 32},
       with(Format::int8, [](auto& o) { o.scaling.layout = ScaleLayout::tiled_8x4; }),
       {"8x4"}},
      {{4, 32}, with(Format::fp8_e4m3, [](auto& o) { o.scaling.block_cols = -1; }), {"negative"}},
      {{4, 32}, with(Format::mxfp8, [](auto& o) { o.tensor_scale = 1.0f; }), {"tensor scale"}},
      {{4, 32}, with(Format::nvfp4, [](auto& o) { o.tensor_scale = 0.0f; }), {"above 0"}},
      {{4, 32}, with(Format::nvfp4, [](auto& o) { o.tensor_scale = NAN; }), {"finite"}},
  };
  for (const Case& c : cases) {
    const Support support = can_quantize(c.shape, c.options);
    EXPECT_FALSE(support.ok) << c.words[0];
    for (const std::string& word : c.words) {
      EXPECT_NE(support.reason.find(word), std::string::npos) << support.reason;
    }
    if (c.shape.rank() > 0) {
      expect_error([&] { quantize(Tensor::zeros(c.shape, Format::f32), c.options); }, c.words);
    }
  }
}

TEST(Quantize, RefusesWhatItCannotRead) {
  expect_error([] { quantize(Tensor(), QuantizeOptions(Format::int8)); }, {"undefined"});
  expect_error(
      [] {
        quantize(Tensor::zeros({2, 2}, Format::i32), QuantizeOptions(Format::int8));
      },
      {"i32"});
  expect_error([] { dequantize(Tensor()); }, {"undefined"});
  expect_error([] { dequantize(Tensor::zeros({2}, Format::i64)); }, {"i64"});
  expect_error([] { dequantize(Tensor::zeros({2}, Format::int8)); }, {"without scales"});
  expect_error([] { dequantize(Tensor::zeros({2}, Format::fp8_e4m3), Format::int8); }, {"int8"});
  expect_error([] { convert(Tensor::zeros({2}, Format::fp8_e4m3), Format::f32); }, {"fp8_e4m3"});
}

}  // namespace
}  // namespace halftone
