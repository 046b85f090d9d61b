#include "halftone/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/device_memory.h"
#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/gpu/kernels.h"
#include "formats/kernels.h"
#include "formats/quantize_rows.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_layout.h"

namespace halftone {

namespace {

// x as matrices of `rows` x `columns` (the last two dimensions), with unit stride in a row.
struct Source {
  Tensor x;
  int64_t matrices, rows, columns;
  const char* row(int64_t i) const { return address(x, row_offset(x, i)); }
};

uint32_t amax_of(const Source& source, int64_t row_begin, int64_t row_end, int64_t column,
                 int64_t columns, ThreadPool& pool) {
  const FormatKernels& kernels = format_kernels();
  const Format format = source.x.format();
  const int64_t rows = row_end - row_begin, width = std::max<int64_t>(columns, 1);
  const int64_t grain = std::max<int64_t>(1, piece_of(rows * width, pool.size()) / width);
  std::atomic<uint32_t> largest{0};
  pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
    uint32_t mine = 0;
    for (int64_t i = row_begin + begin; i < row_begin + end; ++i) {
      const void* x = source.row(i) + column * plain_bytes(format);
      mine = std::max(mine, kernels.amax(format, x, columns));
    }
    uint32_t seen = largest.load(std::memory_order_relaxed);
    while (seen < mine && !largest.compare_exchange_weak(seen, mine)) {
    }
  });
  return largest;
}

// Largest finite |x|; slow, for tensors that hold a NaN or an infinity somewhere.
float finite_amax(const Source& source) {
  float largest = 0;
  for (int64_t i = 0; i < source.matrices * source.rows; ++i) {
    std::vector<float> row(static_cast<size_t>(source.columns));
    format_kernels().convert(source.x.format(), Format::f32, source.row(i), source.columns,
                             row.data());
    for (float x : row) {
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    }
  }
  return largest;
}

void set_tensor_scale(const std::optional<float>& given, const Source& source, ThreadPool& pool,
                      Recipe* recipe) {
  if (given) return set_tensor_scale(*given, recipe);
  const uint32_t bits = amax_of(source, 0, source.matrices * source.rows, 0, source.columns, pool);
  const float amax = bits < kInfinityBits ? bits_float(bits) : finite_amax(source);
  set_tensor_amax(amax, recipe);
}

struct Target {
  uint8_t *codes, *scales, *zeros;
  ScaleLayout layout;
};
Target target_of(const Tensor& out) {
  return {out.data<uint8_t>(), out.scales().data<uint8_t>(),
          out.scaling().asymmetric ? out.zero_points().data<uint8_t>() : nullptr,
          out.scaling().layout};
}

// Elements whose scales, before they find their places in a tiled layout, fit the stack.
constexpr int64_t kStrip = 8192;

// Scales first .. first + count of a row, to their places in a matrix of tiled scales.
void place_scales(ScaleLayout layout, int64_t rows, int64_t groups, int64_t row, int64_t first,
                  int64_t count, const uint8_t* codes, uint8_t* to) {
  // Four neighbours stay together in every layout; first is a multiple of 4.
  uint8_t* at = to + scale_offset(layout, rows, groups, row, first);
  const int64_t step = scale_offset(layout, rows, groups, 0, 4);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4, at += step) std::memcpy(at, codes + i, 4);
  std::memcpy(at, codes + i, static_cast<size_t>(count - i));
}

// Rows whose blocks lie within them, in pieces.
struct RowQuantizer {
  const Recipe& recipe;
  const Target& target;
  Format format;
  int64_t rows, columns;  // of a matrix
  int64_t group = recipe.group > 0 ? recipe.group : columns;
  int64_t groups = (columns + group - 1) / group;
  // Long rows are cut between groups; four scales stay together for the tiled layouts.
  int64_t piece = whole(target.layout != ScaleLayout::linear ? kStrip : kLeastPiece);
  int64_t pieces = (columns + piece - 1) / piece;

