#include "ops/gemm/sm90/mixed/launch.h"

#include <algorithm>
#include <bit>
#include <climits>
#include <vector>

#include "base/message.h"
#include "ops/gemm/cpu/weights.h"
#include "ops/gemm/sm90/fp8/stages.h"
#include "ops/gemm/sm90/mixed/instances.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

namespace {

constexpr int64_t kFewestOfExperts = 16;
constexpr int64_t kRows = kSm90Rows;  // of W a tile, but of few rows of FP8 by FP8

// How the scales of a weight enter; an empty optional where the kernel has no way.
std::optional<ScaleMode> scales_of(const GemmProblem& p, const GpuWeight& w) {
  const int64_t group = p.scaled ? p.scaling.block_cols : 0;
  const bool rows = p.scaling.block_rows == 1, powers = p.scaling.format == Format::ue8m0;
  switch (w.code) {
    case GpuCode::bf16:
    case GpuCode::f16:
      if (!p.scaled) return ScaleMode::none;
      return {};
    case GpuCode::e4m3:
    case GpuCode::e5m2:
    case GpuCode::int8:
      if (group == 0) return ScaleMode::none;
      if (w.code == GpuCode::e4m3 && group == 32 && rows && powers) return ScaleMode::ue8m0;
      break;
    case GpuCode::e2m1:
      if (group == 32 && rows && powers) return ScaleMode::ue8m0;
      if (group == 16 && rows && w.pairs) return ScaleMode::e4m3_block;
      return {};
    case GpuCode::int4:
      break;
    default:
      return {};
  }
  if (w.dequantise) return {};
  if (group % 64 == 0) return ScaleMode::group_sums;
  const bool integers = w.code == GpuCode::int8 || w.code == GpuCode::int4;
  if (group % 32 == 0 && integers) return ScaleMode::group32_sums;
  return {};
}

// Whether both operands enter the tensor cores in FP8.
bool both_fp8(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  const int64_t group = p.scaled ? p.scaling.block_cols : 0;
  return w.code == GpuCode::e4m3 && !w.dequantise && x.has_codes() && group % 128 == 0 &&
         x.scale_group() % 128 == 0;
}
ScaleMode scales_of(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  if (both_fp8(p, w, x)) return ScaleMode::fp8_promotion;
  return x.scale_group() > 0 ? ScaleMode::group_sums : *scales_of(p, w);
}

// `rows`: of W a tile.
ScaledSide factors_of(const GemmProblem& p, const GpuGemm& g, int64_t rows) {
  if (g.x_scales == nullptr) return ScaledSide::weight;
  // One scale for all rows of a tile.
  const bool one = !g.scaled || (!p.gate && p.experts == 0 && g.weight.row_step == 1 &&
                                 g.source[0].first_row == 0 && g.weight.block_rows % rows == 0);
  return one ? ScaledSide::x : ScaledSide::both;
}

// Whether rows of W by runs of 32 may share their scales, of every second row as of all.
bool scales_of_runs(const GemmProblem& p) {
  return !p.scaled || p.scaling.block_cols == 0 || p.scaling.block_rows % 64 == 0;
}
// Whether they do so in the matrices of a problem without experts: see Sm90Matrices.
bool dense_scales_of_runs(const GemmProblem& p) {
  if (!p.scaled || p.scaling.block_cols == 0 || p.scaling.block_rows == 0) return true;
  if (p.scaling.block_rows % (p.interleaved ? 64 : 32) != 0) return false;
  return !p.gate || p.interleaved || p.separate_up || p.shared_expert || p.n % 32 == 0;
}

uint32_t depth(GpuCode code) { return is_plain(code) ? 64 : bits_of(code) == 8 ? 128 : 256; }

constexpr int64_t kMemory = 2600;  // bytes a clock, all multiprocessors together

// How many clusters are on the chip at once: those of two always fit; of more, the groups of
// multiprocessors that may form one leave some over. An H200 of 132 has 39 clusters of 3, 30 of 4,
// 22 of 5 and 15 of 8. One cluster too many is a wave of its own.
int64_t clusters(int64_t blocks, int multiprocessors) {
  return (blocks <= 2 ? multiprocessors : multiprocessors * 5 / 6) / blocks;
}

// How many tiles of the last wave two blocks share: all of them, if there are so few. Both halves
// have rows of x.
int64_t half_tiles(const GemmProblem& p, int64_t columns, int64_t tiles, int64_t resident,
                   bool fp8) {
  const int64_t left = tiles % resident, rows = p.m % columns;
  const bool can = columns == 256 && !fp8 && tiles > resident && (rows == 0 || rows > columns / 2);
  return can && 2 * left <= resident ? left : 0;
}

constexpr int64_t kTaken = 45;  // bytes a clock, one multiprocessor, of W and x

// The tile and the parts of K of FP8 by FP8 by few rows of x (sm90_fp8_few.cuh), as `choose` below.
// What a part costs is taken from measurements (docs/findings/gemm-hopper.md).
void choose_few(const GemmProblem& p, int multiprocessors, Sm90Choice* best) {
  const int64_t columns = p.m <= 64 ? 64 : 128, steps = ceil_div(p.k, kSm90Line);
  int64_t least = 0;
  for (const int64_t rows : {64, 128, 192}) {
    if (rows == (columns == 64 ? 192 : 128)) continue;
    const int64_t tiles = ceil_div(p.n, p.gate ? rows / 2 : rows), resident = rows == 192 ? 1 : 2;
    const int64_t read = p.n * (p.gate ? 2 : 1) * p.k / kMemory;
    for (const int64_t split : {1, 2, 3, 4, 5, 6, 7, 8}) {
      // Clusters of more than two beside those of the next kernel seldom find their places.
      const int64_t blocks = tiles * split, places = multiprocessors * resident;
      const int64_t fit = split <= 2 ? places / split
                                     : std::min<int64_t>(clusters(split, static_cast<int>(places)),
                                                         multiprocessors / split);
      if (split > 1 && (p.batch_invariant || tiles > fit || steps < 2 * split)) continue;
      const int64_t tile = ceil_div(steps, split) * (rows + columns) * kSm90Line / kTaken;
      const int64_t take = blocks <= multiprocessors ? tile
                           : blocks <= places        ? tile * blocks / multiprocessors
                                                     : tile * ceil_div(blocks, places) * resident;
      const int64_t clocks = std::max(take, read) + (split > 1 ? 600 * split : 0);
      if (least != 0 && clocks >= least) continue;
      least = clocks;
      best->columns = static_cast<uint32_t>(columns), best->few = static_cast<uint32_t>(rows);
      best->split = static_cast<uint32_t>(split);
    }
  }
}

// The tile and the number of parts of K that should take the least time. Clocks of a
// multiprocessor, rough where all that matters is which choice is less.
Sm90Choice choose(const GemmProblem& p, const GpuWeight& w, const GpuX& x, int multiprocessors) {
  Sm90Choice best;
  best.code = w.code;
  best.scales = scales_of(p, w, x);
  best.transposed = p.transposed;
  const bool fp8 = best.scales == ScaleMode::fp8_promotion;
  const int64_t rows = p.gate ? kRows / 2 : kRows, chunk = depth(w.code);
  const int64_t steps = ceil_div(p.k, chunk);
  // FP8 by FP8 has a kernel of its own for 256 rows of x (sm90_fp8.cuh).
  // Sums in units of the last scale have no factors of x, and want scales of groups.
  const bool wide =
      fp8 ? (p.experts > 0 || dense_scales_of_runs(p)) && scales_of_runs(p)
      : best.scales == ScaleMode::group_sums
          ? !p.batch_invariant && p.scaled && p.scaling.block_cols > 0 && x.scale_group() == 0
          : true;
  const bool same_sums = fp8 || !p.batch_invariant || !is_costly_to_dequantise(w.code);
  if (p.experts > 0) {
    // Experts have up to twice the average, and rows of a second part read their weights again;
    // columns that no row fills cost time of the tensor cores, but neither bytes nor codes.
    const int64_t average = ceil_div(p.m, p.experts);
    const int64_t most = fp8 ? 64 : 128;  // that tiles of 128 columns should have
    best.columns = average <= 12                ? 32
                   : average <= 40 && same_sums ? 64
                   : average <= most || !wide   ? 128
                                                : 256;
    return best;
  }
  if (fp8 && wide && p.m <= 128) {
    choose_few(p, multiprocessors, &best);
    return best;
  }
  int64_t least = 0;
  for (const int64_t columns : {256, 128, 64}) {
    if ((columns == 256 && !wide) || (columns == 64 && !same_sums)) continue;
    const int64_t tiles = ceil_div(p.n, rows) * ceil_div(p.m, columns);
    // Of a stage of W: MMAs of 2,048 multiply-adds a clock; codes, by the integer units; what a
    // multiprocessor takes of W and x, 45 bytes a clock, of which W comes from memory.
    const int64_t mma = kRows * columns * chunk / (fp8 ? 4096 : 2048);
    const int64_t expand = fp8 || is_plain(w.code) ? 0 : kRows * chunk / 12;
    const int64_t take = (kRows + columns * (fp8 ? 1 : chunk / 64)) * kSm90Line / kTaken;
    for (const int64_t split : {1, 2, 3, 4, 5, 8}) {
      const int64_t resident = clusters(split, multiprocessors);
      if (split > 1 &&
          (p.batch_invariant || columns == 256 || tiles > resident || steps < 2 * split))
        continue;
      const int64_t read = std::min(tiles, resident) * split * kRows * kSm90Line / kMemory;
      const auto wave = [&](int64_t divisor) {
        return ceil_div(steps, split) * std::max({mma / divisor, expand, take / divisor, read}) +
               1000 + 8 * columns / divisor;
      };
      const int64_t tail_tiles = half_tiles(p, columns, tiles, resident, fp8);
      const int64_t waves = ceil_div(tiles - tail_tiles, resident);
      const int64_t clocks =
          waves * wave(1) + (tail_tiles > 0 ? wave(2) : 0) + (split > 1 ? 3000 : 0);
      if (least != 0 && clocks >= least) continue;
      least = clocks;
      best.columns = static_cast<uint32_t>(columns), best.split = static_cast<uint32_t>(split);
      best.tail_tiles = static_cast<uint32_t>(tail_tiles);
    }
  }
  return best;
}

bool copyable(const void* data, int64_t row_bytes) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && row_bytes % 16 == 0;
}

}  // namespace

