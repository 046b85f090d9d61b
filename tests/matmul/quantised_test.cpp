// Products of quantised activations, given or rounded on the way, against FP64.
#include "halftone/matmul.h"

#include "matmul/weights.h"

namespace halftone {
namespace {

using namespace test;
using F = Format;

const WeightSpec kFp8Block{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kFp8Row{F::fp8_e4m3, true, {F::f32, 1, 0}};
const WeightSpec kInt8Row{F::int8, true, {F::f32, 1, 0}};
const WeightSpec kMxfp8{F::mxfp8, true, {F::ue8m0, 1, 32}};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};

// Every way in which scales of x enter.
std::vector<WeightSpec> x_specs() {
  return {{F::fp8_e4m3},
          {F::fp8_e5m2},
          {F::fp8_e4m3, true, {F::f32, 0, 0}},
          kFp8Row,
          {F::fp8_e4m3, true, {F::f32, 1, 128}},
          {F::fp8_e4m3, true, {F::bf16, 2, 48}},
          {F::fp8_e4m3, true, {F::f32, 1, 20}},  // groups cut lanes: rounded to f32
          {F::fp8_e4m3, true, {F::ue8m0, 1, 128}},
          kMxfp8,
          kMxfp4,
          kNvfp4,
          kInt8Row,
          {F::int8, true, {F::f16, 1, 64}}};
}
std::vector<WeightSpec> w_specs() {
  return {kFp8Block,
          kFp8Row,
          kInt8Row,
          kMxfp8,
          kMxfp4,
          kNvfp4,
          {F::bf16},
          {F::f32},
          {F::fp8_e4m3, true, {F::f32, 2, 12}},
          {F::int4, true, {F::bf16, 1, 32, ScaleLayout::linear, true}}};
}

// The products in double precision, x as exact doubles, and the bound: beside the roundings of
// weights.h one for the scale of x, one for its product with that of W, one for x rounded to f32.
Expected expect_exactly(const Weight& x, const Weight& w, int64_t m, int64_t n, int64_t k) {
  Expected e;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double product =
            x.values[static_cast<size_t>(i * k + l)] * w.values[static_cast<size_t>(j * k + l)];
        sum += product, magnitude += std::abs(product);
      }
      e.values.push_back(static_cast<float>(sum));
      e.magnitudes.push_back(magnitude * (1 + 3 / roundings(k)));
    }
  }
  return e;
}

TEST(QuantisedActivations, EveryFormatAndLevel) {
  for (const WeightSpec& xs : x_specs()) {
    for (const WeightSpec& ws : w_specs()) {
      for (const int64_t m : {1, 5}) {
        const int64_t n = 11, k = 480;
        SCOPED_TRACE(concat("x ", label(xs), ", weight ", label(ws), ", m ", m));
        const Weight x = random_weight(xs, m, k, 3), w = random_weight(ws, n, k, 5);
        const Expected e = expect_exactly(x, w, m, n, k);
        const std::vector<double> bound = bounds(e, k, F::f32, 1e3);
        at_every_level([&] {
          EXPECT_TRUE(within(to_floats(matmul(x.tensor, w.tensor, F::f32)), e.values, bound));
        });
        EXPECT_TRUE(within(to_floats(matmul_reference(x.tensor, w.tensor)), e.values, bound));
      }
    }
  }
}

