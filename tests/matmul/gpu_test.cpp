// GEMMs on simulated GPUs: values.
#include <tuple>

#include "halftone/activation.h"
#include "matmul/gpu_cases.h"
#include "ops/gemm/sm80/launch.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;

const WeightSpec kBf16{F::bf16}, kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kMxfp4{F::mxfp4, true, {F::ue8m0, 1, 32}};
const WeightSpec kInt8{F::int8, true, {F::f32, 1, 0}};

TEST(MatmulGpu, EveryFormatOfFewRows) {
  Stream ampere(Device::simulator(Arch::sm_80)), hopper(Device::simulator(Arch::sm_90a));
  for (const GpuCase& c : some(plain_cases(1, 13, 700), 8)) expect_product(hopper, c, 3);
  for (const GpuCase& c : some(plain_cases(5, 19, 1100), 8)) expect_product(ampere, c, 4);
}

// Spans that are whole have loops of their own: all warps along K, some, with scales of x, with two
// tiles of columns.
TEST(MatmulGpu, WholeSpans) {
  Stream ampere(Device::simulator(Arch::sm_80)), hopper(Device::simulator(Arch::sm_90a));
  const WeightSpec scaled_x{F::fp8_e4m3, true, {F::f32, 1, 128}};
  for (const WeightSpec& w : weight_specs()) {
    const bool nibbles = bits(w.format) == 4;
    expect_product(hopper, {w, kBf16, 1, 20, nibbles ? 4352 : 2304}, 21);
    expect_product(ampere, {w, kBf16, 5, 20, 768}, 22);
    expect_product(hopper, {w, {F::f32}, 3, 20, 768}, 23);
    expect_product(hopper, {w, scaled_x, 2, 20, 768}, 24);
  }
}

// Blocks that take tile after tile: three of them here, tiles that do not come out even.
TEST(MatmulGpu, PersistentCtas) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : some<WeightSpec>({kBf16,
                                                  kInt8,
                                                  kFp8,
                                                  {F::fp8_e4m3, true, {F::f32, 1, 0}},
                                                  {F::fp8_e5m2},
                                                  {F::mxfp8, true, {F::ue8m0, 1, 32}},
                                                  kMxfp4,
                                                  kNvfp4,
                                                  {F::int4, true, {F::f16, 1, 128}}},
                                                 3)) {
    const int64_t n = 7 * 16 + 5, k = 17 * 1024 / bits(spec.format);
    for (const int64_t m : {1, 2}) {
      SCOPED_TRACE(concat(label(spec), " m ", m));
      const Weight w = random_weight(spec, n, k, 3), x = random_weight(kBf16, m, k, 4);
      const Tensor there = w.tensor.to(stream.device()), rows = x.tensor.to(stream.device());
      const Tensor out = Tensor::empty({m, n}, F::f32, stream.device());
      const gemm::XSpec plain;  // bf16
      const gemm::GpuWeight weight =
          gemm::gpu_weight(plain, spec.format, spec.scaled, spec.scaling);
      gemm::GpuGemm g;
      set_weight(weight, gemm::gpu_layout(there, "weight"), &g);
      g.source[0] = g.source[1] = gemm::gpu_source(there);
      g.n = static_cast<uint32_t>(n);
      g.epilogue.out = out.data<char>(), g.epilogue.out_row = n * 4, g.epilogue.out_format = F::f32;
      gemm::GpuX(plain, weight, k).enter(rows, m, &g, stream);
      gemm::GemmProblem problem{m, n, k, 0, false, spec.format, spec.scaled, spec.scaling};
      problem.alignment = resolved(problem);
      const gemm::GpuLoop loop = loop_of_gemv(problem, weight, gemm::GpuX(plain, weight, k));
      launch_gemv(weight, g, loop, 0, stream, 1);
      stream.synchronize();
      const std::vector<float> x_values(x.values.begin(), x.values.end());
      const Expected e = expect(x_values, w.values, m, n, k);
      const std::vector<float> staying = to_floats(out.to(Device::cpu()));
      EXPECT_TRUE(within(staying, e.values, gpu_bounds(e, k, F::f32, 64)));
      // A CTA a tile, and weights prefetched before griddepcontrol.wait: the same bits.
      for (const bool constant : {false, true}) {
        g.static_weights = constant;
        for (const uint32_t multiprocessors : {0u, 1u}) {
          const Tensor again = Tensor::zeros({m, n}, F::f32, stream.device());
          g.epilogue.out = again.data<char>();
          launch_gemv(weight, g, loop, 0, stream, multiprocessors);
          stream.synchronize();
          EXPECT_EQ(to_floats(again.to(Device::cpu())), staying);
        }
      }
    }
  }
}