pipe::TensorBox weight_box_sm90(const GpuLayout& l, const GemmProblem& p,
                                const Sm90Matrices& matrices, uint32_t rows) {
  auto* first = const_cast<uint8_t*>(matrices.first);
  const auto row = static_cast<uint64_t>(l.row_bytes * l.row_step);
  if (p.transposed) {
    return pipe::matrix_box(hw::Type::u8, first, static_cast<uint64_t>(p.k),
                            static_cast<uint64_t>(2 * p.n), row, 64, 128, tile::Swizzle::b128);
  }
  pipe::TensorBox b;
  b.type = hw::Type::u8, b.address = first, b.rank = 3;
  b.swizzle = tile::Swizzle::b128;
  b.extent = {static_cast<uint64_t>(ceil_div(p.k * bits(l.format), 8)), static_cast<uint64_t>(p.n),
              static_cast<uint64_t>(matrices.last + 1)};
  b.stride = {row, uint64_t{1} << matrices.shift};
  b.box = {128, rows, 1};
  return b;
}

std::string refuse_sm90(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  // Of 9 to 16 rows the kernel of few reads x twice and takes longer (docs/findings/gpu-gemv.md).
  if (!p.batch_invariant && p.experts == 0 && p.m <= 8) {
    return concat("m is ", p.m, "; gemm_sm90_mixed is for more than 8 rows");
  }
  // A row or two for each of a few experts: blocks of 16 rows of W spread over the chip, tiles of
  // 128 do not fill it.
  if (!p.batch_invariant && (p.experts > 0 || p.shared_expert) && p.m < kFewestOfExperts) {
    return concat("the experts have ", p.m, " rows; gemm_sm90_mixed takes ", kFewestOfExperts,
                  " and more");
  }
  if (x.terms() > 1)
    return "x is not bf16, or f16 as the weight; gemm_sm90_mixed multiplies 16 bits";
  const std::optional<ScaleMode> scales = scales_of(p, w);
  if (!scales) {
    return concat(
        "weight is ", name(p.weight), p.scaled ? " with " : "",
        p.scaled ? to_string(p.scaling) + " scales" : "",
        "; gemm_sm90_mixed takes scales of rows, of groups of 64, of INT8 and INT4 of 32, "
        "and the block formats");
  }
  if (!both_fp8(p, w, x) && x.scale_group() > 0 &&
      (x.scale_group() % 64 != 0 || is_plain(w.code) || *scales == ScaleMode::e4m3_block ||
       *scales == ScaleMode::ue8m0 || *scales == ScaleMode::group32_sums)) {
    return concat("x has scales of ", x.scale_group(),
                  " elements; gemm_sm90_mixed takes multiples of ",
                  "64, with weights whose scales multiply sums");
  }
  const int64_t row_bits = p.k * bits(p.weight);
  if (p.k % 8 != 0 || row_bits % 128 != 0) {
    return concat("K is ", p.k, "; gemm_sm90_mixed takes rows of whole 16 bytes");
  }
  if (p.k >= int64_t{1} << 27)
    return concat("K is ", p.k, "; gemm_sm90_mixed takes less than 2^27");
  const bool pairs = *scales == ScaleMode::e4m3_block, powers = *scales == ScaleMode::ue8m0;
  const bool linear = p.scaling.layout == ScaleLayout::linear;
  const int64_t whole = pairs || (powers && linear) ? 64 : powers ? 128 : 1;
  if (p.k % whole != 0) {
    return concat("K is ", p.k,
                  "; gemm_sm90_mixed takes scales by fours, linear ones of 32 by twos");
  }
  return "";
}

