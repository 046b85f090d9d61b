// Routing: which experts a token goes to, and with what weights.
#include <cmath>
#include <limits>
#include <vector>

#include "base/message.h"
#include "formats/codec.h"
#include "halftone/moe.h"
#include "ops/product/run.h"

namespace halftone {

namespace {

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

// Softmax in f32 with the greatest logit subtracted, infinities and NaN as the header says.
void softmax_row(const Tensor& logits, int64_t token, std::vector<float>& p) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  float greatest = -kInfinity;
  for (size_t e = 0; e < p.size(); ++e) {
    p[e] = value(logits, token, static_cast<int64_t>(e));
    if (std::isnan(p[e])) p[e] = -kInfinity;
    greatest = std::max(greatest, p[e]);
  }
  float sum = 0;
  for (float& x : p) {
    if (std::isinf(greatest)) {
      x = x == greatest ? 1.0f : 0.0f;
    } else {
      x = std::exp(x - greatest);
    }
    sum += x;
  }
  for (float& x : p) x /= sum;
}

}  // namespace

Routing route(const Tensor& logits, const RoutingOptions& options, Stream& stream) {
  require(logits.defined() && logits.rank() == 2, "logits ", shown(logits.shape()),
          " must have two dimensions, [tokens, experts]");
  const int64_t experts = logits.size(1);
  require(options.top_k >= 1 && options.top_k <= experts, "top_k is ", options.top_k,
          "; it must be 1 to the number of experts, ", experts);
  const Shape shape{logits.size(0), options.top_k};
  Routing routing{Tensor::empty(shape, Format::i32), Tensor::empty(shape, Format::f32)};
  route(logits, options, routing, stream);
  return routing;
}

void route(const Tensor& logits, const RoutingOptions& options, const Routing& out,
           Stream& stream) {
  require(logits.defined() && logits.rank() == 2, "logits ", shown(logits.shape()),
          " must have two dimensions, [tokens, experts]");
  require(is_plain_float(logits.format()), "logits are ", name(logits.format()),
          "; they must be f32, f16 or bf16");
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  require(options.top_k >= 1 && options.top_k <= experts, "top_k is ", options.top_k,
          "; it must be 1 to the number of experts, ", experts);
  const int64_t k = options.top_k;
  const auto check = [&](const char* what, const Tensor& t, Format format) {
    require(t.defined() && t.format() == format && t.shape() == Shape{tokens, k} && t.contiguous(),
            what, " must be ", name(format), " [", tokens, ", ", k, "], row-major");
  };
  check("experts", out.experts, Format::i32);
  check("weights", out.weights, Format::f32);
  product::parallel(stream.pool(), tokens, 16, tokens * experts * 64,
                    [&](int64_t begin, int64_t end) {
                      thread_local std::vector<float> p;  // grows to the number of experts once
                      p.resize(static_cast<size_t>(experts));
                      for (int64_t t = begin; t < end; ++t) {
                        softmax_row(logits, t, p);
                        int32_t* chosen = out.experts.data<int32_t>() + t * k;
                        float* weights = out.weights.data<float>() + t * k;
                        float sum = 0;
                        for (int64_t i = 0; i < k; ++i) {
                          size_t best = 0;
                          for (size_t e = 1; e < p.size(); ++e) {
                            if (p[e] > p[best]) best = e;
                          }
                          chosen[i] = static_cast<int32_t>(best);
                          weights[i] = p[best];
                          sum += p[best];
                          p[best] = -1.0f;  // below every probability
                        }
                        if (!options.renormalize) continue;
                        for (int64_t i = 0; i < k; ++i) weights[i] /= sum;
                      }
                    });
}

}  // namespace halftone