// UE8M0 scales that BF16 weights cannot hold.
TEST(MatmulGpu, ScalesBeyondBf16) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 2, n = 20;
  for (const WeightSpec& spec : {kMxfp4, WeightSpec{F::mxfp8, true, {F::ue8m0, 1, 32}}}) {
    for (const int64_t k : {768, 4352}) {
      SCOPED_TRACE(concat(label(spec), " k ", k));
      const Weight x = random_weight(kBf16, m, k, 4);
      Weight w = random_weight(spec, n, k, 3);
      auto* scales = w.tensor.scales().data<uint8_t>();
      for (int64_t i = 0; i < n * k / 32; ++i) {
        const int exponent = i % 7 == 0 ? 129 + static_cast<int>(i % 40) : scales[i];
        for (int64_t j = i * 32; j < (i + 1) * 32; ++j) {
          w.values[static_cast<size_t>(j)] *= std::ldexp(1.0, exponent - scales[i]);
        }
        scales[i] = static_cast<uint8_t>(exponent);
      }
      const std::vector<float> x_values(x.values.begin(), x.values.end());
      const Expected e = expect(x_values, w.values, m, n, k);
      MatmulOptions o;
      o.out = F::f32;
      EXPECT_TRUE(within(to_floats(matmul_on(stream, x.tensor, w.tensor, o)), e.values,
                         gpu_bounds(e, k, F::f32, 0x1p60)));
    }
  }
}

TEST(MatmulGpu, EveryFormatOfManyRows) {
  Stream stream(Device::simulator(Arch::sm_80));
  for (const GpuCase& c : some(plain_cases(45, 37, 330), 8)) {
    if (c.x.format != F::f16) expect_product(stream, c, 5);
  }
}

TEST(MatmulGpu, ShapeEdges) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const int64_t k : {1, 2, 7, 31, 33, 64, 127, 129, 257, 513}) {
    for (const int64_t m : {1, 3}) {
      expect_product(stream, {kBf16, kBf16, m, 9, k, F::bf16}, 6);
      expect_product(stream, {kFp8, {F::f32}, m, 17, k}, 7);
    }
  }
  for (const int64_t n : {1, 8, 15, 16, 33}) {
    for (const int64_t m : {2, 8, 9, 17}) expect_product(stream, {kNvfp4, kBf16, m, n, 96}, 8);
  }
  for (const int64_t m : {127, 128, 129}) {
    expect_product(stream, {kFp8, kBf16, m, m + 1, 72, F::f16}, 9);
  }
}

TEST(MatmulGpu, ExtremeData) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const Data data : {Data::outliers, Data::tiny, Data::all_equal}) {
    for (const F x : {F::f32, F::bf16}) {
      expect_product(stream, {{F::f32}, {x}, 3, 9, 300}, 10, data);
      expect_product(stream, {kBf16, {x}, 20, 9, 300}, 10, data);
      expect_product(stream, {kNvfp4, {x}, 2, 9, 304}, 10, data);
    }
  }
}

