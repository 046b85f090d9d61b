// How far rounding errors of weights and cache move a model's predictions, and what to expect of a
// format from its rounding error alone. The derivation is in docs/findings/perplexity.md.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/engine.h"

namespace halftone {

// Squared relative error of all matrices of the layers together, against another copy of the model.
double squared_error(const Model& model, const Model& exact);
// The same of normal data stored in a cache of this format.
double cache_squared_error(Format kv, int64_t head_dim);

// KL divergence from the exact model per squared relative error, in nats.
struct Sensitivity {
  double weights = 0;  // from normal noise of `noise` on every matrix
  double cache = 0;    // from a cache in f16
  double noise = 0.01;
};
Sensitivity measure_sensitivity(const std::string& path, std::string_view text, int64_t window);

struct SweepRow {
  std::string weights, kv;
  int64_t weight_bytes = 0;
  double weight_error = 0, cache_error = 0;  // relative L2
  TextScore score;                           // with KL from f32 weights and an f32 cache
  double expected_kl = 0;
  // Of the mean negative log likelihood against the exact model's, were the text drawn from the
  // model: expected_kl, and this standard deviation.
  double nll_change = 0, nll_deviation = 0;
};
struct Sweep {
  Sensitivity sensitivity;
  TextScore exact;
  std::vector<SweepRow> rows;
};
// Every pair of a weight format and a cache format.
Sweep sweep_formats(const std::string& path, std::string_view text, int64_t window,
                    const std::vector<std::string>& weights, const std::vector<Format>& caches,
                    const std::function<void(double)>& progress = {});

}  // namespace halftone
