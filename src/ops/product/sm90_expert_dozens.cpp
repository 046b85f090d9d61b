#include "ops/product/sm90_expert_dozens.cuh"

#include <algorithm>
#include <bit>

#include "hw/image.h"
#include "ops/product/sm90_dozens_formats.h"
#include "ops/product/sm90_expert_dozens_launch.h"
#include "ops/product/weights.h"
#include "pipe/tensor_map.h"

namespace halftone::product {

namespace {

struct Instance {
  KernelImage image;
  uint32_t threads, shared_bytes;
};

template <GpuCode kCode, Sm90Scales kScales, uint32_t kTiles>
Instance instance() {
  using Kernel = Sm90ExpertDozens<kCode, kScales, kTiles>;
  using Stages = typename Kernel::Stages;
  return {hw::image_of<Kernel>("matmul_sm90_expert_dozens", Arch::sm_90a), Stages::kThreads,
          Stages::kSharedBytes};
}
// Tiles of 32 columns have no room for two blocks with codes of 8 bits.
constexpr uint32_t kWidest8 = 24, kWidest4 = 32;

Instance instance_of(const GpuWeight& w, Format scale, uint32_t rows) {
  return with_sm90_dozens(w, scale, [rows]<GpuCode kCode, Sm90Scales kScales>() {
    constexpr uint32_t kWidest = CodePolicy<kCode>::kBits == 8 ? kWidest8 : kWidest4;
    return rows == 8    ? instance<kCode, kScales, 1>()
           : rows == 16 ? instance<kCode, kScales, 2>()
                        : instance<kCode, kScales, kWidest / 8>();
  });
}

// Average rows of an expert up to which the kernel is the fastest
// (docs/findings/experts-hopper.md).
constexpr int64_t kMostAverage8 = 20, kMostAverage4 = 32;

}  // namespace

bool takes_sm90_expert_dozens(const Sm90Problem& p, const GpuWeight& w, const GpuX& x) {
  const int64_t most = bits(p.weight) == 8 ? kMostAverage8 : kMostAverage4;
  if (p.experts == 0 || p.m > most * p.experts) return false;
  if (!refuse_sm90_dozens_formats(w, x, p.weight, p.scaling).empty()) return false;
  // x by 64 elements; rows of W by 16 bytes, their scales by 4.
  const int64_t unit = !copies_scales(w, p.scaling.format) ? 64 : w.pairs ? 64 : 128;
  return p.k % unit == 0;
}

bool fits_sm90_expert_dozens(const GpuWeight& w, const GpuLayout& l, const Sm90Matrices& matrices,
                             const Tensor& x) {
  if (!matrices.aligned) return false;
  if (x.defined() &&
      (reinterpret_cast<uintptr_t>(x.data()) % 16 != 0 || x.stride(0) * 2 % 16 != 0)) {
    return false;
  }
  if (!copies_scales(w, l.scale_format)) {
    return !w.scaled || l.scale_step % scale_bytes(l.scale_format) == 0;
  }
  return matrices.scales_aligned >= 4 && l.scale_step == 1 && l.scale_row * l.row_step % 4 == 0;
}

// Experts have up to twice the average; rows of a second part read their weights again.
uint32_t part_rows_sm90_expert_dozens(const Sm90Problem& p) {
  const int64_t average = ceil_div(p.m, p.experts);
  const uint32_t widest = bits(p.weight) == 8 ? kWidest8 : kWidest4;
  return average <= 4 ? 8 : average <= 12 ? 16 : widest;
}

void launch_sm90_expert_dozens(const Sm90Problem& problem, const GpuWeight& w,
                               const GpuProduct& product, const Sm90Matrices& matrices,
                               uint32_t parts, Stream& stream) {
  const Device& device = stream.device();
  const Instance i = instance_of(w, problem.scaling.format, product.part_rows);
  Sm90ExpertDozensParams p{};
  p.product = product;
  GpuProduct& g = p.product;
  const GpuLayout& l = g.weight;
  g.n = static_cast<uint32_t>(problem.n);
  p.steps = (g.k + kSm90DozensDepth - 1) / kSm90DozensDepth;
  const uint32_t outputs = problem.gate ? 64 : 128;
  p.tiles = (g.n + outputs - 1) / outputs;
  p.w_first = matrices.first, p.w_shift = matrices.shift;
  p.w = pipe::make_tensor_map(weight_box_sm90(l, problem, matrices, 32), device);
  p.x = pipe::make_tensor_map(x_box_sm90_dozens(g, g.part_rows), device);
  if (copies_scales(w, l.scale_format)) {
    p.scale_bytes = g.k / l.group;
    p.scale_pitch = static_cast<uint32_t>(l.scale_row * l.row_step);
    p.scales_whole = matrices.scales_aligned >= 16 && l.scale_row * l.row_step % 16 == 0;
  } else if (w.scaled) {
    p.log2_groups = static_cast<uint32_t>(std::countr_zero(l.group / 128));
  }
  LaunchShape shape;
  shape.block.x = i.threads;
  shape.shared_bytes = i.shared_bytes;
  const uint32_t blocks = 2 * static_cast<uint32_t>(properties(device).sm_count);
  shape.grid.x = static_cast<uint32_t>(std::min<uint64_t>(blocks, uint64_t{parts} * p.tiles));
  launch(i.image, taking_turns(shape, stream), p, stream);
}

}  // namespace halftone::product
