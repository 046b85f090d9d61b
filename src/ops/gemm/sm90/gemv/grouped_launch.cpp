#include "ops/gemm/sm90/gemv/grouped.cuh"

#include <algorithm>
#include <array>
#include <bit>

#include "base/message.h"
#include "hw/image.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm90/gemv/grouped_launch.h"
#include "ops/gemm/sm90/gemv/launch.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

namespace {

struct Instance {
  KernelImage image;
  uint32_t threads, warps, line;  // of a block; that multiply; elements of a span
  uint32_t shared, padded;        // without rows of x; elements of one
  uint32_t (*x_bytes)(uint32_t elements);
};

template <GpuCode kCode, ScaleMode kScales, ScaleCopy kScaleMode = ScaleCopy::lanes>
Instance instance(uint32_t k) {
  using Kernel = Sm90GroupedGemv<kCode, kScales, kScaleMode>;
  using Stages = typename Kernel::Stages;
  return {hw::image_of<Kernel>("gemv_sm90_grouped", Arch::sm_90a),
          Stages::kThreads,
          Stages::kWarps,
          Stages::kDepth,
          Stages::kX,
          Stages::padded(k),
          Sm90GemvXLayout<kCode>::bytes};
}

// With scales of groups in a format, or without.
template <GpuCode kCode>
Instance floats_instance(const Scaling& s, uint32_t k) {
  return s.format == Format::f32 ? instance<kCode, ScaleMode::f32_group_sums>(k)
                                 : instance<kCode, ScaleMode::f16_group_sums>(k);
}
template <GpuCode kCode>
Instance bytes_instance(const GpuWeight& w, const Scaling& s, uint32_t k) {
  return w.scaled ? floats_instance<kCode>(s, k) : instance<kCode, ScaleMode::none>(k);
}

// The formats whose scales are copied have a way; of the others lanes load them.
template <GpuCode kCode, ScaleMode kScales>
Instance lines_instance(uint32_t k, ScaleCopy way) {
  return way == ScaleCopy::tensor_lines ? instance<kCode, kScales, ScaleCopy::tensor_lines>(k)
                                        : instance<kCode, kScales>(k);
}
Instance instance_of(const GpuWeight& w, const Scaling& s, uint32_t k, ScaleCopy way) {
  switch (w.code) {
    case GpuCode::e5m2:
      return bytes_instance<GpuCode::e5m2>(w, s, k);
    case GpuCode::int8:
      return bytes_instance<GpuCode::int8>(w, s, k);
    case GpuCode::e2m1:
      if (w.pairs) return lines_instance<GpuCode::e2m1, ScaleMode::e4m3_block>(k, way);
      return way == ScaleCopy::bulk_rows
                 ? instance<GpuCode::e2m1, ScaleMode::ue8m0, ScaleCopy::bulk_rows>(k)
                 : lines_instance<GpuCode::e2m1, ScaleMode::ue8m0>(k, way);
    case GpuCode::int4:
      return s.format == Format::f32
                 ? lines_instance<GpuCode::int4, ScaleMode::f32_group_sums>(k, way)
                 : lines_instance<GpuCode::int4, ScaleMode::f16_group_sums>(k, way);
    default:
      return w.scaled && s.format == Format::ue8m0 ? instance<GpuCode::e4m3, ScaleMode::ue8m0>(k)
                                                   : bytes_instance<GpuCode::e4m3>(w, s, k);
  }
}
Instance instance_of(const GemmProblem& p, const GpuWeight& w, ScaleCopy way) {
  return instance_of(w, p.scaling, static_cast<uint32_t>(p.k), way);
}
// Of codes of 8 bits a line would be too short.
bool has_lines(const GpuWeight& w) { return w.code == GpuCode::e2m1 || w.code == GpuCode::int4; }

constexpr uint32_t kMultiprocessor = 228 * 1024;  // of shared memory, 1 KB more than a block's

// Average rows of an expert up to which the kernel is the fastest
// (docs/findings/experts-hopper.md).
constexpr int64_t kMostAverage = 2;

// Warps that share the K of a tile: as many as leave few of them without a span in the last stage,
// so that tiles are small, and blocks have as many rows of W as others.
uint32_t warps_along_k(uint32_t spans) {
  if (spans < 2) return 1;
  uint32_t best = 6;
  const auto taken = [&](uint32_t warps) { return (spans + warps - 1) / warps * warps; };
  for (const uint32_t warps : {4u, 3u, 2u}) {
    if (16 * taken(warps) < 15 * taken(best)) best = warps;
  }
  return best;
}

// How many words of a bank lanes want at most that read the scales of 8 rows, a byte or two a quad.
// Two for gpt-oss, whose interleaved rows are 180 bytes: that is one wavefront more of some 50 a
// span.
int64_t words_of_a_bank(int64_t stride) {
  std::array<int64_t, 32> words{};
  int64_t most = 0, last = -1;
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t byte = 0; byte < 8; ++byte) {
      const int64_t word = (row * stride + byte) / 4;
      if (word <= last) continue;  // counted: they ascend
      last = word;
      most = std::max(most, ++words[static_cast<size_t>(word % 32)]);
    }
  }
  return most;
}