  int64_t whole(int64_t elements) const {
    const int64_t count = elements / group;
    return (count >= 4 ? count / 4 * 4 : std::max<int64_t>(count, 1)) * group;
  }
  // Piece `index` of `row`, which begins at x and is counted over all matrices.
  bool run(const char* x, int64_t row, int64_t index) const {
    const int64_t column = index * piece, n = std::min(piece, columns - column);
    const int64_t first = column / group, scale_index = row * groups + first;
    const bool tiled = target.layout != ScaleLayout::linear;
    uint8_t tile[kStrip / 16 + 4];
    const bool fits = format_kernels().quantize_row(
        recipe, format, x + column * plain_bytes(format), n,
        target.codes + (row * columns + column) * bits(recipe.format) / 8,
        tiled ? tile : target.scales + scale_index * scale_bytes(recipe.scale_format),
        target.zeros != nullptr ? target.zeros + scale_index : nullptr);
    if (tiled) {
      place_scales(target.layout, rows, groups, row % rows, first, (n + group - 1) / group, tile,
                   target.scales + row / rows * scale_layout_bytes(target.layout, rows, groups));
    }
    return fits;
  }
};

// Blocks within single rows.
bool quantize_rows_of(const Source& source, const Recipe& recipe, const Target& target,
                      ThreadPool& pool) {
  const RowQuantizer quantizer{recipe, target, source.x.format(), source.rows, source.columns};
  const int64_t pieces = quantizer.pieces;
  const int64_t width = std::min(quantizer.piece, source.columns);
  const int64_t grain = std::max<int64_t>(1, piece_of(source.x.numel(), pool.size()) / width);
  std::atomic<bool> fits{true};
  pool.parallel_for(source.matrices * source.rows * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / pieces;
      if (!quantizer.run(source.row(row), row, i % pieces)) fits = false;
    }
    if (recipe.streamed) stream_fence();
  });
  return fits;
}

// One block over several rows.
bool quantize_block(const Source& source, const Recipe& recipe, int64_t row_begin, int64_t row_end,
                    int64_t column, int64_t columns, const Target& target, int64_t scale_index,
                    ThreadPool& pool) {
  const FormatKernels& kernels = format_kernels();
  const Format format = source.x.format();
  const int64_t rows = row_end - row_begin;
  const int64_t grain = std::max<int64_t>(1, piece_of(rows * columns, pool.size()) / columns);
  const uint32_t amax = amax_of(source, row_begin, row_end, column, columns, pool);
  const bool finite = amax < kInfinityBits;
  BlockScale best = finite ? block_scale(recipe, amax) : poisoned_scale(recipe);
  const auto each_row = [&](auto&& body) {
    pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        body(i, source.row(row_begin + i) + column * plain_bytes(format));
      }
    });
  };
  if (recipe.adaptive && finite && amax != 0) {
    std::vector<double> errors(static_cast<size_t>(rows));
    const auto error_of = [&](const BlockScale& scale) {
      each_row([&](int64_t i, const void* x) {
        errors[static_cast<size_t>(i)] =
            kernels.squared_error(format, recipe.format, x, columns, scale.multiplier, kInt4Zero,
                                  scale.value, recipe.tensor_scale);
      });
      double sum = 0;  // in the order of the rows, whoever computed them
      for (double error : errors) sum += error;
      return sum;
    };
    const BlockScale first = best;
    double least = error_of(first);
    for (int i = 0; i < alternatives(recipe); ++i) {
      const BlockScale other = alternative(recipe, first, i);
      const double error = error_of(other);
      if (error < least) least = error, best = other;
    }
  }
  store_scale(recipe.scale_format, target.scales, scale_index, best.code);
  each_row([&](int64_t i, const void* x) {
    uint8_t* codes = target.codes + (row_begin + i) * source.columns + column;
    if (finite) {
      kernels.encode(format, recipe.format, x, columns, best.multiplier, kInt4Zero, codes);
    } else {
      std::fill_n(codes, columns, uint8_t{0});
    }
  });
  return !std::isinf(best.value);
}

// Bytes of a band that stay in the second-level cache from the maxima to the codes.
constexpr int64_t kBandBytes = 256 << 10;

