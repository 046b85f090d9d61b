// An independent FP64 attention with a bound on the kernel's error, for contiguous tensors.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/attention_nvfp4.h"
#include "halftone/attention.h"
#include "support/compare.h"

namespace halftone::test {

// What the tensor cores of sm_90a multiply in E4M3: the scores, and P V of tiles of so many keys
// (0: in more bits). And the keys that share a second-level scale of P in NVFP4 there (0: as
// elsewhere).
struct HopperTiles {
  bool fp8_scores = false;
  int64_t fp8_keys = 0, nvfp4_keys = 0;
};

struct Bounded {
  std::vector<float> out, lse;
  std::vector<double> out_bound, lse_bound;
};

// Element [b, head, i, j] of a mask as it is added to a score; -inf masks.
inline double mask_term(const Tensor& mask, int64_t b, int64_t head, int64_t i, int64_t j) {
  if (!mask.defined()) return 0;
  const int64_t index[] = {b, head, i, j};
  int64_t at[4] = {};
  for (int dim = 0; dim < 4; ++dim) at[dim] = mask.size(dim) == 1 ? 0 : index[dim];
  if (mask.format() != Format::u8) return double{mask.at({at[0], at[1], at[2], at[3]})};
  int64_t offset = 0;
  for (int dim = 0; dim < 4; ++dim) offset += at[dim] * mask.stride(dim);
  return mask.data<uint8_t>()[offset] != 0 ? 0 : -INFINITY;
}

// The kernel's errors, with e = 2^-24 the unit roundoff of f32, u_q and u_p those of the products'
// operands (2^-8 when Q is rounded to bf16, when P is rounded to bf16; 2^-4 for P in E4M3):
//  * a score is a chain of head_dim products: E = scale * sum |q k| * (u_q + (head_dim + 8) e); the
//    8 covers the scale factors, a rounding each. The softcap's slope is at most 1; tanh within 4
//    ulp and its two factors add 8 e softcap. As 1 - 2 r with r = 1 / (1 + exp(2 y)), where four
//    scores share a reciprocal, 1 + 2 r (7 + (4 + 2 |y|) (1 - r)): a rounded sum, rcp within 1 ulp,
//    four products; ex2 within 2 ulp and its argument. The largest of both, at most 15.1. A mask
//    adds a rounding and that of its factor. The difference to the maximum is rounded once more: +
//    |s - max| e.
//  * exp turns that into a relative error of P: x = exp(E) - 1 + e_exp, e_exp = 2^-17 + 4e for the
//    short polynomial of the bf16 products and 8e for the long one.
//  * P is rounded for the product, not for the norm: relative u_p, and for E4M3, whose subnormal
//    spacing is 2^-9 / 256, also 2^-18 of the largest P of the chunk, at most 1. A scale a row of V
//    multiplies P and costs one rounding to bf16 more. P in NVFP4 is rounded here as well, so that
//    only what may fall to either side of a tie is left; tiles of keys that weigh less than 2^-60
//    of the largest may count as nothing.
//  * the sums over n keys and their chunks: (n + 16) e each, numerator and norm.
// With w = softmax: |error| <= sum_j w_j |v_j| (x_j + u_p + (n + 16) e) + |o| sum_j w_j x_j + ...,
// all times 1.01 for products of errors; and half a unit of the output format.
//
// Tensor cores that add products of E4M3 (of P V those of a tile, before the sum goes on in f32)
// align the 32 products of a step and what they are added to at the largest of them, and cut each
// and the sum off behind 13 fraction bits: 34 * 2^-13 of the largest a step. Scores are followed
// step by step; of P V the sum of magnitudes bounds the largest. Row scales of V are taken over the
// largest of a tile there, so that the subnormal spacing is that of the largest V.
inline Bounded bounded_attention(const AttentionProblem& p, const std::vector<float>& q,
                                 const std::vector<float>& k, const std::vector<float>& v,
                                 const Tensor& mask = {}, const Tensor& sinks = {},
                                 const HopperTiles& hopper = {}) {
  const double e = 0x1p-24;
  const bool f32_products = p.mode.qk == Format::f32 || p.mode.qk == Format::f16;
  const double u_q = !f32_products && (p.q == Format::f32 || p.q == Format::f16) ? 0x1p-8 : 0.0;
  double u_p = 0, floor_p = 0, e_exp = 8 * e;
  if (!f32_products) e_exp = 0x1p-17 + 4 * e, u_p = 0x1p-8;
  if (p.mode.pv == Format::f16) u_p = 0x1p-11, floor_p = 0x1p-25;
  if (p.mode.pv == Format::fp8_e4m3) u_p = 0x1p-4 + 0x1p-8, floor_p = 0x1p-18;
  if (p.mode.pv == Format::nvfp4) u_p = 0, floor_p = 0x1p-60;
  if (!f32_products && is_fp8(p.v) && p.mode.pv == Format::bf16) u_p = 0x1p-8;
  constexpr double kFp8Step = 34 * 0x1p-13;
  u_p += static_cast<double>(hopper.fp8_keys / 32) * kFp8Step;
  const double u_out = p.out == Format::f32 ? e : p.out == Format::bf16 ? 0x1p-8 : 0x1p-11;
  const double floor_out = p.out == Format::f16 ? 0x1p-25 : 0;  // subnormal f16 are 2^-24 apart

  const int64_t dv = p.value_dim == 0 ? p.head_dim : p.value_dim, group = p.heads / p.kv_heads;
  const int64_t chunk = hopper.nvfp4_keys != 0            ? hopper.nvfp4_keys
                        : std::max(p.head_dim, dv) <= 256 ? 256
                        : std::max(p.head_dim, dv) <= 512 ? 128
                                                          : 64;
  const double scale = p.softmax_scale.value_or(1.0f / std::sqrt(static_cast<float>(p.head_dim)));
  Bounded result;
  const auto rows = static_cast<size_t>(p.batch * p.query_length * p.heads);
  result.out.resize(rows * static_cast<size_t>(dv));
  result.out_bound.resize(result.out.size());
  result.lse.assign(rows, -INFINITY);
  result.lse_bound.assign(rows, 0);
  std::vector<double> s(static_cast<size_t>(p.key_length)), x(s.size()), half(s.size());
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const double sink = sinks.defined() ? sinks.at({h}) : -INFINITY;
      for (int64_t i = 0; i < p.query_length; ++i) {
        const int64_t at = i + p.key_length - p.query_length;
        const int64_t right = p.causal ? 0 : p.window_right;
        const auto local = [&](int64_t j) {  // floor(j / size), of negative numbers too
          return std::floor(static_cast<double>(j) / static_cast<double>(p.attention_chunk_size));
        };
        const auto seen = [&](int64_t j) {
          return (right < 0 || j <= at + right) && (p.window_left < 0 || j >= at - p.window_left) &&
                 (p.attention_chunk_size == 0 || local(j) == local(at)) &&
                 mask_term(mask, b, h, i, j) != -INFINITY;
        };
        const float* qr =
            &q[static_cast<size_t>(((b * p.query_length + i) * p.heads + h) * p.head_dim)];
        const auto row_of = [&](const std::vector<float>& t, int64_t j, int64_t dim) {
          return t.data() + ((b * p.key_length + j) * p.kv_heads + h / group) * dim;
        };
        const size_t lse = static_cast<size_t>((b * p.heads + h) * p.query_length + i);
        double largest = -INFINITY;
        std::vector<int64_t> keys;
        std::fill(s.begin(), s.end(), -INFINITY);
        for (int64_t j = 0; j < p.key_length; ++j) {
          if (!seen(j)) continue;
          double sum = 0, magnitude = 0, largest_of_step = 0, fp8_error = 0;
          const float* kr = row_of(k, j, p.head_dim);
          for (int64_t d = 0; d < p.head_dim; ++d) {
            const double product = static_cast<double>(qr[d]) * kr[d];
            if (d % 32 == 0) largest_of_step = std::abs(sum);
            largest_of_step = std::max(largest_of_step, std::abs(product));
            sum += product, magnitude += std::abs(product);
            if (hopper.fp8_scores && (d % 32 == 31 || d == p.head_dim - 1)) {
              fp8_error += kFp8Step * largest_of_step;
            }
          }
          double score = sum * scale;
          double error = (magnitude * (u_q + static_cast<double>(p.head_dim + 8) * e) + fp8_error) *
                         std::abs(scale);
          if (p.softcap > 0) {
            const double y = score / p.softcap, r = (1 - std::tanh(y)) / 2;
            score = p.softcap * std::tanh(y);
            error +=
                std::max(8.0, 1 + 2 * r * (7 + (4 + 2 * std::abs(y)) * (1 - r))) * e * p.softcap;
          }
          if (mask.defined()) {
            const double term = mask_term(mask, b, h, i, j);
            score += term;
            error += 2 * e * (std::abs(term) + std::abs(score));
          }
          s[static_cast<size_t>(j)] = score, x[static_cast<size_t>(j)] = error;
          largest = std::max(largest, score);
          keys.push_back(j);
        }
        if (keys.empty()) {
          result.lse[lse] = static_cast<float>(sink);
          if (std::isfinite(sink)) result.lse_bound[lse] = (std::abs(sink) + 1) * 4 * e;
          continue;
        }
        const double key_error = static_cast<double>(keys.size() + 16) * e;
        double norm = std::exp(sink - largest), norm_error = norm * e_exp, most = 0;
        for (double& sj : s) sj = sj == -INFINITY ? sj : sj - largest;
        for (const int64_t j : keys) {
          double& xj = x[static_cast<size_t>(j)];
          xj = std::expm1(xj + std::abs(s[static_cast<size_t>(j)]) * e) + e_exp;
          most = std::max(most, xj);
        }
        for (double& sj : s) sj = std::exp(sj);
        for (const int64_t j : keys) {
          const double weight = s[static_cast<size_t>(j)];
          norm += weight, norm_error += weight * x[static_cast<size_t>(j)];
        }
        norm_error = norm_error / norm + key_error;
        half.assign(s.size(), 0);
        if (p.mode.pv == Format::nvfp4) quantise_nvfp4(&s, x, chunk, &half);
        const size_t row = static_cast<size_t>((b * p.query_length + i) * p.heads + h);
        double largest_v = 0;
        for (const int64_t j : keys) {
          if (hopper.fp8_keys == 0) break;
          const float* vr = row_of(v, j, dv);
          for (int64_t d = 0; d < dv; ++d) largest_v = std::max(largest_v, double{std::abs(vr[d])});
        }
        std::vector<double> o(static_cast<size_t>(dv)), error(o.size());
        for (const int64_t j : keys) {
          const auto at_j = static_cast<size_t>(j);
          const double w = s[at_j] / norm;
          const double most_error = w * (x[at_j] + u_p + key_error) + (half[at_j] + floor_p) / norm;
          const float* vr = row_of(v, j, dv);
          for (size_t d = 0; d < o.size(); ++d) {
            o[d] += w * vr[d];
            error[d] += std::abs(vr[d]) * most_error + largest_v * floor_p / norm;
          }
        }
        for (size_t d = 0; d < o.size(); ++d) {
          const size_t index = row * o.size() + d;
          result.out[index] = static_cast<float>(o[d]);
          result.out_bound[index] =
              1.01 * (error[d] + std::abs(o[d]) * (norm_error + u_out + 2 * e)) + floor_out + 1e-37;
        }
        result.lse[lse] = static_cast<float>(largest + std::log(norm));
        // The maximum itself carries its score's error; norm_error covers it as every x does.
        result.lse_bound[lse] =
            1.01 * (norm_error + most) + (std::abs(largest) + std::abs(std::log(norm)) + 1) * 4 * e;
      }
    }
  }
  return result;
}

}  // namespace halftone::test
