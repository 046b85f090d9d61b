#include <algorithm>

#include "base/message.h"
#include "engine/mapped_file.h"
#include "engine/model.h"
#include "engine/step.h"
#include "halftone/engine.h"

namespace halftone {

namespace {

// Tokens of one pass. A product reads its weights once per pass, so more tokens would gain little,
// and the activations would grow.
constexpr int64_t kPassTokens = 512;
// Passes kept prepared: decode, the full chunk, and the lengths of the last prompts' ends.
constexpr size_t kPreparedSteps = 4;
// Positions of a model that states no limit.
constexpr int64_t kDefaultLength = 2048;

}  // namespace

struct Session::State {
  State(std::shared_ptr<const Model> shared, const SessionOptions& options);

  // Runs a chunk; the caller takes the logits it wants from the step.
  // `length`: of the sequence at the end of the call that the chunk is a part of.
  Step& run_chunk(std::span<const int32_t> tokens, int64_t length);
  void check(std::span<const int32_t> tokens) const;
  Step& step_for(int64_t tokens);
  // Waits for results, which are in `host` then.
  void to_host(const Tensor& results, const Tensor& host);

  std::shared_ptr<const Model> owner;
  const LoadedModel& model;
  SessionOptions options;
  int64_t max_length;
  Stream stream;
  KvCache cache;
  Activations buffers;
  std::vector<std::unique_ptr<Step>> steps;  // most recently used first
  Tensor logits, logits_host;                // f32 [1, vocabulary]; one on the CPU
  std::vector<int32_t> history;
};

namespace {

const LoadedModel& loaded(const std::shared_ptr<const Model>& model) {
  const auto* result = dynamic_cast<const LoadedModel*>(model.get());
  require(result != nullptr, "model is null or was not made by Model::load");
  return *result;
}

int64_t session_length(const ModelConfig& config, int64_t asked) {
  const int64_t limit = config.max_positions > 0 ? config.max_positions : kDefaultLength;
  require(asked >= 0 && (config.max_positions <= 0 || asked <= limit), "max_length is ", asked,
          "; it must be 0 (the model's limit) to ", limit, ", the positions the model knows");
  return asked == 0 ? limit : asked;
}

KvCacheOptions cache_options(const ModelConfig& config, Format format, int64_t max_length,
                             const Device& device) {
  KvCacheOptions options;
  options.format = format;
  options.layers = config.layers;
  options.kv_heads = config.kv_heads;
  options.head_dim = config.head_dim;
  options.max_length = max_length;
  require_support(can_run(options, device));
  return options;
}

Format checked_activations(Format format) {
  require(is_plain_float(format), "activations is ", name(format), "; it must be f32, f16 or bf16");
  return format;
}

}  // namespace

Session::State::State(std::shared_ptr<const Model> shared, const SessionOptions& session_options)
    : owner(std::move(shared)),
      model(loaded(owner)),
      options(session_options),
      max_length(session_length(model.config(), options.max_length)),
      stream(model.device(), options.threads),
      cache(cache_options(model.config(), options.kv, max_length, model.device()), model.device()),
      buffers(model.config(), std::min(kPassTokens, max_length),
              checked_activations(options.activations), model.device()),
      logits(Tensor::zeros({1, model.config().vocabulary}, Format::f32, model.device())),
      logits_host(model.device().is_cpu() ? logits
                                          : Tensor::empty_pinned(logits.shape(), Format::f32)) {
  steps.reserve(kPreparedSteps + 1);
  step_for(1);  // an unsupported combination is told here, not at the first token
}

Step& Session::State::step_for(int64_t tokens) {
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [&](const auto& s) { return s->tokens() == tokens; });
  if (found != steps.end()) {
    std::rotate(steps.begin(), found, found + 1);
  } else {
    steps.insert(steps.begin(), std::make_unique<Step>(model, buffers, cache, tokens));
    if (steps.size() > kPreparedSteps) steps.pop_back();
  }
  return *steps.front();
}

void Session::State::check(std::span<const int32_t> tokens) const {
  require(!tokens.empty(), "tokens is empty; forward needs at least one");
  const int64_t vocabulary = model.config().vocabulary;
  for (const int32_t token : tokens) {
    require(token >= 0 && token < vocabulary, "token ", token, " is outside the vocabulary of ",
            vocabulary);
  }
  const int64_t length = cache.length() + static_cast<int64_t>(tokens.size());
  require(length <= max_length, "the session would hold ", length, " tokens; its max_length is ",
          max_length, "; shorten the prompt, truncate, or make a longer session");
}

Step& Session::State::run_chunk(std::span<const int32_t> tokens, int64_t length) {
  const auto count = static_cast<int64_t>(tokens.size());
  buffers.set_inputs(tokens, cache.length(), stream);
  Step& step = step_for(count);
  step.run_layers(cache, length, stream, options.on_attention);
  history.insert(history.end(), tokens.begin(), tokens.end());
  return step;
}

void Session::State::to_host(const Tensor& results, const Tensor& host) {
  if (results.data() == host.data()) return;
  copy(results, host, stream);
  stream.synchronize();
}

Session::Session(std::shared_ptr<const Model> model, const SessionOptions& options)
    : state_(std::make_unique<State>(std::move(model), options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

std::span<const float> Session::forward(std::span<const int32_t> tokens) {
  State& s = *state_;
  s.check(tokens);
  const size_t chunk = static_cast<size_t>(s.buffers.ids.size(0));
  const int64_t length = s.cache.length() + static_cast<int64_t>(tokens.size());
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const auto part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    Step& step = s.run_chunk(part, length);
    if (begin + part.size() == tokens.size()) {
      step.run_head(step.tokens() - 1, s.logits, s.stream);
    }
  }
  s.to_host(s.logits, s.logits_host);
  check_mapped_files();
  return {s.logits_host.data<float>(), static_cast<size_t>(s.logits_host.numel())};
}

Tensor Session::forward_all(std::span<const int32_t> tokens) {
  State& s = *state_;
  s.check(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  Tensor logits = Tensor::empty({count, s.model.config().vocabulary}, Format::f32);
  const int64_t chunk = s.buffers.ids.size(0);
  const int64_t length = s.cache.length() + count;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t end = std::min(begin + chunk, count);
    Step& step = s.run_chunk(
        tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), length);
    const Tensor part = logits.slice(0, begin, end);
    const Tensor computed = s.model.device().is_cpu()
                                ? part
                                : Tensor::empty(part.shape(), Format::f32, s.model.device());
    step.run_head(0, computed, s.stream);
    s.to_host(computed, part);
  }
  check_mapped_files();
  return logits;
}

int64_t Session::length() const { return state_->cache.length(); }
int64_t Session::max_length() const { return state_->max_length; }
std::span<const int32_t> Session::tokens() const { return state_->history; }
const Model& Session::model() const { return *state_->owner; }
Stream& Session::stream() { return state_->stream; }

void Session::truncate(int64_t length) {
  require(length >= 0 && length <= this->length(), "truncate to ", length,
          ": the length must be 0 to ", this->length());
  state_->cache.truncate(length);
  state_->history.resize(static_cast<size_t>(length));
}

int64_t Session::bytes() const {
  int64_t total = state_->cache.bytes() + state_->buffers.bytes() + state_->logits.bytes();
  for (const auto& step : state_->steps) total += step->workspace_bytes();
  return total;
}

}  // namespace halftone
