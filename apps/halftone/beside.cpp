#include "beside.h"

#include <algorithm>

namespace halftone::app {

namespace {

struct Result {
  std::vector<int32_t> tokens;
  TextScore score;
};

Result result_of(const std::shared_ptr<const Model>& model, const SessionOptions& options,
                 const std::string& text, int64_t window) {
  constexpr size_t kPrompt = 32;
  constexpr int64_t kWritten = 64;
  Session session(model, options);
  std::vector<int32_t> prompt = model->tokenizer().encode(text);
  prompt.resize(std::min(prompt.size(), kPrompt));
  GenerateOptions greedy;
  greedy.max_new_tokens = kWritten, greedy.ignore_eos = true;
  Result result;
  result.tokens = generate(session, prompt, greedy).tokens;
  session.truncate(0);
  result.score = score(session, text, window);
  return result;
}

}  // namespace

std::vector<BesideRow> beside(const ModelOptions& options, const std::string& other_device,
                              const std::string& text, int64_t window,
                              const std::vector<std::string>& weights,
                              const std::vector<std::string>& caches,
                              const std::function<void(double)>& progress) {
  std::vector<BesideRow> rows;
  for (const std::string& format : weights) {
    ModelOptions other = options;
    other.device = other_device;
    const auto here = load_model(options, format, false), there = load_model(other, format, false);
    for (const std::string& cache : caches) {
      ModelOptions with = options;
      with.kv = cache;
      const SessionOptions session = session_options(with);
      const Result a = result_of(here, session, text, window);
      const Result b = result_of(there, session, text, window);
      const auto differ = std::ranges::mismatch(a.tokens, b.tokens);
      rows.push_back({format.empty() ? "as stored" : format, cache,
                      static_cast<int64_t>(a.tokens.size()), differ.in1 - a.tokens.begin(), a.score,
                      b.score});
      progress(static_cast<double>(rows.size()) /
               static_cast<double>(weights.size() * caches.size()));
    }
  }
  return rows;
}

}  // namespace halftone::app
