#include <cmath>

#include "base/message.h"
#include "halftone/activation.h"
#include "halftone/quantize.h"

namespace halftone {

Tensor swiglu_reference(const Tensor& gate, const Tensor& up) {
  require(gate.shape() == up.shape(), "swiglu_reference: gate has shape ", to_string(gate.shape()),
          ", up has shape ", to_string(up.shape()));
  const Tensor gates = convert(gate, Format::f32), ups = convert(up, Format::f32);
  Tensor out = Tensor::empty(gate.shape(), Format::f32);
  for (int64_t i = 0; i < gate.numel(); ++i) {
    const double g = gates.data<float>()[i];
    out.data<float>()[i] = static_cast<float>(g / (1 + std::exp(-g)) * ups.data<float>()[i]);
  }
  return out;
}

}  // namespace halftone
