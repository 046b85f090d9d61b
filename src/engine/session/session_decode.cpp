// Passes of one token: captured as a graph where they can be, and fed by their own choices.
#include <algorithm>

#include "base/message.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/session/session_state.h"

namespace halftone {

// The first pass after the cache has grown plans attention anew, which allocates; the second one is
// captured.
void Session::State::run_pass(Pass& pass, FunctionRef<void(Stream&)> body) {
  const int64_t pages = cache.page_table().size(1);
  if (!no_graph.empty() || pass.pages != pages) {
    pass.graph.reset();
    pass.pages = pages;
    return body(stream);
  }
  if (!pass.graph) {
    try {
      pass.graph = Graph::capture(stream, [&](Stream& captured) { body(captured); });
    } catch (const Error& error) {
      no_graph = error.what();
      return body(stream);
    }
  }
  pass.graph->replay(stream);
}

void Session::State::submit_chosen(int64_t length, bool drawn) {
  cache.reserve(length);
  run_pass(drawn ? sampled : greedy, [&](Stream& on) {
    decode.run_layers(cache, length, on, options.on_attention);
    decode.run_head(Step::Head::last_rows, logits, on);
    if (drawn) {
      draw.run(logits, on);
      GreedyStep step = choice;
      step.best = draw.chosen(), step.counts = draw.counts();
      next_token(step, on);
    } else {
      greedy_step(choice, on);
    }
    copy(choice.picked, picked_host, on);
  });
}

void Session::State::prepare_draw(std::span<const Sampler> samplers, std::span<const int32_t> now) {
  if (!draw.chosen().defined()) draw = {options.sequences, logits.size(1), model.device()};
  std::vector<DrawRow> rows;
  std::vector<TokenAdjustment> adjustments;
  for (size_t i = 0; i < samplers.size(); ++i) {
    rows.push_back(SamplerOnGpu::row(samplers[i]));
    std::vector<int32_t> history = histories[i];
    history.push_back(now[i]);
    SamplerOnGpu::adjust(samplers[i], static_cast<int32_t>(i), history, logits.size(1),
                         adjustments);
  }
  // What is launched is a part of a captured pass.
  const TokenDraw::Stages before = draw.stages();
  draw.set(rows, adjustments, stream);
  if (draw.stages() != before) sampled = {};
}

void Session::decode_greedily(std::span<const int32_t> tokens, int64_t passes,
                              const std::function<bool(std::span<const int32_t>)>& on_tokens) {
  std::vector<Sampler> greedy(static_cast<size_t>(sequences()), Sampler({}));
  decode(tokens, passes, greedy, on_tokens);
}

void Session::decode(std::span<const int32_t> tokens, int64_t passes, std::span<Sampler> samplers,
                     const std::function<bool(std::span<const int32_t>)>& on_tokens) {
  State& s = *state_;
  const auto sequences = static_cast<size_t>(s.options.sequences);
  require(tokens.size() == sequences && samplers.size() == sequences, "decode: tokens has ",
          tokens.size(), " and samplers ", samplers.size(), "; each takes one of each sequence, ",
          sequences);
  s.check(tokens);
  const int64_t held = s.cache.length();
  require(passes >= 1 && held + passes <= s.max_length, "decode: passes is ", passes, " behind ",
          held, " tokens; it must be at least 1, and max_length is ", s.max_length);
  std::vector<int32_t> now(tokens.begin(), tokens.end());
  if (s.model.device().is_cpu() ||
      !std::all_of(samplers.begin(), samplers.end(), SamplerOnGpu::can)) {
    for (int64_t i = 0; i < passes; ++i) {
      const std::span<const float> logits = forward(now);
      const size_t vocabulary = logits.size() / sequences;
      for (size_t row = 0; row < sequences; ++row) {
        now[row] =
            samplers[row].sample(logits.subspan(row * vocabulary, vocabulary), s.histories[row]);
      }
      if (!on_tokens(now)) return;
    }
    return;
  }
  const bool drawn = std::any_of(samplers.begin(), samplers.end(), SamplerOnGpu::draws);
  if (drawn) s.prepare_draw(samplers, now);
  s.buffers.set_inputs(now, held, s.stream);
  s.buffers.upload(s.stream);
  constexpr int64_t kChoices = State::kChoices;
  Event ended[kChoices] = {Event(s.model.device()), Event(s.model.device())};
  const auto submit = [&](int64_t pass) {
    s.submit_chosen(held + pass + 1, drawn);
    ended[pass % kChoices].record(s.stream);
  };
  submit(0);
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (pass + 1 < passes) submit(pass + 1);
    ended[pass % kChoices].synchronize();
    s.hold(now);
    const int64_t slot = (held + pass) % kChoices;
    std::copy_n(s.picked_host.data<int32_t>() + slot * s.options.sequences, sequences, now.begin());
    // A kernel has found logits among which none is the largest, and reported them.
    if (*std::min_element(now.begin(), now.end()) < 0) s.stream.synchronize();
    std::for_each(samplers.begin(), samplers.end(), SamplerOnGpu::count_draw);
    if (!on_tokens(now)) break;
  }
  check_mapped_files();
}

std::string Session::decoding() const {
  const State& s = *state_;
  if (!s.no_graph.empty()) return "operation by operation: " + s.no_graph;
  for (const State::Pass* pass : {&s.greedy, &s.sampled, &s.forward_pass}) {
    if (pass->graph) return concat("a graph of ", pass->graph->size(), " operations");
  }
  return "operation by operation: no pass has been captured yet";
}

}  // namespace halftone
