// Tokens drawn on a GPU after penalties and filters: the same that a Sampler draws.
#pragma once
#include <span>
#include <vector>

#include "halftone/sampling.h"

namespace halftone {

// How a row's token is drawn.
struct alignas(16) DrawRow {
  float temperature = 0;  // 0: the largest score
  int32_t top_k = 0;
  float top_p = 1, min_p = 0, typical_p = 1;
  float repetition = 1, frequency = 0, presence = 0;  // penalties
  uint64_t key = 0, draws = 0;  // of fixed_point.h; draws is counted up on the device
};
// A token's count in a row's history and its logit bias.
struct alignas(16) TokenAdjustment {
  int32_t row = 0, token = 0;
  int32_t count = 0;  // in the history
  float bias = 0;
};
// Of samplers whose tokens are drawn on a GPU.
struct SamplerOnGpu {
  // No token has two biases: those would be added one after the other.
  static bool can(const Sampler&);
  static bool has_penalties(const Sampler&);
  // Whether the token is more than the largest logit's.
  static bool draws(const Sampler&);
  static DrawRow row(const Sampler&);
  // Adds those of a row; tokens must be of the vocabulary.
  static void adjust(const Sampler&, int32_t row, std::span<const int32_t> history,
                     int64_t vocabulary, std::vector<TokenAdjustment>&);
  static void count_draw(Sampler&);  // of a token that the device has drawn
};

class TokenDraw {
 public:
  TokenDraw() = default;
  TokenDraw(int64_t rows, int64_t vocabulary, const Device&);
  // For the calls that follow.
  void set(std::span<const DrawRow>, std::span<const TokenAdjustment>, Stream&);
  // Identifies the kernels the calls launch: a captured graph is stale when this has changed.
  struct Stages {
    bool top_k = false, top_p = false, typical = false, adjusts = false;
    bool operator==(const Stages&) const = default;
  };
  const Stages& stages() const { return stages_; }
  // Of each row of logits [rows, vocabulary]; asynchronous and capturable.
  void run(const Tensor& logits, Stream&) const;
  // i64 [rows], keys (pipe/order_key.h) of a token and its logit; the largest score's, which is
  // not finite, where the row has no token, and that of a NaN where its temperature is too low.
  const Tensor& chosen() const { return chosen_; }
  // Of the largest logit as given, likewise.
  const Tensor& largest() const { return largest_; }
  // i32 [rows, vocabulary]: how often tokens occurred; undefined where nothing is adjusted. Whoever
  // goes on from the tokens chosen counts them.
  Tensor counts() const { return stages_.adjusts ? counts_ : Tensor(); }
  int64_t bytes() const;

 private:
  Stages stages_;
  int64_t vocabulary_ = 0;
  Tensor rows_, largest_, chosen_;
  Tensor keys_;           // of each token's score
  Tensor counts_, bias_;  // of each token; made at the first adjustment
  Tensor best_, bins_, weighed_, counters_, list_counts_;  // 0 between calls
  Tensor few_, listed_;                                    // of what is left, where that is little
  Tensor cuts_, means_, sums_;                             // of the searches, of stretches
};

}  // namespace halftone
