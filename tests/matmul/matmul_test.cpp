// Values of matmul against FP64 for every weight format, shape edge and ISA level.
#include "halftone/matmul.h"

#include <algorithm>

#include "matmul/weights.h"

namespace halftone {
namespace {

using namespace test;

void check_product(const WeightSpec& spec, int64_t m, int64_t n, int64_t k, Format x_format,
                   Format out, Data data = Data::normal) {
  SCOPED_TRACE(
      concat(label(spec), " ", m, "x", n, "x", k, " x ", name(x_format), " out ", name(out)));
  const Weight w = random_weight(spec, n, k, 7 + static_cast<uint64_t>(n * k), data);
  const Tensor x = random_tensor({m, k}, x_format, 11, data);
  Expected e = expect(to_floats(x), w.values, m, n, k);
  const std::vector<float> y = to_floats(matmul(x, w.tensor, out));
  for (float& v : e.values) {
    if (out == Format::f16 && std::abs(v) >= 65520.0f) v = std::copysign(INFINITY, v);
  }
  double largest = 1;
  for (double v : w.values) largest = std::max(largest, std::abs(v));
  for (float v : to_floats(x)) largest = std::max(largest, std::abs(static_cast<double>(v)));
  EXPECT_TRUE(within(y, e.values, bounds(e, k, out, largest)));
}

TEST(Matmul, EveryFormatAndLevel) {
  at_every_level([] {
    for (const WeightSpec& spec : weight_specs()) {
      const int64_t step = k_step(spec);
      for (Format x : {Format::f32, Format::bf16, Format::f16}) {
        const Format out = x == Format::f16 ? Format::f16 : Format::f32;
        check_product(spec, 1, 13, (700 + step - 1) / step * step, x, out);
        check_product(spec, 5, 19, (1100 + step - 1) / step * step, x, out);
      }
    }
  });
}

TEST(Matmul, Bf16DotsOrFloatsAsTheEnvironmentSays) {
  if (detected_cpu_level() < CpuLevel::avx512_bf16) GTEST_SKIP() << "no dot products of bf16";
  MatmulProblem problem;
  problem.m = 3, problem.n = 8, problem.k = 64;
  problem.x = problem.weight = problem.out = Format::bf16;
  const auto uses_dot = [&](const char* products) {
    setenv("HALFTONE_BF16", products, 1);
    const MatmulPlan p = plan(problem, Device::cpu());
    unsetenv("HALFTONE_BF16");
    return describe(p).find("_dot") != std::string::npos;
  };
  EXPECT_TRUE(uses_dot("dot"));
  EXPECT_FALSE(uses_dot("f32"));
}

TEST(Matmul, ShapeEdges) {
  const WeightSpec bf16{Format::bf16};
  const WeightSpec fp8{Format::fp8_e4m3, true, {Format::f32, 128, 128}};
  at_every_level([&] {
    for (int64_t k : {1, 2, 7, 15, 17, 31, 33, 127, 128, 129, 511, 513, 1023, 1025, 2049}) {
      for (int64_t m : {1, 2, 3, 4, 7}) {
        check_product(bf16, m, 9, k, Format::bf16, Format::bf16);
        check_product(fp8, m, 7, k, Format::f32, Format::f32);
      }
    }
    for (int64_t n : {1, 3, 4, 5, 8, 11, 65, 130}) {
      for (int64_t m : {1, 2, 259}) check_product(fp8, m, n, 160, Format::bf16, Format::f32);
    }
  });
}

TEST(Matmul, ExtremeData) {
  const WeightSpec f32{Format::f32}, bf16{Format::bf16};
  const WeightSpec nvfp4{Format::nvfp4, true, {Format::fp8_e4m3, 1, 16}, true};
  at_every_level([&] {
    for (Data data : {Data::outliers, Data::tiny, Data::huge, Data::all_equal}) {
      for (Format x : {Format::f32, Format::bf16}) {
        check_product(f32, 3, 9, 300, x, Format::f32, data);
        check_product(bf16, 1, 9, 300, x, Format::f32, data);
        check_product(bf16, 3, 9, 300, x, Format::f32, data);
        check_product(nvfp4, 2, 9, 304, x, Format::f32, data);
      }
    }
  });
}

// Every value of the 8-bit formats and every pair of the 4-bit ones, one at a time: a wrong entry
// of a table, a flushed subnormal of E4M3 or E5M2 or a lost sign shows exactly.
TEST(Matmul, EveryValueExactly) {
  at_every_level([] {
    for (Format f : {Format::fp8_e4m3, Format::fp8_e5m2, Format::int8, Format::mxfp8, Format::mxfp4,
                     Format::nvfp4, Format::int4}) {
      for (Format x_format : {Format::f32, Format::bf16}) {
        SCOPED_TRACE(concat(name(f), " x ", name(x_format)));
        const int64_t n = bits(f) == 8 ? 256 : 16, k = 32;
        Tensor codes = Tensor::zeros({n, k}, f);
        for (int64_t i = 0; i < n; ++i) {
          const int64_t row = i * k * bits(f) / 8;
          if (bits(f) == 8) {
            std::memset(codes.data<uint8_t>() + row, 0, static_cast<size_t>(k));
            codes.data<uint8_t>()[row + i % k] = static_cast<uint8_t>(i);
          } else {
            std::memset(codes.data<uint8_t>() + row, f == Format::int4 ? 0x88 : 0,
                        static_cast<size_t>(k / 2));
            uint8_t& byte = codes.data<uint8_t>()[row + i % k / 2];
            const int shift = i % 2 == 0 ? 0 : 4;
            byte = static_cast<uint8_t>((byte & ~(15 << shift)) | (static_cast<int>(i) << shift));
          }
        }
        if (is_block(f)) {
          const Scaling scaling = default_scaling(f);
          const Tensor scales = Tensor::empty({n, k / scaling.block_cols}, scaling.format);
          std::memset(scales.data(), f == Format::nvfp4 ? 0x38 : 127,
                      static_cast<size_t>(scales.numel()));
          codes = codes.quantized(scaling, scales);
        }
        const Tensor x = convert(
            Tensor::from<float>(std::vector<float>(32, 1.0f), {1, k}, Format::f32), x_format);
        const std::vector<float> y = to_floats(matmul(x, codes, Format::f32));
        for (int64_t i = 0; i < n; ++i) {
          const uint8_t code[4] = {static_cast<uint8_t>(i)};
          float want = decode_one(f, code, 0);
          if (f == Format::int4) want -= kInt4Zero;
          const float got = y[static_cast<size_t>(i)];
          EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
              << "code " << i << " gives " << got << ", not " << want;
        }
      }
    }
  });
}

// Every value of the one-byte scale formats, multiplied by 1.
TEST(Matmul, EveryScaleExactly) {
  at_every_level([] {
    for (Format f : {Format::fp8_e4m3, Format::ue8m0}) {
      const int64_t n = 256, k = 64;
      const Tensor codes = Tensor::zeros({n, k}, Format::mxfp4);
      for (int64_t i = 0; i < n; ++i) codes.data<uint8_t>()[i * 32 + 16] = 2;  // element 32: 1.0
      const Tensor scales = Tensor::zeros({n, 2}, f);
      for (int64_t i = 0; i < n; ++i) {
        scales.data<uint8_t>()[2 * i] = 1;
        scales.data<uint8_t>()[2 * i + 1] = static_cast<uint8_t>(i);
      }
      const Tensor w = codes.quantized({f, 1, 32}, scales);
      const Tensor x = Tensor::from<float>(std::vector<float>(64, 1.0f), {1, k}, Format::f32);
      const std::vector<float> y = to_floats(matmul(x, w));
      for (int64_t i = 0; i < n; ++i) {
        const uint8_t code[4] = {static_cast<uint8_t>(i)};
        const float want = decode_one(f, code, 0), got = y[static_cast<size_t>(i)];
        EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << name(f) << " scale " << i << " gives " << got << ", not " << want;
      }
    }
  });
}

// Scales in the layouts of tensor cores, as they are: the same bits as linear ones.
TEST(Matmul, TiledScales) {
  at_every_level([] {
    for (Format f : {Format::nvfp4, Format::mxfp8}) {
      const Scaling linear = default_scaling(f);
      const WeightSpec spec{f, true, linear, f == Format::nvfp4};
      const int64_t n = 139, k = 480;
      const Tensor w = random_weight(spec, n, k, 8).tensor;
      for (int64_t m : {1, 3}) {
        const Tensor x = random_tensor({m, k}, Format::bf16, 9);
        const std::vector<float> want = to_floats(matmul(x, w));
        for (ScaleLayout layout :
             {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
          Scaling tiled = linear;
          tiled.layout = layout;
          const Tensor scales = convert_scale_layout(w.scales(), n, k / linear.block_cols,
                                                     ScaleLayout::linear, layout);
          const Tensor same = w.quantized(tiled, scales, w.tensor_scale());
          EXPECT_EQ(to_floats(matmul(x, same)), want);
          EXPECT_EQ(to_floats(matmul_reference(x, same)), to_floats(matmul_reference(x, w)));
        }
      }
    }
  });
}

// The tolerance of this file notices the smallest mistakes it is meant for.
TEST(Matmul, ToleranceBreaksOnSmallErrors) {
  for (const WeightSpec& spec : weight_specs()) {
    SCOPED_TRACE(label(spec));
    const int64_t m = 3, n = 11, step = k_step(spec), k = (640 + step - 1) / step * step;
    const Weight w = random_weight(spec, n, k, 5);
    const Tensor x = random_tensor({m, k}, Format::f32, 6);
    const Expected e = expect(to_floats(x), w.values, m, n, k);
    const std::vector<double> bound = bounds(e, k, Format::f32);
    ASSERT_TRUE(within(to_floats(matmul(x, w.tensor)), e.values, bound));

    Tensor swapped = x.contiguous_copy();
    std::swap(swapped.data<float>()[k + 3], swapped.data<float>()[k + 4]);
    EXPECT_FALSE(within(to_floats(matmul(swapped, w.tensor)), e.values, bound));
    swapped = x.contiguous_copy();
    swapped.data<float>()[2 * k - 1] = 0;  // the last element of K is skipped
    EXPECT_FALSE(within(to_floats(matmul(swapped, w.tensor)), e.values, bound));
    if (!spec.scaled) continue;
    auto* scale = w.tensor.scales().data<uint8_t>();
    const int bytes = bits(spec.scaling.format) / 8;
    switch (spec.scaling.format) {  // the first scale doubles
      case Format::f32:
        reinterpret_cast<float*>(scale)[0] *= 2;
        break;
      case Format::f16:
        reinterpret_cast<uint16_t*>(scale)[0] += 1 << 10;
        break;
      default:
        scale[bytes - 1] = static_cast<uint8_t>(scale[bytes - 1] +
                                                (spec.scaling.format == Format::fp8_e4m3 ? 8 : 1));
    }
    EXPECT_FALSE(within(to_floats(matmul(x, w.tensor)), e.values, bound));
  }
}

TEST(Matmul, ReferenceEqualsAnIndependentGemm) {
  for (const WeightSpec& spec : weight_specs()) {
    SCOPED_TRACE(label(spec));
    const int64_t step = k_step(spec), k = (200 + step - 1) / step * step;
    const Weight w = random_weight(spec, 9, k, 3);
    const Tensor x = random_tensor({4, k}, Format::f16, 4);
    const Expected e = expect(to_floats(x), w.values, 4, 9, k);
    EXPECT_EQ(to_floats(matmul_reference(x, w.tensor)), e.values);
  }
}

// VDPBF16PS takes subnormal operands as 0; that is the documented limit, no more is lost.
TEST(Matmul, SubnormalsOfBf16) {
  const uint16_t tiny = 0x0040;  // 2^-127
  const Tensor w = Tensor::from<uint16_t>(std::vector<uint16_t>(64, tiny), {1, 64}, Format::bf16);
  const Tensor x = Tensor::from<uint16_t>(std::vector<uint16_t>(64, 0x3f80), {1, 64}, Format::bf16);
  at_every_level([&] {
    const float y = to_floats(matmul(x, w, Format::f32))[0];
    EXPECT_LE(std::abs(y - 64 * 0x1p-127f), 64 * 0x1p-126f);
    // f32 activations keep them at every level.
    EXPECT_EQ(to_floats(matmul(convert(x, Format::f32), w))[0], 64 * 0x1p-127f);
  });
}

}  // namespace
}  // namespace halftone
