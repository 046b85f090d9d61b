// Convolution kernels: one per CPU ISA level, and that of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "halftone/activation_function.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;

// The steps of one image: convert x to FP32, pack the weights, multiply. Strides in bytes.
struct Conv1dArgs {
  int64_t channels, groups, outputs, kernel, length, out_length;  // channels, outputs of a group
  int64_t stride, padding, dilation;

  const char* x;
  int64_t x_channel, x_step;
  Format x_format;
  // [channel][phase < stride][width]: element j is x[(j - lead) stride + phase], 0 outside, so that
  // a tap of consecutive outputs reads consecutive elements whatever the stride.
  float* expanded;
  int64_t width, lead;

  const char* weight;
  Format weight_format;
  float* packed;  // [group][tile of outputs][channel][tap][output of the tile]

  const char* bias;  // null: none
  Format bias_format;
  ActivationFunction activation;
  char* out;
  int64_t out_channel, out_step;
  Format out_format;
};
enum class Conv1dStep : uint8_t {
  expand,    // units: channels of x
  pack,      // units: tiles of outputs
  multiply,  // units: blocks of positions, within them blocks of tiles of outputs
};
// Block sizes of an ISA level; the host lays out the workspace and counts units with it.
struct Conv1dTile {
  int64_t outputs;           // of a unit of `pack`
  int64_t tiles, positions;  // of a unit of `multiply`: `tiles` units of `pack`, of one group
};
// With `tile` not null only fills it in, else does units [begin, end) of a step.
using Conv1dFunction = void (*)(const Conv1dArgs&, Conv1dStep, int64_t begin, int64_t end,
                                Conv1dTile* tile);
HALFTONE_DECLARE_LEVELS(void conv1d_units(const Conv1dArgs&, Conv1dStep, int64_t begin, int64_t end,
                                          Conv1dTile* tile))

// Strides in bytes from image to image; args has those of the first, without a workspace.
using Conv1dGpuFunction = void (*)(const Conv1dArgs&, int64_t batch, int64_t x_batch,
                                   int64_t out_batch, Stream&);
void conv1d_gpu(const Conv1dArgs&, int64_t batch, int64_t x_batch, int64_t out_batch, Stream&);

}  // namespace halftone
