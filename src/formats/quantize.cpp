#include "halftone/quantize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "formats/kernels.h"
#include "formats/quantize_rows.h"
#include "formats/row_quantizer.h"
#include "formats/rows.h"
#include "formats/scale_layout.h"

namespace halftone {

namespace {

// Elements of one piece of work: about 10 us, long against handing it out, short against the whole.
constexpr int64_t kPiece = 32768;

// x as matrices of `rows` x `columns` (the last two dimensions), with unit stride in a row.
struct Source {
  Tensor x;
  int64_t matrices, rows, columns;
  const char* row(int64_t i) const { return address(x, row_offset(x, i)); }
};

Shape scale_shape(const Shape& shape, const Scaling& scaling) {
  Shape result = shape;
  const int last = shape.rank() - 1;
  const auto blocks = [](int64_t extent, int64_t block) {
    return block == 0 ? 1 : (extent + block - 1) / block;
  };
  result[last] = blocks(shape[last], scaling.block_cols);
  if (last > 0) result[last - 1] = blocks(shape[last - 1], scaling.block_rows);
  return result;
}

uint32_t amax_of(const Source& source, int64_t row_begin, int64_t row_end, int64_t column,
                 int64_t columns, ThreadPool& pool) {
  const FormatKernels& kernels = format_kernels();
  const Format format = source.x.format();
  const int64_t grain = std::max<int64_t>(1, kPiece / std::max<int64_t>(columns, 1));
  std::atomic<uint32_t> largest{0};
  pool.parallel_for(row_end - row_begin, grain, [&](int64_t begin, int64_t end) {
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
  if (amax == 0) return;  // all scales 1
  recipe->encode_scale = 2688.0f / amax;
  recipe->tensor_scale = amax / 2688.0f;
  if (!(recipe->encode_scale < kFloatMax)) {
    recipe->encode_scale = kFloatMax;
    recipe->tensor_scale = 1.0f / kFloatMax;
  }
  recipe->decode_scale = 1.0f / recipe->encode_scale;
}

struct Target {
  Tensor codes, scales, zeros;
};

// Blocks within single rows.
bool quantize_rows_of(const Source& source, const Recipe& recipe, Target& target,
                      ThreadPool& pool) {
  const FormatKernels& kernels = format_kernels();
  const Format format = source.x.format();
  const int64_t group = recipe.group > 0 ? recipe.group : source.columns;
  // Long rows are cut between groups.
  const int64_t piece = std::max<int64_t>(1, kPiece / group) * group;
  const int64_t pieces = (source.columns + piece - 1) / piece;
  const int64_t groups = (source.columns + group - 1) / group;
  const int64_t grain = std::max<int64_t>(1, kPiece / std::min(piece, source.columns));
  std::atomic<bool> fits{true};
  pool.parallel_for(source.matrices * source.rows * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / pieces, column = i % pieces * piece;
      const int64_t first_scale = row * groups + column / group;
      auto* codes =
          target.codes.data<uint8_t>() + (row * source.columns + column) * bits(recipe.format) / 8;
      auto* scales = target.scales.data<uint8_t>() + first_scale * scale_bytes(recipe.scale_format);
      auto* zeros = recipe.asymmetric ? target.zeros.data<uint8_t>() + first_scale : nullptr;
      if (!kernels.quantize_row(recipe, format, source.row(row) + column * plain_bytes(format),
                                std::min(piece, source.columns - column), codes, scales, zeros)) {
        fits = false;
      }
    }
  });
  return fits;
}

// One block over several rows.
bool quantize_block(const Source& source, const Recipe& recipe, int64_t row_begin, int64_t row_end,
                    int64_t column, int64_t columns, Target& target, int64_t scale_index,
                    ThreadPool& pool) {
  const FormatKernels& kernels = format_kernels();
  const Format format = source.x.format();
  const int64_t rows = row_end - row_begin;
  const int64_t grain = std::max<int64_t>(1, kPiece / columns);
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
  store_scale(recipe.scale_format, target.scales.data<uint8_t>(), scale_index, best.code);
  each_row([&](int64_t i, const void* x) {
    uint8_t* codes = target.codes.data<uint8_t>() + (row_begin + i) * source.columns + column;
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

// Bands of blocks, `strip` columns at a time: a whole number of blocks.
bool quantize_bands_of(const Source& source, const Recipe& recipe, int64_t block_rows,
                       int64_t block_cols, int64_t strip, Target& target, ThreadPool& pool) {
  const int64_t down = (source.rows + block_rows - 1) / block_rows;
  const int64_t across = (source.columns + block_cols - 1) / block_cols;
  const int64_t strips = (source.columns + strip - 1) / strip;
  const Format format = source.x.format();
  const int64_t row_bytes = source.rows > 1 ? source.x.stride(-2) * plain_bytes(format) : 0;
  std::atomic<bool> fits{true};
  pool.parallel_for(source.matrices * down * strips, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t matrix = i / (down * strips), band = i / strips % down;
      const int64_t row = matrix * source.rows + band * block_rows, column = i % strips * strip;
      const int64_t first_scale = (matrix * down + band) * across + column / block_cols;
      const Band part{
          source.row(row) + column * plain_bytes(format),
          row_bytes,
          std::min(block_rows, source.rows - band * block_rows),
          std::min(strip, source.columns - column),
          target.codes.data<uint8_t>() + row * source.columns + column,
          source.columns,
          target.scales.data<uint8_t>() + first_scale * scale_bytes(recipe.scale_format)};
      if (!format_kernels().quantize_band(recipe, format, part)) fits = false;
    }
  });
  return fits;
}

bool quantize_blocks_of(const Source& source, const Recipe& recipe, const Scaling& scaling,
                        Target& target, ThreadPool& pool) {
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
    // Wide strips are read in longer runs; several a thread keep the threads evenly busy.
    const int64_t wide = std::min(kBandBytes / bytes, blocks / (4 * pool.size()));
    return quantize_bands_of(source, recipe, block_rows, block_cols,
                             std::min(std::max<int64_t>(1, wide), across) * block_cols, target,
                             pool);
  }
  if (blocks >= 4 * pool.size()) {
    pool.parallel_for(blocks, std::max<int64_t>(1, kPiece / elements), quantize_range);
  } else {
    quantize_range(0, blocks);  // the rows of each block are shared out instead
  }
  return fits;
}

}  // namespace

Support can_quantize(const Shape& shape, const QuantizeOptions& options) {
  const auto no = [](auto&&... parts) { return Support{false, concat(parts...)}; };
  const Format format = options.format;
  const Scaling& scaling = options.scaling;
  if (std::find(std::begin(kElementFormats), std::end(kElementFormats), format) ==
      std::end(kElementFormats)) {
    return no("format ", name(format),
              " has no quantisation; choose fp8_e4m3, fp8_e5m2, mxfp8, mxfp4, nvfp4, int8 or int4");
  }
  if (shape.rank() < 1) return no("x has rank 0; quantize needs at least one dimension");
  const int64_t columns = shape[shape.rank() - 1];
  if (is_block(format)) {
    Scaling defined = default_scaling(format);
    defined.layout = scaling.layout;
    if (!(scaling == defined)) {
      return no("scaling ", to_string(scaling), " does not fit ", name(format),
                ", which is defined with ", to_string(default_scaling(format)), " scales");
    }
    if (columns % scaling.block_cols != 0) {
      return no("the last dimension of x, ", columns, ", is not a multiple of ", scaling.block_cols,
                ", the block of ", name(format));
    }
  } else {
    const bool power_of_two = scaling.format == Format::ue8m0 && is_fp8(format);
    if (!is_plain_float(scaling.format) && !power_of_two) {
      return no("scales of ", name(format), " are f32, f16, bf16",
                is_fp8(format) ? " or ue8m0" : "", ", not ", name(scaling.format));
    }
    if (scaling.block_rows < 0 || scaling.block_cols < 0) {
      return no("scaling ", to_string(scaling), " has a negative block");
    }
  }
  if (format == Format::int4) {
    if (scaling.block_rows != 1) {
      return no("int4 scales lie within one row: block_rows is ", scaling.block_rows,
                " and must be 1");
    }
    if (scaling.block_cols % 2 != 0 || columns % 2 != 0) {
      return no("int4 packs two elements a byte: the last dimension, ", columns,
                ", and the group, ", scaling.block_cols, ", must be even");
    }
  }
  if (scaling.asymmetric && format != Format::int4) {
    return no("only int4 has zero points; ", name(format), " is symmetric");
  }
  if (scaling.layout != ScaleLayout::linear &&
      (bits(scaling.format) != 8 || scaling.block_rows != 1)) {
    return no("scale layout ", name(scaling.layout),
              " arranges one-byte scales of single rows, not ", to_string(scaling));
  }
  if (options.tensor_scale) {
    if (format != Format::nvfp4) {
      return no("only nvfp4 has a tensor scale; ", name(format), " has none");
    }
    if (!(*options.tensor_scale > 0 && std::isfinite(*options.tensor_scale))) {
      return no("tensor_scale is ", *options.tensor_scale, "; it must be finite and above 0");
    }
  }
  return {};
}

Tensor quantize(const Tensor& x, const QuantizeOptions& options, Stream& stream) {
  require(x.defined(), "quantize: x is undefined");
  require(is_plain_float(x.format()), "quantize: x is ", name(x.format()),
          "; it must be f32, f16 or bf16");
  require(x.device().is_cpu() && stream.device().is_cpu(), "quantize: x is on ", x.device().name(),
          " and the stream on ", stream.device().name(), "; both must be on the CPU");
  const Support support = can_quantize(x.shape(), options);
  require(support.ok, "quantize: ", support.reason);

  const Scaling& scaling = options.scaling;
  const int64_t columns = x.size(-1), rows = x.rank() > 1 ? x.size(-2) : 1;
  const Shape scales_shape = scale_shape(x.shape(), scaling);
  Target target{Tensor::empty(x.shape(), options.format),
                Tensor::zeros(scales_shape, scaling.format),
                scaling.asymmetric ? Tensor::zeros(scales_shape, Format::u8) : Tensor()};
  Recipe recipe = make_recipe(options);
  if (x.numel() > 0) {
    const Source source{x.stride(-1) == 1 || columns == 1 ? x : x.contiguous_copy(),
                        x.numel() / (rows * columns), rows, columns};
    ThreadPool& pool = stream.pool();
    if (options.format == Format::nvfp4) {
      set_tensor_scale(options.tensor_scale, source, pool, &recipe);
    }
    const bool fits = scaling.block_rows == 1
                          ? quantize_rows_of(source, recipe, target, pool)
                          : quantize_blocks_of(source, recipe, scaling, target, pool);
    require(fits, "quantize: a scale of x is above 65504, the largest ", name(scaling.format),
            "; choose a scaling with f32 scales");
  }
  if (scaling.layout != ScaleLayout::linear) {
    target.scales = tile_scales(target.scales, scaling.layout);
  }
  Tensor tensor_scale;
  if (options.format == Format::nvfp4) tensor_scale = Tensor::from({recipe.tensor_scale}, {1});
  return target.codes.quantized(scaling, target.scales, tensor_scale, target.zeros);
}

}  // namespace halftone