// One exponent of one scale of x, one code, or two scales exchanged.
TEST(QuantisedActivations, ToleranceBreaksOnSmallErrors) {
  const int64_t m = 3, n = 7, k = 512;
  const Weight w = random_weight(kFp8Block, n, k, 5);
  const WeightSpec grouped{F::fp8_e4m3, true, {F::f32, 1, 128}};
  const Weight x = random_weight(grouped, m, k, 3);
  const Expected e = expect_exactly(x, w, m, n, k);
  const std::vector<double> bound = bounds(e, k, F::f32, 1e3);
  ASSERT_TRUE(within(to_floats(matmul(x.tensor, w.tensor, F::f32)), e.values, bound));
  auto* scales = x.tensor.scales().data<float>();
  scales[5] *= 2;
  EXPECT_FALSE(within(to_floats(matmul(x.tensor, w.tensor, F::f32)), e.values, bound));
  scales[5] /= 2;
  std::swap(scales[2], scales[3]);
  if (scales[2] != scales[3]) {
    EXPECT_FALSE(within(to_floats(matmul(x.tensor, w.tensor, F::f32)), e.values, bound));
  }
  std::swap(scales[2], scales[3]);
  x.tensor.data<uint8_t>()[k + 9] ^= 0x08;
  EXPECT_FALSE(within(to_floats(matmul(x.tensor, w.tensor, F::f32)), e.values, bound));
}

std::vector<QuantizeOptions> on_the_way() {
  std::vector<QuantizeOptions> all;
  for (const char* name :
       {"fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int8_g128"}) {
    all.push_back(parse_quantization(name));
  }
  all.push_back(parse_quantization("fp8_1x128"));
  all.back().scaling.format = F::ue8m0;
  return all;
}

// Rounded on the way is the same bits as rounded before, and as the reference says.
TEST(QuantisedActivations, QuantisedOnTheWay) {
  at_every_level([] {
    for (const F format : {F::f32, F::bf16, F::f16}) {
      const int64_t m = 4, n = 9, k = 256;
      const Tensor x = random_tensor({m, k}, format, 4, Data::outliers);
      for (const WeightSpec& spec : {kFp8Block, kNvfp4, kInt8Row}) {
        const Tensor w = random_weight(spec, n, k, 6).tensor;
        for (const QuantizeOptions& q : on_the_way()) {
          SCOPED_TRACE(concat(to_string(q), " of ", name(format), " x ", label(spec)));
          MatmulOptions o;
          o.out = F::f32, o.quantize_x = q;
          const Tensor y = matmul(x, w, o);
          for (int64_t i = 0; i < m; ++i) {
            const Tensor row = quantize(x.slice(0, i, i + 1), q);
            EXPECT_EQ(to_floats(y.slice(0, i, i + 1)), to_floats(matmul(row, w, F::f32)));
          }
        }
      }
    }
  });
}

TEST(QuantisedActivations, StaticScale) {
  const int64_t m = 3, n = 5, k = 96;
  const Tensor x = random_tensor({m, k}, F::bf16, 4);
  const Weight w = random_weight(kFp8Row, n, k, 6);
  for (const char* name : {"fp8_tensor", "int8"}) {
    MatmulOptions o;
    o.out = F::f32, o.quantize_x = parse_quantization(name);
    o.quantize_x->scaling = {F::f32, 0, 0};
    o.quantize_x->tensor_scale = 0.03125f;
    const std::vector<float> y = to_floats(matmul(x, w.tensor, o));
    const std::vector<float> want = to_floats(matmul_reference(x, w.tensor, o));
    std::vector<double> bound;
    for (const float v : want) bound.push_back(1e-5 * std::abs(v) + 1e-5);
    EXPECT_TRUE(within(y, want, bound));
  }
}

TEST(QuantisedActivations, InvariantToTheBatchAndThreads) {
  at_every_level([] {
    const int64_t m = 300, n = 37, k = 640;
    const Tensor x = random_tensor({m, k}, F::bf16, 4);
    for (const WeightSpec& spec : {kFp8Block, kFp8Row, kInt8Row, kNvfp4}) {
      const Tensor w = random_weight(spec, n, k, 6).tensor;
      for (const char* name : {"fp8_1x128", "nvfp4", "int8"}) {
        SCOPED_TRACE(concat(name, " x ", label(spec)));
        MatmulOptions o;
        o.quantize_x = parse_quantization(name);
        const Tensor all = matmul(x, w, o);
        for (const auto& [begin, end] : {std::pair<int, int>{0, 1}, {255, 257}, {7, 40}}) {
          EXPECT_EQ(to_floats(matmul(x.slice(0, begin, end), w, o)),
                    to_floats(all.slice(0, begin, end)));
        }
        Stream one(Device::cpu(), 1);
        EXPECT_EQ(to_floats(matmul(x, w, o, one)), to_floats(all));
      }
    }
  });
}

