// The scales of the block formats: boundary cases, the exact order of the NVFP4 recipe, adaptive
// scales, accuracy.
#include <cstring>

#include "formats/codec.h"
#include "formats/quantize_rows.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::Data;
using test::to_floats;

// The code of the scale of one block of `size` elements with a given largest one.
uint8_t ue8m0_of(Format format, float amax, Ue8m0Rounding rounding) {
  std::vector<float> block(32, amax / 8);
  block[17] = -amax;
  QuantizeOptions options(format);
  options.ue8m0 = rounding;
  if (format == Format::fp8_e5m2) options.scaling = {Format::ue8m0, 1, 32};
  const Tensor q = quantize(Tensor::from<float>(block, {32}, Format::f32), options);
  return *q.scales().data<uint8_t>();
}

TEST(Recipe, Ue8m0BoundariesAreExact) {
  struct Case {
    Format format;
    float largest;  // of the elements
  };
  for (const auto& [format, largest] : {Case{Format::mxfp8, 448.0f},
                                        {Format::mxfp4, 6.0f},
                                        {Format::mxfp6, 7.5f},
                                        {Format::mxfp6_e3m2, 28.0f},
                                        {Format::fp8_e5m2, 57344.0f}}) {
    SCOPED_TRACE(name(format));
    const int last = 127 - std::ilogb(largest);  // above, largest * 2^k overflows
    for (int k = -127; k <= last; ++k) {
      const float amax = std::ldexp(largest, k);
      const int code = k + 127;
      ASSERT_EQ(ue8m0_of(format, amax, Ue8m0Rounding::up), code) << k;
      ASSERT_EQ(ue8m0_of(format, std::nextafter(amax, 0.0f), Ue8m0Rounding::up), code) << k;
      const float above = std::nextafter(amax, INFINITY);
      if (std::isfinite(above)) {
        ASSERT_EQ(ue8m0_of(format, above, Ue8m0Rounding::up), code + 1) << k;
      }
      // floor(log2 amax) less the exponent of the largest element, whatever the mantissa.
      ASSERT_EQ(ue8m0_of(format, amax, Ue8m0Rounding::down), code) << k;
      const float power = std::ldexp(1.0f, k + std::ilogb(largest));
      ASSERT_EQ(ue8m0_of(format, power, Ue8m0Rounding::down), code) << k;
      if (k > -127) {
        ASSERT_EQ(ue8m0_of(format, std::nextafter(power, 0.0f), Ue8m0Rounding::down), code - 1);
      }
    }
    EXPECT_EQ(ue8m0_of(format, 0.0f, Ue8m0Rounding::up), 0);
    EXPECT_EQ(ue8m0_of(format, 1e-45f, Ue8m0Rounding::up), 0);
  }
}

TEST(Recipe, RoundingUpNeverSaturatesAndDownMay) {
  const std::vector<float> block = [] {
    std::vector<float> x(32, 1.0f);
    x[3] = 500.0f;
    return x;
  }();
  const Tensor x = Tensor::from<float>(block, {32}, Format::f32);
  EXPECT_EQ(dequantize(quantize(x, parse_quantization("mxfp8"))).at({3}), 512.0f);
  EXPECT_EQ(dequantize(quantize(x, parse_quantization("mxfp8_down"))).at({3}), 448.0f);
}

// NVFP4 written out step by step; every product and quotient is one FP32 rounding.
struct Nvfp4Model {
  float encode, decode;
  explicit Nvfp4Model(float amax) {
    encode = std::fmin(2688.0f / amax, 3.40282347e38f);
    decode = 1.0f / encode;
  }
  uint8_t scale(float block_amax) const {
    const float sixth = encode * (1.0f / 6.0f);
    return encode_e4m3(block_amax * sixth);
  }
  uint8_t code(float x, float block_amax) const {
    if (block_amax == 0) return encode_e2m1(x * 0.0f);
    const float scaled = decode_e4m3(scale(block_amax)) * decode;
    return encode_e2m1(x * std::fmin(1.0f / scaled, 3.40282347e38f));
  }
};

