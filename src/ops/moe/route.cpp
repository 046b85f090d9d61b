// Routing on CPUs: which experts a token goes to, and with which weights.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/message.h"
#include "formats/codec.h"
#include "halftone/moe.h"
#include "ops/gemm/cpu/run.h"
#include "ops/moe/gpu.h"

namespace halftone {

const char* name(Scoring scoring) {
  switch (scoring) {
    case Scoring::softmax:
      return "softmax";
    case Scoring::sigmoid:
      return "sigmoid";
    default:
      return "sqrt(softplus)";
  }
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

float value(const Tensor& logits, int64_t token, int64_t expert) {
  const int64_t i = token * logits.stride(0) + expert * logits.stride(1);
  switch (logits.format()) {
    case Format::f32:
      return logits.data<float>()[i];
    case Format::f16:
      return decode_f16(logits.data<uint16_t>()[i]);
    default:
      return decode_bf16(logits.data<uint16_t>()[i]);
  }
}

// Scores of a token in f32 (or, for the reference, f64), infinities and NaN as the header says.
template <class Real>
void score_row(const RoutingTensors& t, const RoutingOptions& o, int64_t token,
               std::vector<Real>& p) {
  Real greatest = -static_cast<Real>(kInfinity);
  for (size_t e = 0; e < p.size(); ++e) {
    p[e] = value(t.logits, token, static_cast<int64_t>(e));
    if (std::isnan(p[e])) p[e] = -static_cast<Real>(kInfinity);
    greatest = std::max(greatest, p[e]);
  }
  if (o.scoring == Scoring::sigmoid) {
    for (Real& x : p) x = 1 / (1 + std::exp(-x));
    return;
  }
  if (o.scoring == Scoring::sqrt_softplus) {
    // In this form neither the exponential nor the logarithm loses large or small logits.
    for (Real& x : p) x = std::sqrt(std::max<Real>(x, 0) + std::log1p(std::exp(-std::abs(x))));
    return;
  }
  Real sum = 0;
  for (Real& x : p) {
    if (std::isinf(greatest)) {
      x = x == greatest ? Real{1} : Real{0};
    } else {
      x = std::exp(x - greatest);
    }
    sum += x;
  }
  for (Real& x : p) x /= sum;
}

// The index of the largest of [begin, end), which is then removed; ties: the lower.
template <class Real>
size_t take_best(std::vector<Real>& keys, size_t begin, size_t end) {
  size_t best = begin;
  for (size_t e = begin + 1; e < end; ++e) {
    if (keys[e] > keys[best]) best = e;
  }
  keys[best] = -static_cast<Real>(kInfinity);
  return best;
}

// Removes the experts of all but the best groups (group-limited routing).
template <class Real>
void limit_groups(const RoutingOptions& o, std::vector<Real>& keys) {
  if (o.groups_kept >= o.groups) return;
  const auto groups = static_cast<size_t>(o.groups);
  const size_t size = keys.size() / groups;
  std::vector<Real> scores(groups), rest = keys;
  for (size_t g = 0; g < groups; ++g) {
    for (int i = 0; i < o.group_top; ++i) {
      const size_t from = g * size;
      scores[g] += keys[take_best(rest, from, from + size)];
    }
    scores[g] = std::max(scores[g], -std::numeric_limits<Real>::max());
  }
  std::vector<bool> kept(groups);
  for (int i = 0; i < o.groups_kept; ++i) kept[take_best(scores, 0, groups)] = true;
  for (size_t e = 0; e < keys.size(); ++e) {
    if (!kept[e / size]) keys[e] = -static_cast<Real>(kInfinity);
  }
}

int64_t integer(const Tensor& t, int64_t i) {
  return t.format() == Format::i64 ? t.data<int64_t>()[i] : int64_t{t.data<int32_t>()[i]};
}

template <class Real>
void route_token(const RoutingTensors& t, const RoutingOptions& o, int64_t token,
                 std::vector<Real>& scores, std::vector<Real>& keys, const Routing& out) {
  const int64_t k = o.top_k;
  int32_t* expert_ids = out.experts.data<int32_t>() + token * k;
  float* weights = out.weights.data<float>() + token * k;
  score_row(t, o, token, scores);
  if (t.expert_table.defined()) {
    const Tensor& table = t.expert_table;
    const int64_t row = integer(t.token_ids, token * t.token_ids.stride(0)) * table.stride(0);
    for (int64_t i = 0; i < k; ++i) {
      expert_ids[i] = static_cast<int32_t>(integer(table, row + i * table.stride(1)));
    }
  } else {
    keys = scores;
    if (t.selection_bias.defined()) {
      for (size_t e = 0; e < keys.size(); ++e) {
        const auto i = static_cast<int64_t>(e);
        keys[e] += t.selection_bias.data<float>()[i * t.selection_bias.stride(0)];
        // A NaN or -infinity would leave fewer than top_k experts to choose from.
        if (!(keys[e] > -std::numeric_limits<Real>::max())) {
          keys[e] = -std::numeric_limits<Real>::max();
        }
      }
    }
    limit_groups(o, keys);
    for (int64_t i = 0; i < k; ++i) {
      expert_ids[i] = static_cast<int32_t>(take_best(keys, 0, keys.size()));
    }
  }
  Real sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += scores[static_cast<size_t>(expert_ids[i])];
  for (int64_t i = 0; i < k; ++i) {
    Real weight = scores[static_cast<size_t>(expert_ids[i])];
    if (o.renormalize && sum > 0) weight /= sum;
    weights[i] = static_cast<float>(weight * static_cast<Real>(o.scale));
  }
}

void check(const RoutingTensors& t, const RoutingOptions& o) {
  const Tensor& logits = t.logits;
  require(logits.defined() && logits.rank() == 2, "logits ", shown(logits.shape()),
          " must have two dimensions, [tokens, experts]");
  require(is_plain_float(logits.format()), "logits are ", name(logits.format()),
          "; they must be f32, f16 or bf16");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  require(o.top_k >= 1 && o.top_k <= experts, "top_k is ", o.top_k,
          "; it must be 1 to the number of experts, ", experts);
  require(std::isfinite(o.scale), "scale is ", o.scale, "; it must be finite");
  require(o.groups >= 1 && experts % o.groups == 0, "groups is ", o.groups,
          "; it must divide the number of experts, ", experts);
  require(o.groups_kept >= 1 && o.groups_kept <= o.groups, "groups_kept is ", o.groups_kept,
          "; it must be 1 to groups, ", o.groups);
  if (o.groups_kept < o.groups) {
    const int64_t size = experts / o.groups;
    require(o.group_top >= 1 && o.group_top <= size, "group_top is ", o.group_top,
            "; it must be 1 to the experts of a group, ", size);
    require(o.groups_kept * size >= o.top_k, "top_k is ", o.top_k, "; the ", o.groups_kept,
            " groups kept have only ", o.groups_kept * size, " experts");
  }
  if (t.selection_bias.defined()) {
    require(t.selection_bias.format() == Format::f32 && t.selection_bias.shape() == Shape{experts},
            "selection_bias is ", shown(t.selection_bias), "; it must be f32 [", experts, "]");
  }
  const Device& device = logits.device();
  require(!t.selection_bias.defined() || t.selection_bias.device() == device,
          "selection_bias is not on ", device.name(), " as the logits are");
  if (!device.is_cpu()) {
    // A warp's scores are in shared memory.
    require(experts <= 4000 && o.groups <= 140, "logits have ", experts, " experts in ", o.groups,
            " groups; the router of GPUs takes up to 4000 in 140");
  }
  require(t.token_ids.defined() == t.expert_table.defined(),
          "token_ids and expert_table go together; only one of them is given");
  if (!t.expert_table.defined()) return;
  require(!t.selection_bias.defined(),
          "selection_bias is given with expert_table; the table is "
          "the choice already");
  require(t.token_ids.format() == Format::i32 && t.token_ids.shape() == Shape{tokens},
          "token_ids is ", shown(t.token_ids), "; it must be i32 [", tokens, "]");
  const Tensor& table = t.expert_table;
  require(is_integer_index(table.format()) && table.rank() == 2 && table.size(1) == o.top_k,
          "expert_table is ", shown(table), "; it must be i32 or i64 [vocabulary, ", o.top_k, "]");
  require(t.token_ids.device() == device && table.device() == device,
          "token_ids and expert_table are not on ", device.name(), " as the logits are");
  if (!device.is_cpu()) return;  // the kernel reports what is out of range
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t id = integer(t.token_ids, i * t.token_ids.stride(0));
    require(id >= 0 && id < table.size(0), "token_ids[", i, "] is ", id, "; expert_table has ",
            table.size(0), " rows");
    for (int64_t s = 0; s < o.top_k; ++s) {
      const int64_t e = integer(table, id * table.stride(0) + s * table.stride(1));
      require(e >= 0 && e < experts, "expert_table[", id, ", ", s, "] is ", e, "; there are ",
              experts, " experts");
    }
  }
}

Routing empty_routing(const RoutingTensors& t, const RoutingOptions& o) {
  const Shape shape{t.logits.size(0), o.top_k};
  const Device& device = t.logits.device();
  return {Tensor::empty(shape, Format::i32, device), Tensor::empty(shape, Format::f32, device)};
}

}  // namespace

