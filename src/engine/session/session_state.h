// What a session holds, shared by the parts of its implementation.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/model/step.h"
#include "halftone/engine.h"
#include "halftone/graph.h"
#include "ops/sampling/draw.h"
#include "ops/sampling/greedy.h"

namespace halftone {

struct Session::State {
  // Passes whose choice may be on its way to the host; one is read while the next one runs.
  static constexpr int64_t kChoices = 2;

  State(std::shared_ptr<const Model> shared, const SessionOptions& options);

  // Runs a chunk; the caller takes the logits it wants from the step.
  // `length`: of the sequence at the end of the call that the chunk is a part of.
  Step& run_chunk(std::span<const int32_t> tokens, int64_t length);
  void check(std::span<const int32_t> tokens) const;
  Step& step_for(int64_t tokens);
  void make_room();  // for another prepared pass
  // Counts the tokens of a pass that has been submitted.
  void hold(std::span<const int32_t> tokens);
  // Waits for results, which are in `host` then.
  void to_host(const Tensor& results, const Tensor& host);
  // `tokens` of each sequence from `begin` on, of those that are given sequence by sequence.
  std::span<const int32_t> part(std::span<const int32_t> all, int64_t begin, int64_t tokens);

  // A pass of one token, whose arguments are all on the device.
  struct Pass {
    int64_t pages = -1;  // of the cache when it ran last: their tables are in its arguments
    std::optional<Graph> graph;
  };
  // `body` submits it, to the stream it is given.
  void run_pass(Pass&, FunctionRef<void(Stream&)> body);
  // A pass whose tokens the device chooses: the largest logits', or those of `draw`.
  void submit_chosen(int64_t length, bool drawn);
  // `now`: the tokens that go first, behind the histories.
  void prepare_draw(std::span<const Sampler> samplers, std::span<const int32_t> now);

  std::shared_ptr<const Model> owner;
  const LoadedModel& model;
  SessionOptions options;
  int64_t max_length;
  Stream stream;
  KvCache cache;
  Activations buffers;
  Step decode;
  std::vector<std::unique_ptr<Step>> steps;  // of more tokens; most recently used first
  Tensor logits, logits_host;                // f32 [sequences, vocabulary]; one on the CPU
  Pass forward_pass, greedy, sampled;
  GreedyStep choice;   // of passes that choose on a GPU
  TokenDraw draw;      // of sampled ones; made at the first
  Tensor picked_host;  // of choice.picked
  std::string no_graph;
  std::vector<std::vector<int32_t>> histories;
  std::vector<int32_t> gathered;
};

}  // namespace halftone