Sm90Choice choose_sm90(const GemmProblem& p, const GpuWeight& w, const GpuX& x,
                       int multiprocessors) {
  return choose(p, w, x, multiprocessors);
}

std::string to_string(const Sm90Choice& c) {
  return concat("tiles of ", c.few > 0 ? c.few : kRows, " x ", c.columns,
                c.scales == ScaleMode::fp8_promotion ? " in FP8" : "",
                c.split > 1 ? concat(", split-K ", c.split) : "",
                c.tail_tiles > 0 ? concat(", the last ", c.tail_tiles, " halved") : "",
                c.transposed ? ", W as [K, N]" : "");
}

OperandNeeds needs_sm90(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  OperandNeeds needs;
  needs.weight = 16;
  needs.one_tensor_map = p.experts > 0 || p.separate_up || p.shared_expert;
  if (x.direct() && !p.gathered) needs.x = 16;
  const ScaleMode scales = scales_of(p, w, x);
  // Chunks have as many rows as the tiles of the kernel of FP8 by FP8.
  needs.whole_scale_blocks =
      scales == ScaleMode::fp8_promotion && p.experts > 0 && choose(p, w, x, 1).columns == 256;
  if (scales != ScaleMode::e4m3_block && scales != ScaleMode::ue8m0) return needs;
  const int unit = scales == ScaleMode::ue8m0 && p.k % 128 != 0 ? 2 : 4;
  needs.scale_storage = unit;
  if (p.scaling.layout != ScaleLayout::linear) return needs;
  needs.weight_scales = unit, needs.packed_scales = true;
  return needs;
}

