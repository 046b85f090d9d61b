// halftone perplexity: what a format costs in quality.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "beside.h"
#include "command.h"
#include "console.h"
#include "engine/session/sensitivity.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct PerplexityArguments {
  ModelOptions model;
  std::string text, against = "f32", beside;
  std::optional<int64_t> window;
  bool json = false, sweep = false;
};

// Shortest text for a number in a table, "0" for none.
std::string shown(double x) { return x == 0 ? "0" : significant(x, 3); }

int run_sweep(const PerplexityArguments& o) {
  if (!o.model.weights.empty()) {
    wrong_input("perplexity: --weights chooses one format; --sweep takes every one");
  }
  check_model_path(o.model.model);
  std::vector<std::string> weights = {"f32", "bf16", "f16"};
  for (std::string& name : quantization_names()) weights.push_back(std::move(name));
  Progress bar("scoring", true);
  const Sweep sweep = sweep_formats(
      o.model.model, read_text("TEXTFILE", o.text), o.window.value_or(256), weights,
      {Format::f32, Format::f16, Format::bf16, Format::fp8_e4m3, Format::nvfp4}, bar.callback());
  if (o.json) {
    nlohmann::json json{{"model", o.model.model},
                        {"text", o.text},
                        {"tokens", sweep.exact.tokens},
                        {"nll", sweep.exact.nll},
                        {"perplexity", sweep.exact.perplexity},
                        {"sensitivity",
                         {{"weights", sweep.sensitivity.weights},
                          {"cache", sweep.sensitivity.cache},
                          {"noise", sweep.sensitivity.noise}}}};
    for (const SweepRow& r : sweep.rows) {
      json["rows"].push_back({{"weights", r.weights},
                              {"kv", r.kv},
                              {"weight_bytes", r.weight_bytes},
                              {"weight_error", r.weight_error},
                              {"cache_error", r.cache_error},
                              {"perplexity", r.score.perplexity},
                              {"kl", r.score.kl},
                              {"expected_kl", r.expected_kl},
                              {"nll_change", r.nll_change},
                              {"expected_nll_change", r.expected_kl},
                              {"expected_nll_deviation", r.nll_deviation}});
    }
    fmt::print("{}\n", json.dump(2));
    return kOk;
  }
  Table table({"weights", "kv", "error", "cache error", "perplexity", "KL from f32", "expected",
               "nats/token", "expected +-"});
  for (const SweepRow& r : sweep.rows) {
    table.add({r.weights, r.kv, shown(r.weight_error), shown(r.cache_error),
               fmt::format("{:.3f}", r.score.perplexity), shown(r.score.kl), shown(r.expected_kl),
               fmt::format("{:+.5f}", r.nll_change), shown(r.nll_deviation)});
  }
  fmt::print("{}", table.text());
  return kOk;
}

// The whole table of formats with --sweep, else the ones that were asked for.
int run_beside(const PerplexityArguments& o) {
  check_model_path(o.model.model);
  check_weights("--weights", o.model.weights);
  std::vector<std::string> weights = {o.model.weights}, caches = {o.model.kv};
  if (o.sweep) {
    weights = {"f32", "bf16", "f16"};
    for (std::string& name : quantization_names()) weights.push_back(std::move(name));
    caches = {"f32", "f16", "bf16", "fp8", "nvfp4"};
  }
  Progress bar("scoring", true);
  const std::vector<BesideRow> rows =
      beside(o.model, o.beside, read_text("TEXTFILE", o.text), o.window.value_or(256), weights,
             caches, bar.callback());
  if (o.json) {
    nlohmann::json json{{"model", o.model.model},
                        {"text", o.text},
                        {"device", o.model.device},
                        {"beside", o.beside},
                        {"activations", o.model.activations}};
    for (const BesideRow& r : rows) {
      json["rows"].push_back({{"weights", r.weights},
                              {"kv", r.kv},
                              {"tokens", r.tokens},
                              {"same_tokens", r.same},
                              {"scored", r.here.tokens},
                              {"perplexity", r.here.perplexity},
                              {"perplexity_beside", r.there.perplexity},
                              {"nll_difference", r.here.nll - r.there.nll}});
    }
    fmt::print("{}\n", json.dump(2));
    return kOk;
  }
  Table table({"weights", "kv", "same greedy tokens", "perplexity " + o.model.device,
               "perplexity " + o.beside, "nats/token apart"});
  for (const BesideRow& r : rows) {
    table.add({r.weights, r.kv, fmt::format("{} of {}", r.same, r.tokens),
               fmt::format("{:.4f}", r.here.perplexity), fmt::format("{:.4f}", r.there.perplexity),
               fmt::format("{:+.1e}", r.here.nll - r.there.nll)});
  }
  fmt::print("{}", table.text());
  return kOk;
}

