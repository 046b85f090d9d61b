// The fused operations on GPUs: the operation there, then the CPU's quantisation, bit for bit, by
// one kernel wherever one can.
#include <array>
#include <limits>

#include "halftone/activation.h"
#include "halftone/fused_quantize.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class FusedQuantizeOnDevice : public OnDevice {
 protected:
  static void expect_quantised(const Tensor& there, const Tensor& result,
                               const QuantizeOptions& options) {
    const Tensor y = there.to(Device::cpu());
    const Tensor expected = quantize(result.to(Device::cpu()), options);
    EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), y.format()),
                          Tensor::view(expected.data(), y.shape(), y.format())));
    EXPECT_TRUE(same_bits(y.scales(), expected.scales()));
    if (options.scaling.asymmetric) {
      EXPECT_TRUE(same_bits(y.zero_points(), expected.zero_points()));
    }
    if (options.format == Format::nvfp4) {
      EXPECT_TRUE(same_bits(y.tensor_scale(), expected.tensor_scale()));
    }
  }
  // fused(stream), by one launch where it `fits` and two where not, against separate(stream).
  template <class Fused, class Separate>
  void expect_same(const QuantizeOptions& options, bool fits, const Fused& fused,
                   const Separate& separate) const {
    SCOPED_TRACE(to_string(options));
    Stream s = stream(), other = stream();
    const Tensor there = fused(s);
    s.synchronize();
    const uint64_t launches = fits ? 1 : 2;
    if (simulated()) {
      EXPECT_EQ(simulator_report(s).launches, launches);
    }
    expect_quantised(there, separate(other), options);
  }
  // All elements are finite but the `nan`th, if it is not negative.
  Tensor random(const Shape& shape, Format format, uint64_t seed, int64_t nan = -1) const {
    const Tensor x = test::random_tensor(shape, Format::f32, seed);
    if (nan >= 0) x.data<float>()[nan] = kNan;
    return convert(x, format).to(device);
  }
  void expect_norms(const Shape& shape, Format format, const QuantizeOptions& o, bool fits,
                    int64_t nan = -1) const {
    SCOPED_TRACE(std::string(name(format)) + " " + to_string(shape));
    const Shape columns{shape[shape.rank() - 1]};
    const Tensor x = random(shape, format, 1, nan), weight = random(columns, format, 2);
    const Tensor bias = random(columns, format, 3);
    expect_same(
        o, fits, [&](Stream& s) { return rms_norm_quantize(x, weight, 1e-5f, o, s); },
        [&](Stream& s) { return rms_norm(x, weight, 1e-5f, s); });
    expect_same(
        o, fits, [&](Stream& s) { return layer_norm_quantize(x, weight, bias, 1e-5f, o, s); },
        [&](Stream& s) { return layer_norm(x, weight, bias, 1e-5f, s); });
    for (const bool layer : {false, true}) {
      Tensor residual = random(shape, format, 4), again = random(shape, format, 4);
      expect_same(
          o, fits,
          [&](Stream& s) {
            return layer ? layer_norm_residual_quantize(x, residual, weight, bias, 1e-5f, o, s)
                         : rms_norm_residual_quantize(x, residual, weight, 1e-5f, o, s);
          },
          [&](Stream& s) {
            return layer ? layer_norm_residual(x, again, weight, bias, 1e-5f, s)
                         : rms_norm_residual(x, again, weight, 1e-5f, s);
          });
      EXPECT_TRUE(same_bits(residual.to(Device::cpu()), again.to(Device::cpu())));
    }
  }
  void expect_gates(const Shape& shape, Format format, const QuantizeOptions& o, bool fits,
                    int64_t nan = -1) const {
    SCOPED_TRACE(std::string(name(format)) + " " + to_string(shape));
    Shape wide = shape;
    wide[shape.rank() - 1] *= 2;
    const Tensor x = random(shape, format, 1, nan), up = random(shape, format, 2);
    const Tensor pairs = random(wide, format, 3, nan);
    const ActivationFunction gelu{.kind = Activation::gelu_erf};
    const GatedActivation swiglu = GatedActivation::swiglu();
    expect_same(
        o, fits, [&](Stream& s) { return gated_quantize(x, up, swiglu, o, s); },
        [&](Stream& s) { return gated(x, up, swiglu, s); });
    expect_same(
        o, fits, [&](Stream& s) { return gated_quantize(pairs, Tensor(), swiglu, o, s); },
        [&](Stream& s) { return gated(pairs, Tensor(), swiglu, s); });
    expect_same(
        o, fits, [&](Stream& s) { return activation_quantize(x, gelu, o, s); },
        [&](Stream& s) { return activation(x, gelu, s); });
  }
  void expect_all(const Shape& shape, Format format, const QuantizeOptions& o, bool fits,
                  int64_t nan = -1) const {
    expect_norms(shape, format, o, fits, nan);
    expect_gates(shape, format, o, fits, nan);
  }
  static QuantizeOptions nvfp4(ScaleLayout layout = ScaleLayout::linear) {
    QuantizeOptions options(Format::nvfp4);
    options.tensor_scale = 0.01f;
    options.scaling.layout = layout;
    return options;
  }
};

