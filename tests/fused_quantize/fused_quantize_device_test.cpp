// The fused operations on GPUs: the operation there, then the CPU's quantisation, bit for bit.
#include "halftone/activation.h"
#include "halftone/fused_quantize.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class FusedQuantizeOnDevice : public OnDevice {
 protected:
  static void expect_quantised(const Tensor& there, const Tensor& result,
                               const QuantizeOptions& options) {
    const Tensor y = there.to(Device::cpu());
    const Tensor expected = quantize(result.to(Device::cpu()), options);
    EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), y.format()),
                          Tensor::view(expected.data(), y.shape(), y.format())));
    EXPECT_TRUE(same_bits(y.scales(), expected.scales()));
  }
};

TEST_P(FusedQuantizeOnDevice, EqualsTheSeparateOperations) {
  QuantizeOptions nvfp4(Format::nvfp4);
  nvfp4.tensor_scale = 0.01f;
  nvfp4.scaling.layout = ScaleLayout::tiled_128x4;
  for (const QuantizeOptions& o :
       {nvfp4, QuantizeOptions(Format::mxfp8), parse_quantization("fp8_1x128"),
        parse_quantization("mxfp4_adaptive")}) {
    SCOPED_TRACE(to_string(o));
    Stream s = stream();
    const Tensor x = test::random_tensor({2, 3, 256}, Format::bf16, 1).to(device);
    const Tensor up = test::random_tensor({2, 3, 256}, Format::bf16, 2).to(device);
    const Tensor weight = test::random_tensor({256}, Format::bf16, 3).to(device);
    expect_quantised(rms_norm_quantize(x, weight, 1e-5f, o, s), rms_norm(x, weight, 1e-5f, s), o);
    expect_quantised(gated_quantize(x, up, GatedActivation::swiglu(), o, s),
                     gated(x, up, GatedActivation::swiglu(), s), o);
    const ActivationFunction gelu{.kind = Activation::gelu_erf};
    expect_quantised(activation_quantize(x, gelu, o, s), activation(x, gelu, s), o);
    Tensor residual = up.to(Device::cpu()).contiguous_copy().to(device);
    Tensor again = up.to(Device::cpu()).contiguous_copy().to(device);
    const Tensor y = rms_norm_residual_quantize(x, residual, weight, 1e-5f, o, s);
    expect_quantised(y, rms_norm_residual(x, again, weight, 1e-5f, s), o);
    EXPECT_TRUE(same_bits(residual.to(Device::cpu()), again.to(Device::cpu())));
  }
}

HALFTONE_ON_DEVICES(FusedQuantizeOnDevice);

}  // namespace
}  // namespace halftone
