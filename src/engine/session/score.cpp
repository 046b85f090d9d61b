#include <algorithm>
#include <cmath>
#include <vector>

#include "base/message.h"
#include "base/thread_pool.h"
#include "halftone/engine.h"

namespace halftone {

namespace {

// Natural logarithm of the sum of exp(x), in double.
double log_sum_exp(const float* x, int64_t count) {
  double largest = -INFINITY;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<double>(x[i]));
  if (!std::isfinite(largest)) return largest;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

// Sum over the vocabulary of p (log p - log q), p the teacher's distribution.
double divergence(const float* teacher, const float* student, double student_sum, int64_t count) {
  const double teacher_sum = log_sum_exp(teacher, count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double log_p = teacher[i] - teacher_sum;
    const double p = std::exp(log_p);
    if (p > 0) sum += p * (log_p - (student[i] - student_sum));
  }
  return sum;
}

// The tokens of the text, and the one to put before each window (-1: none).
struct Windows {
  std::vector<int32_t> tokens;
  int32_t first = -1;
};

Windows split(const Tokenizer& tokenizer, std::string_view text, int32_t bos) {
  Windows result;
  result.tokens = tokenizer.encode(text, false);
  const std::vector<int32_t> marked = tokenizer.encode("", true);
  if (bos >= 0 && !marked.empty() && marked.front() == bos) result.first = bos;
  return result;
}

void check(Session& session, int64_t window, Session* teacher) {
  require(window >= 2 && window <= session.max_length(), "window is ", window,
          "; it must be 2 to the session's max_length of ", session.max_length());
  if (teacher == nullptr) return;
  require(teacher != &session, "teacher is the scored session itself; it must be another one");
  require(window <= teacher->max_length(), "window is ", window,
          "; it must not exceed the teacher's max_length of ", teacher->max_length());
  const int64_t own = session.model().config().vocabulary;
  const int64_t other = teacher->model().config().vocabulary;
  require(own == other, "teacher has a vocabulary of ", other, ", the scored model one of ", own,
          "; both must be the same");
}

}  // namespace

TextScore score(Session& session, std::string_view text, int64_t window, Session* teacher) {
  check(session, window, teacher);
  const ModelConfig& config = session.model().config();
  const Windows windows = split(session.model().tokenizer(), text, config.bos);
  const auto count = static_cast<int64_t>(windows.tokens.size());
  const int64_t prefix = windows.first >= 0 ? 1 : 0;
  require(count + prefix >= 2, "text has ", count,
          " tokens; at least two are needed to score one from the other");

  TextScore result;
  std::vector<int32_t> input;
  std::vector<double> nll, kl;
  for (int64_t begin = 0; begin < count; begin += window - prefix) {
    const int64_t end = std::min(begin + window - prefix, count);
    input.clear();
    if (prefix == 1) input.push_back(windows.first);
    input.insert(input.end(), windows.tokens.begin() + begin, windows.tokens.begin() + end);
    const auto scored = static_cast<int64_t>(input.size()) - 1;
    if (scored < 1) break;  // a last window of one token has nothing before it

    session.truncate(0);
    const Tensor logits = session.forward_all(input);
    Tensor better;
    if (teacher != nullptr) {
      teacher->truncate(0);
      better = teacher->forward_all(input);
    }
    nll.assign(static_cast<size_t>(scored), 0);
    kl.assign(static_cast<size_t>(scored), 0);
    const int64_t vocabulary = config.vocabulary;
    session.stream().pool().parallel_for(scored, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const float* row = logits.data<float>() + i * vocabulary;
        const double sum = log_sum_exp(row, vocabulary);
        nll[size_t(i)] = sum - row[input[size_t(i) + 1]];
        if (better.defined()) {
          kl[size_t(i)] = divergence(better.data<float>() + i * vocabulary, row, sum, vocabulary);
        }
      }
    });
    // In order, so that the sums do not depend on the threads.
    for (const double value : nll) result.nll += value;
    for (const double value : kl) result.kl += value;
    result.tokens += scored;
  }
  session.truncate(0);
  if (teacher != nullptr) teacher->truncate(0);
  result.nll /= static_cast<double>(result.tokens);
  result.kl /= static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.nll);
  return result;
}

}  // namespace halftone
