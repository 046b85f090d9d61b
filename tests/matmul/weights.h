// Random weights in every format, with their exact values in double precision worked out here,
// apart from the library.
#pragma once
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/message.h"
#include "formats/codec.h"
#include "halftone/tensor.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone::test {

struct WeightSpec {
  Format format;
  bool scaled = false;
  Scaling scaling = {};
  bool tensor_scale = false;
};
inline std::string label(const WeightSpec& s) {
  return s.scaled ? concat(name(s.format), " ", to_string(s.scaling)) : name(s.format);
}

// Every format, and for formats with scales every way the kernels treat them.
inline std::vector<WeightSpec> weight_specs() {
  using F = Format;
  std::vector<WeightSpec> specs = {{F::f32}, {F::f16}, {F::bf16}, {F::fp8_e4m3}, {F::fp8_e5m2}};
  for (F f : {F::fp8_e4m3, F::fp8_e5m2}) {
    for (auto [rows, cols] : {std::pair<int, int>{0, 0}, {1, 0}, {1, 128}, {128, 128}, {3, 40}}) {
      specs.push_back({f, true, {F::f32, rows, cols}});
    }
  }
  specs.push_back({F::fp8_e4m3, true, {F::f32, 2, 12}});  // groups cut octets
  specs.push_back({F::fp8_e4m3, true, {F::bf16, 128, 128}});
  specs.push_back({F::mxfp8, true, {F::ue8m0, 1, 32}});
  specs.push_back({F::mxfp6, true, {F::ue8m0, 1, 32}});
  specs.push_back({F::mxfp6_e3m2, true, {F::ue8m0, 1, 32}});
  specs.push_back({F::mxfp4, true, {F::ue8m0, 1, 32}});
  specs.push_back({F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true});
  specs.push_back({F::int8, true, {F::f32, 1, 0}});
  specs.push_back({F::int8, true, {F::f16, 1, 128}});
  specs.push_back({F::int8, true, {F::f32, 1, 64}});
  for (int group : {32, 64, 128}) {
    specs.push_back({F::int4, true, {F::f16, 1, group}});
    specs.push_back({F::int4, true, {F::bf16, 1, group, ScaleLayout::linear, true}});
  }
  specs.push_back({F::int4, true, {F::f32, 1, 32, ScaleLayout::linear, true}});
  specs.push_back({F::int4, true, {F::f32, 1, 0, ScaleLayout::linear, true}});
  return specs;
}

// The multiple that K must have.
inline int64_t k_step(const WeightSpec& s) {
  if (is_block(s.format) || s.format == Format::int4) {
    return s.scaled && s.scaling.block_cols > 0 ? s.scaling.block_cols : 2;
  }
  return 1;
}

struct Weight {
  Tensor tensor;
  std::vector<double> values;  // [N, K]
};

