// Fused quantisation: norms, activations, rotations, smoothing and Walsh-Hadamard transforms whose
// result is quantised in the same pass over memory.
//
// The result is that of the operation in x's format followed by quantize(), bit for bit: what is
// quantised is rounded to that format first, in a tile in the cache. Options: any whose scales lie
// within rows (block_rows 1), every scale layout; nvfp4 needs QuantizeOptions::tensor_scale, as its
// own would need the whole result first.
#pragma once
#include "halftone/activation_function.h"
#include "halftone/norm.h"
#include "halftone/quantize.h"
#include "halftone/rope.h"

namespace halftone {

// x [..., columns], row-major; weight and bias [columns]. As rms_norm, layer_norm and their forms
// with a residual: residual += x in place, and the sum is normalised.
Tensor rms_norm_quantize(const Tensor& x, const Tensor& weight, float eps, const QuantizeOptions&,
                         Stream& = Stream::default_stream());
Tensor rms_norm_residual_quantize(const Tensor& x, Tensor& residual, const Tensor& weight,
                                  float eps, const QuantizeOptions&,
                                  Stream& = Stream::default_stream());
Tensor layer_norm_quantize(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                           const QuantizeOptions&, Stream& = Stream::default_stream());
Tensor layer_norm_residual_quantize(const Tensor& x, Tensor& residual, const Tensor& weight,
                                    const Tensor& bias, float eps, const QuantizeOptions&,
                                    Stream& = Stream::default_stream());

// As activation(x, function) of x [..., columns], row-major.
Tensor activation_quantize(const Tensor& x, const ActivationFunction&, const QuantizeOptions&,
                           Stream& = Stream::default_stream());
// As gated(gate, up, function): SwiGLU, GeGLU and their variants. gate, up [..., columns],
// row-major; with `up` undefined, gate is [..., 2 columns], interleaved.
Tensor gated_quantize(const Tensor& gate, const Tensor& up, const GatedActivation&,
                      const QuantizeOptions&, Stream& = Stream::default_stream());

// x [tokens, heads, head_dim] as rope() would rotate it; x stays as it is. With `hadamard` true, as
// hadamard() would transform the result.
Tensor rope_quantize(const Tensor& x, const Tensor& positions, const RopeOptions&,
                     const QuantizeOptions&, Stream& = Stream::default_stream(),
                     bool hadamard = false);
// As hadamard(x) of x [tokens, heads, head_dim] or [batch, length, heads, head_dim].
Tensor hadamard_quantize(const Tensor& x, const QuantizeOptions&,
                         Stream& = Stream::default_stream());
// Keys k [batch, keys, heads, head_dim] less their mean over the keys, which removes what all keys
// share and leaves the bits for the rest. Softmax is invariant to it: q . mean is equal along a
// row; LSE needs it added. The mean is rounded to f32, the difference to k's format.
Tensor smooth_quantize(const Tensor& k, const QuantizeOptions&, Stream& = Stream::default_stream());
Tensor key_mean(const Tensor& k,
                Stream& = Stream::default_stream());  // f32 [batch, heads, head_dim]

// The same into memory from empty_quantized. On CPUs no allocation but a tile a thread. On GPUs one
// kernel and no allocation, for rows of 16-bit elements whose scales are theirs or of groups of 16
// to 256 that divide them, found from the largest element; heads of 64 to 512 elements, a power of
// two; rows of norms up to 32768 elements, and those of gates with one scale as far as shared
// memory holds them. Elsewhere the result goes through memory that is allocated. Any norm;
// tensors.out is not used, rows and formats follow from the tensors.
void norm_quantize_into(NormProblem, const NormTensors&, const QuantizeOptions&, Tensor& out,
                        Stream& = Stream::default_stream());
void activation_quantize_into(const Tensor& x, const ActivationFunction&, const QuantizeOptions&,
                              Tensor& out, Stream& = Stream::default_stream());
// `plan`: of x's head_dim and format; its tokens and heads do not matter.
void rope_quantize_into(const RopePlan& plan, const Tensor& x, const Tensor& positions,
                        const QuantizeOptions&, Tensor& out, Stream& = Stream::default_stream(),
                        bool hadamard = false);
void hadamard_quantize_into(const Tensor& x, const QuantizeOptions&, Tensor& out,
                            Stream& = Stream::default_stream());
// mean: f32 [batch, heads, head_dim], row-major; key_mean(k), or another.
void smooth_quantize_into(const Tensor& k, const Tensor& mean, const QuantizeOptions&, Tensor& out,
                          Stream& = Stream::default_stream());
void gated_quantize_into(const Tensor& gate, const Tensor& up, const GatedActivation&,
                         const QuantizeOptions&, Tensor& out, Stream& = Stream::default_stream());

}  // namespace halftone