// How scales come to the warps, told to `p`, whose tiles are known.
ScaleCopy set_way(const GpuWeight& w, const Sm90Matrices& m, const GemmProblem& problem,
                  Sm90GroupedGemvParams* p, const Device& device) {
  const GpuGemm& g = p->gemm;
  const GpuLayout& l = g.weight;
  constexpr int64_t kHalf = 2048, kRoom = 12 * 1024;  // of shared memory: lines of a half, rows
  constexpr uint32_t kLeastLine = 48;  // shorter ones take the copy engine longer than lanes
  const uint32_t bytes = w.pairs ? 1 : scale_bytes(l.scale_format);
  const uint32_t depth = 1024 / static_cast<uint32_t>(bits(l.format));
  if ((!w.pairs && !w.scaled) || l.block_rows != 1 || l.scales != ScaleLayout::linear ||
      l.scale_step != bytes || l.group > depth) {
    return ScaleCopy::lanes;
  }
  p->scale_span = depth / l.group * bytes;
  const uint32_t line = p->warps_k * p->scale_span, rows = p->warps_n * 8;
  p->scale_line = std::bit_ceil(line);
  if (has_lines(w) && m.first_scale != nullptr && line % 16 == 0 && line >= kLeastLine &&
      line <= 128 && l.scale_row * l.row_step % 16 == 0 && int64_t{rows} * p->scale_line <= kHalf) {
    using tile::Swizzle;
    p->first_scale = m.first_scale, p->scale_shift = m.scale_shift;
    pipe::TensorBox b;
    b.type = hw::Type::u8, b.address = const_cast<uint8_t*>(m.first_scale), b.rank = 3;
    b.swizzle = p->scale_line == 128 ? Swizzle::b128 : Swizzle::b64;
    b.extent = {static_cast<uint64_t>(problem.k / l.group * bytes),
                static_cast<uint64_t>(problem.n), static_cast<uint64_t>(m.last_scale + 1)};
    b.stride = {static_cast<uint64_t>(l.scale_row * l.row_step), uint64_t{1} << m.scale_shift};
    b.box = {line, rows, 1};
    p->scales = pipe::make_tensor_map(b, device);
    return ScaleCopy::tensor_lines;
  }
  const int64_t half = l.scale_row * rows;
  const bool whole = p->scale_tile > 0 && m.scales_aligned == 16 && half % 16 == 0 &&
                     l.scale_row * problem.n % 16 == 0;
  const bool powers = w.code == GpuCode::e2m1 && !w.pairs && l.group == 32;
  // Tiles of one stage: 2 us more a layer of Qwen3-30B-A3B, measured, not explained.
  const bool stages = p->spans > p->warps_k;
  if (powers && stages && whole && 2 * half * 4 <= kRoom &&
      words_of_a_bank(l.scale_row * (g.epilogue.gate ? l.row_step : 1)) <= 2) {
    p->scale_rows = static_cast<uint32_t>(half);
    return ScaleCopy::bulk_rows;
  }
  return ScaleCopy::lanes;
}

}  // namespace

