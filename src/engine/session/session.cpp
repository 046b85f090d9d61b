// Sessions: passes of a prompt and of a token, and what they take of memory.
#include "engine/session/session_state.h"

#include <algorithm>

#include "base/message.h"
#include "engine/checkpoint/mapped_file.h"

namespace halftone {

namespace {

// Tokens of one pass. A product reads its weights once per pass, so more tokens would gain little,
// and the activations would grow.
constexpr int64_t kPassTokens = 512;
// Passes of more than one token kept prepared: the full chunk, and the lengths of the last prompts'
// ends. All but the one in use are dropped where their workspaces are more than a fortieth of what
// the model and the session take: memory_needed() counts one, and must hold for any prompt.
constexpr size_t kPreparedSteps = 4;
constexpr int64_t kSpareShare = 40;
// Positions of a model that states no limit.
constexpr int64_t kDefaultLength = 2048;

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

KvCacheOptions cache_options(const LoadedModel& model, const SessionOptions& session,
                             int64_t max_length) {
  const ModelConfig& config = model.config();
  KvCacheOptions options;
  options.format = session.kv;
  options.sequences = session.sequences;
  options.layers = config.layers;
  options.kv_heads = config.kv_heads;
  options.head_dim = config.head_dim;
  options.max_length = max_length;
  if (session.kv == Format::fp8_e4m3) {
    for (const LayerWeights& layer : model.layers()) {
      options.key_scales.push_back(layer.k_scale);
      options.value_scales.push_back(layer.v_scale);
    }
  }
  require_support(can_run(options, model.device()));
  return options;
}

Format checked_activations(Format format) {
  require(is_plain_float(format), "activations is ", name(format), "; it must be f32, f16 or bf16");
  return format;
}

// Empty where passes can be captured.
std::string why_no_graph(const SessionOptions& options, const LoadedModel& model) {
  if (!options.graph) return "graphs are switched off";
  if (options.on_attention) return "on_attention is called between operations";
  if (depends_on_length(model.config().rope)) return "the model's rotation depends on the length";
  return halftone::why_no_graph(model.device());
}

}  // namespace

Session::State::State(std::shared_ptr<const Model> shared, const SessionOptions& session_options)
    : owner(std::move(shared)),
      model(loaded(owner)),
      options(session_options),
      max_length(session_length(model.config(), options.max_length)),
      stream(model.device(), options.threads),
      cache(cache_options(model, options, max_length), model.device()),
      buffers(model.config(), options.sequences,
              std::max(std::min(kPassTokens, max_length), options.sequences),
              checked_activations(options.activations), model.device()),
      // An unsupported combination is told here, not at the first token.
      decode(model, buffers, cache, 1, options.batch_invariant),
      logits(Tensor::zeros({options.sequences, model.config().vocabulary}, Format::f32,
                           model.device())),
      logits_host(model.device().is_cpu() ? logits
                                          : Tensor::empty_pinned(logits.shape(), Format::f32)),
      no_graph(why_no_graph(options, model)),
      histories(static_cast<size_t>(options.sequences)) {
  steps.reserve(kPreparedSteps);
  if (model.device().is_cpu()) return;
  const int64_t n = options.sequences;
  choice.logits = logits;
  choice.ids = buffers.ids.slice(0, 0, n), choice.positions = buffers.positions.slice(0, 0, n);
  choice.lengths = buffers.keys_in_use;
  choice.picked = Tensor::zeros({kChoices, n}, Format::i32, model.device());
  choice.best = Tensor::zeros({n}, Format::i64, model.device());
  picked_host = Tensor::empty_pinned(choice.picked.shape(), Format::i32);
}

Step& Session::State::step_for(int64_t tokens) {
  if (tokens == 1) return decode;
  const auto found = std::find_if(steps.begin(), steps.end(),
                                  [&](const auto& s) { return s->tokens() == tokens; });
  if (found != steps.end()) {
    std::rotate(steps.begin(), found, found + 1);
  } else {
    make_room();
    steps.insert(steps.begin(),
                 std::make_unique<Step>(model, buffers, cache, tokens, options.batch_invariant));
  }
  return *steps.front();
}

void Session::State::make_room() {
  const int64_t spare = (model.weight_bytes() + cache.bytes() + buffers.bytes()) / kSpareShare;
  int64_t kept = 0;
  for (const auto& step : steps) kept += step->workspace_bytes();
  while (!steps.empty() && (kept > spare || steps.size() >= kPreparedSteps)) {
    stream.synchronize();  // the pass may be under way, and its memory goes to whoever asks
    kept -= steps.back()->workspace_bytes();
    steps.pop_back();
  }
}

void Session::State::check(std::span<const int32_t> tokens) const {
  require(!tokens.empty(), "tokens is empty; forward needs at least one");
  const int64_t vocabulary = model.config().vocabulary;
  for (const int32_t token : tokens) {
    require(token >= 0 && token < vocabulary, "token ", token, " is outside the vocabulary of ",
            vocabulary);
  }
  const auto count = static_cast<int64_t>(tokens.size());
  require(count % options.sequences == 0, "tokens has ", count, " for ", options.sequences,
          " sequences; each takes as many");
  const int64_t length = cache.length() + count / options.sequences;
  require(length <= max_length, "the session would hold ", length, " tokens; its max_length is ",
          max_length, "; shorten the prompt, truncate, or make a longer session");
}

void Session::State::hold(std::span<const int32_t> tokens) {
  const size_t count = tokens.size() / histories.size();
  for (size_t s = 0; s < histories.size(); ++s) {
    const auto own = tokens.subspan(s * count, count);
    histories[s].insert(histories[s].end(), own.begin(), own.end());
  }
  cache.advance(static_cast<int64_t>(count));
}

std::span<const int32_t> Session::State::part(std::span<const int32_t> all, int64_t begin,
                                              int64_t tokens) {
  const size_t whole = all.size() / histories.size();
  const auto first = static_cast<size_t>(begin), count = static_cast<size_t>(tokens);
  if (histories.size() == 1 || count == whole) return all.subspan(first, count * histories.size());
  gathered.clear();
  for (size_t s = 0; s < histories.size(); ++s) {
    const auto own = all.subspan(s * whole + first, count);
    gathered.insert(gathered.end(), own.begin(), own.end());
  }
  return gathered;
}

Step& Session::State::run_chunk(std::span<const int32_t> tokens, int64_t length) {
  const int64_t count = static_cast<int64_t>(tokens.size()) / options.sequences;
  cache.reserve(cache.length() + count);
  buffers.set_inputs(tokens, cache.length(), stream);
  Step& step = step_for(count);
  buffers.upload(stream);
  step.run_layers(cache, length, stream, options.on_attention);
  hold(tokens);
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
  const int64_t count = static_cast<int64_t>(tokens.size()) / s.options.sequences;
  const int64_t chunk = s.buffers.ids.size(0) / s.options.sequences;
  const int64_t length = s.cache.length() + count;
  if (count == 1) {
    s.cache.reserve(length);
    s.buffers.set_inputs(tokens, s.cache.length(), s.stream);
    s.run_pass(s.forward_pass, [&](Stream& on) {
      s.buffers.upload(on);
      s.decode.run_layers(s.cache, length, on, s.options.on_attention);
      s.decode.run_head(Step::Head::last_rows, s.logits, on);
      if (s.logits_host.data() != s.logits.data()) copy(s.logits, s.logits_host, on);
    });
    s.hold(tokens);
    s.stream.synchronize();
  } else {
    for (int64_t begin = 0; begin < count; begin += chunk) {
      const int64_t some = std::min(chunk, count - begin);
      Step& step = s.run_chunk(s.part(tokens, begin, some), length);
      if (begin + some == count) step.run_head(Step::Head::last_rows, s.logits, s.stream);
    }
    s.to_host(s.logits, s.logits_host);
  }
  check_mapped_files();
  return {s.logits_host.data<float>(), static_cast<size_t>(s.logits_host.numel())};
}

Tensor Session::forward_all(std::span<const int32_t> tokens) {
  State& s = *state_;
  require(s.options.sequences == 1, "forward_all is of a single sequence; the session has ",
          s.options.sequences);
  s.check(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  Tensor logits = Tensor::empty({count, s.model.config().vocabulary}, Format::f32);
  const int64_t chunk = s.buffers.ids.size(0);
  const int64_t length = s.cache.length() + count;
  for (int64_t begin = 0; begin < count; begin += chunk) {
    const int64_t end = std::min(begin + chunk, count);
    Step& step = s.run_chunk(s.part(tokens, begin, end - begin), length);
    const Tensor part = logits.slice(0, begin, end);
    const Tensor computed = s.model.device().is_cpu()
                                ? part
                                : Tensor::empty(part.shape(), Format::f32, s.model.device());
    step.run_head(Step::Head::every_row, computed, s.stream);
    s.to_host(computed, part);
  }
  check_mapped_files();
  return logits;
}

int64_t Session::length() const { return state_->cache.length(); }
int64_t Session::max_length() const { return state_->max_length; }
int64_t Session::sequences() const { return state_->options.sequences; }
std::span<const int32_t> Session::tokens(int64_t sequence) const {
  require(sequence >= 0 && sequence < state_->options.sequences, "sequence is ", sequence,
          "; the session has ", state_->options.sequences);
  return state_->histories[static_cast<size_t>(sequence)];
}
const Model& Session::model() const { return *state_->owner; }
Stream& Session::stream() { return state_->stream; }

void Session::truncate(int64_t length) {
  require(length >= 0 && length <= this->length(), "truncate to ", length,
          ": the length must be 0 to ", this->length());
  state_->cache.truncate(length);
  for (auto& history : state_->histories) history.resize(static_cast<size_t>(length));
}

int64_t Session::bytes_when_full() {
  State& s = *state_;
  const int64_t chunk = s.buffers.ids.size(0) / s.options.sequences;
  // Attention is planned for as many keys as there is room for, here and at the next pass again.
  s.stream.synchronize();
  for (Step* step : {&s.decode, &s.step_for(std::min(chunk, s.max_length))}) {
    step->plan_attention(s.max_length);
  }
  for (State::Pass* pass : {&s.forward_pass, &s.greedy, &s.sampled}) *pass = {};
  return bytes() - s.cache.bytes() + KvCache::bytes(s.cache.options(), s.max_length);
}

int64_t Session::bytes() const {
  int64_t total = state_->cache.bytes() + state_->buffers.bytes() + state_->logits.bytes();
  total += state_->decode.workspace_bytes() + state_->choice.picked.bytes() + state_->draw.bytes();
  for (const auto& step : state_->steps) total += step->workspace_bytes();
  return total;
}

}  // namespace halftone
