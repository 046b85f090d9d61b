#include <algorithm>
#include <bit>
#include <optional>

#include "base/message.h"
#include "hw/image.h"
#include "ops/gemm/sm90/gemv/gemv.cuh"
#include "ops/gemm/sm90/gemv/launch.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

namespace {

struct Sm90GemvInstance {
  KernelImage image;
  uint32_t spans, threads, blocks;  // of a stage; of a block; a multiprocessor, at most
  uint32_t (*shared_bytes)(uint32_t k);
};

template <GpuCode kCode, ScaleMode kScales, bool kSmemScales>
Sm90GemvInstance instance() {
  using Row = Sm90Gemv<kCode, kScales, kSmemScales>;
  using Stages = typename Row::Stages;
  return {hw::image_of<Row>("gemv_sm90", Arch::sm_90a), Stages::kWarps, Stages::kThreads,
          Stages::kMinBlocks, Stages::shared_bytes};
}

// Scales along K that are copied with the codes, or that lanes load.
template <GpuCode kCode, ScaleMode kScales>
Sm90GemvInstance scaled_instance(bool copied) {
  return copied ? instance<kCode, kScales, true>() : instance<kCode, kScales, false>();
}
// With scales of groups in a format, or without.
template <GpuCode kCode>
Sm90GemvInstance floats_instance(Format scale, bool copied) {
  return scale == Format::f32 ? scaled_instance<kCode, ScaleMode::f32_group_sums>(copied)
                              : scaled_instance<kCode, ScaleMode::f16_group_sums>(copied);
}
template <GpuCode kCode>
Sm90GemvInstance bytes_instance(const GpuWeight& w, Format scale, bool copied) {
  return w.scaled ? floats_instance<kCode>(scale, copied)
                  : instance<kCode, ScaleMode::none, false>();
}

Sm90GemvInstance instance_of(const GpuWeight& w, Format scale, bool copied) {
  switch (w.code) {
    case GpuCode::f16:
      return instance<GpuCode::f16, ScaleMode::none, false>();
    case GpuCode::f16_terms:
      return instance<GpuCode::f16_terms, ScaleMode::none, false>();
    case GpuCode::e4m3:
      if (w.scaled && scale == Format::ue8m0) {
        return scaled_instance<GpuCode::e4m3, ScaleMode::ue8m0>(copied);
      }
      return bytes_instance<GpuCode::e4m3>(w, scale, copied);
    case GpuCode::e5m2:
      return bytes_instance<GpuCode::e5m2>(w, scale, copied);
    case GpuCode::int8:
      return bytes_instance<GpuCode::int8>(w, scale, copied);
    case GpuCode::e2m1:
      return w.pairs ? instance<GpuCode::e2m1, ScaleMode::e4m3_block, true>()
                     : scaled_instance<GpuCode::e2m1, ScaleMode::ue8m0>(copied);
    case GpuCode::int4:
      return floats_instance<GpuCode::int4>(scale, copied);
    default:
      return instance<GpuCode::bf16, ScaleMode::none, false>();
  }
}

constexpr int64_t kShared = 227 * 1024;  // a block's on Hopper
// Of larger ones in 16 bits that enter as they are the kernel of few rows, with more blocks, reads
// 3 to 4 % faster (docs/findings/gpu-gemv.md).
constexpr int64_t kMaxRows = 16896;

// Rows of W as lines of 128 bytes.
pipe::TensorBox weight_box(const GpuGemm& p, const GpuSource& source, uint32_t spans,
                           uint32_t of_stage) {
  const GpuLayout& l = p.weight;
  pipe::TensorBox b;
  b.type = hw::Type::u8, b.rank = 3, b.swizzle = tile::Swizzle::b128;
  b.address = const_cast<uint8_t*>(row_address(l, source, 0));
  b.extent = {128, p.n, spans};
  b.stride = {static_cast<uint64_t>(l.row_bytes * l.row_step), 128};
  b.box = {128, 8, of_stage};
  return b;
}

bool aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

// How the scales of a row of W and its spans of `depth` elements are copied.
struct ScaleCopies {
  uint32_t span, shared, rows;  // as in Sm90GemvParams
};
// `spans` of a stage. Nothing where copies cannot take them: rows that are not on 16 bytes, scales
// that are no neighbours, groups longer than a span, lines of a stage longer than 128 bytes.
std::optional<ScaleCopies> scale_copies(const GpuWeight& w, std::span<const GpuGemm> gemms,
                                        uint32_t spans) {
  if (!w.pairs && !w.scaled) return {};
  const GpuLayout& l = gemms[0].weight;
  const uint32_t depth = 1024 / static_cast<uint32_t>(bits(l.format));
  const uint32_t bytes = w.pairs ? 1 : scale_bytes(l.scale_format);
  const bool own = l.block_rows == 1;
  const ScaleCopies c{depth / l.group * bytes,
                      own ? 1 : l.block_rows / static_cast<uint32_t>(l.row_step), own ? 8U : 1U};
  if (l.group > depth || spans * c.span < 16 || spans * c.span > 128) return {};
  if (l.scale_step != bytes || l.scale_row * l.row_step % 16 != 0) return {};
  // A copy is of 8 rows of W: each has its own scales, or all have the same.
  if (!own && (l.block_rows == 0 || l.block_rows % (8 * l.row_step) != 0)) return {};
  for (const GpuGemm& p : gemms) {
    for (const GpuSource& s : p.source) {
      if (s.scales == nullptr) continue;  // no gate
      if (!aligned(scale_address(l, s, 0, 0))) return {};
      if (l.block_rows > 1 && s.first_row % l.block_rows >= l.row_step) return {};
    }
  }
  return c;
}
pipe::TensorBox scale_box(const GpuGemm& p, const GpuSource& source, const ScaleCopies& c,
                          uint32_t spans) {
  using tile::Swizzle;
  const GpuLayout& l = p.weight;
  const uint32_t line = spans * c.span;
  const Swizzle swizzle = line == 128  ? Swizzle::b128
                          : line == 64 ? Swizzle::b64
                          : line == 32 ? Swizzle::b32
                                       : Swizzle::none;
  const int64_t row = c.rows == 1 ? l.scale_row : l.scale_row * l.row_step;
  return pipe::matrix_box(hw::Type::u8, const_cast<uint8_t*>(scale_address(l, source, 0, 0)),
                          ceil_div(p.n, c.shared),
                          static_cast<uint64_t>(p.k / l.group * l.scale_step),
                          static_cast<uint64_t>(row), c.rows, line, swizzle);
}

}  // namespace

