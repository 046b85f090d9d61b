// RoPE, smoothing and the Walsh-Hadamard transform of heads with fused quantisation: on a GPU one
// kernel where heads have a power of two elements, else the operation and then quantize; on a CPU
// tiles of rows.
#include <algorithm>
#include <vector>

#include "base/arguments.h"
#include "base/message.h"
#include "formats/kernels.h"
#include "formats/quantize_rows.h"
#include "formats/rows.h"
#include "halftone/elementwise.h"
#include "halftone/fused_quantize.h"
#include "halftone/hadamard.h"
#include "halftone/reduce.h"
#include "ops/heads/kernels.h"

namespace halftone {

namespace {

// Rows [begin, end) of x [..., head_dim], counted over the leading dimensions, into a tile.
void copy_rows(const Tensor& x, int64_t begin, int64_t end, const Tensor& tile) {
  const int64_t bytes = bits(x.format()) / 8, row_bytes = x.size(-1) * bytes;
  for (int64_t i = begin; i < end; ++i) {
    int64_t at = 0, index = i;
    for (int d = x.rank() - 2; d >= 0; index /= x.size(d--)) at += index % x.size(d) * x.stride(d);
    std::copy_n(x.data<char>() + at * bytes, row_bytes,
                tile.data<char>() + (i - begin) * row_bytes);
  }
}

// x [batch, length, heads, head_dim] as [tokens, heads, head_dim], or undefined where its strides
// forbid it.
Tensor as_tokens(const Tensor& x) {
  if (x.rank() == 3) return x;
  if (x.size(0) != 1 && x.stride(0) != x.size(1) * x.stride(1)) return {};
  return Tensor::view(x.data(), {x.size(0) * x.size(1), x.size(2), x.size(3)},
                      {x.stride(1), x.stride(2), x.stride(3)}, x.format(), x.device());
}

// The transform in place of dense rows.
void transform_rows(const Tensor& tile, Stream& stream) {
  Tensor rows = tile.reshape({tile.numel() / tile.size(-1), 1, tile.size(-1)});
  hadamard_into(rows, rows, stream);
}

void copy_on_gpu(const Tensor& x, const Tensor& to, Stream& stream) {
  const ElementwiseProblem problem{.operation = Elementwise::copy,
                                   .shape = x.shape(),
                                   .a = x.format(),
                                   .b = x.format(),
                                   .c = x.format(),
                                   .out = to.format()};
  run(plan(problem, x.device()), {x, {}, {}, to}, stream);
}

void check_heads(const char* what, const Tensor& x, int rank, const Stream& stream) {
  require(x.defined() && x.rank() == rank && is_plain_float(x.format()) &&
              (x.stride(-1) == 1 || x.size(-1) == 1),
          what, ": x is ", x.defined() ? to_string(x) : "undefined",
          "; it must be f32, f16 or bf16 [", rank == 4 ? "batch, keys" : "tokens",
          ", heads, head_dim] with a last stride of 1");
  check_stream(what, stream, x.device());
}

// Quantises x [tokens, heads, head_dim] by the fused heads kernel; false where it does not take
// them.
bool quantize_heads(HeadsArgs args, const Tensor& x, HeadRows rows, const QuantizeOptions& options,
                    Tensor& out, Stream& stream) {
  const int64_t bytes = bits(x.format()) / 8;
  rows.x = {x.data<char>(), x.size(1), x.stride(0) * bytes, x.stride(1) * bytes};
  if (x.size(1) == 1) rows.x.inner_stride = 0;
  rows.heads = x.size(1);
  rows.codes = quantize_target(options, out, stream);
  args.rows[0] = rows, args.count = 1;
  args.tokens = x.size(0), args.head_dim = x.size(2), args.format = x.format();
  if (*heads_gpu_error(args) != 0) return false;
  heads_gpu(args, stream);
  return true;
}

}  // namespace

void rope_quantize_into(const RopePlan& plan, const Tensor& x, const Tensor& positions,
                        const QuantizeOptions& options, Tensor& out, Stream& stream,
                        bool hadamard) {
  check_heads("rope_quantize", x, 3, stream);
  check_one_pass(options);
  if (hadamard) require_support(can_run(HadamardProblem{x.size(2), x.format()}, x.device()));
  RopePlan made = plan;
  made.problem.tokens = x.size(0), made.problem.heads = x.size(1);
  const bool halves = plan.problem.options.style == RopeStyle::half_split &&
                      2 * static_cast<int64_t>(plan.frequencies.size()) == x.size(2);
  if (!x.device().is_cpu() && halves && positions.defined() && positions.rank() == 1 &&
      positions.size(0) == x.size(0) && positions.device() == x.device() &&
      is_integer_index(positions.format())) {
    HeadsArgs args;
    args.frequencies = plan.on_device.data<double>();
    args.magnitude = plan.magnitude;
    args.positions = positions.data(), args.position_stride = positions.stride(0);
    args.wide_positions = positions.format() == Format::i64;
    HeadRows rows;
    rows.rotates = true, rows.hadamard = hadamard;
    if (quantize_heads(args, x, rows, options, out, stream)) return;
  }
  quantize_produced(
      x.format(), options, {}, out, stream, [&](int64_t begin, int64_t end, const Tensor& tile) {
        if (!x.device().is_cpu()) {
          const Tensor whole = tile.reshape(x.shape());
          copy_on_gpu(x, whole, stream);
          run(made, {whole, positions}, stream);
          if (hadamard) transform_rows(whole, stream);
          return;
        }
        copy_rows(x, begin, end, tile);
        RopePlan part = made;
        part.problem.tokens = 1;
        for (int64_t row = begin; row < end; row += part.problem.heads) {
          const int64_t token = row / x.size(1);
          part.problem.heads = std::min(end, (token + 1) * x.size(1)) - row;
          const Tensor heads = tile.slice(0, row - begin, row - begin + part.problem.heads);
          run(part,
              {heads.reshape({1, part.problem.heads, x.size(2)}),
               positions.slice(0, token, token + 1)},
              stream);
        }
        if (hadamard) transform_rows(tile, stream);
      });
}

Tensor rope_quantize(const Tensor& x, const Tensor& positions, const RopeOptions& rope,
                     const QuantizeOptions& options, Stream& stream, bool hadamard) {
  check_heads("rope_quantize", x, 3, stream);
  RopeProblem problem{x.size(0), x.size(1), x.size(2), x.format(), rope};
  if (depends_on_length(rope)) {
    const Tensor at = positions.to(Device::cpu());
    for (int64_t i = 0; i < at.numel(); ++i) {
      const int64_t position = at.format() == Format::i64 ? at.data<int64_t>()[i * at.stride(0)]
                                                          : at.data<int32_t>()[i * at.stride(0)];
      problem.length = std::max(problem.length, position + 1);
    }
  }
  Tensor out = empty_quantized(x.shape(), options, x.device());
  rope_quantize_into(plan(problem, x.device()), x, positions, options, out, stream, hadamard);
  return out;
}

void hadamard_quantize_into(const Tensor& x, const QuantizeOptions& options, Tensor& out,
                            Stream& stream) {
  check_heads("hadamard_quantize", x, x.defined() && x.rank() == 4 ? 4 : 3, stream);
  check_one_pass(options);
  require_support(can_run(HadamardProblem{x.size(-1), x.format()}, x.device()));
  if (!x.device().is_cpu()) {
    const Tensor all = as_tokens(x);
    HeadRows rows;
    rows.hadamard = true;
    if (all.defined() && quantize_heads({}, all, rows, options, out, stream)) return;
  }
  quantize_produced(x.format(), options, {}, out, stream,
                    [&](int64_t begin, int64_t end, const Tensor& tile) {
                      if (x.device().is_cpu()) {
                        copy_rows(x, begin, end, tile);
                      } else {
                        copy_on_gpu(x, tile.reshape(x.shape()), stream);
                      }
                      transform_rows(tile, stream);
                    });
}

Tensor hadamard_quantize(const Tensor& x, const QuantizeOptions& options, Stream& stream) {
  check_heads("hadamard_quantize", x, x.defined() && x.rank() == 4 ? 4 : 3, stream);
  Tensor out = empty_quantized(x.shape(), options, x.device());
  hadamard_quantize_into(x, options, out, stream);
  return out;
}

Tensor key_mean(const Tensor& k, Stream& stream) {
  check_heads("key_mean", k, 4, stream);
  return reduce(Reduction::mean, k, 1, stream);
}

void smooth_quantize_into(const Tensor& k, const Tensor& mean, const QuantizeOptions& options,
                          Tensor& out, Stream& stream) {
  check_heads("smooth_quantize", k, 4, stream);
  check_one_pass(options);
  const int64_t batch = k.size(0), keys = k.size(1), heads = k.size(2), dim = k.size(3);
  require(mean.defined() && mean.format() == Format::f32 && mean.contiguous() &&
              mean.shape() == Shape{batch, heads, dim} && mean.device() == k.device(),
          "smooth_quantize: mean is ", mean.defined() ? to_string(mean) : "undefined",
          "; it must be f32 [", batch, ", ", heads, ", ", dim, "], row-major, on ",
          k.device().name());
  if (!k.device().is_cpu()) {
    HeadRows rows;
    rows.mean = mean.data<float>(), rows.mean_tokens = std::max<int64_t>(keys, 1);
    const Tensor all = as_tokens(k);
    // The scales of a tiled layout are those of a key's heads.
    if (all.defined() && quantize_heads({}, all, rows, options, out, stream)) return;
  }
  const Format format = k.format();
  quantize_produced(
      format, options, {}, out, stream, [&](int64_t begin, int64_t end, const Tensor& tile) {
        if (!k.device().is_cpu()) {
          const ElementwiseProblem problem{.operation = Elementwise::subtract,
                                           .shape = k.shape(),
                                           .a = format,
                                           .b = Format::f32,
                                           .c = format,
                                           .out = format};
          return run(plan(problem, k.device()),
                     {k, mean.reshape({batch, 1, heads, dim}), {}, tile.reshape(k.shape())},
                     stream);
        }
        const FormatKernels& kernels = format_kernels();
        std::vector<float> values(static_cast<size_t>(dim));
        const int64_t bytes = bits(format) / 8;
        for (int64_t row = begin; row < end; ++row) {
          const int64_t head = row % heads, key = row / heads % keys, b = row / (heads * keys);
          const int64_t at = b * k.stride(0) + key * k.stride(1) + head * k.stride(2);
          kernels.convert(format, Format::f32, k.data<char>() + at * bytes, dim, values.data());
          const float* shared = mean.data<float>() + (b * heads + head) * dim;
          for (int64_t i = 0; i < dim; ++i) values[static_cast<size_t>(i)] -= shared[i];
          kernels.convert(Format::f32, format, values.data(), dim,
                          tile.data<char>() + (row - begin) * dim * bytes);
        }
      });
}

Tensor smooth_quantize(const Tensor& k, const QuantizeOptions& options, Stream& stream) {
  check_heads("smooth_quantize", k, 4, stream);
  Tensor out = empty_quantized(k.shape(), options, k.device());
  smooth_quantize_into(k, key_mean(k, stream), options, out, stream);
  return out;
}

}  // namespace halftone
