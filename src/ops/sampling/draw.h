// Tokens drawn on a GPU from what top-k, top-p and min-p leave: those that a Sampler draws.
#pragma once
#include <span>

#include "halftone/sampling.h"

namespace halftone {

// How a row's token is drawn.
struct DrawRow {
  float temperature = 0;  // 0: the largest logit
  int32_t top_k = 0;
  float top_p = 1, min_p = 0;
  uint64_t key = 0, draws = 0;  // of fixed_point.h; draws is counted up on the device
};
// Samplers whose tokens can be drawn on a GPU: nothing depends on a history, and no bias.
struct SamplerOnGpu {
  static bool can(const Sampler&);
  static DrawRow row(const Sampler&);
  static void count_draw(Sampler&);  // of a token that the device has drawn
};

class TokenDraw {
 public:
  TokenDraw() = default;
  TokenDraw(int64_t rows, int64_t vocabulary, const Device&);
  // For the calls that follow; which filters they run is a part of what they launch.
  void set(std::span<const DrawRow>, Stream&);
  bool has_top_k() const { return top_k_; }
  bool has_top_p() const { return top_p_; }
  // Of each row of logits [rows, vocabulary]; asynchronous and capturable.
  void run(const Tensor& logits, Stream&) const;
  // i64 [rows], keys (pipe/order_key.h) of a token and its logit; the largest logit's, which is
  // not finite, where the row has no token, and that of a NaN where its temperature is too low.
  const Tensor& chosen() const { return chosen_; }
  const Tensor& largest() const { return largest_; }  // likewise
  int64_t bytes() const;

 private:
  bool top_k_ = false, top_p_ = false;
  Tensor rows_, largest_, chosen_;
  Tensor weights_, keys_;  // of each token
  Tensor bins_, states_;   // of the searches
  Tensor stretches_;       // of the tokens that are left
};

}  // namespace halftone
