// Rules of a sparse attention problem, the checks of its tensors, and the operation in FP64.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/message.h"
#include "halftone/quantize.h"
#include "ops/attention/sparse/sparse.h"

namespace halftone {

std::string sparse_problem_error(const SparseAttentionProblem& p) {
  const auto below = [](const char* what, int64_t value, int64_t least) {
    return concat(what, " is ", value, "; it must be at least ", least);
  };
  if (p.batch < 0) return below("batch", p.batch, 0);
  if (p.query_length < 0) return below("query_length", p.query_length, 0);
  if (p.heads < 1) return below("heads", p.heads, 1);
  if (p.indices < 0) return below("indices", p.indices, 0);
  if (p.extra_indices < 0) return below("extra_indices", p.extra_indices, 0);
  if (std::string error = latent_error("cache", p.cache); !error.empty()) return error;
  if (p.extra) {
    if (std::string error = latent_error("extra", *p.extra); !error.empty()) return error;
    if (p.extra->dim != p.cache.dim) {
      return concat("extra.dim is ", p.extra->dim, "; it must be that of the cache, ", p.cache.dim);
    }
  }
  if (p.value_dim < 1 || p.value_dim > p.cache.dim) {
    return concat("value_dim is ", p.value_dim, "; it must be from 1 to cache.dim, ", p.cache.dim);
  }
  if (!is_plain_float(p.q)) return concat("q is ", name(p.q), "; it must be f32, f16 or bf16");
  if (!is_plain_float(p.out)) {
    return concat("out is ", name(p.out), "; it must be f32, f16 or bf16");
  }
  return {};
}

namespace {

void check_shape(const char* what, const Tensor& x, const Shape& shape, Format format) {
  require(x.defined(), what, " is missing");
  require(x.device().is_cpu(), what, " is on ", x.device().name(), ", the plan on cpu");
  require(x.format() == format, what, " is ", name(x.format()), "; the plan says ", name(format));
  require(x.shape() == shape, what, " has shape ", to_string(x.shape()), "; the plan says ",
          to_string(shape));
}

void check_rows(const char* what, const Tensor& x, const Shape& shape, Format format) {
  check_shape(what, x, shape, format);
  require(x.stride(-1) == 1 || x.size(-1) <= 1, what, " has stride ", x.stride(-1),
          " in its last dimension; it must be 1");
}

void check_list(const SparseAttentionProblem& p, const char* what, const Tensor& indices,
                int64_t entries, const char* lengths_name, const Tensor& lengths,
                const LatentView& cache) {
  if (entries == 0) return;
  check_rows(what, indices, {p.batch, p.query_length, entries}, Format::i32);
  if (lengths.defined()) {
    check_shape(lengths_name, lengths,
                lengths.rank() == 1 ? Shape{p.batch} : Shape{p.batch, p.query_length}, Format::i32);
  }
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.query_length; ++i) {
      int64_t length = entries;
      if (lengths.defined()) {
        length = lengths.data<int32_t>()[b * lengths.stride(0) +
                                         (lengths.rank() == 2 ? i * lengths.stride(1) : 0)];
        require(length >= 0 && length <= entries, lengths_name, " of query ", i, " of sequence ", b,
                " is ", length, "; it must be from 0 to the ", entries, " entries of its list");
      }
      const int32_t* slot = indices.data<int32_t>() + b * indices.stride(0) + i * indices.stride(1);
      for (int64_t j = 0; j < length; ++j) {
        require(slot[j] < cache.tokens(), what, "[", b, ", ", i, ", ", j, "] is ", slot[j],
                "; the cache has ", cache.tokens(), " tokens");
      }
    }
  }
}

}  // namespace