// Of six bits, from the definition.
inline float decode_six(const uint8_t* p, int64_t i, int mantissa_bits, int bias) {
  int code = 0;
  for (int64_t bit = 0; bit < 6; ++bit) {
    const int64_t at = 6 * i + bit;
    code |= (p[at / 8] >> (at % 8) & 1) << bit;
  }
  const int exponent = (code & 31) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const double value = std::ldexp(whole, (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return static_cast<float>(code < 32 ? value : -value);
}

inline float decode_one(Format f, const uint8_t* p, int64_t i) {
  switch (f) {
    case Format::f32:
      return reinterpret_cast<const float*>(p)[i];
    case Format::f16:
      return decode_f16(reinterpret_cast<const uint16_t*>(p)[i]);
    case Format::bf16:
      return decode_bf16(reinterpret_cast<const uint16_t*>(p)[i]);
    case Format::fp8_e4m3:
    case Format::mxfp8:
      return decode_e4m3(p[i]);
    case Format::fp8_e5m2:
      return decode_e5m2(p[i]);
    case Format::ue8m0:
      return decode_ue8m0(p[i]);
    case Format::int8:
      return static_cast<float>(static_cast<int8_t>(p[i]));
    case Format::int4:
      return static_cast<float>(nibble(p, i));
    case Format::mxfp6:
      return decode_six(p, i, 3, 1);
    case Format::mxfp6_e3m2:
      return decode_six(p, i, 2, 3);
    default:
      return decode_e2m1(nibble(p, i));
  }
}

// Unquantised: `data`. Quantised: every finite value; scales vary by powers of two and mantissas.
inline Weight random_weight(const WeightSpec& s, int64_t n, int64_t k, uint64_t seed,
                            Data data = Data::normal) {
  std::mt19937_64 engine(seed);
  Weight w;
  Tensor codes;
  if (is_plain_float(s.format)) {
    codes = random_tensor({n, k}, s.format, seed, data);
  } else {
    codes = Tensor::empty({n, k}, s.format);
    auto* p = codes.data<uint8_t>();
    for (int64_t i = 0; i < packed_bytes(s.format, n * k); ++i) {
      do {
        p[i] = static_cast<uint8_t>(engine());
      } while (bits(s.format) == 8 && !std::isfinite(decode_one(s.format, p, i)));
    }
  }
  w.values.resize(static_cast<size_t>(n * k));
  w.tensor = codes;
  if (!s.scaled) {
    for (int64_t i = 0; i < n * k; ++i) {
      w.values[static_cast<size_t>(i)] = decode_one(s.format, codes.data<uint8_t>(), i) -
                                         (s.format == Format::int4 ? kInt4Zero : 0);
    }
    return w;
  }
  const int64_t br = s.scaling.block_rows > 0 ? s.scaling.block_rows : n;
  const int64_t bc = s.scaling.block_cols > 0 ? s.scaling.block_cols : k;
  const int64_t rows = (n + br - 1) / br, groups = (k + bc - 1) / bc;
  const Tensor scales = Tensor::empty({rows, groups}, s.scaling.format);
  const Tensor zeros = Tensor::empty({rows, groups}, Format::u8);
  for (int64_t i = 0; i < rows * groups; ++i) {
    const float value =
        std::ldexp(1.0f + static_cast<float>(engine() % 8) / 8, static_cast<int>(engine() % 5) - 4);
    switch (s.scaling.format) {
      case Format::f32:
        scales.data<float>()[i] = value * 1.1f;
        break;
      case Format::f16:
        scales.data<uint16_t>()[i] = encode_f16(value);
        break;
      case Format::bf16:
        scales.data<uint16_t>()[i] = encode_bf16(value);
        break;
      case Format::fp8_e4m3:
        scales.data<uint8_t>()[i] = encode_e4m3(value);
        break;
      default:
        scales.data<uint8_t>()[i] = encode_ue8m0_up(value);
    }
    zeros.data<uint8_t>()[i] = static_cast<uint8_t>(engine() % 16);
  }
  const float tensor_scale = 0.37f;
  const Tensor ts = s.tensor_scale ? Tensor::from({tensor_scale}, {1}) : Tensor();
  w.tensor = codes.quantized(s.scaling, scales, ts, s.scaling.asymmetric ? zeros : Tensor());
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const int64_t g = i / br * groups + j / bc;
      double value = decode_one(s.format, codes.data<uint8_t>(), i * k + j);
      if (s.format == Format::int4) {
        value -= s.scaling.asymmetric ? zeros.data<uint8_t>()[g] : kInt4Zero;
      }
      value *= decode_one(s.scaling.format, scales.data<uint8_t>(), g);
      w.values[static_cast<size_t>(i * k + j)] = s.tensor_scale ? value * tensor_scale : value;
    }
  }
  return w;
}

// Codes and scales of two quantised matrices.
inline void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.scales().shape(), b.scales().shape());
  const auto codes = static_cast<size_t>(packed_bytes(b.format(), b.numel()));
  EXPECT_EQ(std::memcmp(a.data(), b.data(), codes), 0);
  const auto scales = static_cast<size_t>(b.scales().bytes());
  EXPECT_EQ(std::memcmp(a.scales().data(), b.scales().data(), scales), 0);
  EXPECT_EQ(a.tensor_scale_value(), b.tensor_scale_value());
}

// The FP64 GEMM and, for the bound, the GEMM of the magnitudes.
struct Expected {
  std::vector<float> values;
  std::vector<double> magnitudes;
};
inline Expected expect(const std::vector<float>& x, const std::vector<double>& w, int64_t m,
                       int64_t n, int64_t k) {
  Expected e;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double product = static_cast<double>(x[static_cast<size_t>(i * k + l)]) *
                               w[static_cast<size_t>(j * k + l)];
        sum += product;
        magnitude += std::abs(product);
      }
      e.values.push_back(static_cast<float>(sum));
      e.magnitudes.push_back(magnitude);
    }
  }
  return e;
}

// A term of the sum meets at most this many roundings to f32 (unit 2^-24): the widening of the
// scale into the term 1; within a block 2 for each of at most 64 steps (VDPBF16PS rounds after each
// of two products, the baseline after product and sum) and 1 for the scale of each of 8 chunks; 4
// halvings of the lanes; one sum for each block, which is never shorter than 256; scale of the row
// and of the tensor 2; bias and residual 2.
inline double roundings(int64_t k) {
  return 1 + 128 + 8 + 4 + static_cast<double>((k + 255) / 256) + 2 + 2;
}
// |error| <= roundings * 2^-24 * sum |x w|, then the rounding to `out`. VDPBF16PS counts subnormal
// operands and sums as 0, each a loss below 2^-126 times the other operand; f16 results may be
// subnormal, spacing 2^-24.
inline std::vector<double> bounds(const Expected& e, int64_t k, Format out,
                                  double largest_operand = 1) {
  std::vector<double> b;
  for (size_t i = 0; i < e.values.size(); ++i) {
    const double sum = roundings(k) * 0x1p-24 * e.magnitudes[i] * 1.0001 +
                       3.0 * static_cast<double>(k) * 0x1p-126 * largest_operand;
    const double rounding = unit_roundoff(out) * (std::abs(e.values[i]) + sum) +
                            (out == Format::f16 ? 0x1p-25 : 0x1p-149);
    b.push_back(sum + rounding);
  }
  return b;
}

}  // namespace halftone::test
