#include "check_attention.h"

#include <cmath>
#include <random>

#include "base/message.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

Tensor random_data(const Shape& shape, uint64_t seed, bool outliers) {
  Tensor x = Tensor::empty(shape, Format::f32);
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::bernoulli_distribution outlier(0.001);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = normal(engine);
    if (outliers && outlier(engine)) x.data<float>()[i] += 10.0f * normal(engine);
  }
  return x;
}

Tensor in_format(const Tensor& x, Format format, Stream& stream) {
  if (is_plain_float(format)) return convert(x, format, stream);
  QuantizeOptions options(format);
  if (!is_block(format)) options.scaling = {Format::f32, 1, 0};  // one scale a token and head
  return quantize(x, options, stream);
}

struct Error3 {
  double cosine = 1, relative_l2 = 0, max = 0;
  int64_t worst = 0;
};

Error3 difference(const Tensor& result, const Tensor& reference) {
  Error3 e;
  double dot = 0, rr = 0, xx = 0, ee = 0;
  for (int64_t i = 0; i < reference.numel(); ++i) {
    const double x = result.data<float>()[i], r = reference.data<float>()[i];
    dot += x * r, rr += r * r, xx += x * x, ee += (x - r) * (x - r);
    // NaN counts as the worst of all.
    if (!(std::abs(x - r) <= e.max)) e.max = std::abs(x - r), e.worst = i;
  }
  e.cosine = rr * xx > 0 ? dot / std::sqrt(rr * xx) : (rr == xx ? 1.0 : 0.0);
  e.relative_l2 = rr > 0 ? std::sqrt(ee / rr) : (ee > 0 ? INFINITY : 0.0);
  return e;
}

}  // namespace

std::vector<AccuracyRow> check_attention(Stream& stream, const CheckAttentionOptions& options) {
  const CheckAttentionOptions& o = options;
  std::vector<AccuracyRow> rows;
  for (const bool outliers : {false, true}) {
    AttentionProblem exact;
    exact.batch = o.batch, exact.query_length = o.queries, exact.key_length = o.keys;
    exact.heads = o.heads, exact.kv_heads = o.kv_heads, exact.head_dim = o.head_dim;
    exact.causal = o.causal;
    exact.mode = {Format::f32, Format::f32};
    exact.q = exact.k = exact.v = exact.out = Format::f32;
    AttentionTensors original;
    original.q = random_data({o.batch, o.queries, o.heads, o.head_dim}, o.seed, outliers);
    original.k = random_data({o.batch, o.keys, o.kv_heads, o.head_dim}, o.seed + 1, outliers);
    original.v = random_data({o.batch, o.keys, o.kv_heads, o.head_dim}, o.seed + 2, outliers);
    const Tensor truth = attention_reference(exact, original);
    for (const AttentionMode& mode : attention_modes()) {
      if (o.mode && !(mode == *o.mode)) continue;
      AttentionProblem p = exact;
      p.mode = mode, p.q = p.k = mode.qk, p.v = mode.pv;
      require_support(can_run(p, stream.device()));
      AttentionTensors t;
      t.q = in_format(original.q, p.q, stream);
      t.k = in_format(original.k, p.k, stream);
      t.v = in_format(original.v, p.v, stream);
      t.out = Tensor::empty(truth.shape(), Format::f32);
      const Tensor reference = attention_reference(p, t);
      run(plan(p, stream.device()), t, stream);
      const Error3 format = difference(reference, truth), kernel = difference(t.out, reference);
      AccuracyRow row;
      row.mode = to_string(mode);
      row.data = outliers ? "outliers" : "normal";
      row.format_cosine = format.cosine, row.format_relative_l2 = format.relative_l2;
      row.format_max = format.max;
      row.kernel_cosine = kernel.cosine, row.kernel_relative_l2 = kernel.relative_l2;
      row.kernel_max = kernel.max;
      int64_t i = format.worst;
      const int64_t d = i % o.head_dim, h = i / o.head_dim % o.heads;
      i /= o.head_dim * o.heads;
      row.worst = concat("[", i / o.queries, ", ", i % o.queries, ", ", h, ", ", d, "]");
      rows.push_back(row);
    }
  }
  return rows;
}

}  // namespace halftone
