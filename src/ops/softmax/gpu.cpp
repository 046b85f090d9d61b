// Softmax kernels of GPUs, host side: which instance takes a problem, and the launch.
#include <algorithm>

#include "hw/image.h"
#include "ops/softmax/gpu_persistent.cuh"

namespace halftone {

namespace {

template <SoftmaxShare kShare>
struct Share {
  static constexpr Arch kArch = kShare == SoftmaxShare::chunk ? Arch::sm_90a : Arch::sm_80;
  template <pipe::Access kAccess, bool kHalf>
  using Kernel = SoftmaxWholeGpu<kAccess, kHalf, kShare>;
};
template <uint32_t kGroups>
struct Ahead {
  static constexpr Arch kArch = Arch::sm_90a;
  template <pipe::Access kAccess, bool kHalf>
  using Kernel = SoftmaxPersistentGpu<kAccess, kHalf, kGroups>;
};

// The instance of a kernel template for two formats.
template <class Family, pipe::Access kAccess>
KernelImage image_of(Format out) {
  using Exact = typename Family::template Kernel<kAccess, false>;
  using Half = typename Family::template Kernel<kAccess, true>;
  return out == Format::f32 ? hw::image_of<Exact>("softmax", Family::kArch)
                            : hw::image_of<Half>("softmax", Family::kArch);
}
template <class Family>
KernelImage image_of_halves(const SoftmaxArgs& args) {
  return args.format == Format::f16 ? image_of<Family, pipe::Access::f16>(args.out_format)
                                    : image_of<Family, pipe::Access::bf16>(args.out_format);
}
template <class Family>
KernelImage image_of(const SoftmaxArgs& args) {
  return args.format == Format::f32 ? image_of<Family, pipe::Access::f32>(args.out_format)
                                    : image_of_halves<Family>(args);
}

}  // namespace

void softmax_gpu(const SoftmaxArgs& args, int64_t rows, Stream& stream) {
  if (rows == 0 || args.columns == 0) return;
  using Chunk = Share<SoftmaxShare::chunk>::Kernel<pipe::Access::f32, false>;
  const DeviceProperties& device = properties(stream.device());
  const bool clusters = stream.device().arch() >= Arch::sm_90a;
  const bool whole =
      pipe::are_whole(args.x, args.columns) && pipe::are_whole(args.out, args.columns);
  const uint32_t threads = pipe::threads_of_row(args.columns);
  const auto run = [&](const KernelImage& image, const LaunchShape& shape, uint32_t row_threads) {
    launch(image, shape, SoftmaxGpuParams{args, rows, row_threads}, stream);
  };
  LaunchShape shape = pipe::RowThreads::shape(rows, threads);
  if (whole && args.columns <= kSoftmaxChunk) {
    if (!pipe::takes_two(args.format, rows, threads)) {
      return run(image_of<Share<SoftmaxShare::one>>(args), shape, threads);
    }
    return run(image_of_halves<Share<SoftmaxShare::two>>(args),
               pipe::RowThreads::shape(rows, threads / 2), threads / 2);
  }
  const int64_t chunks = (args.columns + kSoftmaxChunk - 1) / kSoftmaxChunk;
  const bool few = rows * chunks <= 2 * device.sm_count;
  const auto ahead = [&]<uint32_t kGroups>(Ahead<kGroups>) {
    using Rows = SoftmaxPersistentGpu<pipe::Access::f32, false, kGroups>;
    if (!whole || !clusters || few || args.columns > Rows::kColumns ||
        Rows::kSharedBytes > static_cast<uint32_t>(device.shared_per_block)) {
      return false;
    }
    shape.grid.x =
        static_cast<uint32_t>(std::min<int64_t>(rows, int64_t{Rows::kMinBlocks} * device.sm_count));
    shape.block.x = Rows::kThreads;
    shape.shared_bytes = Rows::kSharedBytes;
    if constexpr (kGroups == 1) {
      run(image_of_halves<Ahead<1>>(args), shape, threads);
    } else {
      run(image_of<Ahead<2>>(args), shape, threads);
    }
    return true;
  };
  if (args.format != Format::f32 && ahead(Ahead<1>{})) return;
  if (ahead(Ahead<2>{})) return;
  if (whole && clusters && few && chunks <= Chunk::kMostBlocks) {
    shape.grid.x *= static_cast<uint32_t>(chunks);
    shape.cluster.x = static_cast<uint32_t>(chunks);
    shape.shared_bytes = Chunk::kSharedBytes;
    return run(image_of<Share<SoftmaxShare::chunk>>(args), shape, threads);
  }
  run(pipe::image_for<SoftmaxGpu>(args.format, whole, "softmax"), shape, threads);
}

}  // namespace halftone