// Every way in which scales of x enter.
TEST(MatmulGpu, QuantisedActivations) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& x :
       some<WeightSpec>({{F::fp8_e4m3},
                         {F::fp8_e5m2},
                         {F::fp8_e4m3, true, {F::f32, 0, 0}},
                         {F::fp8_e4m3, true, {F::f32, 1, 128}},
                         {F::fp8_e4m3, true, {F::bf16, 2, 96}},
                         {F::fp8_e4m3, true, {F::f32, 1, 20}},  // not of whole chunks
                         {F::fp8_e4m3, true, {F::ue8m0, 1, 128}},
                         {F::mxfp8, true, {F::ue8m0, 1, 32}},
                         kMxfp4,
                         kNvfp4,
                         kInt8,
                         {F::int8, true, {F::f16, 1, 64}}},
                        4)) {
    for (const WeightSpec& w : {kFp8, kInt8, kNvfp4, kBf16}) {
      for (const int64_t m : {3, 21}) expect_product(stream, {w, x, m, 11, 480}, 11);
    }
    // More than come in portions.
    for (const WeightSpec& w : {kFp8, kNvfp4}) expect_product(stream, {w, x, 98, 11, 96}, 11);
  }
}

// Some dozens of rows of what no kernel of sm_90a takes: the bits of each M-chunk by itself.
TEST(MatmulGpu, SmallMInMChunks) {
  const Device device = Device::simulator(Arch::sm_90a);
  Stream stream(device);
  const WeightSpec groups{F::int4, true, {F::f16, 1, 48}};
  const WeightSpec points{F::int4, true, {F::f16, 1, 48, ScaleLayout::linear, true}};
  const WeightSpec codes{F::fp8_e4m3, true, {F::f32, 1, 32}}, row{F::int8, true, {F::f32, 1, 0}};
  const int64_t n = 24, k = 192;
  for (const auto& [w, x, rows] : {std::tuple<WeightSpec, WeightSpec, int64_t>{points, kBf16, 16},
                                   {{F::fp8_e4m3, true, {F::f32, 1, 32}}, kBf16, 16},
                                   {{F::f16}, kBf16, 16},
                                   {groups, codes, 16},
                                   {groups, row, 16},
                                   {kNvfp4, {F::f32}, 5},
                                   {kBf16, {F::f16}, 8}}) {
    SCOPED_TRACE(concat(label(w), " by ", label(x)));
    const int64_t m = 6 * rows;
    const std::string kernel = kernel_of({w, x, m, n, k}, device);
    EXPECT_NE(kernel.find(concat(rows, " rows of x at a time")), std::string::npos) << kernel;
    EXPECT_NE(kernel_of({w, x, m + 1, n, k}, device).find("tiles of 128"), std::string::npos);
    const Tensor weight = random_weight(w, 2 * n, k, 3).tensor;
    const Tensor all = random_weight(x, m, k, 4).tensor;
    const Tensor residual = random_tensor({m, n}, F::f32, 5);
    MatmulOptions o;
    o.out = F::f32, o.gated = GatedActivation::swiglu();
    o.bias = random_tensor({2 * n}, F::f32, 6);
    o.residual = residual;
    const std::vector<float> y = to_floats(matmul_on(stream, all, weight, o));
    for (int64_t first = 0; first < m; first += rows) {
      o.residual = residual.slice(0, first, first + rows);
      const Tensor part = matmul_on(stream, all.slice(0, first, first + rows), weight, o);
      const auto from = y.begin() + first * n;
      EXPECT_EQ(to_floats(part), std::vector<float>(from, from + rows * n)) << first;
    }
  }
}

