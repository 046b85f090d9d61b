#include "ops/gemm/sm90/small_m/grouped_w8.cuh"

#include <algorithm>
#include <bit>

#include "base/message.h"
#include "hw/image.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm90/small_m/formats.h"
#include "ops/gemm/sm90/small_m/grouped_launch.h"
#include "ops/gemm/sm90/small_m/grouped_w4.cuh"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

namespace {

struct Instance {
  KernelImage image;
  uint32_t threads, shared_bytes;
};

// Codes of four bits are expanded for wgmma, those of eight for mma.sync
// (docs/findings/gemm-hopper.md).
template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns>
Instance instance() {
  if constexpr (CodePolicy<kCode>::kBits == 4) {
    using Kernel = Sm90GroupedSmallMW4<kCode, kScales, kColumns>;
    return {hw::image_of<Kernel>("gemm_sm90_small_m_grouped_w4", Arch::sm_90a),
            Kernel::Stages::kThreads, Kernel::Stages::kSharedBytes};
  } else {
    using Kernel = Sm90GroupedSmallMW8<kCode, kScales, kColumns / 8>;
    return {hw::image_of<Kernel>("gemm_sm90_small_m_grouped_w8", Arch::sm_90a),
            Kernel::Stages::kThreads, Kernel::Stages::kSharedBytes};
  }
}
// Tiles of 32 columns have no room for two blocks with codes of 8 bits.
constexpr uint32_t kWidest8 = 24, kWidest4 = 32;

Instance instance_of(const GpuWeight& w, Format scale, int64_t group, uint32_t rows) {
  if (has_group32_sums(w, group)) {
    return rows == 8    ? instance<GpuCode::int4, ScaleMode::group32_sums, 8>()
           : rows == 16 ? instance<GpuCode::int4, ScaleMode::group32_sums, 16>()
                        : instance<GpuCode::int4, ScaleMode::group32_sums, 32>();
  }
  return with_sm90_small_m(w, scale, [rows]<GpuCode kCode, ScaleMode kScales>() {
    constexpr uint32_t kWidest = CodePolicy<kCode>::kBits == 8 ? kWidest8 : kWidest4;
    return rows == 8    ? instance<kCode, kScales, 8>()
           : rows == 16 ? instance<kCode, kScales, 16>()
                        : instance<kCode, kScales, kWidest>();
  });
}
// Where rows of scales begin, also those of every second row of a tensor: on 16, 4 or 2 bytes, or
// on any.
uint32_t scales_aligned(const GpuLayout& l, const Sm90Matrices& matrices) {
  const auto row = static_cast<uint32_t>(l.scale_row % 16);
  const uint32_t aligned = 1U << std::countr_zero(matrices.scales_aligned | row | 16);
  return aligned == 8 ? 4 : aligned;
}

// Average rows of an expert up to which the kernel is the fastest
// (docs/findings/experts-hopper.md).
constexpr int64_t kMostAverage8 = 20, kMostAverage4 = 32;

}  // namespace

std::string refuse_sm90_grouped_small_m(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  const int64_t most = bits(p.weight) == 8 ? kMostAverage8 : kMostAverage4;
  if (p.experts == 0) {
    return "there are no groups; gemm_sm90_small_m_grouped multiplies those of some dozens of rows";
  }
  if (p.m > most * p.experts) {
    return concat(p.experts, " groups have ", p.m, " rows; gemm_sm90_small_m_grouped takes up to ",
                  most, " a group on average");
  }
  if (!takes_group32_sums(w, x, p.scaling)) {
    std::string reason = refuse_sm90_small_m_formats(w, x, p.weight, p.scaling);
    if (!reason.empty()) return reason;
  }
  // x by 64 elements; of eight bits scales by four.
  const int64_t whole = has_powers(w, p.scaling.format) && bits(p.weight) == 8 ? 128 : 64;
  if (p.k % whole == 0) return "";
  return concat("K is ", p.k, "; gemm_sm90_small_m_grouped takes multiples of ", whole);
}

int64_t fewest_rows_sm90_grouped_small_m(const GemmProblem& p, const GpuWeight& w) {
  // docs/findings/experts-hopper.md
  if (has_group32_sums(w, p.scaling.block_cols)) return p.experts / 2 + 1;
  return bits(p.weight) == 4 ? std::max<int64_t>(8, p.experts / 16) + 1
                             : std::max<int64_t>(4, p.experts / 8) + 1;
}

OperandNeeds needs_sm90_grouped_small_m(const GemmProblem& p, const GpuWeight& w) {
  OperandNeeds needs;
  needs.weight = 16, needs.one_tensor_map = true;
  if (!p.gathered) needs.x = 16;
  if (!copies_scales(w, p.scaling.format)) return needs;
  needs.weight_scales = needs.scale_storage = bits(p.weight) == 4 && !w.pairs ? 2 : 4;
  needs.packed_scales = true;
  return needs;
}

// Experts have up to twice the average; rows of a second part read their weights again.
uint32_t chunk_rows_sm90_grouped_small_m(const GemmProblem& p) {
  const int64_t average = ceil_div(p.m, p.experts);
  const uint32_t widest = bits(p.weight) == 8 ? kWidest8 : kWidest4;
  return average <= 4 ? 8 : average <= 12 ? 16 : widest;
}

void launch_sm90_grouped_small_m(const GemmProblem& problem, const GpuWeight& w,
                                 const GpuGemm& gemm, const Sm90Matrices& matrices,
                                 uint32_t max_chunks, Stream& stream) {
  const Device& device = stream.device();
  const Instance i =
      instance_of(w, problem.scaling.format, problem.scaling.block_cols, gemm.chunk_rows);
  Sm90GroupedSmallMParams p{};
  p.gemm = gemm;
  GpuGemm& g = p.gemm;
  const GpuLayout& l = g.weight;
  g.n = static_cast<uint32_t>(problem.n);
  g.epilogue.specialised = specialised_epilogue({&g, 1});
  p.steps = (g.k + kSm90SmallMDepth - 1) / kSm90SmallMDepth;
  const uint32_t outputs = problem.gate ? 64 : 128;
  p.tiles = (g.n + outputs - 1) / outputs;
  p.w_first = matrices.first, p.w_shift = matrices.shift;
  p.w = pipe::make_tensor_map(weight_box_sm90(l, problem, matrices, 32), device);
  p.x = pipe::make_tensor_map(x_box_sm90_small_m(g, g.chunk_rows), device);
  if (copies_scales(w, l.scale_format)) {
    p.scale_bytes = g.k / l.group;
    p.scale_pitch = static_cast<uint32_t>(l.scale_row * l.row_step);
    p.scales_aligned = scales_aligned(l, matrices);
  } else if (w.scaled) {
    p.log2_groups = static_cast<uint32_t>(
        std::countr_zero(l.group / (has_group32_sums(w, l.group) ? 32 : 128)));
  }
  LaunchShape shape;
  shape.block.x = i.threads;
  shape.shared_bytes = i.shared_bytes;
  const uint32_t blocks = 2 * static_cast<uint32_t>(properties(device).sm_count);
  shape.grid.x = static_cast<uint32_t>(std::min<uint64_t>(blocks, uint64_t{max_chunks} * p.tiles));
  launch(i.image, with_pdl(shape, stream), p, stream);
}

}  // namespace halftone::gemm
