// Transposition kernels of GPUs, host side: which instance takes a problem, and the launch.
#include "ops/transpose/gpu.cuh"
#include "base/message.h"
#include "hw/image.h"

namespace halftone {

namespace {

// Every address of both sides, or of lines of the source along its rows, or-ed into one word of
// bits.
int64_t addresses(const PermuteArgs& args) {
  auto all = static_cast<int64_t>(reinterpret_cast<uintptr_t>(args.x) |
                                  reinterpret_cast<uintptr_t>(args.out));
  for (int d = 0; d < args.outer; ++d) all |= args.x_stride[d] | args.out_stride[d];
  return all | args.out_row | (args.transposed ? args.x_column : args.x_row);
}

bool has_whole_pieces(const PermuteArgs& args) {
  return args.transposed &&
         (addresses(args) | args.rows * args.element | args.columns * args.element) % 16 == 0;
}

// Elements that stay contiguous move as wider ones.
PermuteArgs widened(PermuteArgs args) {
  while (!args.transposed && args.x_column == args.element && args.element < 16 &&
         (addresses(args) | args.columns * args.element) % (2 * args.element) == 0) {
    args.element *= 2, args.columns /= 2, args.x_column *= 2;
  }
  return args;
}

template <class Kernel>
void start(const char* name, const PermuteArgs& args, int64_t side, uint32_t shared_bytes,
           int64_t outer, Stream& stream) {
  const int64_t down = (args.rows + side - 1) / side, across = (args.columns + side - 1) / side;
  require(outer * down * across < int64_t{1} << 31, "permute: ", outer * down * across,
          " tiles; a GPU takes fewer than 2^31 at a time");
  launch(hw::image_of<Kernel>(name),
         {.grid = {static_cast<uint32_t>(outer * down * across), 1, 1},
          .block = {Kernel::kThreads, 1, 1},
          .shared_bytes = shared_bytes},
         PermuteParams{args, static_cast<uint32_t>(down), static_cast<uint32_t>(across)}, stream);
}

template <class T>
void transpose(const PermuteArgs& args, int64_t outer, Stream& stream) {
  using Kernel = TransposeGpu<T>;
  start<Kernel>("transpose", args, Kernel::kSide, Kernel::kSharedBytes, outer, stream);
}

}  // namespace

void permute_gpu(const PermuteArgs& args, int64_t outer, Stream& stream) {
  if (has_whole_pieces(args)) {
    if (args.element == 1) return transpose<uint8_t>(args, outer, stream);
    if (args.element == 2) return transpose<uint16_t>(args, outer, stream);
    if (args.element == 4) return transpose<uint32_t>(args, outer, stream);
    return transpose<uint64_t>(args, outer, stream);
  }
  const PermuteArgs wide = widened(args);
  start<PermuteGpu>("permute", wide, PermuteGpu::side(wide.element), PermuteGpu::shared_bytes(wide),
                    outer, stream);
}

}  // namespace halftone