Routing route(const Tensor& logits, const RoutingOptions& options, Stream& stream) {
  return route(RoutingTensors{logits, {}, {}, {}}, options, stream);
}
void route(const Tensor& logits, const RoutingOptions& options, const Routing& out,
           Stream& stream) {
  route(RoutingTensors{logits, {}, {}, {}}, options, out, stream);
}

Routing route(const RoutingTensors& t, const RoutingOptions& options, Stream& stream) {
  check(t, options);
  const Routing routing = empty_routing(t, options);
  route(t, options, routing, stream);
  return routing;
}

void route(const RoutingTensors& t, const RoutingOptions& options, const Routing& out,
           Stream& stream) {
  check(t, options);
  const int64_t tokens = t.logits.size(0), experts = t.logits.size(1), k = options.top_k;
  const auto check_out = [&](const char* what, const Tensor& o, Format format) {
    require(o.defined() && o.format() == format && o.shape() == Shape{tokens, k} && o.contiguous(),
            what, " must be ", name(format), " [", tokens, ", ", k, "], row-major");
    require(o.device() == t.logits.device(), what, " is on ", o.device().name(),
            "; the logits are on ", t.logits.device().name());
  };
  check_out("experts", out.experts, Format::i32);
  check_out("weights", out.weights, Format::f32);
  require(stream.device() == t.logits.device(), "stream is on ", stream.device().name(),
          "; the logits are on ", t.logits.device().name());
  if (!t.logits.device().is_cpu()) return experts::route_gpu(t, options, out, stream);
  gemm::parallel(stream.pool(), tokens, 16, tokens * experts * 64, [&](int64_t begin, int64_t end) {
    // These grow to the number of experts once.
    thread_local std::vector<float> scores, keys;
    scores.resize(static_cast<size_t>(experts));
    for (int64_t i = begin; i < end; ++i) {
      route_token(t, options, i, scores, keys, out);
    }
  });
}