TEST_P(FusedQuantizeOnDevice, EqualsTheSeparateOperations) {
  for (const char* name : {"mxfp8", "mxfp4", "fp8_1x128", "fp8_row", "fp8_e5m2_row", "int8", "int4",
                           "int4_g128", "int4_g128_asym"}) {
    expect_all({2, 3, 256}, Format::bf16, parse_quantization(name), true);
  }
  expect_all({2, 3, 256}, Format::bf16, nvfp4(), true);
  expect_all({3, 384}, Format::f16, parse_quantization("fp8_1x128"), true);
  expect_all({3, 384}, Format::f16, parse_quantization("fp8_row"), true);
}

// Rows of one matrix and of several, whose scales stand in tiles of 128 rows.
TEST_P(FusedQuantizeOnDevice, ScalesInTiles) {
  for (const Shape& shape : {Shape{130, 96}, Shape{2, 5, 96}}) {
    expect_all(shape, Format::bf16, nvfp4(ScaleLayout::tiled_128x4), true);
    expect_all(shape, Format::bf16, nvfp4(ScaleLayout::tiled_8x4), true);
  }
}

// Up to eight pieces a thread, in each kernel for a count of them; the last ones of a row partly.
TEST_P(FusedQuantizeOnDevice, LongRows) {
  for (const int64_t columns : {4096 + 128, 8192 + 256, 32768}) {
    expect_all({2, columns}, Format::bf16, parse_quantization("fp8_row"), true);
    expect_all({2, columns}, Format::bf16, parse_quantization("mxfp8"), true);
  }
}

// A thread in place of two.
TEST_P(FusedQuantizeOnDevice, ManyRows) {
  expect_norms({520, 4096}, Format::bf16, parse_quantization("fp8_1x128"), true);
}

// A group with a NaN has codes of 0 and a scale of NaN; of a norm, the row is NaN.
TEST_P(FusedQuantizeOnDevice, NansStayInTheirGroups) {
  for (const char* name : {"mxfp8", "fp8_row", "int4_g128_asym"}) {
    expect_all({4, 256}, Format::bf16, parse_quantization(name), true, 300);
  }
}

// What no kernel makes at once: 32 bits, adaptive scales, groups that rows end within.
TEST_P(FusedQuantizeOnDevice, OthersByTwoKernels) {
  expect_all({3, 256}, Format::f32, parse_quantization("mxfp8"), false);
  expect_all({3, 256}, Format::bf16, parse_quantization("mxfp4_adaptive"), false);
  expect_all({3, 264}, Format::bf16, parse_quantization("fp8_1x128"), false);
}

TEST_P(FusedQuantizeOnDevice, RowsWithoutElementsAndNoRows) {
  for (const char* name : {"fp8_row", "mxfp8"}) {
    const QuantizeOptions o = parse_quantization(name);
    for (const Shape& shape : {Shape{0, 64}, Shape{3, 0}}) {
      SCOPED_TRACE(std::string(name) + " " + to_string(shape));
      Stream s = stream();
      const Tensor x = Tensor::empty(shape, Format::bf16, device);
      EXPECT_EQ(activation_quantize(x, {}, o, s).numel(), 0);
      EXPECT_EQ(gated_quantize(x, x, {}, o, s).numel(), 0);
      if (shape[1] == 0) continue;
      const Tensor weight = Tensor::empty({shape[1]}, Format::bf16, device);
      EXPECT_EQ(rms_norm_quantize(x, weight, 1e-5f, o, s).numel(), 0);
    }
  }
}

