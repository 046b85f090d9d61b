#include <algorithm>
#include <bit>

#include "base/device_memory.h"
#include "formats/gpu/adaptive.cuh"
#include "formats/gpu/adaptive_groups.cuh"
#include "formats/gpu/amax.cuh"
#include "formats/gpu/blocks.cuh"
#include "formats/gpu/dequantize.cuh"
#include "formats/gpu/expand.cuh"
#include "formats/gpu/groups.cuh"
#include "formats/gpu/row_codes.cuh"
#include "formats/gpu/tiles.cuh"
#include "formats/rows.h"
#include "hw/image.h"

namespace halftone {

namespace {

template <pipe::Access kAccess>
using TilesSm80 = QuantizeTilesGpu<kAccess, false>;
template <pipe::Access kAccess>
using TilesSm89 = QuantizeTilesGpu<kAccess, true>;
template <pipe::Access kAccess>
using GroupsSm80 = QuantizeGroupsGpu<kAccess, false>;
template <pipe::Access kAccess>
using GroupsSm89 = QuantizeGroupsGpu<kAccess, true>;
template <pipe::Access kAccess>
using ExpandSm80 = ExpandGpu<kAccess, false>;
template <pipe::Access kAccess>
using ExpandSm89 = ExpandGpu<kAccess, true>;

bool converts(Stream& stream) { return stream.device().arch() >= Arch::sm_89; }

bool is_whole(const QuantizeArgs& args) {
  return pipe::are_whole(args.x, args.columns) &&
         reinterpret_cast<uintptr_t>(args.codes) % 16 == 0 && args.recipe.group % 8 == 0;
}

// Whether rows are whole sixteens, which the threads of quantize_groups count in 32 bits.
bool in_sixteens(const QuantizeArgs& args) {
  return is_whole(args) && args.columns % 16 == 0 &&
         args.matrices * args.rows * args.columns < int64_t{1} << 35;
}

// Sixteens that share a scale, which neighbouring lanes take; 0: other blocks.
uint32_t lanes_of_group(const QuantizeArgs& args) {
  if (!in_sixteens(args) || args.block_rows != 1) return 0;
  const int64_t wide = args.recipe.group > 0 ? args.recipe.group : args.columns;
  for (uint32_t lanes = 1; lanes <= 32; lanes *= 2) {
    if (wide == int64_t{16} * lanes && args.columns % wide == 0) return lanes;
  }
  return 0;
}

void quantize_groups(const QuantizeArgs& args, uint32_t lanes, const uint32_t* largest,
                     Stream& stream) {
  const int64_t sixteens = args.columns / 16, count = args.matrices * args.rows * sixteens;
  const int64_t each =
      GroupsSm80<pipe::Access::bf16>::kThreads * GroupsSm80<pipe::Access::bf16>::kSixteens;
  const LaunchShape shape{.grid = {static_cast<uint32_t>((count + each - 1) / each), 1, 1},
                          .block = {GroupsSm80<pipe::Access::bf16>::kThreads, 1, 1}};
  const QuantizeGroupsParams p{
      args,
      fault_reporter(stream.device()),
      static_cast<uint32_t>(count),
      static_cast<uint32_t>(sixteens),
      lanes,
      args.x.inner == 1 && args.x.outer_stride == args.columns * pipe::bytes_of(args.source),
      largest,
      pipe::Divisor(lanes),
      GroupPlaces(args, sixteens / lanes)};
  launch(converts(stream)
             ? pipe::image_for_whole<GroupsSm89>(args.source, "quantize_groups", Arch::sm_89)
             : pipe::image_for_whole<GroupsSm80>(args.source, "quantize_groups"),
         with_pdl(shape, stream), p, stream);
}

// Of quantize_tiles and quantize_blocks.
struct Blocks {
  int64_t high, wide, down, across, row_stride;
  int64_t eights() const { return (wide + 7) / 8; }
};
Blocks blocks_of(const QuantizeArgs& args) {
  const int64_t high = args.block_rows > 0 ? std::min(args.block_rows, args.rows) : args.rows;
  const int64_t group = args.recipe.group > 0 ? args.recipe.group : args.columns;
  const int64_t wide = std::min(group, args.columns);
  return {high, wide, (args.rows + high - 1) / high, (args.columns + wide - 1) / wide,
          args.x.inner == 1 ? args.x.outer_stride : args.x.inner_stride};
}

void quantize_blocks(const QuantizeArgs& args, Stream& stream) {
  const Blocks blocks = blocks_of(args);
  // A thread to every few eights of a block, which it keeps.
  uint32_t threads = 1;
  while (threads < pipe::kMostRowThreads &&
         threads * QuantizeBlocksGpu<false>::kKept < blocks.high * blocks.eights()) {
    threads *= 2;
  }
  const QuantizeBlocksParams p{
      args,   fault_reporter(stream.device()), blocks.down, blocks.across, blocks.row_stride,
      threads};
  launch(converts(stream) ? hw::image_of<QuantizeBlocksGpu<true>>("quantize_blocks", Arch::sm_89)
                          : hw::image_of<QuantizeBlocksGpu<false>>("quantize_blocks"),
         with_pdl(pipe::RowThreads::shape(args.matrices * blocks.down * blocks.across, threads),
                  stream),
         p, stream);
}

// Groups of whole rows, each scale of which a lane can try.
bool are_small_groups(const QuantizeArgs& args) {
  const int64_t group = args.recipe.group;
  return in_sixteens(args) && args.block_rows == 1 && group >= 16 && group <= 128 &&
         group % 16 == 0 && args.columns % group == 0 &&
         args.matrices * args.rows * args.columns < int64_t{1} << 31;
}

void quantize_adaptive_groups(const QuantizeArgs& args, Stream& stream) {
  using Kernel = QuantizeAdaptiveGroupsGpu<pipe::Access::bf16>;
  const int64_t groups = args.columns / args.recipe.group;
  const int64_t count = args.matrices * args.rows * groups;
  const uint32_t lanes = std::bit_ceil(static_cast<uint32_t>(1 + alternatives(args.recipe)));
  const QuantizeAdaptiveGroupsParams p{
      args,  fault_reporter(stream.device()), static_cast<uint32_t>(count),
      lanes, static_cast<uint32_t>(groups),   GroupPlaces(args, groups)};
  const int64_t each = Kernel::kThreads / lanes;
  launch(pipe::image_for_whole<QuantizeAdaptiveGroupsGpu>(args.source, "quantize_adaptive_groups"),
         with_pdl({.grid = {static_cast<uint32_t>((count + each - 1) / each), 1, 1},
                   .block = {Kernel::kThreads, 1, 1}},
                  stream),
         p, stream);
}

void quantize_adaptive(const QuantizeArgs& args, Stream& stream) {
  if (are_small_groups(args)) return quantize_adaptive_groups(args, stream);
  const Blocks blocks = blocks_of(args);
  constexpr int64_t kEach = QuantizeAdaptiveGpu::kThreads / QuantizeAdaptiveGpu::kLanes;
  const int64_t count = args.matrices * blocks.down * blocks.across;
  launch(hw::image_of<QuantizeAdaptiveGpu>("quantize_adaptive"),
         with_pdl({.grid = {static_cast<uint32_t>((count + kEach - 1) / kEach), 1, 1},
                   .block = {QuantizeAdaptiveGpu::kThreads, 1, 1}},
                  stream),
         QuantizeAdaptiveParams{args, fault_reporter(stream.device()), blocks.down, blocks.across},
         stream);
}

// Blocks of whole pieces: rows, or several rows of a power of two of eights.
bool are_tiles(const QuantizeArgs& args, const Blocks& blocks) {
  const auto eights = static_cast<uint64_t>(blocks.eights());
  constexpr int64_t kMost = int64_t{1} << 32;  // offsets within a tile: 32 bits by 32 bits
  return is_whole(args) && args.columns < kMost && blocks.row_stride >= 0 &&
         blocks.row_stride < kMost &&
         (blocks.high == 1 ||
          (std::has_single_bit(eights) && eights <= TilesSm80<pipe::Access::bf16>::kThreads)) &&
         blocks.high * blocks.eights() < int64_t{1} << 30 &&
         args.matrices * blocks.down * blocks.across < int64_t{1} << 31;
}

void quantize_tiles(const QuantizeArgs& args, const Blocks& blocks, Stream& stream) {
  using Kernel = TilesSm80<pipe::Access::bf16>;
  const int64_t count = args.matrices * blocks.down * blocks.across;
  const int64_t eights = blocks.eights(), pieces = blocks.high * eights;
  // As many threads as keep a tile, at least a warp, and more where the tiles alone would leave
  // multiprocessors idle.
  const int64_t kept = args.source == Format::f32 ? TilesSm80<pipe::Access::f32>::kKept
                                                  : TilesSm80<pipe::Access::bf16>::kKept;
  const int64_t idle = int64_t{properties(stream.device()).sm_count} * Kernel::kThreads;
  int64_t threads = 1;
  while (threads < Kernel::kThreads && threads < pieces &&
         (threads < 32 || (blocks.high > 1 && threads < eights) || threads * kept < pieces ||
          threads * count < idle)) {
    threads *= 2;
  }
  const QuantizeTilesParams p{
      args,
      fault_reporter(stream.device()),
      static_cast<uint32_t>(count),
      static_cast<uint32_t>(blocks.down),
      static_cast<uint32_t>(blocks.across),
      static_cast<uint32_t>(blocks.high),
      static_cast<uint32_t>(blocks.wide),
      blocks.high == 1 ? Kernel::kOneRow
                       : static_cast<uint32_t>(std::countr_zero(static_cast<uint64_t>(eights))),
      static_cast<uint32_t>(blocks.row_stride),
      static_cast<uint32_t>(threads)};
  launch(converts(stream)
             ? pipe::image_for_whole<TilesSm89>(args.source, "quantize_tiles", Arch::sm_89)
             : pipe::image_for_whole<TilesSm80>(args.source, "quantize_tiles"),
         with_pdl(pipe::RowThreads::shape(count, static_cast<uint32_t>(threads)), stream), p,
         stream);
}

// Bits of the largest |x| of `matrices` equal parts of the rows.
void find_largest(const QuantizeArgs& args, int64_t matrices, bool finite, uint32_t* largest,
                  Stream& stream) {
  fill_memory(stream.device(), largest, 0, static_cast<size_t>(matrices) * sizeof *largest,
              &stream);
  AmaxParams p{args.x,       args.source, args.matrices * args.rows / matrices,
               args.columns, finite,      largest};
  const int64_t row_bytes = p.columns * pipe::bytes_of(p.source);
  const bool whole = pipe::are_whole(p.x, p.columns);
  if (p.x.inner == 1 && p.x.outer_stride == row_bytes) {  // no gaps: one long row
    p.columns *= p.rows, p.x.outer_stride *= p.rows, p.rows = 1;
  }
  constexpr uint32_t kThreads = AmaxGpu<pipe::Access::any>::kThreads;
  const int64_t eights = p.rows * ((p.columns + 7) / 8);
  // As many blocks as are resident at a time: each ends with one atomic operation.
  constexpr int64_t kResident = AmaxGpu<pipe::Access::any>::kMinBlocks;
  const int64_t most =
      std::max<int64_t>(1, properties(stream.device()).sm_count * kResident / matrices);
  const int64_t blocks = std::clamp<int64_t>(eights / kThreads, 1, most);
  launch(pipe::image_for<AmaxGpu>(p.source, whole, "amax"),
         with_pdl({.grid = {static_cast<uint32_t>(blocks), static_cast<uint32_t>(matrices), 1},
                   .block = {kThreads, 1, 1},
                   .shared_bytes = pipe::RowThreads::kSharedBytes},
                  stream),
         p, stream);
}

void finish_scales(const QuantizeArgs& args, uint32_t* scales, int64_t count, Stream& stream) {
  launch(hw::image_of<TensorScaleGpu>("tensor_scale"),
         with_pdl({.grid = {1, 1, 1}, .block = {TensorScaleGpu::kThreads, 1, 1}}, stream),
         TensorScaleGpu::Params{args.recipe, scales, count}, stream);
}

void quantize_scaled(const QuantizeArgs& args, Stream& stream) {
  if (args.recipe.adaptive) return quantize_adaptive(args, stream);
  if (const uint32_t lanes = lanes_of_group(args); lanes != 0) {
    return quantize_groups(args, lanes, nullptr, stream);
  }
  // A scale for matrices that are more than a block's: the largest element first, by the whole
  // GPU, in the place of the scale.
  constexpr int64_t kBlock = int64_t{128} * 128;
  const bool of_matrices = args.block_rows == 0 && args.recipe.group == 0 && in_sixteens(args) &&
                           !args.recipe.asymmetric && args.recipe.scale_format == Format::f32 &&
                           args.matrices <= 65535;
  if (!of_matrices || args.rows * args.columns <= kBlock) {
    const Blocks blocks = blocks_of(args);
    return are_tiles(args, blocks) ? quantize_tiles(args, blocks, stream)
                                   : quantize_blocks(args, stream);
  }
  auto* scales = reinterpret_cast<uint32_t*>(args.scales);
  find_largest(args, args.matrices, false, scales, stream);
  quantize_groups(args, 1, scales, stream);
  finish_scales(args, scales, args.matrices, stream);
}

}  // namespace

bool take_row_codes(const QuantizeArgs& to, Format made, Stream& stream, RowCodesArgs* args) {
  if (to.matrices * to.rows * to.columns == 0) return false;
  const int64_t group = to.recipe.group > 0 ? to.recipe.group : to.columns;
  const int64_t rows = to.matrices * to.rows;
  const bool joint = group == to.columns;
  if (made == Format::f32 || to.recipe.adaptive || to.block_rows != 1 || to.columns % 8 != 0 ||
      reinterpret_cast<uintptr_t>(to.codes) % 8 != 0 || rows * (to.columns / group) >> 31 != 0) {
    return false;
  }
  if (!joint && (to.columns % group != 0 || group < 16 || group > 256 ||
                 !std::has_single_bit(static_cast<uint64_t>(group)))) {
    return false;
  }
  *args = {to, fault_reporter(stream.device()), joint ? 0 : static_cast<uint32_t>(group / 8),
           static_cast<uint32_t>(std::countr_zero(static_cast<uint64_t>(group))),
           GroupPlaces(to, to.columns / group)};
  return true;
}

void quantize_gpu(const QuantizeArgs& args, Stream& stream) {
  if (args.matrices * args.rows * args.columns == 0) return;
  if (args.given > 0) {  // no row waits for another
    if (in_sixteens(args)) return quantize_groups(args, 1, nullptr, stream);
    QuantizeArgs rows = args;
    rows.block_rows = 1;
    return quantize_blocks(rows, stream);
  }
  if (!args.find_tensor_scale) return quantize_scaled(args, stream);
  QuantizeArgs found = args;
  auto* largest = reinterpret_cast<uint32_t*>(args.tensor_scale);
  find_largest(args, 1, true, largest, stream);
  found.amax = largest;
  quantize_scaled(found, stream);
  finish_scales(args, largest, 1, stream);
}

// Eights of codes that share a scale, and whole results.
bool expands(const DequantizeArgs& args, int64_t result_rows) {
  const Rows& codes = args.codes;
  const auto all = reinterpret_cast<uintptr_t>(codes.base) |
                   static_cast<uintptr_t>(codes.outer_stride | codes.inner_stride);
  return !is_plain_float(args.format) && codes.inner == 1 && args.columns % 8 == 0 &&
         args.block_columns % 8 == 0 &&
         all % (bits_of(args.format) == 6 ? 2 : bits_of(args.format)) == 0 &&
         reinterpret_cast<uintptr_t>(args.out) % 16 == 0 &&
         result_rows * (args.columns / 8) < int64_t{1} << 31;
}

ExpandParams expand_params(const DequantizeArgs& args, int64_t result_rows, bool gathers) {
  const int64_t eights = args.columns / 8;
  const int64_t group = args.block_columns > 0 ? args.block_columns : args.columns;
  const int64_t groups = (args.columns + group - 1) / group, matrix = args.rows * groups;
  const bool single = args.scale_matrix == 0 && args.scale_row == 0 && args.scale_column == 0 &&
                      args.zeros == nullptr && args.layout == ScaleLayout::linear;
  const bool even = args.layout == ScaleLayout::linear && args.block_rows == 1 &&
                    args.columns % group == 0 && (args.rows == 1 || args.scale_row == groups) &&
                    (groups == 1 || args.scale_column == 1) &&
                    (args.matrices == 1 || args.scale_matrix == matrix) &&
                    (args.zeros == nullptr ||
                     (args.zero_row == args.scale_row && args.zero_column == args.scale_column &&
                      args.zero_matrix == args.scale_matrix));
  const bool dense =
      args.codes.inner == 1 && args.codes.outer_stride == packed_bytes(args.format, args.columns);
  const auto divisor = [](int64_t n) { return pipe::Divisor(static_cast<uint32_t>(n)); };
  ExpandParams p{};
  p.args = args;
  p.flat = !gathers && dense && (even || single);
  p.row_count = p.flat ? 1 : static_cast<uint32_t>(result_rows);
  p.row_eights = static_cast<uint32_t>(p.flat ? result_rows * eights : eights);
  // The widest units that leave less than a sixteenth of a row's places empty; where rows are
  // short, such that one holds a row.
  constexpr uint32_t kEights = ExpandSm80<pipe::Access::bf16>::kEights;
  const auto units = [&] { return (p.row_eights - 1) / (kEights << p.shift) + 1; };
  p.shift = 8;
  while (p.shift > 0 && units() * uint64_t{kEights << p.shift} - p.row_eights > p.row_eights / 16) {
    --p.shift;
  }
  p.row_units = units();
  p.groups = static_cast<uint32_t>(groups);
  p.units = divisor(p.row_units);
  p.group_eights = divisor(single && p.flat ? int64_t{1} << 31 : group / 8);
  p.rows = divisor(args.rows);
  p.high = divisor(args.block_rows > 0 ? args.block_rows : args.rows);
  // Of tiled layouts the scales of four groups stand together.
  const bool tiled = args.layout != ScaleLayout::linear;
  p.tile_shift = tiled ? 2 : 0;
  p.tile_step = static_cast<uint32_t>(tiled    ? scale_offset(args.layout, args.rows, groups, 0, 4)
                                      : p.flat ? 1
                                               : args.scale_column);
  return p;
}

LaunchShape expand_shape(const ExpandParams& p) {
  using Kernel = ExpandSm80<pipe::Access::bf16>;
  const int64_t units = int64_t{p.row_count} * p.row_units, each = Kernel::kThreads >> p.shift;
  return {.grid = {static_cast<uint32_t>((units + each - 1) / each), 1, 1},
          .block = {Kernel::kThreads, 1, 1}};
}

void dequantize_gpu(const DequantizeArgs& given, Stream& stream) {
  DequantizeArgs args = given;
  if (args.matrices == 1) args.codes = {args.codes[0], 1, args.codes[1] - args.codes[0], 0};
  if (args.matrices * args.rows * args.columns == 0) return;
  const int64_t rows = args.matrices * args.rows;
  if (expands(args, rows)) {
    const ExpandParams p = expand_params(args, rows, false);
    return launch(converts(stream)
                      ? pipe::image_for_whole<ExpandSm89>(args.out_format, "expand", Arch::sm_89)
                      : pipe::image_for_whole<ExpandSm80>(args.out_format, "expand"),
                  with_pdl(expand_shape(p), stream), p, stream);
  }
  const uint32_t threads = pipe::threads_of_row(args.columns);
  launch(hw::image_of<DequantizeGpu>("dequantize"),
         with_pdl(pipe::RowThreads::shape(rows, threads), stream),
         DequantizeGpu::Params{args, threads}, stream);
}

}  // namespace halftone
