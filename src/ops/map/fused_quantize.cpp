// Fused activation or gate and quantisation, host side.
#include <algorithm>

#include "hw/image.h"
#include "ops/map/fused_quantize.cuh"

namespace halftone {

namespace {

template <pipe::Access kAccess, bool kConvert>
KernelImage image_of_quantize(const MapArgs& args, Arch arch) {
  return args.operands == 1
             ? hw::image_of<MapQuantizeGpu<kAccess, 1, kConvert>>("map_quantize", arch)
             : hw::image_of<MapQuantizeGpu<kAccess, 2, kConvert>>("map_quantize", arch);
}
template <bool kConvert>
KernelImage image_of_quantize(const MapArgs& args, Format format, Arch arch) {
  return format == Format::f16 ? image_of_quantize<pipe::Access::f16, kConvert>(args, arch)
                               : image_of_quantize<pipe::Access::bf16, kConvert>(args, arch);
}

}  // namespace

bool map_quantize_gpu(const MapArgs& args, bool interleaved, Format format, const QuantizeArgs& to,
                      Stream& stream) {
  MapQuantizeParams p;
  if (!take_row_codes(to, format, stream, &p.codes)) return false;
  uintptr_t all = 0;
  for (int k = 0; k < args.operands; ++k) all |= reinterpret_cast<uintptr_t>(args.in[k].base);
  if (all % 16 != 0) return false;
  p.args = args, p.interleaved = interleaved;
  const int64_t rows = to.matrices * to.rows;
  p.count = rows * to.columns;
  if (p.count == 0) return true;
  constexpr int64_t kEach = 16;  // elements of a thread at a time
  constexpr uint32_t kMost = MapQuantizeGpu<pipe::Access::bf16, 2, false>::kThreads;
  const DeviceProperties& device = properties(stream.device());
  if (p.codes.lanes == 0) {
    p.run = to.columns;
    p.row_threads = std::min(pipe::threads_of_row(p.run), kMost);
  } else {
    // Segments of whole warps keep groups whole; half a CTA where there is little to do.
    p.row_threads = p.count < kEach * kMost * device.sm_count ? kMost / 2 : kMost;
    p.run = kEach * p.row_threads;
  }
  p.runs = (p.count + p.run - 1) / p.run;
  p.steps = static_cast<uint32_t>((p.run + kEach * p.row_threads - 1) / (kEach * p.row_threads));
  LaunchShape shape = pipe::RowThreads::shape(p.runs, p.row_threads);
  using Codes = RowCodes<pipe::Access::bf16, false>;
  const int64_t kept = int64_t{32} * p.steps * shape.block.x;
  if (Codes::kShared + kept > device.shared_per_block) return false;
  shape.shared_bytes = Codes::kShared + static_cast<uint32_t>(kept);
  launch(stream.device().arch() >= Arch::sm_89
             ? image_of_quantize<true>(args, format, Arch::sm_89)
             : image_of_quantize<false>(args, format, Arch::sm_80),
         with_pdl(shape, stream), p, stream);
  return true;
}

}  // namespace halftone