// A host's pointer must not reach a kernel.
TEST_P(FusedQuantizeOnDevice, OperandsOfOtherDevicesAreAnError) {
  const QuantizeOptions o = parse_quantization("mxfp8");
  const Tensor here = test::random_tensor({3, 64}, Format::bf16, 1), there = here.to(device);
  Tensor q = empty_quantized(here.shape(), o).to(device);
  Stream s = stream();
  test::expect_error([&] { gated_quantize(there, here, {}, o, s); },
                     {"gated_quantize: up is on cpu", device.name()});
  test::expect_error([&] { activation_quantize_into(here, {}, o, q, s); },
                     {"activation_quantize: x is on cpu", device.name()});
  const Tensor weight = here.slice(0, 0, 1).reshape({64});
  test::expect_error(
      [&] {
        norm_quantize_into({}, {there, weight, {}, {}}, o, q, s);
      },
      {"weight is on cpu", device.name()});
  Tensor residual = here;
  test::expect_error([&] { rms_norm_residual_quantize(there, residual, {}, 1e-5f, o, s); },
                     {"residual is on cpu", device.name()});
}

TEST_P(FusedQuantizeOnDevice, RandomProblems) {
  constexpr const char* kNames[] = {"mxfp8", "mxfp4",     "fp8_1x128",     "fp8_row",
                                    "int8",  "int4_g128", "int4_g128_asym"};
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const QuantizeOptions o =
        draw.one_in(4) ? nvfp4(draw.of(std::array{ScaleLayout::linear, ScaleLayout::tiled_128x4}))
                       : parse_quantization(draw.of(kNames));
    int64_t columns = 16 * draw.extent(300);
    const int64_t rows = draw.extent(100);
    if (!can_quantize({rows, columns}, o).ok) columns = (columns + 127) / 128 * 128;
    const Format format = draw.plain_format();
    const Tensor x = random({rows, columns}, format, 4 * seed);
    const Tensor weight = random({columns}, format, 4 * seed + 1);
    SCOPED_TRACE(to_string(o) + " of " + to_string(x));
    Stream s = stream();
    if (draw.one_in(2)) {
      return expect_quantised(rms_norm_quantize(x, weight, 1e-5f, o, s),
                              rms_norm(x, weight, 1e-5f, s), o);
    }
    const bool pairs = draw.one_in(2);
    const Tensor gate = pairs ? random({rows, 2 * columns}, format, 4 * seed + 2) : x;
    const Tensor up = pairs ? Tensor() : random({rows, columns}, format, 4 * seed + 3);
    GatedActivation function = GatedActivation::swiglu();
    if (draw.one_in(2)) function.limit = 1, function.up_offset = 1;
    expect_quantised(gated_quantize(gate, up, function, o, s), gated(gate, up, function, s), o);
  });
}

TEST_P(FusedQuantizeOnDevice, SameBitsInAnyOrder) {
  const Tensor x = test::random_tensor({9, 512}, Format::bf16, 1).to(device);
  const Tensor up = test::random_tensor({9, 512}, Format::bf16, 2).to(device);
  const Tensor weight = test::random_tensor({512}, Format::bf16, 3).to(device);
  for (const char* name : {"fp8_row", "mxfp8"}) {
    const QuantizeOptions o = parse_quantization(name);
    Tensor q = empty_quantized(x.shape(), o).to(device);
    const Tensor codes = Tensor::view(q.data(), q.shape(), Format::int8, device);
    expect_any_order(codes, [&](Stream& s) {
      norm_quantize_into({}, {x, weight, {}, {}}, o, q, s);
    });
    expect_any_order(codes, [&](Stream& s) { gated_quantize_into(x, up, {}, o, q, s); });
  }
}

HALFTONE_ON_DEVICES(FusedQuantizeOnDevice);

}  // namespace
}  // namespace halftone
