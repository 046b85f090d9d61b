// attention() on tensors, and how it makes its operands: quantisation, smoothing of K
// (SageAttention) and the Hadamard transform of Q and K.
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "base/token_scales.h"
#include "formats/codec.h"
#include "formats/gpu/kernels.h"
#include "halftone/elementwise.h"
#include "halftone/hadamard.h"
#include "halftone/quantize.h"
#include "halftone/reduce.h"
#include "ops/attention/kernels.h"

namespace halftone {

namespace {

// Quantises with a scale for 128 tokens of a head: blocks of rows of each head.
Tensor by_tokens(const Tensor& x, QuantizeOptions quantization, Stream& stream) {
  require(x.rank() == 4, "x has shape ", to_string(x.shape()),
          "; scale_tokens 128 takes [batch, length, heads, head_dim]");
  quantization.scaling = {Format::f32, kScaleTokens, 0};
  const int64_t batch = x.size(0), tokens = x.size(1), heads = x.size(2), dim = x.size(3);
  const Tensor all = empty_quantized({batch * heads, tokens, dim}, quantization, x.device());
  for (int64_t b = 0; b < batch; ++b) {
    const Tensor from = x.slice(0, b, b + 1);
    Tensor to = all.slice(0, b * heads, (b + 1) * heads);
    quantize_into(Tensor::view(from.data(), {heads, tokens, dim},
                               {x.stride(2), x.stride(1), x.stride(3)}, x.format(), x.device()),
                  quantization, to, stream);
  }
  const auto by_token = [&](const Tensor& t, int64_t rows, int64_t width) {
    return Tensor::share(std::make_shared<Tensor>(t), t.data(), {batch, rows, heads, width},
                         {heads * rows * width, width, rows * width, 1}, t.format(), t.device());
  };
  const Tensor& scales = all.scales();
  return by_token(all, tokens, dim)
      .quantized({Format::f32, 1, 0}, by_token(scales, scales.size(1), 1));
}

// Quantises with one scale, as one matrix: quantize gives each matrix of the last two dimensions a
// scale of its own.
Tensor with_one_scale(const Tensor& x, QuantizeOptions quantization, Stream& stream) {
  quantization.scaling = {Format::f32, 0, 0};
  const Tensor dense = x.contiguous() ? x : convert(x, x.format(), stream);
  const int64_t dim = x.size(-1), rows = dim > 0 ? x.numel() / dim : 0;
  const Tensor quantised = quantize(dense.reshape({rows, dim}), quantization, stream);
  Shape one = x.shape();
  for (int d = 0; d < x.rank(); ++d) one[d] = 1;
  return Tensor::share(std::make_shared<Tensor>(quantised), quantised.data(), x.shape(),
                       dense.strides(), quantised.format(), quantised.device())
      .quantized(quantization.scaling, quantised.scales().reshape(one));
}

// UE8M0 scales as FP32: dequantises E4M3 ones that have them as scales.
Tensor as_f32(const Tensor& exponents, Stream& stream) {
  const auto count = static_cast<size_t>(exponents.numel());
  const std::vector<uint8_t> ones(count, encode_e4m3(1));
  const Tensor quantised = Tensor::from<uint8_t>(ones, exponents.shape(), Format::fp8_e4m3);
  return dequantize(quantised.to(exponents.device()).quantized({Format::ue8m0, 1, 0}, exponents),
                    Format::f32, stream);
}

// `lead`: the dimension of the keys.
Tensor smooth_on_gpu(const Tensor& k, int lead, const Shape& one_key, Tensor* mean,
                     Stream& stream) {
  if (k.numel() == 0) {
    if (mean != nullptr) *mean = Tensor::zeros(one_key, Format::f32).to(k.device());
    return convert(k, Format::f32, stream);
  }
  const Tensor means = reduce(Reduction::mean, k, lead, stream).reshape(one_key);
  if (mean != nullptr) *mean = means;
  return elementwise(Elementwise::subtract, convert(k, Format::f32, stream), means, {}, {}, stream);
}

}  // namespace

Tensor attention_operand(const Tensor& x, Format format, Stream& stream, int64_t scale_tokens) {
  require(scale_tokens == 0 || scale_tokens == 1 || scale_tokens == kScaleTokens,
          "scale_tokens is ", scale_tokens, "; it must be 0, 1 or ", kScaleTokens);
  if (!is_plain_float(x.format()) || x.format() == format) return x;
  if (is_plain_float(format)) return convert(x, format, stream);
  QuantizeOptions quantization(format);
  if (scale_tokens > 1 && !is_block(format)) return by_tokens(x, quantization, stream);
  if (scale_tokens == 0 && !is_block(format)) return with_one_scale(x, quantization, stream);
  if (is_block(format)) {
    quantization.adaptive = format != Format::mxfp8;
  } else {
    quantization.scaling = {Format::f32, 1, 0};  // per row
  }
  return quantize(x, quantization, stream);
}

Tensor attention_values(const Tensor& v, Format format, Stream& stream, int64_t scale_tokens) {
  if (!is_fp8(format) || !is_plain_float(v.format()) || scale_tokens != 1) {
    return attention_operand(v, format, stream, scale_tokens);
  }
  QuantizeOptions quantization(format);
  quantization.scaling = {Format::ue8m0, 1, 0};
  const Tensor quantised = quantize(v, quantization, stream);
  return quantised.quantized({Format::f32, 1, 0}, as_f32(quantised.scales(), stream));
}

Tensor smooth_keys(const Tensor& k, Tensor* mean, Stream& stream) {
  require(is_plain_float(k.format()), "k is ", name(k.format()),
          "; smooth_keys takes f32, f16 or bf16");
  require(k.rank() == 3 || k.rank() == 4, "k has shape ", to_string(k.shape()),
          "; smooth_keys takes [batch, length, kv_heads, head_dim], or one sequence without batch");
  const int lead = k.rank() == 4 ? 1 : 0;  // dimension of the keys
  const int64_t batch = lead == 1 ? k.size(0) : 1, length = k.size(lead);
  const int64_t heads = k.size(lead + 1), dim = k.size(lead + 2);
  const Shape one_key = lead == 1 ? Shape{batch, 1, heads, dim} : Shape{1, heads, dim};
  if (!k.device().is_cpu()) return smooth_on_gpu(k, lead, one_key, mean, stream);
  const Tensor smooth = convert(k, Format::f32, stream).contiguous_copy();
  const Tensor means = Tensor::zeros(one_key, Format::f32);
  stream.pool().parallel_for(batch * heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(dim));
    for (int64_t unit = begin; unit < end; ++unit) {
      float* first = smooth.data<float>() + (unit / heads * length * heads + unit % heads) * dim;
      float* middle = means.data<float>() + unit * dim;
      sums.assign(sums.size(), 0);
      for (int64_t j = 0; j < length; ++j) {
        const float* row = first + j * heads * dim;
        for (int64_t d = 0; d < dim; ++d) sums[static_cast<size_t>(d)] += row[d];
      }
      for (int64_t d = 0; length > 0 && d < dim; ++d) {
        middle[d] = static_cast<float>(sums[static_cast<size_t>(d)] / static_cast<double>(length));
      }
      for (int64_t j = 0; j < length; ++j) {
        float* row = first + j * heads * dim;
        for (int64_t d = 0; d < dim; ++d) row[d] -= middle[d];
      }
    }
  });
  if (mean != nullptr) *mean = means;
  return smooth;
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 Stream& stream) {
  for (const Tensor* t : {&q, &k, &v}) {
    require(t->rank() == 4, "attention takes q, k and v as [batch, length, heads, head_dim], not ",
            to_string(t->shape()));
  }
  AttentionProblem p;
  p.batch = q.size(0), p.query_length = q.size(1), p.heads = q.size(2), p.head_dim = q.size(3);
  p.key_length = k.size(1), p.kv_heads = k.size(2), p.value_dim = v.size(3);
  p.causal = options.causal;
  p.window_left = options.window_left, p.window_right = options.window_right;
  p.attention_chunk_size = options.attention_chunk_size;
  p.softmax_scale = options.softmax_scale;
  p.softcap = options.softcap;
  if (options.mask.defined()) p.mask = options.mask.format();
  p.sinks = options.sinks.defined();
  p.out = is_plain_float(q.format()) ? q.format() : Format::bf16;

  AttentionTensors t;
  t.q = q, t.k = k, t.v = v;
  t.mask = options.mask, t.sinks = options.sinks;
  p.mode = options.mode.value_or(
      AttentionMode{k.format(), is_plain_float(v.format())
                                    ? v.format()
                                    : (is_plain_float(k.format()) ? k.format() : Format::bf16)});
  // Smoothing shifts all scores of a query alike: softmax is invariant to that, softcap and sinks
  // are not.
  const bool invariant = options.softcap == 0 && !p.sinks;
  const bool quantises = is_plain_float(k.format()) && !is_plain_float(p.mode.qk);
  const bool smooth = options.smooth_keys.value_or(p.mode.qk == Format::int8 && invariant);
  require(invariant || !smooth, "smooth_keys is true with ", p.sinks ? "sinks" : "softcap",
          ", to which the mean of the keys matters; leave it out");
  require(quantises || !options.smooth_keys.value_or(false), "smooth_keys is true, but k in ",
          name(k.format()), " is not quantised for mode ", to_string(p.mode), "; leave it out");
  // Both or neither: only the dot product of two transformed rows is that of the rows.
  for (const Tensor* x : {&k, &q}) {
    require(!options.hadamard || (quantises && is_plain_float(x->format())),
            "hadamard is true, but ", x == &k ? "k" : "q", " in ", name(x->format()),
            " is not quantised for mode ", to_string(p.mode),
            "; transform q and k before they are quantised (hadamard_quantize), or leave it out");
  }
  const auto operand = [&](const Tensor& x, Format format) {
    return attention_operand(x, format, stream, options.scale_tokens);
  };
  const auto transformed = [&](const Tensor& x) {
    return options.hadamard ? hadamard(x, stream) : x;
  };
  t.k = operand(transformed(smooth && quantises ? smooth_keys(k, nullptr, stream) : k), p.mode.qk);
  t.v = attention_values(v, p.mode.pv, stream, options.scale_tokens);
  if (!is_plain_float(p.mode.qk)) t.q = operand(transformed(q), p.mode.qk);
  p.q = t.q.format(), p.k = t.k.format(), p.v = t.v.format();
  t.out = Tensor::empty({p.batch, p.query_length, p.heads, p.value_dim}, p.out, q.device());
  run(plan(p, q.device()), t, stream);
  return t.out;
}

}  // namespace halftone
