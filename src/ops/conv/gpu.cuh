// Direct 1D convolution for every GPU: a thread has a position of an output channel; the threads of
// a CTA share the channel's weights through the cache and read neighbouring positions of x.
#pragma once
#include "base/launch.h"
#include "hw/thread.h"
#include "ops/conv/kernels.h"
#include "pipe/activate.h"
#include "pipe/elements.h"

namespace halftone {

struct Conv1dGpu {
  struct Params {
    Conv1dArgs args;  // of all images; without a workspace
    int64_t batch, x_batch, out_batch;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;

  HT_DEVICE static void run(const Params& p) {
    const Conv1dArgs& args = p.args;
    const int64_t position = int64_t{hw::block_index().x} * kThreads + hw::thread_index().x;
    if (position >= args.out_length) return;
    const int64_t output = hw::block_index().y, image = hw::block_index().z;
    const int64_t group = output / args.outputs;
    const char* x = args.x + image * p.x_batch + group * args.channels * args.x_channel;
    const char* weight =
        args.weight + output * args.channels * args.kernel * pipe::bytes_of(args.weight_format);
    const int64_t begin = position * args.stride - args.padding;
    // As on the CPU: sums of 64 terms, then their sum.
    float total = 0, sum = 0;
    uint32_t terms = 0;
    for (int64_t c = 0; c < args.channels; ++c) {
      for (int64_t k = 0; k < args.kernel; ++k) {
        const int64_t at = begin + k * args.dilation;
        const float w = pipe::load_element(args.weight_format, weight);
        weight += pipe::bytes_of(args.weight_format);
        if (at >= 0 && at < args.length) {
          sum = hw::fma(w, pipe::load_element(args.x_format, x + at * args.x_step), sum);
        }
        if (++terms % 64 == 0) total += sum, sum = 0;
      }
      x += args.x_channel;
    }
    float y[1] = {total + sum};
    if (args.bias != nullptr) {
      y[0] += pipe::load_element(args.bias_format,
                                 args.bias + output * pipe::bytes_of(args.bias_format));
    }
    pipe::activate<false>(args.activation, y);
    pipe::store_element(
        args.out_format,
        args.out + image * p.out_batch + output * args.out_channel + position * args.out_step,
        y[0]);
  }
};

}  // namespace halftone