TEST(Recipe, Nvfp4IsBitExactAtEveryLevel) {
  test::at_every_level([] {
    for (Data data : {Data::normal, Data::outliers, Data::tiny, Data::huge, Data::all_equal}) {
      std::vector<float> x = test::random_values(64 * 272, 11, data);
      for (int i = 32; i < 48; ++i) x[static_cast<size_t>(i)] = -0.0f;   // a block of zeros
      for (int i = 48; i < 64; ++i) x[static_cast<size_t>(i)] *= 1e-8f;  // its scale underflows
      float amax = 0;
      for (float v : x) amax = std::fmax(amax, std::fabs(v));
      const Nvfp4Model model(amax);
      const Tensor q =
          quantize(Tensor::from<float>(x, {64, 272}, Format::f32), QuantizeOptions(Format::nvfp4));
      EXPECT_EQ(q.tensor_scale_value(), amax / 2688.0f);
      for (size_t block = 0; block < x.size() / 16; ++block) {
        float block_amax = 0;
        for (size_t i = 0; i < 16; ++i)
          block_amax = std::fmax(block_amax, std::fabs(x[block * 16 + i]));
        ASSERT_EQ(q.scales().data<uint8_t>()[block], model.scale(block_amax)) << block;
        for (size_t i = 0; i < 16; ++i) {
          const auto at = static_cast<int64_t>(block * 16 + i);
          ASSERT_EQ(nibble(q.data<uint8_t>(), at), model.code(x[block * 16 + i], block_amax)) << at;
        }
      }
    }
  });
}

TEST(Recipe, Nvfp4ScaleThatUnderflowsSaturatesAndDecodesToZero) {
  std::vector<float> x(32, 1e-9f);
  x[0] = 6.0f;
  x[17] = -1e-9f;
  x[18] = 0.0f;
  const Tensor q =
      quantize(Tensor::from<float>(x, {32}, Format::f32), QuantizeOptions(Format::nvfp4));
  EXPECT_EQ(q.scales().data<uint8_t>()[1], 0);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 16), 7);  // 1e-9 * FLT_MAX saturates
  EXPECT_EQ(nibble(q.data<uint8_t>(), 17), 15);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 18), 0);
  for (int64_t i = 16; i < 32; ++i) EXPECT_EQ(dequantize(q).at({i}), 0.0f);
}

TEST(Recipe, Nvfp4OfZerosAndOfTheSmallestNumbers) {
  const QuantizeOptions nvfp4(Format::nvfp4);
  EXPECT_EQ(quantize(Tensor::zeros({16}, Format::f32), nvfp4).tensor_scale_value(), 1.0f);
  // 2688 / amax overflows: the encode scale is FLT_MAX, and what is stored is its reciprocal.
  const std::vector<float> x(16, 1e-37f);
  const Tensor q = quantize(Tensor::from<float>(x, {16}, Format::f32), nvfp4);
  EXPECT_EQ(q.tensor_scale_value(), 1.0f / 3.40282347e38f);
  EXPECT_NEAR(dequantize(q).at({3}) / 1e-37f, 1.0f, 0.1f);
}

TEST(Recipe, Nvfp4TakesATensorScale) {
  const Tensor x = test::random_tensor({4, 64}, Format::bf16, 12);
  QuantizeOptions options(Format::nvfp4);
  options.tensor_scale = 0.25f;  // a power of two, so that 1 / scale is exact
  const Tensor q = quantize(x, options);
  EXPECT_EQ(q.tensor_scale_value(), 0.25f);
  const std::vector<float> values = to_floats(x);
  Nvfp4Model model(0.25f * 2688);
  for (int64_t block = 0; block < 16; ++block) {
    float amax = 0;
    for (int64_t i = 0; i < 16; ++i)
      amax = std::fmax(amax, std::fabs(values[size_t(block * 16 + i)]));
    ASSERT_EQ(q.scales().data<uint8_t>()[block], model.scale(amax));
  }
}

