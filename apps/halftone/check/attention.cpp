#include "check/attention.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/device_memory.h"
#include "base/message.h"
#include "check/accuracy_data.h"
#include "halftone/hadamard.h"
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

// Channel 0 of Q is constant and that of K is 0 but for the first key, whose score so exceeds the
// others' by the logarithm of their number: exp of N(0, 1) has the mean exp(1/2).
void add_heavy_key(const CheckAttentionOptions& o, const AttentionTensors& t) {
  const float in_q = 4, score = std::log(static_cast<float>(o.keys)) + 0.5f;
  for (int64_t i = 0; i < t.q.numel(); i += o.head_dim) t.q.data<float>()[i] = in_q;
  for (int64_t i = 0; i < t.k.numel(); i += o.head_dim) {
    const bool first = i / o.head_dim / o.kv_heads % o.keys == 0;
    for (int64_t d = 0; first && d < o.head_dim; ++d) t.k.data<float>()[i + d] = 0;
    const float root = std::sqrt(static_cast<float>(o.head_dim));
    t.k.data<float>()[i] = first ? score * root / in_q : 0;
  }
  for (int64_t i = 0; i < t.v.numel(); ++i) t.v.data<float>()[i] += 1;
}

// Sums over all parts of some data.
struct Differences {
  double dot = 0, rr = 0, xx = 0, ee = 0, max = 0;
  int64_t count = 0;
  std::string worst;

  void add(const Tensor& result, const Tensor& reference, const std::string& part) {
    int64_t at = -1;
    count += reference.numel();
    for (int64_t i = 0; i < reference.numel(); ++i) {
      const double x = result.data<float>()[i], r = reference.data<float>()[i];
      dot += x * r, rr += r * r, xx += x * x, ee += (x - r) * (x - r);
      // NaN counts as the worst of all.
      if (!(std::abs(x - r) <= max)) max = std::abs(x - r), at = i;
    }
    if (at < 0 && !worst.empty()) return;
    at = std::max<int64_t>(at, 0);
    int64_t index[4];
    for (int dim = 3; dim >= 0; --dim) {
      const int64_t extent = std::max<int64_t>(reference.size(dim), 1);
      index[dim] = at % extent, at /= extent;
    }
    worst = concat(part, "[", index[0], ", ", index[1], ", ", index[2], ", ", index[3], "]");
  }
  double cosine() const { return rr * xx > 0 ? dot / std::sqrt(rr * xx) : (rr == xx ? 1.0 : 0.0); }
  double rmse() const { return count > 0 ? std::sqrt(ee / static_cast<double>(count)) : 0.0; }
  double relative_l2() const { return rr > 0 ? std::sqrt(ee / rr) : (ee > 0 ? INFINITY : 0.0); }
};

AttentionProblem problem_of(const AttentionTensors& t, bool causal) {
  AttentionProblem p;
  p.batch = t.q.size(0), p.query_length = t.q.size(1), p.key_length = t.k.size(1);
  p.heads = t.q.size(2), p.kv_heads = t.k.size(2), p.head_dim = t.q.size(3);
  p.causal = causal;
  p.mode = {Format::f32, Format::f32};
  p.q = p.k = p.v = p.out = Format::f32;
  return p;
}

// On CPUs the widest output, f32; on GPUs the 16 bits that their fastest kernels write. Its
// rounding counts as the kernel's.
Support choose_output(AttentionProblem& p, const Device& device) {
  const Format half = p.mode.pv == Format::f16 ? Format::f16 : Format::bf16;
  Support first;
  for (const Format out : {device.is_cpu() ? Format::f32 : half, Format::f32, half}) {
    p.out = out;
    Support support = can_run(p, device);
    if (support.ok) return support;
    if (out == Format::f32) first = std::move(support);
  }
  return first;
}

// How a mode's operands are made; scale_tokens as in AttentionOptions.
struct Operands {
  const char* name;
  int64_t scale_tokens;
  bool hadamard;
};
constexpr Operands kOperands[] = {
    {"", 1, false}, {", blocks", 128, false}, {", one scale", 0, false}, {", Hadamard", 1, true}};

bool makes_sense(const Operands& operands, const AttentionMode& mode) {
  if (is_plain_float(mode.qk)) return operands.scale_tokens == 1 && !operands.hadamard;
  return operands.scale_tokens == 1 || !is_block(mode.qk);
}

