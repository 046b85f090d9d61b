// halftone generate: text from a model, streamed.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "command.h"
#include "console.h"
#include "halftone/memory.h"
#include "interrupt.h"
#include "model_options.h"

namespace halftone::app {

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct GenerateArguments {
  ModelOptions model;
  std::optional<std::string> prompt, prompt_file;
  std::optional<int64_t> tokens;
  SamplingArguments sampling;
  std::vector<std::string> stop;
  bool ignore_eos = false, json = false, quiet = false, verbose = false;
};

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

nlohmann::json report(const GenerateArguments& o, const std::string& prompt, const Session& session,
                      const GenerateOptions& g, const GenerateResult& r, double load_seconds) {
  const Model& model = session.model();
  const auto generated = static_cast<double>(r.tokens.size());
  return {
      {"model", o.model.model},
      {"description", model.describe()},
      {"prompt", prompt},
      {"text", r.text},
      {"tokens", r.tokens},
      {"finish", to_string(r.finish)},
      {"prompt_tokens", r.prompt_tokens},
      {"generated_tokens", r.tokens.size()},
      {"load_seconds", load_seconds},
      {"prompt_seconds", r.prompt_seconds},
      {"generate_seconds", r.generate_seconds},
      {"prompt_tokens_per_second", rate(static_cast<double>(r.prompt_tokens), r.prompt_seconds)},
      {"tokens_per_second", rate(generated, r.generate_seconds)},
      {"weights", o.model.weights.empty() ? "as stored" : o.model.weights},
      {"kv", o.model.kv},
      {"device", o.model.device},
      {"activations", activations_of(o.model)},
      {"decoding", session.decoding()},
      {"weight_bytes", model.weight_bytes()},
      {"session_bytes", session.bytes()},
      {"peak_memory_bytes", peak_memory()},
      {"sampling",
       {{"temperature", g.sampling.temperature},
        {"top_k", g.sampling.top_k},
        {"top_p", g.sampling.top_p},
        {"min_p", g.sampling.min_p},
        {"repetition_penalty", g.sampling.repetition_penalty},
        {"seed", g.sampling.seed}}}};
}

void print_rates(const GenerateArguments& o, const Session& session, const GenerateResult& r,
                 double load_seconds) {
  const auto generated = static_cast<double>(r.tokens.size());
  std::string text = session.model().describe() + "\n";
  text +=
      fmt::format("load {} · prompt {} tokens, {:.0f} tok/s · generated {} tokens, {:.0f} tok/s\n",
                  duration(load_seconds), r.prompt_tokens,
                  rate(static_cast<double>(r.prompt_tokens), r.prompt_seconds), r.tokens.size(),
                  rate(generated, r.generate_seconds));
  if (o.model.device != "cpu") text += "decoding: " + session.decoding() + "\n";
  text += fmt::format("memory: weights {} · session {} · peak {}",
                      bytes(static_cast<double>(session.model().weight_bytes())),
                      bytes(static_cast<double>(session.bytes())),
                      bytes(static_cast<double>(peak_memory())));
  fmt::print(stderr, "{}\n", dim(text, 2));
}

// Before anything is loaded.
void print_need(const GenerateArguments& o, const SessionOptions& session) {
  check_model_path(o.model.model);
  const LoadOptions load = load_options(o.model, o.model.weights);
  const MemoryNeed need = memory_needed(o.model.model, load, session);
  std::string text = fmt::format("needed on {}: weights {} · session, when full, {} · together {}",
                                 o.model.device, bytes(static_cast<double>(need.weights)),
                                 bytes(static_cast<double>(need.session)),
                                 bytes(static_cast<double>(need.total())));
  if (load.device.kind() == Device::Kind::cuda) {
    const DeviceMemory memory = device_memory(load.device);
    text += fmt::format(" · free {} of {}", bytes(static_cast<double>(memory.free)),
                        bytes(static_cast<double>(memory.total)));
  }
  fmt::print(stderr, "{}\n", dim(text, 2));
}

int run_generate(const GenerateArguments& o) {
  if (o.prompt.has_value() == o.prompt_file.has_value()) {
    wrong_input(o.prompt ? "generate: --prompt and --prompt-file exclude each other; give one"
                         : "generate: --prompt TEXT is missing (or --prompt-file FILE)");
  }
  check_weights("--weights", o.model.weights);
  const SessionOptions session_options_given = session_options(o.model);
  const std::string prompt = o.prompt ? *o.prompt : read_text("--prompt-file", *o.prompt_file);

  if (o.verbose) print_need(o, session_options_given);
  const auto start = Clock::now();
  const std::shared_ptr<const Model> model = load_model(o.model, o.model.weights, !o.quiet);
  GenerateOptions g;
  g.max_new_tokens = o.tokens.value_or(256);
  g.sampling = o.sampling.over(*model);
  g.stop = o.stop;
  g.ignore_eos = o.ignore_eos;
  g.stop_token = stop_on_interrupt();
  Session session(model, session_options_given);
  const double load_seconds = seconds_since(start);

  const bool stream = !o.json;
  const GenerateResult result = generate(session, prompt, g, [&](std::string_view text) {
    if (!stream) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  if (stream) {
    std::fputc('\n', stdout);
    std::fflush(stdout);
    if (!o.quiet) print_rates(o, session, result, load_seconds);
  } else {
    const nlohmann::json json = report(o, prompt, session, g, result, load_seconds);
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return result.finish == GenerateResult::Finish::stopped ? kInterrupted : kOk;
}

std::function<int()> declare_generate(CLI::App& app) {
  const auto o = std::make_shared<GenerateArguments>();
  add_model_options(app, o->model);
  app.add_option("--prompt", o->prompt, "the text to continue")->type_name("TEXT");
  app.add_option("--prompt-file", o->prompt_file, "a file with it; - is standard input")
      ->type_name("FILE");
  add_number(app, "-n,--max-tokens", o->tokens, 0, int64_t{1} << 31,
             "most tokens to write (default 256)");
  add_sampling_options(app, o->sampling);
  app.add_option("--stop", o->stop, "text that ends the output; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_flag("--ignore-eos", o->ignore_eos, "go on behind the end of the text");
  app.add_flag("--json", o->json, "one JSON object on stdout instead of the stream");
  app.add_flag("--verbose", o->verbose, "first of all, what memory it will need");
  app.add_flag("--quiet", o->quiet, "nothing but the text");
  return [o] { return run_generate(*o); };
}

}  // namespace

Command generate_command() {
  return {
      "generate", "write text with a model",
      "  halftone generate examples/models/bard --prompt \"ROMEO:\"\n"
      "  halftone generate examples/models/bard-moe --prompt \"ROMEO:\" --weights nvfp4 --kv fp8\n"
      "  halftone generate examples/models/bard --prompt \"ROMEO:\" --temperature 0 -n 64 --json\n"
      "  cat question.txt | halftone generate MODEL --prompt-file - --quiet\n",
      declare_generate};
}

}  // namespace halftone::app