namespace {

void set_scales(const GpuLayout& l, const GpuSource* sources, size_t count, Sm90Matrices* all) {
  if (l.scales != ScaleLayout::linear || l.block_rows != 1) return;
  uintptr_t first = ~uintptr_t{0}, last = 0, offsets = 0;
  const auto at = [&](size_t i) {
    return reinterpret_cast<uintptr_t>(scale_address(l, sources[i], 0, 0));
  };
  for (size_t i = 0; i < count; ++i) {
    if (sources[i].scales == nullptr) return;
    first = std::min(first, at(i)), last = std::max(last, at(i));
  }
  for (size_t i = 0; i < count; ++i) offsets |= at(i) - first;
  if (first % 16 != 0 || offsets % 16 != 0) return;
  const auto shift =
      offsets != 0 ? static_cast<uint32_t>(std::min(std::countr_zero(offsets), 30)) : 4;
  if ((last - first) >> shift > INT_MAX) return;
  all->first_scale = reinterpret_cast<const uint8_t*>(first);
  all->scale_shift = shift;
  all->last_scale = static_cast<int64_t>((last - first) >> shift);
}

}  // namespace

Sm90Matrices sm90_matrices(const GpuLayout& l, const GpuSource* sources, size_t count) {
  Sm90Matrices all;
  all.aligned = l.row_bytes * l.row_step % 16 == 0;
  uintptr_t first = ~uintptr_t{0}, last = 0, offsets = 0, scales = 0;
  const auto each = [&](auto f) {
    for (size_t i = 0; i < count; ++i) {
      f(reinterpret_cast<uintptr_t>(row_address(l, sources[i], 0)), sources[i]);
    }
  };
  each([&](uintptr_t at, const GpuSource& s) {
    first = std::min(first, at), last = std::max(last, at);
    scales |= reinterpret_cast<uintptr_t>(s.scales);
  });
  each([&](uintptr_t at, const GpuSource&) { offsets |= at - first; });
  all.first = reinterpret_cast<const uint8_t*>(first);
  all.aligned = all.aligned && first % 16 == 0 && offsets % 16 == 0;
  // A stride of a tensor map is below 2^40.
  if (offsets != 0) all.shift = static_cast<uint32_t>(std::min(std::countr_zero(offsets), 30));
  all.last = static_cast<int64_t>((last - first) >> all.shift);
  all.aligned = all.aligned && all.last <= INT_MAX;
  all.scales_aligned = 1U << std::countr_zero(scales | 16);
  set_scales(l, sources, count, &all);
  const int64_t run = 32 * l.row_step;
  const auto in_runs = [&](const GpuSource& s) { return s.first_row / l.row_step % 32 == 0; };
  all.scales_of_runs = l.group == 0 || l.block_rows == 0 ||
                       (l.block_rows % run == 0 && std::all_of(sources, sources + count, in_runs));
  return all;
}