AccuracyRow check_mode(const AttentionData& data, const std::vector<Tensor>& truth,
                       const AttentionMode& mode, const Operands& operands, bool required,
                       int64_t runs, Stream& stream) {
  AccuracyRow row;
  row.mode = concat(to_string(mode), operands.name), row.data = data.name;
  const Device& device = stream.device();
  Stream& host = device.is_cpu() ? stream : Stream::default_stream();
  Differences format, kernel, total;
  for (size_t i = 0; i < data.parts.size(); ++i) {
    const AttentionTensors& original = data.parts[i];
    AttentionProblem p = problem_of(original, data.causal);
    p.mode = mode, p.q = p.k = mode.qk, p.v = mode.pv;
    const Support support = choose_output(p, device);
    if (!support.ok && !required) {
      row.refused = support.reason;
      return row;
    }
    require_support(support);
    AttentionTensors t;
    const auto operand = [&](const Tensor& x, Format f) {
      return attention_operand(x, f, host, operands.scale_tokens);
    };
    const auto transformed = [&](const Tensor& x) {
      return operands.hadamard ? hadamard(x, host) : x;
    };
    const bool smooth = mode.qk == Format::int8;
    t.q = operand(transformed(original.q), p.q);
    t.k = operand(transformed(smooth ? smooth_keys(original.k, nullptr, host) : original.k), p.k);
    t.v = attention_values(original.v, p.v, host, operands.scale_tokens);
    const Tensor reference = attention_reference(p, t);
    for (Tensor* x : {&t.q, &t.k, &t.v}) *x = x->to(device);
    t.out = Tensor::empty(truth[i].shape(), p.out, device);
    const AttentionPlan made = plan(p, device);
    const auto once = [&] {  // every byte other than before, that no element is one left over
      fill_memory(device, t.out.data(), 0xff, static_cast<size_t>(t.out.bytes()), &stream);
      run(made, t, stream);
      stream.synchronize();
      return Tensor(t.out.to(Device::cpu())).contiguous_copy();
    };
    const Tensor result = convert(repeated(runs, once, &row), Format::f32, host);
    const std::string part = data.parts.size() > 1 ? concat("part ", i, " ") : "";
    format.add(reference, truth[i], part);
    kernel.add(result, reference, part);
    total.add(result, truth[i], part);
  }
  row.format_cosine = format.cosine(), row.format_relative_l2 = format.relative_l2();
  row.format_max = format.max, row.worst = format.worst;
  row.kernel_cosine = kernel.cosine(), row.kernel_relative_l2 = kernel.relative_l2();
  row.kernel_max = kernel.max, row.total_rmse = total.rmse();
  return row;
}

}  // namespace

std::vector<AttentionData> random_attention_data(const CheckAttentionOptions& o) {
  std::vector<AttentionData> all;
  for (const char* name : {"normal", "outliers", "one heavy key"}) {
    const bool outliers = std::string_view(name) == "outliers";
    AttentionTensors t;
    t.q = random_data({o.batch, o.queries, o.heads, o.head_dim}, o.seed, outliers);
    t.k = random_data({o.batch, o.keys, o.kv_heads, o.head_dim}, o.seed + 1, outliers);
    t.v = random_data({o.batch, o.keys, o.kv_heads, o.head_dim}, o.seed + 2, outliers);
    if (std::string_view(name) == "one heavy key") add_heavy_key(o, t);
    all.push_back({name, {t}, o.causal});
  }
  return all;
}

std::vector<AccuracyRow> check_attention(Stream& stream, const std::vector<AttentionData>& all,
                                         std::optional<AttentionMode> only, int64_t runs) {
  std::vector<AccuracyRow> rows;
  for (const AttentionData& data : all) {
    std::vector<Tensor> truth;
    for (const AttentionTensors& t : data.parts) {
      truth.push_back(attention_reference(problem_of(t, data.causal), t));
    }
    for (const AttentionMode& mode : attention_modes()) {
      if (only && !(mode == *only)) continue;
      for (const Operands& operands : kOperands) {
        if (!makes_sense(operands, mode)) continue;
        rows.push_back(check_mode(data, truth, mode, operands, only.has_value(), runs, stream));
      }
    }
  }
  return rows;
}

std::vector<AccuracyRow> check_attention(Stream& stream, const CheckAttentionOptions& options) {
  return check_attention(stream, random_attention_data(options), options.mode);
}

}  // namespace halftone
