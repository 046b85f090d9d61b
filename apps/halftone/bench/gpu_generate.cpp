// Decoding with a whole model of random weights, beside the bytes that a pass must read.
#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "base/message.h"
#include "bench/gpu.h"
#include "console.h"
#include "engine/model/model.h"
#include "measure/roofs.h"
#include "random_model.h"

namespace halftone {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Tokens of each sequence before the ones that are timed.
constexpr int64_t kPrompt = 128;

// Weights that a pass of `sequences` tokens reads. Which experts it meets is left to chance: each
// token chooses its own, all alike.
double weight_bytes(const LoadedModel& model, int64_t sequences) {
  const ModelConfig& c = model.config();
  double total = static_cast<double>(model.head().bytes());
  for (const LayerWeights& l : model.layers()) {
    for (const Tensor* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down, &l.router}) {
      total += static_cast<double>(t->bytes());
    }
    if (!l.sparse) continue;
    double experts = 0;
    for (const auto* part : {&l.expert_gate, &l.expert_up, &l.expert_down}) {
      for (const Tensor& t : *part) experts += static_cast<double>(t.bytes());
    }
    // Stacked: gates and their other halves, and as much again for each of them on the way out.
    experts += 1.5 * static_cast<double>(l.gate_up.bytes());
    const double missed =
        1 - static_cast<double>(c.experts_per_token) / static_cast<double>(c.experts);
    total += experts * (1 - std::pow(missed, static_cast<double>(sequences)));
  }
  return total;
}

std::string row_name(const RandomModel& shape, const std::string& weights, int64_t sequences,
                     bool batch_invariant) {
  return concat("decode ", shape.name, " ", weights, ", batch ", sequences, ", ", kPrompt,
                " tokens before", batch_invariant ? ", batch-invariant" : "");
}

std::vector<BenchRow> rows_of(const RandomModel& shape, const std::string& weights,
                              const GpuBench& b) {
  std::vector<int64_t> batches = b.generate.batches;
  std::erase_if(batches, [&](int64_t n) {
    return !b.choice.asks_for(row_name(shape, weights, n, b.generate.batch_invariant));
  });
  if (batches.empty() || b.choice.stop.stop_requested()) return {};
  if (b.choice.only_lists()) {
    for (const int64_t n : batches) {
      static_cast<void>(b.choice.begins(row_name(shape, weights, n, b.generate.batch_invariant)));
    }
    return {};
  }
  const Device& device = b.stream.device();
  const Clock::time_point start = Clock::now();
  LoadOptions load;
  load.weights = weights == "stored" ? "" : weights, load.device = device;
  const auto model = std::make_shared<LoadedModel>(
      RandomCheckpoint(shape.config, device, Format::bf16), nullptr, load);
  app::remark(fmt::format("bench: {} in {}: {} made in {}", shape.name, weights,
                          app::bytes(static_cast<double>(model->weight_bytes())),
                          app::duration(seconds_since(start))));
  std::vector<BenchRow> rows;
  for (const int64_t sequences : batches) {
    if (!b.choice.begins(row_name(shape, weights, sequences, b.generate.batch_invariant))) break;
    SessionOptions options;
    options.activations = parse_format(b.generate.activations), options.sequences = sequences;
    options.batch_invariant = b.generate.batch_invariant;
    const int64_t warm_up = 8, passes = b.quick ? 32 : 128;
    options.max_length = kPrompt + warm_up + passes;
    Session session(model, options);
    std::vector<int32_t> prompt(static_cast<size_t>(sequences * kPrompt));
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<int32_t>(i * 7919 % static_cast<size_t>(shape.config.vocabulary));
    }
    session.forward(prompt);
    int64_t done = 0;
    Clock::time_point begin;
    std::vector<double> times;
    session.decode_greedily(std::span(prompt).subspan(0, static_cast<size_t>(sequences)),
                            warm_up + passes, [&](std::span<const int32_t>) {
                              const Clock::time_point now = Clock::now();
                              if (++done > warm_up) {
                                times.push_back(std::chrono::duration<double>(now - begin).count());
                              }
                              begin = now;
                              return true;
                            });
    app::remark(fmt::format("bench: {} in {}, batch {}: {}; session {}", shape.name, weights,
                            sequences, session.decoding(),
                            app::bytes(static_cast<double>(session.bytes()))));
    double sum = 0;
    for (const double t : times) sum += t;
    BenchRow row;
    row.name = row_name(shape, weights, sequences, b.generate.batch_invariant);
    row.seconds = timing_of(times);
    const auto tokens = static_cast<double>(sequences);
    const double cached = static_cast<double>(kPrompt + warm_up) + static_cast<double>(passes) / 2;
    row.bytes = weight_bytes(*model, sequences) +
                tokens * cached * 2 *
                    static_cast<double>(shape.config.layers * shape.config.kv_heads *
                                        shape.config.head_dim * bits(options.kv) / 8);
    row.value = tokens / row.seconds;
    row.sustained = tokens * static_cast<double>(times.size()) / sum;
    row.unit = "tokens/s";
    row.roof = tokens * b.roofs.read / row.bytes;
    row.roof_name = "memory read";
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<BenchRow> bench_gpu_generate(const GpuBench& b) {
  std::vector<BenchRow> rows;
  for (const RandomModel& model : random_models()) {
    const auto& asked = b.generate.models;
    if (std::find(asked.begin(), asked.end(), model.name) == asked.end()) continue;
    for (const std::string& weights : b.generate.weights) {
      for (BenchRow& row : rows_of(model, weights, b)) rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace halftone