std::string refuse_sm90_grouped_gemv(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  if (p.experts == 0) return "there are no groups; gemv_sm90_grouped multiplies those of few rows";
  if (p.m > kMostAverage * p.experts) {
    return concat(p.experts, " groups have ", p.m, " rows; gemv_sm90_grouped takes up to ",
                  kMostAverage, " a group on average");
  }
  if (bits(p.weight) > 8) {
    return concat("weight is ", name(p.weight), "; gemv_sm90_grouped takes 4 or 8 bits");
  }
  const int64_t line = 1024 / bits(p.weight);
  // Scales and x by the rules of one row; rows need not be whole lines.
  GemmProblem row = p;
  row.m = 1, row.k = ceil_div(p.k, line) * line;
  std::string reason = refuse_sm90_gemv(row, w, x);
  if (!reason.empty()) return reason;
  if (p.k % 8 != 0 || p.k * bits(p.weight) % 128 != 0 || (w.pairs && p.k % 64 != 0)) {
    return concat("K is ", p.k, "; gemv_sm90_grouped takes rows of whole 16 bytes, of NVFP4 ",
                  "multiples of 64");
  }
  if (chunk_rows_sm90_grouped_gemv(p, w) == 0) {
    return concat("K is ", p.k, "; gemv_sm90_grouped keeps rows of x in shared memory");
  }
  return "";
}

OperandNeeds needs_sm90_grouped_gemv(const GpuWeight& w) {
  OperandNeeds needs;
  needs.x = needs.weight = 16, needs.one_tensor_map = true;
  if (w.pairs) needs.weight_scales = needs.scale_storage = 4, needs.packed_scales = true;
  return needs;
}

uint32_t chunk_rows_sm90_grouped_gemv(const GemmProblem& p, const GpuWeight& w) {
  // The way that takes most.
  const Instance i = instance_of(p, w, has_lines(w) ? ScaleCopy::tensor_lines : ScaleCopy::lanes);
  const auto fitting = [&](uint32_t rows) {
    return kMultiprocessor / (i.shared + i.x_bytes(rows * i.padded) + 1024);
  };
  // Two blocks a multiprocessor, unless experts' weights would be read twice for it.
  uint32_t rows = Sm90GroupedGemvStages<GpuCode::e4m3, ScaleCopy::lanes>::kMaxRows;
  const uint32_t wanted = ceil_div(p.m, p.experts) > 1 ? rows : rows / 2;
  while (rows > wanted && fitting(rows) < 2) rows /= 2;
  while (rows > 0 && fitting(rows) < 1) rows /= 2;
  return rows;
}

void launch_sm90_grouped_gemv(const GemmProblem& problem, const GpuWeight& w, const GpuGemm& gemm,
                              const Sm90Matrices& matrices, uint32_t max_chunks, Stream& stream) {
  const Device& device = stream.device();
  const DeviceProperties& d = properties(device);
  Instance i = instance_of(problem, w, ScaleCopy::lanes);
  Sm90GroupedGemvParams p{};
  p.gemm = gemm;
  GpuGemm& g = p.gemm;
  g.n = static_cast<uint32_t>(problem.n);
  p.spans = (g.k + i.line - 1) / i.line;
  if (w.scaled) p.log2_group = static_cast<uint32_t>(std::countr_zero(g.weight.group));
  p.log2_rows = log2_scale_rows(g.weight);
  p.warps_k = warps_along_k(p.spans), p.warps_n = i.warps / p.warps_k;
  const uint32_t outputs = p.warps_n * (g.epilogue.gate ? 8 : 16);
  p.tiles = (g.n + outputs - 1) / outputs;
  if (g.weight.block_rows == 1 && g.n % outputs == 0) {
    p.scale_tile = static_cast<uint32_t>(outputs * g.weight.row_step * g.weight.scale_row);
  }
  const ScaleCopy way = set_way(w, matrices, problem, &p, device);
  i = instance_of(problem, w, way);
  p.x_elements = g.chunk_rows * i.padded;
  p.w_first = matrices.first, p.w_shift = matrices.shift;
  p.w = pipe::make_tensor_map(weight_box_sm90(g.weight, problem, matrices, p.warps_n * 8), device);
  LaunchShape shape;
  shape.block.x = i.threads;
  shape.shared_bytes = i.shared + i.x_bytes(p.x_elements);
  if (way == ScaleCopy::bulk_rows) {
    p.scale_room = (shape.shared_bytes + 127) / 128 * 128;
    shape.shared_bytes = p.scale_room + 8 * p.scale_rows;  // four tiles, two halves each
  }
  const uint32_t room = static_cast<uint32_t>(d.shared_per_sm) / (shape.shared_bytes + 1024);
  const uint32_t blocks = std::clamp(room, 1u, 2u) * static_cast<uint32_t>(d.sm_count);
  shape.grid.x = static_cast<uint32_t>(std::min<uint64_t>(blocks, uint64_t{max_chunks} * p.tiles));
  launch(i.image, with_pdl(shape, stream), p, stream);
}

}  // namespace halftone::gemm