SparseCaches check_sparse_tensors(const SparseAttentionProblem& p,
                                  const SparseAttentionTensors& t) {
  SparseCaches caches;
  check_rows("q", t.q, {p.batch, p.query_length, p.heads, p.cache.dim}, p.q);
  caches.main = latent_view("cache", p.cache, t.cache);
  if (p.extra) caches.extra = latent_view("extra_cache", *p.extra, t.extra_cache);
  check_list(p, "indices", t.indices, p.indices, "lengths", t.lengths, caches.main);
  if (p.extra) {
    check_list(p, "extra_indices", t.extra_indices, p.extra_indices, "extra_lengths",
               t.extra_lengths, caches.extra);
  }
  if (p.sinks) check_shape("sinks", t.sinks, {p.heads}, Format::f32);
  check_rows("out", t.out, {p.batch, p.query_length, p.heads, p.value_dim}, p.out);
  if (p.lse) check_shape("lse", t.lse, {p.batch, p.heads, p.query_length}, Format::f32);
  return caches;
}

Tensor sparse_attention_reference(const SparseAttentionProblem& p, const SparseAttentionTensors& t,
                                  Tensor* lse) {
  const std::string error = sparse_problem_error(p);
  require(error.empty(), error);
  const Tensor out = Tensor::zeros({p.batch, p.query_length, p.heads, p.value_dim}, Format::f32);
  const Tensor logs = Tensor::empty({p.batch, p.heads, p.query_length}, Format::f32);
  const Tensor q = p.q == Format::f32 ? t.q.contiguous_copy() : convert(t.q, Format::f32);
  const auto dim = static_cast<size_t>(p.cache.dim);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.query_length; ++i) {
      std::vector<int32_t> slots, extra_slots;
      for_selected_tokens(p, t, b, i, [&](int32_t slot, bool extra) {
        (extra ? extra_slots : slots).push_back(slot);
      });
      const auto rows_of = [](const LatentLayout& layout, const Tensor& cache,
                              const std::vector<int32_t>& list) {
        const auto count = static_cast<int64_t>(list.size());
        if (count == 0) return std::vector<float>();
        const Tensor x = latent_read(
            layout, cache, Tensor::copy_of(list.data(), list.size() * 4, {count}, Format::i32));
        return std::vector<float>(x.data<float>(), x.data<float>() + x.numel());
      };
      std::vector<float> rows = rows_of(p.cache, t.cache, slots);
      if (p.extra) {
        const std::vector<float> extra_rows = rows_of(*p.extra, t.extra_cache, extra_slots);
        rows.insert(rows.end(), extra_rows.begin(), extra_rows.end());
      }
      const size_t tokens = rows.size() / dim;
      for (int64_t head = 0; head < p.heads; ++head) {
        const int64_t row = (b * p.query_length + i) * p.heads + head;
        const float* query = q.data<float>() + row * p.cache.dim;
        double row_max = -std::numeric_limits<double>::infinity(), divisor = 0;
        std::vector<double> scores(tokens), sum(static_cast<size_t>(p.value_dim));
        for (size_t j = 0; j < tokens; ++j) {
          for (size_t d = 0; d < dim; ++d) {
            scores[j] += static_cast<double>(query[d]) * rows[j * dim + d];
          }
          scores[j] *= softmax_scale(p);
          row_max = std::max(row_max, scores[j]);
        }
        for (size_t j = 0; j < tokens; ++j) {
          const double p_j = std::exp(scores[j] - row_max);
          divisor += p_j;
          for (size_t d = 0; d < sum.size(); ++d) sum[d] += p_j * rows[j * dim + d];
        }
        const double log = tokens == 0 ? row_max : row_max + std::log(divisor);
        logs.data<float>()[(b * p.heads + head) * p.query_length + i] = static_cast<float>(log);
        if (tokens == 0) continue;
        // exp(lse) / (exp(lse) + exp(sink))
        const double sink_factor =
            p.sinks ? 1 / (1 + std::exp(t.sinks.data<float>()[head * t.sinks.stride(0)] - log)) : 1;
        for (size_t d = 0; d < sum.size(); ++d) {
          out.data<float>()[row * p.value_dim + static_cast<int64_t>(d)] =
              static_cast<float>(sum[d] / divisor * sink_factor);
        }
      }
    }
  }
  if (lse != nullptr) *lse = logs;
  return out;
}

}  // namespace halftone