// Bands of blocks, `part` columns (whole blocks) of `rows` rows at a time.
bool quantize_bands_of(const Source& source, const Recipe& recipe, int64_t block_rows,
                       int64_t block_cols, int64_t part, const Target& target, ThreadPool& pool) {
  const int64_t down = (source.rows + block_rows - 1) / block_rows;
  const int64_t across = (source.columns + block_cols - 1) / block_cols;
  const int64_t parts = (source.columns + part - 1) / part, bands = source.matrices * down;
  // A thread reads the next part while it encodes one; several tasks a thread keep all busy.
  const int64_t share = std::max<int64_t>(1, bands * parts / (4 * pool.size()));
  const int64_t strip = std::min(share, parts) * part;
  const int64_t strips = (source.columns + strip - 1) / strip;
  const Format format = source.x.format();
  const int64_t row_bytes = source.rows > 1 ? source.x.stride(-2) * plain_bytes(format) : 0;
  std::atomic<bool> fits{true};
  pool.parallel_for(bands * strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t matrix = i / (down * strips), band = i / strips % down;
      const int64_t row = matrix * source.rows + band * block_rows, column = i % strips * strip;
      const int64_t first_scale = (matrix * down + band) * across + column / block_cols;
      const Band of{source.row(row) + column * plain_bytes(format),
                    row_bytes,
                    std::min(block_rows, source.rows - band * block_rows),
                    std::min(strip, source.columns - column),
                    part,
                    target.codes + row * source.columns + column,
                    source.columns,
                    target.scales + first_scale * scale_bytes(recipe.scale_format)};
      if (!format_kernels().quantize_band(recipe, format, of)) fits = false;
    }
    if (recipe.streamed) stream_fence();
  });
  return fits;
}

bool quantize_blocks_of(const Source& source, const Recipe& recipe, const Scaling& scaling,
                        const Target& target, ThreadPool& pool) {
  const int64_t block_rows = scaling.block_rows > 0 ? scaling.block_rows : source.rows;
  const int64_t block_cols = scaling.block_cols > 0 ? scaling.block_cols : source.columns;
  const int64_t down = (source.rows + block_rows - 1) / block_rows;
  const int64_t across = (source.columns + block_cols - 1) / block_cols;
  const int64_t elements = std::min(block_rows, source.rows) * std::min(block_cols, source.columns);
  std::atomic<bool> fits{true};
  const auto quantize_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t matrix = i / (down * across);
      const int64_t row = i / across % down * block_rows, column = i % across * block_cols;
      const int64_t first = matrix * source.rows;
      if (!quantize_block(source, recipe, first + row,
                          first + std::min(row + block_rows, source.rows), column,
                          std::min(block_cols, source.columns - column), target, i, pool)) {
        fits = false;
      }
    }
  };
  const int64_t blocks = source.matrices * down * across;
  const int64_t bytes = elements * plain_bytes(source.x.format());
  if (blocks >= 4 * pool.size() && bytes <= kBandBytes && !recipe.adaptive) {
    // Wide parts are read in longer runs; several a thread keep the threads evenly busy.
    const int64_t wide = std::min(kBandBytes / bytes, blocks / (4 * pool.size()));
    return quantize_bands_of(source, recipe, block_rows, block_cols,
                             std::min(std::max<int64_t>(1, wide), across) * block_cols, target,
                             pool);
  }
  if (blocks >= 4 * pool.size()) {
    pool.parallel_for(blocks, std::max<int64_t>(1, kLeastPiece / elements), quantize_range);
  } else {
    quantize_range(0, blocks);  // the rows of each block are shared out instead
  }
  return fits;
}

}  // namespace

namespace {

// Checks what is written to, and clears the padding of its scales.
void prepare(const Shape& shape, const QuantizeOptions& options, Tensor& out, Stream& stream) {
  const Support support = can_quantize(shape, options);
  require(support.ok, "quantize: ", support.reason);
  require(out.defined() && out.shape() == shape && out.format() == options.format &&
              out.contiguous() && out.has_scales() && out.scaling() == options.scaling &&
              out.scales().contiguous() && out.device() == stream.device(),
          "quantize_into: out does not fit x ", to_string(shape), " and ", to_string(options),
          "; make it with empty_quantized");
  // Tiled scales are of one byte each; without padding there is nothing to clear.
  const int64_t bytes = out.scales().bytes();
  if (options.scaling.layout == ScaleLayout::linear ||
      bytes * options.scaling.block_rows * options.scaling.block_cols == out.numel()) {
    return;
  }
  fill_memory(out.device(), out.scales().data(), 0, static_cast<size_t>(bytes), &stream);
}

void finish(bool fits, const Recipe& recipe, const QuantizeOptions& options, Tensor& out) {
  require(fits, "quantize: a scale of x is above 65504, the largest ", name(options.scaling.format),
          "; choose a scaling with f32 scales");
  if (has_tensor_scale(options.format)) *out.tensor_scale().data<float>() = recipe.tensor_scale;
}

}  // namespace

