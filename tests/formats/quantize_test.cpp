// quantize and dequantize as wholes: shapes, strides, recipes, special values.
#include "halftone/quantize.h"

#include <algorithm>
#include <cstring>

#include "formats/codec.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::Data;
using test::random_tensor;
using test::random_values;
using test::to_floats;

std::vector<std::string> all_names() {
  std::vector<std::string> names = quantization_names();
  const size_t count = names.size();
  for (size_t i = 0; i < count; ++i) names.push_back(names[i] + "_adaptive");
  return names;
}

// Largest error of one element of a block of largest magnitude `amax` whose scale follows the
// recipe: half the widest step of the format, plus what the scale's own rounding adds.
double relative_bound(const QuantizeOptions& options) {
  switch (options.format) {
    case Format::fp8_e4m3:
      return 16.0 / 448 * 1.01;  // half of the step 32 below 448
    case Format::fp8_e5m2:
      return 4096.0 / 57344 * 1.01;
    case Format::mxfp8:  // the scale may be twice too large, or saturate down to 256 of 512
      return options.ue8m0 == Ue8m0Rounding::down ? 64.0 / 512 : 32.0 / 448;
    case Format::mxfp6:
      return options.ue8m0 == Ue8m0Rounding::down ? 0.5 / 8 : 0.5 / 7.5;
    case Format::mxfp6_e3m2:
      return options.ue8m0 == Ue8m0Rounding::down ? 4.0 / 32 : 4.0 / 28;
    case Format::mxfp4:
      return options.ue8m0 == Ue8m0Rounding::down ? 2.0 / 8 : 2.0 / 6;
    case Format::nvfp4:  // half of the step 2 below 6, scale within 1/16
      return 1.0 / 6 * 1.07 + 1.0 / 16;
    case Format::int8:
      return 0.5 / 127 * 1.01;
    default:
      return options.scaling.asymmetric ? 1.0 / 15 * 2 * 1.01 : 0.5 / 7 * 1.01;
  }
}

TEST(Quantize, EveryElementIsWithinHalfAStep) {
  for (const std::string& name : quantization_names()) {
    for (Format format : {Format::f32, Format::f16, Format::bf16}) {
      SCOPED_TRACE(name + " from " + halftone::name(format));
      const QuantizeOptions options = parse_quantization(name);
      const Tensor x = random_tensor({5, 256}, format, 1);
      const Tensor q = quantize(x, options);
      EXPECT_EQ(q.format(), options.format);
      const std::vector<float> values = to_floats(x), decoded = to_floats(dequantize(q));
      double amax = 0;
      for (float v : values) amax = std::max(amax, std::abs(double{v}));
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::abs(values[i] - decoded[i]), amax * relative_bound(options)) << i;
      }
    }
  }
}

// The bound above notices one scale that is off by an exponent.
TEST(Quantize, TheBoundSeesAWrongScale) {
  for (const std::string& name : quantization_names()) {
    SCOPED_TRACE(name);
    const QuantizeOptions options = parse_quantization(name);
    const Tensor x = random_tensor({5, 256}, Format::f32, 1);
    const Tensor q = quantize(x, options);
    switch (options.scaling.format) {
      case Format::f32:
        q.scales().data<float>()[0] *= 2;
        break;
      case Format::f16:
        q.scales().data<uint16_t>()[0] = static_cast<uint16_t>(*q.scales().data<uint16_t>() + 1024);
        break;
      case Format::fp8_e4m3:
        q.scales().data<uint8_t>()[0] = static_cast<uint8_t>(*q.scales().data<uint8_t>() + 8);
        break;
      default:
        ++q.scales().data<uint8_t>()[0];
    }
    const std::vector<float> values = to_floats(x), decoded = to_floats(dequantize(q));
    double amax = 0, worst = 0;
    for (float v : values) amax = std::max(amax, std::abs(double{v}));
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(double{values[i]} - decoded[i]));
    }
    EXPECT_GT(worst, amax * relative_bound(options));
  }
}

TEST(Quantize, TheSameBitsForAnyNumberOfThreads) {
  const Tensor x = random_tensor({300, 1024}, Format::bf16, 9, Data::outliers);
  const Tensor wide = random_tensor({1, 65536 * 3}, Format::f32, 9);
  for (const std::string& name : all_names()) {
    SCOPED_TRACE(name);
    const QuantizeOptions options = parse_quantization(name);
    for (const Tensor& t : {x, wide}) {
      Stream one(Device::cpu(), 1);
      const Tensor expected = quantize(t, options, one);
      for (int threads : {2, 3, 7}) {
        Stream many(Device::cpu(), threads);
        const Tensor q = quantize(t, options, many);
        ASSERT_EQ(
            0, std::memcmp(q.data(), expected.data(), size_t(packed_bytes(q.format(), q.numel()))));
        ASSERT_EQ(0, std::memcmp(q.scales().data(), expected.scales().data(),
                                 size_t(q.scales().bytes())));
        const Tensor back = dequantize(q, Format::f16, many);
        const Tensor expected_back = dequantize(expected, Format::f16, one);
        ASSERT_EQ(0, std::memcmp(back.data(), expected_back.data(), size_t(back.bytes())));
      }
    }
  }
}

