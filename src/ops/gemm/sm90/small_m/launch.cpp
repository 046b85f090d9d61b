#include <algorithm>
#include <bit>

#include "base/message.h"
#include "hw/image.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm90/small_m/formats.h"
#include "ops/gemm/sm90/small_m/launch.h"
#include "ops/gemm/sm90/small_m/w4.cuh"
#include "ops/gemm/sm90/small_m/w8.cuh"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

namespace {

// Rows of x. Up to eight go to the kernel of few (gpu_gemv.cuh), but not where W is large: fp8
// 14336 x 4096 takes it 26 us by 4 rows, this one 19 by 16 (docs/findings/gpu-gemv.md).
constexpr int64_t kFewest = 9, kFewestOfLarge = 2;
constexpr int64_t kLarge = int64_t{1} << 25;  // elements of W

int64_t fewest_rows(const GemmProblem& p, const GpuWeight& w) {
  // Of INT4 in groups of 32 and 64 nobody has measured it.
  const bool large = p.k > 0 && (p.gate ? 2 * p.n : p.n) >= ceil_div(kLarge, p.k);
  return large && !has_group32_sums(w, p.scaling.block_cols) ? kFewestOfLarge : kFewest;
}

struct Sm90SmallMInstance {
  KernelImage image;
  uint32_t columns, threads, shared_bytes;
};

// Codes of four bits are expanded for wgmma, those of eight for mma.sync
// (docs/findings/gemm-hopper.md).
template <GpuCode kCode, ScaleMode kScales, uint32_t kColumns>
Sm90SmallMInstance instance() {
  if constexpr (CodePolicy<kCode>::kBits == 4) {
    using Stages = Sm90SmallMW4Stages<kScales, kColumns>;
    return {
        hw::image_of<Sm90SmallMW4<kCode, kScales, kColumns> >("gemm_sm90_small_m_w4", Arch::sm_90a),
        kColumns, Stages::kThreads, Stages::kSharedBytes};
  } else {
    using Stages = Sm90SmallMW8Stages<kCode, kScales, kColumns / 8>;
    return {hw::image_of<Sm90SmallMW8<kCode, kScales, kColumns / 8> >("gemm_sm90_small_m_w8",
                                                                      Arch::sm_90a),
            kColumns, Stages::kThreads, Stages::kSharedBytes};
  }
}
Sm90SmallMInstance instance_of(const GpuWeight& w, Format scale, int64_t group, int64_t m) {
  if (has_group32_sums(w, group)) {
    return m <= 16 ? instance<GpuCode::int4, ScaleMode::group32_sums, 16>()
                   : instance<GpuCode::int4, ScaleMode::group32_sums, 32>();
  }
  return with_sm90_small_m(w, scale, [m]<GpuCode kCode, ScaleMode kScales>() {
    if (m <= 16) return instance<kCode, kScales, 16>();
    if constexpr (kScales == ScaleMode::e4m3_block) {
      if (m > 32) return instance<kCode, kScales, 64>();
    }
    return instance<kCode, kScales, 32>();
  });
}
// Of others than NVFP4 the kernel of many rows is the faster one beyond.
int64_t most_rows(const GpuWeight& w) { return w.pairs ? 64 : 32; }

constexpr uint32_t kTileRows = 128, kDepth = kSm90SmallMDepth;

int64_t tiles_of(int64_t n, bool gate) { return ceil_div(n, gate ? kTileRows / 2 : kTileRows); }

// Blocks that share the K of a tile: a cluster. Two blocks a multiprocessor; clusters of two always
// fit, of larger ones some places stay free (sm90.cpp). In stages; filling the first and adding up
// the sums of a cluster take about as long as three.
uint32_t blocks_of_tile(int64_t tiles, int64_t steps, int multiprocessors) {
  uint32_t best = 1;
  int64_t least = 0;
  for (uint32_t blocks = 1; blocks <= std::min<int64_t>(8, steps); ++blocks) {
    const int64_t places = 2 * multiprocessors;
    const int64_t clusters = (blocks <= 2 ? places : places * 5 / 6) / blocks;
    const int64_t time =
        ceil_div(tiles, clusters) * (ceil_div(steps, blocks) + (blocks > 1 ? 3 : 2));
    if (least != 0 && time >= least) continue;
    least = time, best = blocks;
  }
  return best;
}

// W as lines of 128 bytes of its rows.
pipe::TensorBox weight_box(const GpuGemm& p, const GpuSource& source) {
  const GpuLayout& l = p.weight;
  const auto bits_of = static_cast<uint32_t>(bits(l.format));
  pipe::TensorBox b;
  b.type = hw::Type::u8, b.rank = 3, b.swizzle = tile::Swizzle::b128;
  b.address = const_cast<uint8_t*>(row_address(l, source, 0));
  b.extent = {128, p.n, p.k * bits_of / 1024};
  b.stride = {static_cast<uint64_t>(l.row_bytes * l.row_step), 128};
  b.box = {128, 32, kDepth * bits_of / 1024};
  return b;
}
pipe::TensorBox scale_box(const GpuGemm& p, const GpuSource& source) {
  const GpuLayout& l = p.weight;
  return pipe::matrix_box(hw::Type::u8, const_cast<uint8_t*>(scale_address(l, source, 0, 0)), p.n,
                          p.k / l.group, static_cast<uint64_t>(l.scale_row * l.row_step), 32, 16,
                          tile::Swizzle::none);
}
}  // namespace