// Rounded on the way is the same bits as rounded before.
TEST(MatmulGpu, QuantisedOnTheWay) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t m = 3, n = 9, k = 256;
  for (const F format : {F::f32, F::bf16, F::f16}) {
    const Tensor x = random_tensor({m, k}, format, 4, Data::outliers);
    const Tensor w = random_weight(kFp8, n, k, 6).tensor;
    for (const char* name :
         {"fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int8_g128"}) {
      SCOPED_TRACE(concat(name, " of ", halftone::name(format)));
      MatmulOptions o;
      o.out = F::f32;
      o.quantize_x = parse_quantization(name);
      const Tensor y = matmul_on(stream, x, w, o);
      MatmulOptions plain;
      plain.out = F::f32;
      for (int64_t i = 0; i < m; ++i) {
        const Tensor row = quantize(x.slice(0, i, i + 1), *o.quantize_x);
        EXPECT_EQ(to_floats(y.slice(0, i, i + 1)), to_floats(matmul_on(stream, row, w, plain)));
      }
    }
    MatmulOptions o;
    o.out = F::f32, o.quantize_x = parse_quantization("fp8_tensor");
    o.quantize_x->tensor_scale = 0.03125f;
    const std::vector<float> want = to_floats(matmul_reference(x, w, o));
    std::vector<double> bound;
    for (const float v : want) bound.push_back(1e-5 * std::abs(v) + 1e-4);
    EXPECT_TRUE(within(to_floats(matmul_on(stream, x, w, o)), want, bound));
  }
}

TEST(MatmulGpu, EveryActivation) {
  Stream stream(Device::simulator(Arch::sm_80));
  const int64_t m = 3, n = 40, k = 96;
  const Tensor w = random_weight(kFp8, n, k, 5).tensor;
  std::vector<float> small = random_values(m * k, 4);
  for (float& v : small) v *= 0.01f;
  const Tensor x = convert(Tensor::from<float>(small, {m, k}, F::f32), F::bf16);
  MatmulOptions o;
  o.out = F::f32;
  o.bias = random_tensor({n}, F::f32, 6);
  for (int kind = 0; kind < kActivationCount; ++kind) {
    SCOPED_TRACE(name(static_cast<Activation>(kind)));
    o.activation.kind = static_cast<Activation>(kind);
    o.residual = kind % 2 == 0 ? random_tensor({m, n}, F::f32, 7) : Tensor();
    check_epilogue(stream, o, x, w);
  }
}

TEST(MatmulGpu, Gated) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 128, k = 64;
  for (const int64_t m : {3, 20}) {
    const Tensor w = random_weight(kFp8, 2 * n, k, 5).tensor;
    std::vector<float> small = random_values(m * k, 4);
    for (float& v : small) v *= 0.01f;
    const Tensor x = convert(Tensor::from<float>(small, {m, k}, F::f32), F::bf16);
    for (const GatedActivation& g : {GatedActivation::swiglu(), GatedActivation::gpt_oss()}) {
      for (const bool interleaved : {false, true}) {
        MatmulOptions o;
        o.out = F::bf16;
        o.gated = g, o.interleaved = interleaved;
        check_epilogue(stream, o, x, w);
        o.bias = random_tensor({2 * n}, F::bf16, 6);
        o.residual = random_tensor({m, n}, F::bf16, 7);
        check_epilogue(stream, o, x, w);
      }
    }
  }
}

// Halves of a gate that are tensors of their own: the bits of one tensor with both, in each kernel.
TEST(MatmulGpu, GatedSeparateUp) {
  const int64_t n = 128, k = 1024;
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    Stream stream(Device::simulator(arch));
    for (const WeightSpec& spec : {WeightSpec{F::bf16}, kFp8, kNvfp4}) {
      const Tensor w = random_weight(spec, 2 * n, k, 5).tensor;
      for (const int64_t m : some<int64_t>({1, 3, 12, 40})) {
        SCOPED_TRACE(concat(label(spec), " m ", m, " on ", stream.device().name()));
        const Tensor x = random_tensor({m, k}, F::bf16, 4);
        MatmulOptions o;
        o.gated = GatedActivation::swiglu();
        o.bias = random_tensor({2 * n}, F::f32, 6);
        const Tensor joint = matmul_on(stream, x, w, o);
        o.up = w.slice(0, n, 2 * n);
        EXPECT_EQ(to_floats(matmul_on(stream, x, w.slice(0, 0, n), o)), to_floats(joint));
      }
    }
  }
}