bool takes_codes_sm90(const GemmProblem& p, const GpuWeight& w, const GpuX& x) {
  return both_fp8(p, w, x);
}

namespace {

void launch_gemms(const GemmProblem& problem, const GpuWeight& w, const Sm90Choice& choice,
                  std::span<const GpuGemm> gemms, const Sm90Matrices& matrices, uint32_t max_chunks,
                  Stream& stream) {
  const Device& device = stream.device();
  const int multiprocessors = properties(device).sm_count;
  Sm90Params p{};
  fuse_sm90(gemms, kRows, &p.gemm, p.fused_gemms);
  GpuGemm& g = p.gemm;
  g.n = static_cast<uint32_t>(problem.n);
  p.split = choice.split, p.tail_tiles = choice.tail_tiles;
  p.max_chunks = max_chunks;
  p.w_first = matrices.first, p.w_shift = matrices.shift;
  const uint32_t rows = choice.few > 0 ? choice.few : kSm90Rows;
  p.w_rows = problem.gate ? 32 : rows;
  // Of an expert with few rows eight at a time: what it has not is not loaded.
  p.x_rows = max_chunks > 0 ? (choice.columns <= 64 ? 8 : 64) : std::min(choice.columns, 128U);
  const bool fp8 = choice.scales == ScaleMode::fp8_promotion,
             by_rows = fp8 && choice.columns == 256;
  if (by_rows) {
    p.x_rows = max_chunks == 0 ? 128 : 64;
    p.multicast = g.n > (problem.gate ? kRows / 2 : kRows) ? 2 : 1;
  }
  const hw::Type type = fp8                      ? hw::Type::e4m3
                        : w.code == GpuCode::f16 ? hw::Type::f16
                                                 : hw::Type::bf16;
  p.w = pipe::make_tensor_map(weight_box_sm90(g.weight, problem, matrices, p.w_rows), device);
  p.x = pipe::make_tensor_map(
      pipe::matrix_box(type, const_cast<uint8_t*>(g.x), g.m, g.k, static_cast<uint64_t>(g.x_row),
                       p.x_rows, fp8 ? 128 : 64, tile::Swizzle::b128),
      device);
  const GpuEpilogue& f = g.epilogue;
  const bool plain = f.out_format != Format::f32 && f.residual == nullptr && !f.gate &&
                     f.activation.kind == Activation::identity && gemms.size() == 1 &&
                     copyable(f.out, f.out_row);
  p.tma_store = plain && choice.few == 0 && choice.split == 1 && (max_chunks == 0 || by_rows);
  if (p.tma_store) {
    const hw::Type out = f.out_format == Format::f16 ? hw::Type::f16 : hw::Type::bf16;
    p.out = pipe::make_tensor_map(
        pipe::matrix_box(out, f.out, g.m, g.n, static_cast<uint64_t>(f.out_row),
                         by_rows ? Sm90Fp8Stages::Store::kRows : 32, 64, tile::Swizzle::b128),
        device);
  }
  p.factors = factors_of(problem, g, rows);
  p.promote_every_128 = g.weight.group % 128 == 0 && g.x_group % 128 == 0;
  const Sm90Instance instance = fp8                    ? sm90_fp8(choice)
                                : is_plain(w.code)     ? sm90_w16(choice)
                                : bits_of(w.code) == 8 ? sm90_w8(choice)
                                                       : sm90_w4(choice);
  const LaunchShape shape = instance.shape(p, static_cast<uint32_t>(multiprocessors));
  launch(instance.image, with_pdl(shape, stream), p, stream);
}

}  // namespace