pipe::TensorBox x_box_sm90_small_m(const GpuGemm& p, uint32_t columns) {
  pipe::TensorBox b;
  b.type = hw::Type::bf16, b.rank = 3, b.swizzle = tile::Swizzle::b128;
  b.address = const_cast<uint8_t*>(p.x);
  b.extent = {64, p.m, p.k / 64};
  b.stride = {static_cast<uint64_t>(p.x_row), 128};
  b.box = {64, columns, kDepth / 64};
  return b;
}

bool takes_group32_sums(const GpuWeight& w, const GpuX& x, const Scaling& s) {
  return has_group32_sums(w, s.block_cols) && is_plain_float(s.format) &&
         s.layout == ScaleLayout::linear && !s.asymmetric && x.direct();
}

std::string refuse_sm90_small_m_formats(const GpuWeight& w, const GpuX& x, Format weight,
                                        const Scaling& s) {
  if (!x.direct() || w.dequantise || is_plain(w.code)) {
    return concat("x is not bf16, or the weight is ", name(weight),
                  "; gemm_sm90_small_m multiplies bf16 by codes of FP8, INT8, E2M1 and INT4");
  }
  const bool powers = has_powers(w, s.format);
  const bool of_chains = s.block_cols > 0 && s.block_cols % 128 == 0 &&
                         std::has_single_bit(static_cast<uint64_t>(s.block_cols)) &&
                         is_plain_float(s.format);
  const bool blocks = (w.pairs && s.block_cols == 16 && s.block_rows == 1) ||
                      (powers && (w.code == GpuCode::e4m3 || w.code == GpuCode::e2m1) &&
                       s.block_cols == 32 && s.block_rows == 1);
  const bool sums = w.scaled && w.code != GpuCode::e2m1 && of_chains;
  const bool none = w.code != GpuCode::e2m1 && !w.scaled && !w.pairs;
  if ((!blocks && !sums && !none) || s.layout != ScaleLayout::linear || s.asymmetric) {
    return concat("weight is ", name(weight), " with ", to_string(s),
                  " scales; gemm_sm90_small_m takes linear ones of rows, of the block formats and ",
                  "floats of 128 times a power of two, without zero points");
  }
  return "";
}

std::string refuse_sm90_small_m(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  const Scaling& s = p.scaling;
  const int64_t k = p.k, fewest = fewest_rows(p, w);
  if (p.m < fewest || p.m > most_rows(w)) {
    return concat("m is ", p.m, "; gemm_sm90_small_m takes ", fewest, " to ", most_rows(w),
                  " rows of ", name(p.weight));
  }
  std::string reason =
      takes_group32_sums(w, x, s) ? "" : refuse_sm90_small_m_formats(w, x, p.weight, s);
  if (!reason.empty()) return reason;
  const int64_t whole = has_powers(w, s.format) ? 2 * kDepth : kDepth;
  if (k >= int64_t{1} << 28) return concat("K is ", k, "; gemm_sm90_small_m takes less than 2^28");
  if (k % whole != 0) return concat("K is ", k, "; gemm_sm90_small_m takes multiples of ", whole);
  return "";
}

OperandNeeds needs_sm90_small_m(const GemmProblem& p, const GpuWeight& w) {
  OperandNeeds needs;
  needs.x = needs.weight = 16;
  if (!copies_scales(w, p.scaling.format)) return needs;
  needs.weight_scales = needs.scale_storage = 16, needs.packed_scales = true;
  return needs;
}

std::string describe_sm90_small_m(int64_t m, int64_t n, int64_t k, bool gate, int multiprocessors) {
  const uint32_t blocks = blocks_of_tile(tiles_of(n, gate), k / kDepth, multiprocessors);
  return concat("tiles of 128 x ",
                m <= 16   ? 16
                : m <= 32 ? 32
                          : 64,
                blocks > 1 ? concat(", split-K ", blocks) : "");
}

void launch_sm90_small_m(const GpuWeight& w, std::span<const GpuGemm> gemms, Stream& stream) {
  const Device& device = stream.device();
  Sm90SmallMParams p{};
  const int64_t tiles = fuse_sm90(gemms, gemms[0].epilogue.gate ? 64 : 128, &p.gemm, p.fused_gemms);
  const GpuGemm& g = p.gemm;
  const GpuLayout& l = g.weight;
  const Sm90SmallMInstance i = instance_of(w, l.scale_format, l.group, g.m);
  const bool gate = g.epilogue.gate, copied = copies_scales(w, l.scale_format);
  const auto set_maps = [&](size_t at, const GpuGemm& of, const GpuSource& source) {
    p.w[at] = pipe::make_tensor_map(weight_box(of, source), device);
    if (copied) p.scales[at] = pipe::make_tensor_map(scale_box(of, source), device);
  };
  for (size_t at = 0; at < gemms.size(); ++at) set_maps(at, gemms[at], gemms[at].source[0]);
  if (gate) set_maps(1, g, g.source[1]);
  p.x = pipe::make_tensor_map(x_box_sm90_small_m(g, i.columns), device);
  if (w.scaled && !copied)
    p.log2_groups = static_cast<uint32_t>(
        std::countr_zero(l.group / (has_group32_sums(w, l.group) ? 32 : 128)));
  const uint32_t blocks = blocks_of_tile(tiles, g.k / kDepth, properties(device).sm_count);
  LaunchShape shape;
  shape.grid = {static_cast<uint32_t>(tiles) * blocks, (g.m + i.columns - 1) / i.columns, 1};
  shape.block.x = i.threads;
  if (blocks > 1) shape.cluster = {blocks, 1, 1};
  shape.shared_bytes = i.shared_bytes;
  launch(i.image, with_pdl(shape, stream), p, stream);
}

}  // namespace halftone::gemm
