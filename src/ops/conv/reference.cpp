// Convolution in FP64.
#include "base/message.h"
#include "halftone/activation.h"
#include "halftone/conv.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor conv1d_reference(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Conv1dOptions& options) {
  require(x.rank() == 3 && weight.rank() == 3, "conv1d_reference: x ", to_string(x.shape()),
          " and weight ", to_string(weight.shape()), " must have three dimensions");
  const Tensor in = convert(x, Format::f32), w = convert(weight, Format::f32);
  const Tensor b = bias.defined() ? convert(bias, Format::f32) : bias;
  Conv1dProblem p;
  p.length = x.size(2), p.kernel = weight.size(2);
  p.stride = options.stride, p.padding = options.padding, p.dilation = options.dilation;
  const int64_t outputs = weight.size(0), channels = weight.size(1), length = conv1d_length(p);
  Tensor out = Tensor::empty({x.size(0), outputs, length}, Format::f32);
  float* to = out.data<float>();
  for (int64_t image = 0; image < x.size(0); ++image) {
    for (int64_t o = 0; o < outputs; ++o) {
      const int64_t first = o / (outputs / options.groups) * channels;
      for (int64_t t = 0; t < length; ++t) {
        double sum = b.defined() ? b.data<float>()[o] : 0;
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t k = 0; k < p.kernel; ++k) {
            const int64_t at = t * p.stride + k * p.dilation - p.padding;
            if (at < 0 || at >= p.length) continue;
            sum += double{w.data<float>()[(o * channels + c) * p.kernel + k]} *
                   in.data<float>()[(image * x.size(1) + first + c) * p.length + at];
          }
        }
        *to++ = static_cast<float>(sum);
      }
    }
  }
  return options.activation.kind == Activation::identity
             ? out
             : activation_reference(out, options.activation);
}

}  // namespace halftone
