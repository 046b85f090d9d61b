// Activations of one operand, and gated ones of two (SwiGLU, GeGLU and their clamped variants).
#pragma once
#include "halftone/activation_function.h"
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// --- out = f(x) ----------------------------------------------------------------------------------

struct ActivationProblem {
  Shape shape;
  ActivationFunction function = {};
  Format x = Format::bf16, out = Format::bf16;  // f32, f16, bf16
};
struct ActivationTensors {
  Tensor x, out;  // any strides; out may be x
};
struct MapKernel;
struct ActivationPlan {
  ActivationProblem problem;
  Device device;
  const MapKernel* kernel = nullptr;
};
std::string describe(const ActivationPlan&);
Support can_run(const ActivationProblem&, const Device&);
ActivationPlan plan(const ActivationProblem&, const Device&);
// Computed in f32 and rounded once. Before that rounding the result is within a few units of 2^-24
// of the function when x or out is f32, and within 2^-14 of itself when both have 16 bits.
void run(const ActivationPlan&, const ActivationTensors&, Stream&);
Tensor activation(const Tensor& x, const ActivationFunction&, Stream& = Stream::default_stream());
Tensor activation_reference(const Tensor& x, const ActivationFunction&);  // FP64 -> f32

// --- out = f(gate) * up --------------------------------------------------------------------------

struct GatedProblem {
  int64_t rows = 0, columns = 0;  // of the output
  Format format = Format::bf16;   // f32, f16, bf16
  GatedActivation function = {};
  bool interleaved = false;  // `gate` is [rows, 2 columns]: gate, up, gate, up, ...; no `up`
};
struct GatedTensors {
  Tensor gate, up, out;  // [rows, columns], any strides; out may be gate or up
};
struct GatedPlan {
  GatedProblem problem;
  Device device;
  const MapKernel* kernel = nullptr;
};
std::string describe(const GatedPlan&);
Support can_run(const GatedProblem&, const Device&);
GatedPlan plan(const GatedProblem&, const Device&);
// The function as GatedActivation states it; precision as of activations.
void run(const GatedPlan&, const GatedTensors&, Stream&);

// gate, up: [..., columns]. With `up` undefined, gate is [..., 2 columns], interleaved.
Tensor gated(const Tensor& gate, const Tensor& up, const GatedActivation&,
             Stream& = Stream::default_stream());
Tensor gated_reference(const Tensor& gate, const Tensor& up, const GatedActivation&);

// The default gate: silu(gate) * up.
using SwigluProblem = GatedProblem;
using SwigluTensors = GatedTensors;
using SwigluPlan = GatedPlan;
Tensor swiglu(const Tensor& gate, const Tensor& up, Stream& = Stream::default_stream());
Tensor swiglu_reference(const Tensor& gate, const Tensor& up);  // FP64 -> f32

}  // namespace halftone