namespace {

// Where codes and scales go.
void set_target(const QuantizeOptions& options, Tensor& out, QuantizeArgs* args) {
  args->recipe = make_recipe(options);
  args->columns = out.size(-1), args->rows = out.rank() > 1 ? out.size(-2) : 1;
  args->matrices = out.numel() / std::max<int64_t>(args->rows * args->columns, 1);
  args->block_rows = options.scaling.block_rows;
  // Half a warp walks all elements that share a scale, once for each scale that it tries.
  constexpr int64_t kMostSearched = int64_t{1} << 20;
  const int64_t high = args->block_rows > 0 ? args->block_rows : args->rows;
  const int64_t wide = options.scaling.block_cols > 0 ? options.scaling.block_cols : args->columns;
  require(!options.adaptive || high * wide <= kMostSearched, "quantize: ", to_string(options),
          " on ", out.device().name(), " has a scale for ", high, " x ", wide,
          " elements; adaptive scales of more than ", kMostSearched,
          " are chosen on the CPU alone");
  args->codes = out.data<uint8_t>();
  args->scales = out.scales().data<uint8_t>();
  args->scale_bytes = out.scales().bytes() / std::max<int64_t>(args->matrices, 1);
  args->layout = options.scaling.layout;
  if (options.scaling.asymmetric) args->zeros = out.zero_points().data<uint8_t>();
  if (has_tensor_scale(options.format)) args->tensor_scale = out.tensor_scale().data<float>();
}

void quantize_on_gpu(const Tensor& x, const QuantizeOptions& options, Tensor& out, Stream& stream) {
  require(x.contiguous() || (x.rank() <= 3 && x.stride(-1) == 1), "quantize: x of shape ",
          to_string(x.shape()), " has strides ", to_string(x.strides()),
          "; on a GPU it must be row-major, or of rank 2 or 3 with a last stride of 1");
  if (x.numel() == 0) return;
  QuantizeArgs args;
  set_target(options, out, &args);
  args.source = x.format();
  const int64_t bytes = plain_bytes(x.format());
  if (x.contiguous()) {
    args.x = {x.data<char>(), 1, args.columns * bytes, 0};
  } else {
    args.x = {x.data<char>(), args.rows, x.rank() == 3 ? x.stride(0) * bytes : 0,
              x.rank() > 1 ? x.stride(-2) * bytes : 0};
    if (args.rows == 1) args.x.inner_stride = 0;
  }
  args.find_tensor_scale = has_tensor_scale(options.format) && !options.tensor_scale;
  quantize_gpu(args, stream);
}

}  // namespace

QuantizeArgs quantize_target(const QuantizeOptions& options, Tensor& out, Stream& stream) {
  prepare(out.shape(), options, out, stream);
  QuantizeArgs args;
  set_target(options, out, &args);
  return args;
}

void quantize_into(const Tensor& x, const QuantizeOptions& options, Tensor& out, Stream& stream) {
  require(x.defined(), "quantize: x is undefined");
  require(is_plain_float(x.format()), "quantize: x is ", name(x.format()),
          "; it must be f32, f16 or bf16");
  require(x.device() == stream.device(), "quantize: x is on ", x.device().name(),
          " and the stream on ", stream.device().name(), "; both must be on the same device");
  prepare(x.shape(), options, out, stream);
  const int64_t columns = x.size(-1), rows = x.rank() > 1 ? x.size(-2) : 1;
  Recipe recipe = make_recipe(options);
  if (!x.device().is_cpu()) return quantize_on_gpu(x, options, out, stream);
  bool fits = true;
  if (x.numel() > 0) {
    const Source source{x.stride(-1) == 1 || columns == 1 ? x : x.contiguous_copy(),
                        x.numel() / (rows * columns), rows, columns};
    ThreadPool& pool = stream.pool();
    if (has_tensor_scale(options.format)) {
      set_tensor_scale(options.tensor_scale, source, pool, &recipe);
    }
    recipe.streamed = x.bytes() + out.bytes() >= kStreamFrom;
    const Target target = target_of(out);
    fits = options.scaling.block_rows == 1
               ? quantize_rows_of(source, recipe, target, pool)
               : quantize_blocks_of(source, recipe, options.scaling, target, pool);
  }
  finish(fits, recipe, options, out);
}