// dequantize rounds once: FP64 products rounded to the output by the model of nearest-even.
TEST(Quantize, DequantizeRoundsOnce) {
  test::at_every_level([] {
    for (const char* name : {"fp8_row", "nvfp4", "int8", "mxfp8", "int4_asym"}) {
      for (Data data : {Data::normal, Data::tiny}) {
        QuantizeOptions options = parse_quantization(name);
        if (options.format == Format::int4) options.scaling.format = Format::f32;
        const Tensor q = quantize(random_tensor({64, 512}, Format::f32, 10, data), options);
        const Tensor f16 = dequantize(q, Format::f16), bf16 = dequantize(q, Format::bf16);
        // The exact value: FP32 elements with the tensor scale taken out are exact in FP64.
        const std::vector<float> scales = [&] {
          std::vector<float> all;
          for (int64_t i = 0; i < q.scales().numel(); ++i) {
            all.push_back(options.scaling.format == Format::f32 ? q.scales().data<float>()[i]
                          : options.scaling.format == Format::ue8m0
                              ? decode_ue8m0(q.scales().data<uint8_t>()[i])
                              : decode_e4m3(q.scales().data<uint8_t>()[i]));
          }
          return all;
        }();
        const int64_t group = 512 * 64 / q.scales().numel();
        for (int64_t i = 0; i < q.numel(); ++i) {
          double element;
          const uint8_t byte = bits(q.format()) == 8 ? q.data<uint8_t>()[i] : 0;
          switch (q.format()) {
            case Format::nvfp4:
              element = decode_e2m1(nibble(q.data<uint8_t>(), i));
              break;
            case Format::int8:
              element = static_cast<int8_t>(byte);
              break;
            case Format::int4:
              element = nibble(q.data<uint8_t>(), i) - q.zero_points().data<uint8_t>()[i / group];
              break;
            default:
              element = decode_e4m3(byte);
          }
          const double exact = element * scales[size_t(i / group)] * q.tensor_scale_value();
          // Nearest: no other number of the output is closer, and a tie went to the even code.
          for (const Tensor& t : {f16, bf16}) {
            const uint16_t code = t.data<uint16_t>()[i];
            const auto decode = [&](int c) -> double {
              const auto bits16 = static_cast<uint16_t>(c);
              return t.format() == Format::f16 ? decode_f16(bits16) : decode_bf16(bits16);
            };
            const double error = std::abs(decode(code) - exact);
            for (int other : {code - 1, code + 1}) {
              if (((other ^ code) & 0x8000) != 0) continue;
              const double theirs = std::abs(decode(other) - exact);
              ASSERT_TRUE(error < theirs || (error == theirs && code % 2 == 0)) << name << " " << i;
            }
          }
        }
      }
    }
  });
}

TEST(Quantize, TakesAnyRankAndAnyStrides) {
  for (const std::string& name : quantization_names()) {
    SCOPED_TRACE(name);
    const QuantizeOptions options = parse_quantization(name);
    const Tensor flat = random_tensor({128}, Format::f32, 2);
    const Tensor x = random_tensor({2, 3, 64, 130}, Format::f32, 3);
    for (const Tensor& view :
         {flat, x.slice(3, 0, 128), x.slice(3, 1, 129).slice(2, 3, 9),
          x.transpose(0, 2).slice(3, 2, 34), x.slice(3, 0, 96).transpose(2, 3).slice(3, 0, 32),
          x.slice(0, 0, 0).slice(3, 0, 64)}) {
      const Tensor q = quantize(view, options);
      const Tensor copy = quantize(view.contiguous_copy(), options);
      EXPECT_EQ(to_floats(dequantize(q)), to_floats(dequantize(copy)));
      EXPECT_EQ(q.shape(), view.shape());
    }
  }
}

TEST(Quantize, ScalesOfEachMatrixAreItsOwn) {
  // One matrix a thousand times the other: a shared scale would lose the small one.
  Tensor x = random_tensor({2, 8, 32}, Format::f32, 4);
  for (int i = 0; i < 256; ++i) x.data<float>()[i] *= 1000;
  const Tensor q = quantize(x, parse_quantization("fp8_tensor"));
  EXPECT_EQ(q.scales().shape(), (Shape{2, 1, 1}));
  const float first = q.scales().data<float>()[0], second = q.scales().data<float>()[1];
  EXPECT_GT(first, 100 * second);
}

