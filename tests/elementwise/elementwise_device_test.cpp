// Elementwise arithmetic, activations and gates on GPUs: the kernel of src/ops/map.
#include "halftone/elementwise.h"

#include <numeric>
#include <utility>

#include "activation/activation_bound.h"
#include "halftone/activation.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class MapOnDevice : public OnDevice {
 protected:
  static std::vector<float> host(const Tensor& t) { return test::to_floats(t.to(Device::cpu())); }
};

// Exact operations are rounded once; exp is within 2 ulp and log within 4, exp of 16-bit operands
// to 16 bits within 2^-16, and its argument's rounding counts up to 88 times.
double relative_error(Elementwise operation, bool half) {
  constexpr double kU = test::kF32Roundoff;
  if (operation == Elementwise::exp) return half ? 0x1p-15 : 4 * kU;
  if (operation == Elementwise::log) return 8 * kU;
  return operation == Elementwise::rsqrt ? 3 * kU : 2 * kU;
}

TEST_P(MapOnDevice, EveryOperationEqualsTheReference) {
  Stream s = stream();
  for (int i = 0; i < kElementwiseCount; ++i) {
    const auto operation = static_cast<Elementwise>(i);
    for (const Format format : test::kPlainFormats) {
      for (const int64_t columns : {1, 7, 64, 259}) {
        const Shape shape{3, columns};
        Tensor in[3], there[3];
        for (int k = 0; k < operand_count(operation); ++k) {
          in[k] = test::random_tensor(shape, format, static_cast<uint64_t>(k + 1));
          there[k] = in[k].to(device);
        }
        const ElementwiseOptions options{.alpha = 0.75f, .beta = -2};
        const Tensor y = elementwise(operation, there[0], there[1], there[2], options, s);
        const std::vector<float> reference =
            test::to_floats(elementwise_reference(operation, in[0], in[1], in[2], options));
        std::vector<double> bound;
        for (const float r : reference) {
          bound.push_back(
              test::rounded_bound(format, r, relative_error(operation, format != Format::f32)));
        }
        EXPECT_TRUE(test::within(host(y), reference, bound)) << name(operation) << to_string(y);
      }
    }
  }
}

TEST_P(MapOnDevice, MixedFormatsBroadcastAndStrides) {
  Stream s = stream();
  const Tensor a = test::random_tensor({5, 3, 40}, Format::bf16, 1);
  const Tensor row = test::random_tensor({40}, Format::f32, 2);
  const Tensor column = test::random_tensor({5, 1, 1}, Format::f16, 3);
  const Tensor expected =
      elementwise(Elementwise::multiply_add, a, row, column, {.out = Format::f32});
  EXPECT_TRUE(test::same_bits(elementwise(Elementwise::multiply_add, a.to(device), row.to(device),
                                          column.to(device), {.out = Format::f32}, s)
                                  .to(Device::cpu()),
                              expected));
  // A transposed operand, and one that is a column of a wider matrix.
  const Tensor m = test::random_tensor({33, 20}, Format::f32, 4), n = m.to(device);
  EXPECT_TRUE(test::same_bits(add(n.transpose(0, 1), n.transpose(0, 1), s).to(Device::cpu()),
                              add(m.transpose(0, 1), m.transpose(0, 1))));
  EXPECT_TRUE(test::same_bits(multiply(n.slice(1, 3, 12), n.slice(1, 4, 13), s).to(Device::cpu()),
                              multiply(m.slice(1, 3, 12), m.slice(1, 4, 13))));
  s.synchronize();
}

TEST_P(MapOnDevice, ActivationsEqualTheReference) {
  Stream s = stream();
  for (const ActivationFunction& f : test::activation_functions()) {
    for (const Format format : test::kPlainFormats) {
      for (const test::Data data : {test::Data::normal, test::Data::outliers, test::Data::tiny}) {
        const Tensor x = test::random_tensor({259}, format, 5, data);
        const std::vector<float> reference = test::to_floats(activation_reference(x, f));
        EXPECT_TRUE(test::within(host(activation(x.to(device), f, s)), reference,
                                 test::activation_bounds(x, reference, f, format)))
            << name(f.kind) << " of " << to_string(x);
      }
    }
  }
}

TEST_P(MapOnDevice, GeluOfEveryNumberOfSixteenBits) {
  const ActivationFunction f{.kind = Activation::gelu_erf};
  Stream s = stream();
  for (const Format format : {Format::bf16, Format::f16}) {
    std::vector<uint16_t> codes(65536);
    std::iota(codes.begin(), codes.end(), uint16_t{0});
    const Tensor all = Tensor::copy_of(codes.data(), 2 * codes.size(), {65536}, format);
    const Tensor exact = Tensor::from<float>(test::to_floats(all), {65536}, Format::f32);
    for (const Tensor& x : {all, exact}) {
      const std::vector<float> reference = test::to_floats(activation_reference(x, f));
      EXPECT_TRUE(test::within(host(activation(x.to(device), f, s)), reference,
                               test::activation_bounds(x, reference, f, x.format())))
          << to_string(x);
    }
  }
}

TEST_P(MapOnDevice, ActivationsOfSpecialValues) {
  Stream s = stream();
  const Tensor x =
      Tensor::from({NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, 100, -100, 88.8f}, {9});
  for (const ActivationFunction& f : test::activation_functions()) {
    const std::vector<float> reference = test::to_floats(activation_reference(x, f));
    EXPECT_TRUE(test::within(host(activation(x.to(device), f, s)), reference,
                             test::activation_bounds(x, reference, f, Format::f32)))
        << name(f.kind);
  }
}