Routing route_reference(const RoutingTensors& t, const RoutingOptions& options) {
  check(t, options);
  const Routing out = empty_routing(t, options);
  std::vector<double> scores(static_cast<size_t>(t.logits.size(1))), keys;
  for (int64_t i = 0; i < t.logits.size(0); ++i) {
    route_token(t, options, i, scores, keys, out);
  }
  return out;
}

Permutation permute(const Tensor& expert_ids, int64_t experts) {
  require(expert_ids.defined() && expert_ids.rank() == 2 && expert_ids.format() == Format::i32,
          "expert_ids is ", shown(expert_ids), "; it must be i32 [tokens, top_k]");
  require(expert_ids.stride(1) == 1 || expert_ids.size(1) == 1, "expert_ids has strides ",
          shown(expert_ids.strides()), "; its last dimension must be contiguous");
  require(experts >= 1, "experts is ", experts, "; it must be at least 1");
  const int64_t tokens = expert_ids.size(0), k = expert_ids.size(1);
  Permutation p{Tensor::zeros({experts}, Format::i32), Tensor::zeros({experts + 1}, Format::i32),
                Tensor::empty({tokens * k}, Format::i32), Tensor::empty({tokens, k}, Format::i32)};
  auto *counts = p.counts.data<int32_t>(), *offsets = p.offsets.data<int32_t>();
  const auto expert = [&](int64_t t, int64_t s) {
    return expert_ids.data<int32_t>()[t * expert_ids.stride(0) + s];
  };
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t s = 0; s < k; ++s) {
      const int32_t e = expert(t, s);
      require(e >= 0 && e < experts, "expert_ids[", t, ", ", s, "] is ", e, "; there are ", experts,
              " experts");
      ++counts[e];
    }
  }
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] = offsets[e] + counts[e];
  std::vector<int32_t> next(offsets, offsets + experts);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t s = 0; s < k; ++s) {
      const int32_t row = next[static_cast<size_t>(expert(t, s))]++;
      p.order.data<int32_t>()[row] = static_cast<int32_t>(t * k + s);
      p.row_of.data<int32_t>()[t * k + s] = row;
    }
  }
  return p;
}

}  // namespace halftone
