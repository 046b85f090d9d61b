// halftone perplexity: what a format costs in quality.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "command.h"
#include "console.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct Options {
  ModelOptions model;
  std::string text, against = "f32";
  std::optional<int64_t> window;
  bool json = false;
};

int run(const Options& o) {
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

std::function<int()> declare(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  add_model_options(app, o->model);
  app.add_option("TEXTFILE", o->text, "the text to score; - is standard input")->required();
  app.add_option("--against", o->against,
                 "KL divergence from the model with these weights, and an f32 cache; none: skip")
      ->type_name("FORMAT")
      ->capture_default_str();
  add_number(app, "--window", o->window, 2, int64_t{1} << 31,
             "tokens scored at a time (default 256)");
  app.add_flag("--json", o->json, "one JSON object on stdout");
  return [o] { return run(*o); };
}

}  // namespace

Command perplexity_command() {
  return {"perplexity", "perplexity of a model on a text, and KL divergence from a better one",
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --weights nvfp4\n"
          "  halftone perplexity examples/models/bard examples/models/heldout.txt --kv fp8 --json\n"
          "  halftone perplexity MODEL TEXT --weights int4 --against bf16 --window 512\n",
          declare};
}

}  // namespace halftone::app