std::string refuse_sm90_gemv(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  const Format weight = p.weight;
  const Scaling& s = p.scaling;
  const int64_t m = p.m, n = p.n, k = p.k;
  if (m != 1) return concat("m is ", m, "; gemv_sm90 multiplies one row");
  if (!x.direct() || w.dequantise || w.code == GpuCode::f32 || w.code == GpuCode::f16_sums) {
    return concat("x is not bf16, or f16 as the weight, or the weight is ", name(weight),
                  "; gemv_sm90 multiplies 16 bits by codes that bf16 or f16 hold");
  }
  const bool grouped = w.pairs || w.scaled;
  if (p.scaled && s.asymmetric) return "weight has zero points; gemv_sm90 takes none";
  if ((w.code == GpuCode::e2m1 || w.code == GpuCode::int4) != grouped && bits(weight) == 4) {
    return concat("weight is ", name(weight), " without groups; gemv_sm90 scales groups");
  }
  if (grouped && (s.layout != ScaleLayout::linear ||
                  !std::has_single_bit(static_cast<uint64_t>(s.block_cols)) ||
                  (s.block_rows > 0 && !std::has_single_bit(static_cast<uint64_t>(s.block_rows))) ||
                  (w.pairs && (s.block_cols != 16 || s.block_rows != 1)))) {
    return concat("weight has ", to_string(s), " scales; gemv_sm90 takes linear ones of ",
                  "blocks of powers of two");
  }
  // Which kernel has an instance for the format of the scales.
  const bool powers = s.format == Format::ue8m0;
  if (w.scaled && (w.code == GpuCode::e2m1 ? !powers
                   : powers                ? w.code != GpuCode::e4m3
                                           : !is_plain_float(s.format))) {
    return concat("weight is ", name(weight), " with ", to_string(s),
                  " scales; gemv_sm90 takes those of floats, and powers of two of E4M3 and ",
                  "E2M1");
  }
  if (k * bits(weight) % 1024 != 0 || (w.pairs && k % 256 != 0)) {
    return concat("K is ", k, "; gemv_sm90 takes rows of whole 128 bytes");
  }
  if (bits(weight) == 16 && w.code != GpuCode::f16_terms && n > kMaxRows) {
    return concat("N is ", n, "; gemv_sm90 takes 16 bits of up to ", kMaxRows);
  }
  if (k > kShared ||
      instance_of(w, s.format, true).shared_bytes(static_cast<uint32_t>(k)) > kShared) {
    return concat("K is ", k, "; gemv_sm90 keeps the row in shared memory");
  }
  return "";
}

