// Random operands of the benchmarks of a GPU.
#pragma once
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

}  // namespace halftone