// Integer sums have no error at all: the extreme codes, every edge of K, and all levels alike.
TEST(QuantisedActivations, Int8SumsAreExact) {
  at_every_level([] {
    for (const int64_t k : {1, 2, 63, 64, 65, 127, 511, 513, 2049, 4100, 131071}) {
      const int64_t n = k > 5000 ? 2 : 13;
      for (const int64_t m : {1, 2, 4}) {
        if (k > 5000 && m == 2) continue;
        SCOPED_TRACE(concat(m, "x", n, "x", k));
        std::mt19937 engine(static_cast<uint32_t>(k + m));
        const Tensor x = Tensor::empty({m, k}, F::int8), w = Tensor::empty({n, k}, F::int8);
        for (const Tensor& t : {x, w}) {
          for (int64_t i = 0; i < t.numel(); ++i) {
            t.data<int8_t>()[i] = k > 5000 ? int8_t{-128} : static_cast<int8_t>(engine());
          }
        }
        const std::vector<float> y = to_floats(matmul(x, w, F::f32));
        for (int64_t i = 0; i < m * n; ++i) {
          int64_t sum = 0;
          for (int64_t l = 0; l < k; ++l) {
            sum += int64_t{x.data<int8_t>()[i / n * k + l]} * w.data<int8_t>()[i % n * k + l];
          }
          ASSERT_EQ(y[static_cast<size_t>(i)], static_cast<float>(sum));
        }
      }
    }
  });
}

// W8A8 and W4A4 with tiled scales of both operands.
TEST(QuantisedActivations, TiledScales) {
  for (const WeightSpec& spec : {kMxfp8, kNvfp4}) {
    const int64_t m = 5, n = 130, k = 192, groups = k / spec.scaling.block_cols;
    const Tensor x = random_weight(spec, m, k, 3).tensor, w = random_weight(spec, n, k, 5).tensor;
    Scaling tiled = spec.scaling;
    tiled.layout = ScaleLayout::tiled_128x4;
    const auto tile = [&](const Tensor& t) {
      return t.quantized(
          tiled,
          convert_scale_layout(t.scales(), t.size(0), groups, ScaleLayout::linear, tiled.layout),
          t.tensor_scale());
    };
    EXPECT_EQ(to_floats(matmul(tile(x), tile(w), F::f32)), to_floats(matmul(x, w, F::f32)));
  }
}

TEST(QuantisedActivations, Errors) {
  const auto refused = [](const auto& change, const char* word) {
    MatmulProblem p;
    p.m = 2, p.n = 16, p.k = 64;
    change(p);
    const Support s = can_run(p, Device::cpu());
    EXPECT_FALSE(s.ok);
    EXPECT_NE(s.reason.find(word), std::string::npos) << s.reason;
  };
  refused([](auto& p) { p.x = F::int4; }, "x is int4");
  refused([](auto& p) { p.x = F::mxfp8; }, "without scales");
  refused(
      [](auto& p) {
        p.x = F::mxfp8, p.x_scaled = true, p.x_scaling = {F::ue8m0, 1, 48};
      },
      "multiple of the group, 48");
  refused([](auto& p) { p.x_scaled = true; }, "only codes have them");
  refused([](auto& p) { p.quantize_x = QuantizeOptions(F::int4); }, "quantised to int4");
  refused([](auto& p) { p.quantize_x = parse_quantization("fp8"); }, "within one row");
  refused([](auto& p) { p.quantize_x = parse_quantization("fp8_tensor"); }, "tensor_scale");
  refused([](auto& p) { p.k = 72, p.quantize_x = parse_quantization("nvfp4"); }, "multiple of 16");
  refused(
      [](auto& p) {
        p.x = F::fp8_e4m3;
        p.quantize_x = parse_quantization("fp8_row");
      },
      "on the way");
}

}  // namespace
}  // namespace halftone