TEST(Quantize, PartialBlocksAtTheEdges) {
  const Tensor x = random_tensor({130, 200}, Format::f32, 5);
  const Tensor q = quantize(x, parse_quantization("fp8"));
  EXPECT_EQ(q.scales().shape(), (Shape{2, 2}));
  float corner = 0;
  for (int i = 128; i < 130; ++i) {
    for (int j = 128; j < 200; ++j) corner = std::max(corner, std::abs(x.at({i, j})));
  }
  EXPECT_EQ(q.scales().data<float>()[3], corner / 448.0f);
  EXPECT_EQ(quantize(x, parse_quantization("int8_g64")).scales().shape(), (Shape{130, 4}));
}

TEST(Quantize, ZeroBlocksAreZero) {
  for (const std::string& name : all_names()) {
    SCOPED_TRACE(name);
    const Tensor q = quantize(Tensor::zeros({4, 128}, Format::bf16), parse_quantization(name));
    for (float v : to_floats(dequantize(q))) ASSERT_EQ(v, 0.0f);
  }
}

TEST(Quantize, ABlockWithANanOrAnInfinityBecomesNan) {
  for (const std::string& name : all_names()) {
    for (float special : {NAN, INFINITY, -INFINITY}) {
      SCOPED_TRACE(name);
      const QuantizeOptions options = parse_quantization(name);
      Tensor x = random_tensor({300, 256}, Format::f32, 6);
      x.data<float>()[5] = special;
      const Tensor q = quantize(x, options);
      const std::vector<float> decoded = to_floats(dequantize(q));
      const int64_t block = options.scaling.block_cols > 0 ? options.scaling.block_cols : 256;
      for (int64_t j = 0; j < block; ++j) ASSERT_TRUE(std::isnan(decoded[j])) << j;
      if (options.scaling.block_rows == 0) continue;
      // What lies outside the block is as if the special value were not there.
      x.data<float>()[5] = 0;
      QuantizeOptions same = options;
      if (options.format == Format::nvfp4) same.tensor_scale = q.tensor_scale_value();
      const std::vector<float> without = to_floats(dequantize(quantize(x, same)));
      for (size_t i = 128 * 256; i < decoded.size(); ++i) ASSERT_EQ(decoded[i], without[i]) << i;
    }
  }
}

TEST(Quantize, ExtremeMagnitudesKeepTheirRelativeError) {
  for (const std::string& name : quantization_names()) {
    SCOPED_TRACE(name);
    QuantizeOptions options = parse_quantization(name);
    if (options.scaling.format == Format::f16) options.scaling.format = Format::f32;
    for (Data data : {Data::tiny, Data::huge, Data::all_equal}) {
      const std::vector<float> x = random_values(1024, 7, data);
      const Tensor t = Tensor::from<float>(x, {4, 256}, Format::f32);
      const std::vector<float> decoded = to_floats(dequantize(quantize(t, options)));
      double amax = 0;
      for (float v : x) amax = std::max(amax, std::abs(double{v}));
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_LE(std::abs(x[i] - decoded[i]), amax * relative_bound(options)) << i;
      }
    }
  }
}

TEST(Quantize, AScaleThatDoesNotFitF16IsAnError) {
  const Tensor x = random_tensor({2, 64}, Format::f32, 8, Data::huge);
  test::expect_error([&] { quantize(x, parse_quantization("int4")); }, {"65504", "f32"});
}

// A tensor scale beside scales of 24 bits: the three factors are rounded once all the same.
TEST(Quantize, DequantizeTakesATensorScaleOnAnyFormat) {
  const Tensor q = quantize(random_tensor({8, 64}, Format::f32, 16), parse_quantization("fp8_row"));
  const Tensor both = q.quantized(q.scaling(), q.scales(), Tensor::from({0.7654321f}, {1}));
  const Tensor decoded = dequantize(both);
  for (int64_t i = 0; i < 8; ++i) {
    for (int64_t j = 0; j < 64; ++j) {
      const double element = decode_e4m3(q.data<uint8_t>()[i * 64 + j]);
      const double exact = element * q.scales().at({i, 0}) * double{0.7654321f};  // 52 bits
      ASSERT_EQ(decoded.at({i, j}), static_cast<float>(exact));
    }
  }
}

TEST(Quantize, Fp8WithoutScalesReadsAsItIs) {
  Tensor codes = Tensor::empty({256}, Format::fp8_e5m2);
  for (int i = 0; i < 256; ++i) codes.data<uint8_t>()[i] = static_cast<uint8_t>(i);
  const Tensor decoded = dequantize(codes);
  for (int i = 0; i < 256; ++i) {
    const float expected = decode_e5m2(static_cast<uint8_t>(i)), value = decoded.at({i});
    EXPECT_TRUE(value == expected || (std::isnan(value) && std::isnan(expected))) << i;
  }
}

}  // namespace
}  // namespace halftone
