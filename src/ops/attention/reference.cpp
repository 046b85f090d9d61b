// Attention in FP64 from the operands as quantised: one row at a time, softmax over all its keys.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/message.h"
#include "base/token_scales.h"
#include "formats/codec.h"
#include "ops/attention/kernels.h"

namespace halftone {

namespace {

// Values of the row at index (a, b, head) of a tensor [A, B, heads, dim], scales included.
void decode_row(const Tensor& t, int64_t a, int64_t b, int64_t head, std::vector<double>* out) {
  const int lead = t.rank() - 3;  // a tensor of packed sequences has no dimension for a
  const auto offset_in = [&](const Tensor& x) {
    const auto index = [&](int dim, int64_t i) { return x.size(dim) == 1 ? 0 : i * x.stride(dim); };
    const int64_t row = b / tokens_of_scale(t.size(lead), x.size(lead));
    return (lead == 1 ? index(0, a) : 0) + index(lead, row) + index(lead + 1, head);
  };
  const int64_t offset = offset_in(t), count = t.size(-1);
  out->resize(static_cast<size_t>(count));
  const int64_t group = group_of(t.format());
  for (int64_t i = 0; i < count; ++i) {
    double x = element_at(t.format(), t.data(), offset + i);
    if (t.has_scales()) {
      const Tensor& scales = t.scales();
      const int64_t at = offset_in(scales) + (group > 1 ? i / group * scales.stride(-1) : 0);
      x *= t.scaling().format == Format::f32     ? static_cast<double>(scales.data<float>()[at])
           : t.scaling().format == Format::ue8m0 ? decode_ue8m0(scales.data<uint8_t>()[at])
                                                 : decode_e4m3(scales.data<uint8_t>()[at]);
      if (is_block(t.format())) x *= t.tensor_scale_value();
    }
    (*out)[static_cast<size_t>(i)] = x;
  }
}

// Element [b, head, i, j] of a mask, in which dimensions of extent 1 broadcast: what is added to
// the score.
double mask_value(const Tensor& mask, int64_t b, int64_t head, int64_t i, int64_t j) {
  const int64_t index[] = {b, head, i, j};
  int64_t at = 0;
  for (int dim = 0; dim < 4; ++dim) at += mask.size(dim) == 1 ? 0 : index[dim] * mask.stride(dim);
  switch (mask.format()) {
    case Format::f32:
      return mask.data<float>()[at];
    case Format::f16:
      return decode_f16(mask.data<uint16_t>()[at]);
    case Format::bf16:
      return decode_bf16(mask.data<uint16_t>()[at]);
    default:
      return mask.data<uint8_t>()[at] != 0 ? 0 : -std::numeric_limits<double>::infinity();
  }
}

}  // namespace

AttentionKeys attention_keys(const AttentionProblem& p, const AttentionSequence& s, int64_t i) {
  const int64_t position = i + s.keys - s.queries;  // of the query, counted in keys
  const int64_t right = p.causal ? 0 : p.window_right;
  AttentionKeys keys{0, s.keys};
  if (p.window_left >= 0) keys.begin = std::max(keys.begin, position - p.window_left);
  if (right >= 0) keys.end = std::min(keys.end, position + right + 1);
  if (const int64_t size = p.attention_chunk_size; size > 0) {
    const int64_t chunk = (position < 0 ? position - size + 1 : position) / size * size;
    keys.begin = std::max(keys.begin, chunk);
    keys.end = std::min(keys.end, chunk + size);
  }
  return keys;
}

Tensor attention_reference(const AttentionProblem& p, const AttentionTensors& t, Tensor* lse) {
  const std::string error = attention_problem_error(p);
  require(error.empty(), error);
  const int64_t dv = value_dim(p), group = p.heads / p.kv_heads;
  const bool packed_q = t.cu_seqlens_q.defined();
  Tensor out = Tensor::zeros(
      packed_q ? Shape{t.q.size(0), p.heads, dv} : Shape{p.batch, p.query_length, p.heads, dv},
      Format::f32);
  if (lse != nullptr) {
    *lse = Tensor::empty({p.batch, p.heads, p.query_length}, Format::f32);
    std::fill_n(lse->data<float>(), lse->numel(), -std::numeric_limits<float>::infinity());
  }
  std::vector<double> q, scores, sum;
  std::vector<std::vector<double>> keys, values;
  for (int64_t b = 0; b < p.batch; ++b) {
    const AttentionSequence s = attention_sequence(p, t, b);
    keys.resize(static_cast<size_t>(s.keys));
    values.resize(static_cast<size_t>(s.keys));
    scores.resize(static_cast<size_t>(s.keys));
    for (int64_t kv_head = 0; kv_head < p.kv_heads; ++kv_head) {
      for (int64_t j = 0; j < s.keys; ++j) {
        int64_t a = b, row = s.key_begin + j;
        if (p.page_size) {
          const int32_t* pages = t.page_table.data<int32_t>() + b * t.page_table.stride(0);
          a = pages[j / *p.page_size], row = j % *p.page_size;
        }
        decode_row(t.k, a, row, kv_head, &keys[static_cast<size_t>(j)]);
        decode_row(t.v, a, row, kv_head, &values[static_cast<size_t>(j)]);
      }
      for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (int64_t i = 0; i < s.queries; ++i) {
          const AttentionKeys visible = attention_keys(p, s, i);
          decode_row(t.q, b, s.query_begin + i, head, &q);
          const double sink = p.sinks ? double{t.sinks.data<float>()[head * t.sinks.stride(0)]}
                                      : -std::numeric_limits<double>::infinity();
          double row_max = sink;
          bool all_masked = std::isinf(sink);  // every key so far is masked; NaN is not masked
          for (int64_t j = visible.begin; j < visible.end; ++j) {
            double score = 0;
            const auto& key = keys[static_cast<size_t>(j)];
            for (size_t d = 0; d < q.size(); ++d) score += q[d] * key[d];
            score *= softmax_scale(p);
            if (p.softcap > 0) score = p.softcap * std::tanh(score / p.softcap);
            if (p.mask) {
              const double mask = mask_value(t.mask, b, head, i, j);
              score = mask == -std::numeric_limits<double>::infinity() ? mask : score + mask;
            }
            scores[static_cast<size_t>(j)] = score;
            row_max = std::max(row_max, score);
            all_masked = all_masked && score == -std::numeric_limits<double>::infinity();
          }
          if (all_masked) continue;
          double divisor = std::exp(sink - row_max);
          sum.assign(static_cast<size_t>(dv), 0);
          for (int64_t j = visible.begin; j < visible.end; ++j) {
            const double score = scores[static_cast<size_t>(j)];
            if (score == -std::numeric_limits<double>::infinity()) continue;
            const double p_j = std::exp(score - row_max);
            divisor += p_j;
            const auto& value = values[static_cast<size_t>(j)];
            for (size_t d = 0; d < sum.size(); ++d) sum[d] += p_j * value[d];
          }
          float* row = out.data<float>() +
                       ((packed_q ? s.query_begin : b * p.query_length) + i) * p.heads * dv +
                       head * dv;
          for (size_t d = 0; d < sum.size(); ++d) row[d] = static_cast<float>(sum[d] / divisor);
          if (lse != nullptr) {
            lse->data<float>()[(b * p.heads + head) * p.query_length + i] =
                static_cast<float>(row_max + std::log(divisor));
          }
        }
      }
    }
  }
  return out;
}

}  // namespace halftone