void check_one_pass(const QuantizeOptions& options) {
  require(options.scaling.block_rows == 1, "quantising in one pass needs scales within rows; ",
          to_string(options), " has blocks of several rows: run the operation, then quantize");
  require(!has_tensor_scale(options.format) || options.tensor_scale,
          "quantising in one pass cannot look for nvfp4's tensor scale first; set "
          "QuantizeOptions::tensor_scale");
}

void quantize_produced(Format format, const QuantizeOptions& options, const Tensor& source,
                       Tensor& out, Stream& stream,
                       FunctionRef<void(int64_t begin, int64_t end, const Tensor& tile)> produce) {
  const Shape& shape = out.shape();
  prepare(shape, options, out, stream);
  check_one_pass(options);
  Recipe recipe = make_recipe(options);
  if (!out.device().is_cpu()) {
    const int64_t rows = out.numel() / std::max<int64_t>(out.size(-1), 1);
    const Tensor whole = Tensor::empty({rows, out.size(-1)}, format, out.device());
    produce(0, rows, whole);
    return quantize_on_gpu(whole.reshape(shape), options, out, stream);
  }
  // What is produced has at least one operand of the format.
  recipe.streamed = out.numel() * plain_bytes(format) + out.bytes() >= kStreamFrom;
  bool fits = true;
  if (out.numel() > 0) {
    const int64_t columns = out.size(-1), rows = out.rank() > 1 ? out.size(-2) : 1;
    const int64_t all = out.numel() / columns;
    // Tiles stay in the second-level cache; several a thread keep the threads evenly busy.
    constexpr int64_t kTile = 65536;
    const int64_t share = (all + 4 * stream.threads() - 1) / (4 * stream.threads());
    const int64_t tile = std::clamp<int64_t>(kTile / columns, 1, share);
    const int64_t tiles = (all + tile - 1) / tile;
    const int64_t piece =
        std::max<int64_t>(1, piece_of(out.numel(), stream.threads()) / (tile * columns));
    const Tensor buffers = Tensor::empty({stream.threads(), tile, columns}, format);
    const Target target = target_of(out);
    std::atomic<int64_t> next{0};
    std::atomic<bool> all_fit{true};
    stream.pool().run([&](int thread) {
      const Tensor buffer = buffers.slice(0, thread, thread + 1).reshape({tile, columns});
      Recipe own = recipe;
      const RowQuantizer quantizer{own, target, format, rows, columns};
      for (int64_t first = 0; (first = next.fetch_add(piece)) < tiles;) {
        const int64_t last = std::min(first + piece, tiles);
        for (int64_t i = first; i < last; ++i) {
          const int64_t begin = i * tile, end = std::min(begin + tile, all);
          const bool known = source.defined() && i + 1 < last;
          own.ahead = known ? reinterpret_cast<intptr_t>(address(source, end * columns)) -
                                  reinterpret_cast<intptr_t>(buffer.data())
                            : 0;
          produce(begin, end, buffer.slice(0, 0, end - begin));
          for (int64_t row = begin; row < end; ++row) {
            const char* x = address(buffer, (row - begin) * columns);
            for (int64_t p = 0; p < quantizer.pieces; ++p) {
              if (!quantizer.run(x, row, p)) all_fit = false;
            }
          }
        }
      }
      if (recipe.streamed) stream_fence();
    });
    fits = all_fit;
  }
  finish(fits, recipe, options, out);
}

Tensor quantize(const Tensor& x, const QuantizeOptions& options, Stream& stream) {
  require(x.defined(), "quantize: x is undefined");
  const Support support = can_quantize(x.shape(), options);
  require(support.ok, "quantize: ", support.reason);
  Tensor out = empty_quantized(x.shape(), options, x.device());
  quantize_into(x, options, out, stream);
  return out;
}

}  // namespace halftone
