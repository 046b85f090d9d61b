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

// Every frequency divided by `factor` ("linear", position interpolation).
struct LinearScaling {
  double factor = 1;
};
// A larger theta for sequences beyond the trained length ("dynamic", NTK-aware):
// theta (factor length / original - (factor - 1))^(d / (d - 2)). Depends on the sequence's length.
struct DynamicNtkScaling {
  double factor = 1;
  int64_t original_max_position = 2048;
};
// "yarn" (arXiv 2309.00071): frequencies that turn more than beta_fast times within the trained
// length stay, those below beta_slow are divided by `factor`, between them a linear ramp over
// pairs.
struct YarnScaling {
  double factor = 1;
  int64_t original_max_position = 4096;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // the ramp's ends are rounded outwards to whole pairs
  // Magnitude of the rotation. Absent: (0.1 mscale ln factor + 1) / (0.1 mscale_all_dim ln factor +
  // 1) where both are positive, else 0.1 ln factor + 1.
  std::optional<double> attention_factor = std::nullopt;
  double mscale = 0, mscale_all_dim = 0;
};
// "longrope" (arXiv 2402.13753): frequency i divided by short_factor[i], or by long_factor[i] where
// the sequence exceeds the trained length. Depends on the sequence's length.
struct LongRopeScaling {
  std::vector<double> short_factor, long_factor;  // rotary_dim / 2 each
  double factor = 1;
  int64_t original_max_position = 4096;
  // Absent: sqrt(1 + ln factor / ln original_max_position) for a factor above 1, else 1.
  std::optional<double> attention_factor = std::nullopt;
};

struct RopeOptions {
  RopeStyle style = RopeStyle::half_split;
  double theta = 10000;
  int64_t rotary_dim = 0;  // leading part of head_dim that rotates; 0: all of it
  // At most one of these.
  std::optional<Llama3Scaling> llama3;
  std::optional<LinearScaling> linear;
  std::optional<DynamicNtkScaling> dynamic;
  std::optional<YarnScaling> yarn;
  std::optional<LongRopeScaling> longrope;
};

// Angle per token of pair i, i < rotary_dim / 2: theta^(-2i/rotary_dim), scaled. `length` is that
// of the sequence, for the scalings that depend on it; 0 stands for one within the trained length.
std::vector<double> rope_frequencies(const RopeOptions&, int64_t head_dim, int64_t length = 0);
// What the rotated vectors are multiplied by: 1 but for yarn and longrope.
double rope_magnitude(const RopeOptions&);
bool depends_on_length(const RopeOptions&);  // dynamic and longrope

struct RopeProblem {
  int64_t tokens = 0, heads = 0, head_dim = 0;
  Format format = Format::bf16;  // f32, f16, bf16
  RopeOptions options{};
  int64_t length = 0;  // as in rope_frequencies
};
struct RopeTensors {
  Tensor x;  // [tokens, heads, head_dim], any strides but the last; rotated in place
  // i32 or i64 [tokens], 0 to 2^31. On a GPU a token with another one stays as it is, and the next
  // Stream::synchronize throws the Error.
  Tensor positions;
};
struct RopeKernel;
struct RopePlan {
  RopeProblem problem;
  Device device;
  const RopeKernel* kernel = nullptr;
  std::vector<double> frequencies;
  float magnitude = 1;
  Tensor on_device;  // of a GPU: the frequencies, as bytes
};
std::string describe(const RopePlan&);
Support can_run(const RopeProblem&, const Device&);
RopePlan plan(const RopeProblem&, const Device&);
// Angles are reduced in double: positions to 2^31 keep f32 accuracy.
void run(const RopePlan&, const RopeTensors&, Stream&);

// Where the scaling depends on the sequence's length, these take the largest position plus 1.
void rope(Tensor& x, const Tensor& positions, const RopeOptions&,
          Stream& = Stream::default_stream());
Tensor rope_reference(const Tensor& x, const Tensor& positions, const RopeOptions&);

}  // namespace halftone