TEST(Recipe, Int4ZeroPointsKeepZeroExact) {
  // All positive: the range is [0, high], zero point 0; shifted, the zero point follows.
  std::vector<float> x(64);
  for (size_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i);             // 0 .. 31
  for (size_t i = 32; i < 64; ++i) x[i] = -static_cast<float>(i - 32) * 2;  // -62 .. 0
  const Tensor q =
      quantize(Tensor::from<float>(x, {64}, Format::f32), parse_quantization("int4_asym"));
  EXPECT_EQ(q.zero_points().data<uint8_t>()[0], 0);
  EXPECT_EQ(q.zero_points().data<uint8_t>()[1], 15);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 0), 0);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 31), 15);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 32), 15);
  EXPECT_EQ(nibble(q.data<uint8_t>(), 63), 0);
  const Tensor decoded = dequantize(q);
  EXPECT_EQ(decoded.at({0}), 0.0f);
  EXPECT_EQ(decoded.at({32}), 0.0f);
  EXPECT_NEAR(decoded.at({31}), 31.0f, 31.0f / 2000);  // the scale is f16
}

// Squared error of each block in double, rows of `columns`.
std::vector<double> block_errors(const std::vector<float>& x, const std::vector<float>& decoded,
                                 const Scaling& scaling, int64_t columns) {
  const int64_t rows = static_cast<int64_t>(x.size()) / columns;
  const int64_t height = scaling.block_rows > 0 ? scaling.block_rows : rows;
  const int64_t width = scaling.block_cols > 0 ? scaling.block_cols : columns;
  const int64_t across = (columns + width - 1) / width;
  std::vector<double> errors(static_cast<size_t>((rows + height - 1) / height * across));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const double d = double{x[static_cast<size_t>(i)]} - decoded[static_cast<size_t>(i)];
    errors[static_cast<size_t>(i / columns / height * across + i % columns / width)] += d * d;
  }
  return errors;
}

TEST(Recipe, AdaptiveScalesAreNeverWorse) {
  for (const std::string& name : quantization_names()) {
    SCOPED_TRACE(name);
    for (Data data : {Data::normal, Data::outliers, Data::all_equal}) {
      const std::vector<float> x = test::random_values(130 * 256, 13, data);
      const Tensor t = Tensor::from<float>(x, {130, 256}, Format::f32);
      QuantizeOptions options = parse_quantization(name);
      const std::vector<double> exact =
          block_errors(x, to_floats(dequantize(quantize(t, options))), options.scaling, 256);
      options.adaptive = true;
      const std::vector<double> adaptive =
          block_errors(x, to_floats(dequantize(quantize(t, options))), options.scaling, 256);
      double sum[2] = {};
      for (size_t i = 0; i < exact.size(); ++i) {
        // dequantize rounds to FP32, which the search does not: 2^-24 of 448 steps at most.
        ASSERT_LE(adaptive[i], exact[i] * (1 + 1e-4) + 1e-13) << "block " << i;
        sum[0] += exact[i];
        sum[1] += adaptive[i];
      }
      if (data == Data::normal && options.scaling.block_cols == 16) {
        EXPECT_LT(sum[1], 0.9 * sum[0]);  // the search is there for a reason
      }
    }
  }
}