// The quantised output is the f32 result quantised, bit for bit: of each kernel, with scales of
// every extent, found and given.
TEST(MatmulGpu, QuantisedOutput) {
  const int64_t k = 128, n = 288;
  const Tensor w = random_weight(kFp8, n, k, 5).tensor;
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    Stream stream(Device::simulator(arch));
    for (const int64_t m : {1, 21}) {
      const Tensor x = random_tensor({m, k}, F::bf16, 4, Data::outliers);
      MatmulOptions o;
      o.out = F::f32;
      o.activation.kind = Activation::gelu_erf;
      o.residual = random_tensor({m, n}, F::f32, 7);
      const Tensor y = matmul_on(stream, x, w, o);
      for (const char* text : {"fp8_tensor", "fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8",
                               "mxfp4", "nvfp4", "nvfp4_adaptive", "int8", "int8_g128"}) {
        SCOPED_TRACE(concat(text, " m ", m, " on ", stream.device().name()));
        o.quantize_out = parse_quantization(text);
        expect_same_bits(matmul_on(stream, x, w, o), quantize(y, *o.quantize_out));
      }
      o.quantize_out = parse_quantization("nvfp4");
      o.quantize_out->tensor_scale = 0.25f;
      expect_same_bits(matmul_on(stream, x, w, o), quantize(y, *o.quantize_out));
      // Of one given scale: what lies above it saturates.
      o.quantize_out = parse_quantization("fp8_tensor");
      const Tensor found = quantize(y, *o.quantize_out);
      o.quantize_out->tensor_scale = found.scales().data<float>()[0];
      expect_same_bits(matmul_on(stream, x, w, o), found);
      o.quantize_out->tensor_scale = 0x1p-40f;
      const Tensor q = matmul_on(stream, x, w, o);
      EXPECT_EQ(q.scales().data<float>()[0], 0x1p-40f);
      for (int64_t i = 0; i < m * n; ++i) EXPECT_EQ(q.data<uint8_t>()[i] & 0x7f, 0x7e);
    }
  }
}

TEST(MatmulGpu, TiledScalesAndAnyAlignment) {
  Stream stream(Device::simulator(Arch::sm_90a));
  const int64_t n = 139, k = 480;
  const Tensor w = random_weight(kNvfp4, n, k, 8).tensor;
  const Tensor x = random_tensor({3, k}, F::bf16, 9);
  const std::vector<float> want = to_floats(matmul_on(stream, x, w));
  for (const ScaleLayout layout :
       {ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
    Scaling tiled = kNvfp4.scaling;
    tiled.layout = layout;
    const Tensor scales = convert_scale_layout(w.scales(), n, k / 16, ScaleLayout::linear, layout);
    EXPECT_EQ(to_floats(matmul_on(stream, x, w.quantized(tiled, scales, w.tensor_scale()))), want);
  }
  // Rows an odd number of elements apart.
  const Device device = stream.device();
  const Tensor rows = random_tensor({4, 67}, F::bf16, 10),
               weight = random_tensor({9, 67}, F::bf16, 11);
  const Tensor wide_x = rows.to(device), wide_w = weight.to(device);
  const Tensor y = matmul(wide_x.slice(1, 1, 66), wide_w.slice(1, 2, 67), stream);
  stream.synchronize();
  EXPECT_EQ(to_floats(y.to(Device::cpu())),
            to_floats(matmul_on(stream, rows.slice(1, 1, 66).contiguous_copy(),
                                weight.slice(1, 2, 67).contiguous_copy())));
}

}  // namespace
}  // namespace halftone::test
