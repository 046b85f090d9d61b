#include "formats/gpu.cuh"

#include <algorithm>

#include "hw/image.h"

namespace halftone {

namespace {

template <bool kConvert>
void quantize_with(const QuantizeArgs& args, Stream& stream) {
  const int64_t high = args.block_rows > 0 ? args.block_rows : args.rows;
  const int64_t wide = args.recipe.group > 0 ? args.recipe.group : args.columns;
  const int64_t down = (args.rows + high - 1) / high;
  const int64_t across = (args.columns + wide - 1) / wide;
  // A thread to each eight elements of a block, as far as they go.
  const int64_t eights = std::min(high, args.rows) * ((std::min(wide, args.columns) + 7) / 8);
  uint32_t threads = 1;
  while (threads < pipe::kMostRowThreads && threads < eights) threads *= 2;
  launch(hw::image_of<QuantizeGpu<kConvert>>("quantize", kConvert ? Arch::sm_89 : Arch::sm_80),
         pipe::RowThreads::shape(args.matrices * down * across, threads),
         typename QuantizeGpu<kConvert>::Params{args, fault_reporter(stream.device()), down, across,
                                                threads},
         stream);
}

}  // namespace

void quantize_gpu(const QuantizeArgs& args, Stream& stream) {
  if (args.matrices * args.rows * args.columns == 0) return;
  stream.device().arch() >= Arch::sm_89 ? quantize_with<true>(args, stream)
                                        : quantize_with<false>(args, stream);
}

void amax_gpu(const QuantizeArgs& args, uint32_t* largest, Stream& stream) {
  const int64_t eights = args.matrices * args.rows * ((args.columns + 7) / 8);
  // As many blocks as are resident at a time: each ends with one atomic operation.
  const int64_t most = properties(stream.device()).sm_count * 8;
  const int64_t blocks = std::clamp<int64_t>(eights / AmaxGpu::kThreads, 1, most);
  launch(hw::image_of<AmaxGpu>("amax"),
         {.grid = {static_cast<uint32_t>(blocks), 1, 1},
          .block = {AmaxGpu::kThreads, 1, 1},
          .shared_bytes = pipe::RowThreads::kSharedBytes},
         AmaxGpu::Params{args, largest}, stream);
}

void dequantize_gpu(const DequantizeArgs& args, Stream& stream) {
  if (args.matrices * args.rows * args.columns == 0) return;
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(hw::image_of<DequantizeGpu>("dequantize"),
         pipe::RowThreads::shape(args.matrices * args.rows, threads),
         DequantizeGpu::Params{args, threads}, stream);
}

}  // namespace halftone