void launch_sm90(const GemmProblem& problem, const GpuWeight& w, const Sm90Choice& choice,
                 const GpuGemm& gemm, const Sm90Matrices& matrices, uint32_t max_chunks,
                 Stream& stream) {
  launch_gemms(problem, w, choice, {&gemm, 1}, matrices, max_chunks, stream);
}

bool launch_fused_sm90(const GemmProblem& problem, const GpuWeight& w, const GpuX& x,
                       std::span<const GpuGemm> gemms, Stream& stream) {
  // Tiles are whole, so that a copy reads no rows that a matrix does not have.
  std::vector<GpuSource> sources;
  for (const GpuGemm& g : gemms) {
    if (g.n % kRows != 0) return false;
    sources.push_back(g.source[0]);
  }
  const GpuLayout& layout = gemms[0].weight;
  const Sm90Matrices matrices = sm90_matrices(layout, sources.data(), sources.size());
  if (problem.transposed || scales_of(problem, w, x) == ScaleMode::fp8_promotion ||
      !matrices.aligned) {
    return false;
  }
  const Sm90Choice choice = choose(problem, w, x, properties(stream.device()).sm_count);
  if (choice.columns != 64) return false;
  launch_gemms(problem, w, choice, gemms, matrices, 0, stream);
  return true;
}

}  // namespace halftone::gemm
