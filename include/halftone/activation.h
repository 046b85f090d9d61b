// Gated activations.
#pragma once
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct SwigluProblem {
  int64_t rows = 0, columns = 0;  // of the output
  Format format = Format::bf16;   // f32, f16, bf16
};
struct SwigluTensors {
  Tensor gate, up, out;  // [rows, columns], any row stride; out may be gate or up
};
struct SwigluKernel;
struct SwigluPlan {
  SwigluProblem problem;
  Device device;
  const SwigluKernel* kernel = nullptr;
};
std::string describe(const SwigluPlan&);
Support can_run(const SwigluProblem&, const Device&);
SwigluPlan plan(const SwigluProblem&, const Device&);
// out = silu(gate) * up, silu(x) = x / (1 + exp(-x)), computed in f32.
void run(const SwigluPlan&, const SwigluTensors&, Stream&);

Tensor swiglu(const Tensor& gate, const Tensor& up, Stream& = Stream::default_stream());
Tensor swiglu_reference(const Tensor& gate, const Tensor& up);  // FP64 -> f32

}  // namespace halftone