int run_perplexity(const PerplexityArguments& o) {
  if (!o.beside.empty()) return run_beside(o);
  if (o.sweep) return run_sweep(o);
  check_weights("--weights", o.model.weights);
  if (o.against != "none") check_weights("--against", o.against);
  const SessionOptions session_options_given = session_options(o.model);
  const std::string text = read_text("TEXTFILE", o.text);
  const int64_t window = o.window.value_or(256);

  const std::shared_ptr<const Model> model = load_model(o.model, o.model.weights, true);
  Session session(model, session_options_given);
  std::optional<Session> teacher;
  if (o.against != "none") {
    SessionOptions exact = session_options_given;
    exact.kv = Format::f32;
    teacher.emplace(load_model(o.model, o.against, true), exact);
  }
  const auto start = std::chrono::steady_clock::now();
  const TextScore score = halftone::score(session, text, window, teacher ? &*teacher : nullptr);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string weights = o.model.weights.empty() ? "as stored" : o.model.weights;
  if (o.json) {
    nlohmann::json json{{"model", o.model.model},
                        {"text", o.text},
                        {"weights", weights},
                        {"kv", o.model.kv},
                        {"tokens", score.tokens},
                        {"window", window},
                        {"nll", score.nll},
                        {"perplexity", score.perplexity},
                        {"weight_bytes", model->weight_bytes()},
                        {"seconds", seconds}};
    if (teacher) {
      json["against"] = o.against;
      json["kl"] = score.kl;
    }
    fmt::print("{}\n", json.dump(2));
    return kOk;
  }
  Table table({"weights", "kv", "memory", "tokens", "nats/token", "perplexity",
               teacher ? "KL from " + o.against : "KL"});
  table.add({weights, o.model.kv, bytes(static_cast<double>(model->weight_bytes())),
             std::to_string(score.tokens), fmt::format("{:.4f}", score.nll),
             fmt::format("{:.3f}", score.perplexity),
             teacher ? significant(score.kl, 3) : std::string("–")});
  fmt::print("{}", table.text());
  return kOk;
}

std::function<int()> declare_perplexity(CLI::App& app) {
  const auto o = std::make_shared<PerplexityArguments>();
  o->model.activations = "f32";  // on every device: formats are compared, not devices
  add_model_options(app, o->model);
  app.add_option("TEXTFILE", o->text, "the text to score; - is standard input")->required();
  app.add_option("--against", o->against,
                 "KL divergence from the model with these weights, and an f32 cache; none: skip")
      ->type_name("FORMAT")
      ->capture_default_str();
  add_number(app, "--window", o->window, 2, int64_t{1} << 31,
             "tokens scored at a time (default 256)");
  app.add_flag("--sweep", o->sweep,
               "every weight format with every cache format, and what their rounding errors "
               "lead to expect");
  app.add_option("--beside", o->beside,
                 "greedy tokens and perplexity of --device beside those of this one; with --sweep "
                 "in every format")
      ->type_name("DEVICE");
  app.add_flag("--json", o->json, "one JSON object on stdout");
  return [o] { return run_perplexity(*o); };
}

}  // namespace

Command perplexity_command() {
  return {"perplexity", "perplexity of a model on a text, and KL divergence from a better one",
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --weights nvfp4\n"
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --kv fp8 --json\n"
          "  halftone perplexity MODEL TEXT --weights int4 --against bf16 --window 512\n"
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --sweep --json\n"
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --device cuda:0 "
          "--beside cpu --sweep\n",
          declare_perplexity};
}

}  // namespace halftone::app
