// Random operands of the benchmarks of a GPU.
#pragma once
#include <functional>
#include <string>

#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// N(0, 1) in f32, on the host.
Tensor normal_data(const Shape&, uint64_t seed);
// The same in bf16 on the stream's device, of any size.
Tensor normal_on_device(const Shape&, uint64_t seed, Stream&);
// `normal`, bf16 on a device, in the format of a name: f32, f16, bf16, or of quantization_names().
// Other memory every time.
Tensor in_format(const Tensor& normal, const std::string& name, Stream&);

// How `codes`, which attention_operand, or of `values` attention_values, or quantize made of x [1,
// tokens, heads, head_dim], are made again in their memory, without allocating. The stream must
// outlive it.
std::function<void()> quantise_again(const Tensor& x, const Tensor& codes, int64_t scale_tokens,
                                     bool values, Stream&);

}  // namespace halftone
