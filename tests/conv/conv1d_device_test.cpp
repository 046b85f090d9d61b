// Convolution on GPUs.
#include "conv/conv1d_bound.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class Conv1dOnDevice : public OnDevice {
 protected:
  void expect_conv(const Tensor& x, const Tensor& w, const Tensor& b,
                   const Conv1dOptions& o) const {
    Stream s = stream();
    const Tensor y = conv1d(x.to(device), w.to(device), b.defined() ? b.to(device) : b, o, s);
    const std::vector<float> reference = test::to_floats(conv1d_reference(x, w, b, o));
    EXPECT_TRUE(test::within(test::to_floats(y.to(Device::cpu())), reference,
                             test::conv1d_bounds(x, w, b, o, reference, y.format())))
        << to_string(x) << ", " << to_string(w) << ", stride " << o.stride << ", padding "
        << o.padding << ", dilation " << o.dilation << ", groups " << o.groups;
  }
};

TEST_P(Conv1dOnDevice, EqualsTheReference) {
  for (const Format format : test::kPlainFormats) {
    for (const int64_t length : {1, 7, 193}) {
      const Tensor x = test::random_tensor({2, 6, length}, format, 1);
      const Tensor w = test::random_tensor({4, 6, 3}, format, 2);
      const Tensor b = test::random_tensor({4}, Format::f32, 3);
      for (const int64_t stride : {1, 3}) {
        for (const int64_t dilation : {1, 2}) {
          expect_conv(x, w, b, {stride, 4, dilation, 1, {.kind = Activation::identity}});
        }
      }
      expect_conv(x, test::random_tensor({4, 3, 5}, format, 4), {},
                  {1, 2, 1, 2, {.kind = Activation::gelu_erf}});
    }
  }
  // More terms than one sum of 64.
  expect_conv(test::random_tensor({1, 50, 20}, Format::bf16, 5),
              test::random_tensor({2, 50, 3}, Format::bf16, 6), {}, {.padding = 1});
}

TEST_P(Conv1dOnDevice, TheBoundSeesATapLeftOut) {
  const Tensor x = test::random_tensor({1, 8, 40}, Format::f32, 7);
  const Tensor w = test::random_tensor({3, 8, 3}, Format::f32, 8);
  const Conv1dOptions o{.padding = 1};
  const std::vector<float> reference = test::to_floats(conv1d_reference(x, w, {}, o));
  const std::vector<double> bound = test::conv1d_bounds(x, w, {}, o, reference, Format::f32);
  const Tensor less = w.contiguous_copy();
  less.data<float>()[5] = 0;
  Stream s = stream();
  const auto on_device = [&](const Tensor& weight) {
    return test::to_floats(conv1d(x.to(device), weight.to(device), {}, o, s).to(Device::cpu()));
  };
  EXPECT_TRUE(test::within(on_device(w), reference, bound));
  EXPECT_FALSE(test::within(on_device(less), reference, bound));
}

TEST_P(Conv1dOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const int64_t groups = draw.one_in(3) ? 1 + draw.below(4) : 1, taps = 1 + draw.below(7);
    const int64_t in = groups * draw.extent(24), out = groups * draw.extent(12);
    Conv1dOptions o{1 + draw.below(4), draw.below(9), 1 + draw.below(3), groups, {}};
    o.activation.kind = draw.one_in(3) ? Activation::gelu_erf : Activation::identity;
    const int64_t window = (taps - 1) * o.dilation + 1;
    const int64_t length = std::max(window - 2 * o.padding, int64_t{0}) + draw.extent(150);
    const Format format = draw.plain_format();
    expect_conv(test::random_tensor({draw.extent(3), in, length}, format, seed),
                test::random_tensor({out, in / groups, taps}, format, seed + 5000),
                draw.one_in(2) ? test::random_tensor({out}, Format::f32, seed + 6000) : Tensor(),
                o);
  });
}

HALFTONE_ON_DEVICES(Conv1dOnDevice);

}  // namespace
}  // namespace halftone
