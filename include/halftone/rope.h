// Rotary position embedding.
#pragma once
#include <optional>
#include <vector>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

enum class RopeStyle : uint8_t {
  half_split,   // pairs (i, i + D/2): Hugging Face weights
  interleaved,  // pairs (2i, 2i + 1): original Meta and llama2.c weights
};

// Frequency scaling of Llama 3.1 (rope_type "llama3"); wavelengths in tokens.
struct Llama3Scaling {
  double factor = 8, low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position = 8192;
};

struct RopeOptions {
  RopeStyle style = RopeStyle::half_split;
  double theta = 10000;
  int64_t rotary_dim = 0;  // leading part of head_dim that rotates; 0: all of it
  std::optional<Llama3Scaling> llama3;
};

// Angle per token of pair i, i < rotary_dim / 2: theta^(-2i/rotary_dim), scaled.
std::vector<double> rope_frequencies(const RopeOptions&, int64_t head_dim);

struct RopeProblem {
  int64_t tokens = 0, heads = 0, head_dim = 0;
  Format format = Format::bf16;  // f32, f16, bf16
  RopeOptions options{};
};
struct RopeTensors {
  Tensor x;          // [tokens, heads, head_dim], any strides but the last; rotated in place
  Tensor positions;  // i32 or i64 [tokens]
};
struct RopeKernel;
struct RopePlan {
  RopeProblem problem;
  Device device;
  const RopeKernel* kernel = nullptr;
  std::vector<double> frequencies;
};
std::string describe(const RopePlan&);
Support can_run(const RopeProblem&, const Device&);
RopePlan plan(const RopeProblem&, const Device&);
// Angles are reduced in double: positions to 2^31 keep f32 accuracy.
void run(const RopePlan&, const RopeTensors&, Stream&);

void rope(Tensor& x, const Tensor& positions, const RopeOptions&,
          Stream& = Stream::default_stream());
Tensor rope_reference(const Tensor& x, const Tensor& positions, const RopeOptions&);

}  // namespace halftone
