// The fused heads kernel, host side: what it takes, and the launch.
#include "ops/heads/gpu.cuh"

#include <algorithm>
#include <cmath>

#include "hw/image.h"

namespace halftone {

namespace {

template <pipe::Access kAccess>
using HeadsSm80 = HeadsGpu<kAccess, false>;
template <pipe::Access kAccess>
using HeadsSm89 = HeadsGpu<kAccess, true>;

template <template <pipe::Access> class Kernel>
KernelImage image_of_half(Format f, Arch arch) {
  return f == Format::f16 ? hw::image_of<Kernel<pipe::Access::f16>>("heads", arch)
                          : hw::image_of<Kernel<pipe::Access::bf16>>("heads", arch);
}

// Whether a head is whole groups, each within a half or the whole head.
bool takes_groups(const HeadsArgs& args, const QuantizeArgs& to) {
  const int64_t group = to.recipe.group > 0 ? to.recipe.group : args.head_dim;
  return to.block_rows == 1 && args.head_dim % group == 0 && group >= 16 &&
         (group & (group - 1)) == 0 && reinterpret_cast<uintptr_t>(to.codes) % 8 == 0;
}

}  // namespace

float hadamard_scale(int64_t block) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
}

const char* heads_gpu_error(const HeadsArgs& args) {
  const int64_t dim = args.head_dim;
  if (dim < 64 || dim > 512 || (dim & (dim - 1)) != 0) return "head_dim is not 64, 128, 256 or 512";
  if (args.format == Format::f32) return "elements have 32 bits";
  for (int i = 0; i < args.count; ++i) {
    const HeadRows& rows = args.rows[i];
    if (!pipe::are_whole(rows.x, dim) || !pipe::are_whole(rows.out, dim)) {
      return "rows do not start at multiples of 16 bytes";
    }
    if (rows.codes.recipe.adaptive) return "scales are adaptive";
    if (rows.codes.codes != nullptr && !takes_groups(args, rows.codes)) {
      return "a scale is of other blocks than groups of a head";
    }
  }
  return "";
}

void heads_gpu(const HeadsArgs& args, Stream& stream) {
  HeadsParams p{
      args, fault_reporter(stream.device()), static_cast<uint32_t>(args.head_dim / 16), 0, 0, false,
      false};
  for (int i = 0; i < args.count; ++i) {
    p.heads += static_cast<uint32_t>(args.rows[i].heads);
    p.caches = p.caches || args.rows[i].cached;
    p.quantises = p.quantises || args.rows[i].codes.codes != nullptr;
    if (args.rows[i].hadamard) p.hadamard = hadamard_scale(args.head_dim);
  }
  if (args.tokens == 0 || p.heads == 0) return;
  constexpr uint32_t kThreads = HeadsSm80<pipe::Access::bf16>::kThreads;
  // Few tokens: several CTAs share one. Many tokens: a CTA each.
  const uint32_t parts = (p.heads * p.lanes + kThreads - 1) / kThreads;
  const bool few = args.tokens < properties(stream.device()).sm_count;
  launch(stream.device().arch() >= Arch::sm_89 ? image_of_half<HeadsSm89>(args.format, Arch::sm_89)
                                               : image_of_half<HeadsSm80>(args.format, Arch::sm_80),
         with_pdl({.grid = {static_cast<uint32_t>(args.tokens), few ? parts : 1, 1},
                   .block = {kThreads, 1, 1},
                   .shared_bytes = pipe::RotationTable::kSharedBytes},
                  stream),
         p, stream);
}

}  // namespace halftone