OperandNeeds needs_sm90_gemv(const GemmProblem& p, const GpuWeight& w) {
  OperandNeeds needs;
  needs.x = needs.weight = 16;
  if (w.pairs) needs.weight_scales = needs.scale_storage = 16, needs.packed_scales = true;
  if (norms_sm90_gemv(p)) needs.norm = 16;
  return needs;
}

uint32_t log2_scale_rows(const GpuLayout& l) {
  return l.block_rows > 0 ? static_cast<uint32_t>(std::countr_zero(l.block_rows)) : 31;
}

bool norms_sm90_gemv(const GemmProblem& p) {
  return p.x.format == Format::bf16 && p.norm == Format::bf16 && p.k <= kSm90GemvKept;
}

void launch_sm90_gemv(const GpuWeight& w, std::span<const GpuGemm> gemms, Stream& stream,
                      uint32_t multiprocessors, const Sm90GemvNorm& norm) {
  const Device& device = stream.device();
  const DeviceProperties& d = properties(device);
  const Format scale = gemms[0].weight.scale_format;
  const std::optional<ScaleCopies> copies =
      scale_copies(w, gemms, instance_of(w, scale, true).spans);
  const Sm90GemvInstance i = instance_of(w, scale, copies.has_value());
  Sm90GemvParams p{};
  if (copies) {
    p.scale_span = copies->span, p.scale_shared = copies->shared, p.scale_rows = copies->rows;
  }
  p.norm = norm;
  const uint32_t of_tile = gemms[0].epilogue.gate ? 8 : 16;
  p.tiles = fuse_sm90(gemms, of_tile, &p.gemm, p.fused_gemms);
  const GpuGemm& g = p.gemm;
  p.spans = static_cast<uint32_t>(int64_t{g.k} * bits(g.weight.format) / 1024);
  if (w.scaled) p.log2_group = static_cast<uint32_t>(std::countr_zero(g.weight.group));
  p.log2_rows = log2_scale_rows(g.weight);
  const auto set_maps = [&](size_t at, const GpuGemm& of, const GpuSource& source) {
    p.w[at] = pipe::make_tensor_map(weight_box(of, source, p.spans, i.spans), device);
    if (copies) {
      p.scales[at] = pipe::make_tensor_map(scale_box(of, source, *copies, i.spans), device);
    }
  };
  for (size_t at = 0; at < gemms.size(); ++at) set_maps(at, gemms[at], gemms[at].source[0]);
  if (g.epilogue.gate) set_maps(1, g, g.source[1]);
  LaunchShape shape;
  shape.block.x = i.threads;
  shape.shared_bytes = i.shared_bytes(g.k);
  if (multiprocessors == 0) multiprocessors = static_cast<uint32_t>(d.sm_count);
  // As many blocks as have room at once, the same on each multiprocessor. Few tiles of short rows
  // go to one block each: the next kernel's blocks then find room beside it.
  const uint32_t room = static_cast<uint32_t>(d.shared_per_sm) / (shape.shared_bytes + 1024);
  const bool few = p.tiles <= 2 * multiprocessors && p.spans <= 2 * i.spans;
  const uint32_t blocks = few ? 1 : std::clamp(room, 1u, i.blocks);
  shape.grid.x = std::min(p.tiles, blocks * multiprocessors);
  // Without constant weights there is nothing to do before the turn (gpu.cpp).
  if (g.static_weights) shape = with_pdl(shape, stream);
  launch(i.image, shape, p, stream);
}

}  // namespace halftone::gemm
