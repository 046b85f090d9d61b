// The rules of sampling in FP64, without optimisation: sort everything, then cut.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "halftone/sampling.h"

namespace halftone {

namespace {

std::vector<double> penalised(std::span<const float> logits, std::span<const int32_t> history,
                              const SamplingOptions& o) {
  std::vector<double> score(logits.begin(), logits.end());
  for (const LogitBias& b : o.logit_bias) score[static_cast<size_t>(b.token)] += double{b.bias};
  std::vector<int> count(score.size());
  for (const int32_t t : history) ++count[static_cast<size_t>(t)];
  for (size_t i = 0; i < score.size(); ++i) {
    if (count[i] == 0) continue;
    const double penalty = o.repetition_penalty;
    score[i] = score[i] < 0 ? score[i] * penalty : score[i] / penalty;
    score[i] -= count[i] * double{o.frequency_penalty} + double{o.presence_penalty};
  }
  return score;
}

}  // namespace

std::vector<double> sampling_reference(std::span<const float> logits,
                                       std::span<const int32_t> history, const SamplingOptions& o) {
  validate(o);
  std::vector<double> score = penalised(logits, history, o), p(score.size(), 0.0);
  std::vector<size_t> kept(score.size());
  std::iota(kept.begin(), kept.end(), size_t{0});
  std::stable_sort(kept.begin(), kept.end(),
                   [&](size_t a, size_t b) { return score[a] > score[b]; });
  if (o.temperature == 0) {
    p[kept[0]] = 1;
    return p;
  }
  const double highest = score[kept[0]];
  const auto weight = [&](size_t i) {
    return std::exp((score[i] - highest) / double{o.temperature});
  };
  std::erase_if(kept, [&](size_t i) { return !(weight(i) > 0); });
  const auto total = [&] {
    return std::accumulate(kept.begin(), kept.end(), 0.0,
                           [&](double sum, size_t i) { return sum + weight(i); });
  };
  // The shortest prefix whose probabilities reach `share`.
  const auto cut = [&](double share) {
    const double all = total();
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || sum < share * all)) sum += weight(kept[count++]);
    kept.resize(count);
  };
  if (o.top_k > 0 && static_cast<size_t>(o.top_k) < kept.size()) {
    const double least = score[kept[static_cast<size_t>(o.top_k) - 1]];
    std::erase_if(kept, [&](size_t i) { return score[i] < least; });
  }
  if (o.top_p < 1) cut(double{o.top_p});
  std::erase_if(kept, [&](size_t i) { return weight(i) < double{o.min_p}; });
  if (o.typical_p < 1) {
    const double all = total();
    const auto surprisal = [&](size_t i) { return -std::log(weight(i) / all); };
    double entropy = 0;
    for (const size_t i : kept) entropy += weight(i) / all * surprisal(i);
    std::sort(kept.begin(), kept.end());
    std::stable_sort(kept.begin(), kept.end(), [&](size_t a, size_t b) {
      return std::abs(surprisal(a) - entropy) < std::abs(surprisal(b) - entropy);
    });
    cut(double{o.typical_p});
  }
  const double all = total();
  for (const size_t i : kept) p[i] = weight(i) / all;
  return p;
}

}  // namespace halftone