TEST_P(MapOnDevice, GatesEqualTheCpu) {
  Stream s = stream();
  for (const GatedActivation& g :
       {GatedActivation::swiglu(), GatedActivation::geglu_erf(), GatedActivation::gpt_oss()}) {
    for (const Format format : test::kPlainFormats) {
      const Tensor gate = test::random_tensor({3, 200}, format, 6, test::Data::outliers);
      const Tensor up = test::random_tensor({3, 200}, format, 7);
      const std::vector<float> reference = test::to_floats(gated_reference(gate, up, g));
      std::vector<double> bound;  // the activation's 2^-14 or 200 u, then two more roundings
      for (const float r : reference) {
        const double error = format == Format::f32 ? 200 * test::kF32Roundoff : 0x1p-13;
        bound.push_back(test::rounded_bound(format, r, error) + 0x1p-119);
      }
      EXPECT_TRUE(
          test::within(host(gated(gate.to(device), up.to(device), g, s)), reference, bound));
      // Interleaved pairs, and unaligned rows.
      const Tensor pairs = test::random_tensor({3, 202}, format, 8);
      const Tensor y = gated(pairs.to(device), {}, g, s);
      const std::vector<float> paired = test::to_floats(gated_reference(pairs, {}, g));
      bound.clear();
      for (const float r : paired) {
        const double error = format == Format::f32 ? 200 * test::kF32Roundoff : 0x1p-13;
        bound.push_back(test::rounded_bound(format, r, error) + 0x1p-119);
      }
      EXPECT_TRUE(test::within(host(y), paired, bound));
    }
  }
}

TEST_P(MapOnDevice, SameBitsInAnyOrder) {
  const Tensor x = test::random_tensor({3000}, Format::f16, 9).to(device);
  const Tensor out = Tensor::empty({3000}, Format::f32, device);
  const ActivationPlan p = plan(
      ActivationProblem{{3000}, {.kind = Activation::gelu_erf}, Format::f16, Format::f32}, device);
  expect_any_order(out, [&](Stream& s) { run(p, {x, out}, s); });
}

TEST_P(MapOnDevice, TheBoundSeesSmallErrors) {
  const Tensor x = test::random_tensor({64}, Format::f32, 10);
  const ActivationFunction f{.kind = Activation::gelu_erf};
  const std::vector<float> reference = test::to_floats(activation_reference(x, f));
  const std::vector<double> bound = test::activation_bounds(x, reference, f, Format::f32);
  Stream s = stream();
  std::vector<float> y = host(activation(x.to(device), f, s));
  EXPECT_TRUE(test::within(y, reference, bound));
  std::swap(y[3], y[4]);
  EXPECT_FALSE(test::within(y, reference, bound));
  EXPECT_FALSE(test::within(host(activation(x.to(device), {.kind = Activation::gelu_tanh}, s)),
                            reference, bound));
}

TEST_P(MapOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const auto operation = static_cast<Elementwise>(draw.below(kElementwiseCount));
    const Shape shape{draw.extent(9), draw.extent(9), draw.extent(3000)};
    const Format out = draw.plain_format();
    Tensor in[3], there[3];
    for (int k = 0; k < operand_count(operation); ++k) {
      Shape own = shape;  // broadcast, where one of the operands has the whole shape
      for (int axis = 0; k > 0 && axis < 3; ++axis) {
        if (draw.one_in(3)) own[axis] = 1;
      }
      in[k] = test::random_tensor(own, draw.plain_format(), seed + 1000 * static_cast<uint64_t>(k));
      there[k] = in[k].to(device);
    }
    ElementwiseOptions options{.alpha = 0.75f, .beta = -2};
    options.out = out;
    Stream s = stream();
    const Tensor y = elementwise(operation, there[0], there[1], there[2], options, s);
    std::vector<float> reference =
        test::to_floats(elementwise_reference(operation, in[0], in[1], in[2], options));
    for (float& r : reference) {
      if (out == Format::f16 && std::abs(r) >= 65520) r = std::copysign(INFINITY, r);
    }
    std::vector<double> bound;
    for (float& r : reference) {
      // Beyond f16 there is infinity.
      if (out == Format::f16 && std::abs(r) >= 65520) r = std::copysign(INFINITY, r);
      bound.push_back(test::rounded_bound(out, r, relative_error(operation, out != Format::f32)));
    }
    EXPECT_TRUE(test::within(host(y), reference, bound)) << name(operation) << to_string(y);
  });
}

TEST_P(MapOnDevice, RandomActivations) {
  const std::vector<ActivationFunction> functions = test::activation_functions();
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const ActivationFunction f = draw.of(functions);
    const Format format = draw.plain_format();
    const test::Data data = draw.one_in(2) ? test::Data::outliers : test::Data::normal;
    const Tensor x = test::random_tensor({draw.extent(40), draw.extent(900)}, format, seed, data);
    Stream s = stream();
    const std::vector<float> reference = test::to_floats(activation_reference(x, f));
    EXPECT_TRUE(test::within(host(activation(x.to(device), f, s)), reference,
                             test::activation_bounds(x, reference, f, format)))
        << name(f.kind) << " of " << to_string(x);
  });
}

HALFTONE_ON_DEVICES(MapOnDevice);

}  // namespace
}  // namespace halftone