// What the formats keep of bf16 data, figures and all: cosine of the dequantised with the original.
TEST(Recipe, AccuracyOfTheBlockFormats) {
  struct Case {
    const char* name;
    double normal, outliers;  // least cosine
  };
  for (const Case& c : {Case{"mxfp8", 0.998, 0.998},
                        {"fp8", 0.998, 0.998},
                        {"nvfp4", 0.99, 0.99},
                        {"nvfp4_adaptive", 0.993, 0.993},
                        {"mxfp6", 0.998, 0.998},
                        {"mxfp6_e3m2", 0.995, 0.995},
                        {"mxfp4", 0.98, 0.98},
                        {"int8", 0.9999, 0.999},
                        {"int4", 0.985, 0.98}}) {
    for (Data data : {Data::normal, Data::outliers}) {
      const Tensor x = test::random_tensor({128, 512}, Format::bf16, 14, data);
      const Tensor q = quantize(x, parse_quantization(c.name));
      const test::Difference d = test::compare(to_floats(dequantize(q)), to_floats(x));
      EXPECT_GE(d.cosine, data == Data::normal ? c.normal : c.outliers) << c.name;
      RecordProperty(std::string(c.name) + (data == Data::normal ? "_normal" : "_outliers"),
                     std::to_string(d.cosine));
    }
  }
}

// The same bounds fail when one scale in sixteen is off by one exponent.
TEST(Recipe, AccuracySeesAWrongScale) {
  for (const char* name : {"mxfp8", "nvfp4"}) {
    const Tensor x = test::random_tensor({128, 512}, Format::bf16, 14);
    const Tensor q = quantize(x, parse_quantization(name));
    auto* scales = q.scales().data<uint8_t>();
    const int step = q.format() == Format::mxfp8 ? 1 : 8;  // one exponent of UE8M0, of E4M3
    for (int64_t i = 0; i < q.scales().numel(); i += 16) scales[i] = uint8_t(scales[i] + step);
    const test::Difference d = test::compare(to_floats(dequantize(q)), to_floats(x));
    EXPECT_LT(d.cosine, name[0] == 'm' ? 0.998 : 0.99) << name;
  }
}

TEST(QuantizeRows, EqualsQuantize) {
  const Tensor x = test::random_tensor({7, 96}, Format::bf16, 15);
  for (const char* name : {"fp8_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int4_asym"}) {
    SCOPED_TRACE(name);
    QuantizeOptions options = parse_quantization(name);
    if (options.format == Format::nvfp4) options.tensor_scale = 0.0031f;
    const Tensor q = quantize(x, options);
    const int64_t code_bytes = 96 * bits(options.format) / 8;
    const int64_t scale_bytes = q.scales().bytes() / 7;
    std::vector<uint8_t> codes(static_cast<size_t>(7 * (code_bytes + 5)));
    std::vector<uint8_t> scales(static_cast<size_t>(7 * (scale_bytes + 4)));
    std::vector<uint8_t> zeros(7 * 10);
    const RowsIn in{Format::bf16, x.data(), 7, 96, 192};
    const RowsOut out{codes.data(),    code_bytes + 5, scales.data(),
                      scale_bytes + 4, zeros.data(),   10};
    EXPECT_TRUE(quantize_rows(make_recipe(options), in, out));
    for (int64_t row = 0; row < 7; ++row) {
      EXPECT_EQ(0, std::memcmp(codes.data() + row * (code_bytes + 5),
                               q.data<uint8_t>() + row * code_bytes, size_t(code_bytes)));
      EXPECT_EQ(0,
                std::memcmp(scales.data() + row * (scale_bytes + 4),
                            q.scales().data<uint8_t>() + row * scale_bytes, size_t(scale_bytes)));
    }
  }
}

TEST(QuantizeRows, WithAGivenScaleSaturatesAndKeepsNan) {
  const float x[4] = {1.0f, -3000.0f, NAN, 0.25f};
  uint8_t codes[4];
  quantize_rows_with_scale(Format::fp8_e4m3, 0.5f, {Format::f32, x, 1, 4, 16}, codes, 4);
  EXPECT_EQ(decode_e4m3(codes[0]), 2.0f);
  EXPECT_EQ(decode_e4m3(codes[1]), -448.0f);
  EXPECT_EQ(codes[2], 0x7f);
  EXPECT_EQ(decode_e4m3(codes[3]), 0.5f);
}

}  // namespace
}  // namespace halftone
