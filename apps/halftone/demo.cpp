// halftone demo: both bundled models in every format, and the accuracy of every attention mode.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "check/accuracy_table.h"
#include "check/attention.h"
#include "command.h"
#include "console.h"
#include "interrupt.h"
#include "measure/machine.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct DemoArguments {
  std::string models = "examples/models";
  std::string prompt = "ROMEO:";
  std::optional<int64_t> tokens;
};

struct Run {
  const char* weights;
  const char* kv;
};
// Weights and cache; the exact model first, against which the others are measured.
constexpr Run kRuns[] = {{"f32", "f32"},    {"bf16", "bf16"},   {"fp8", "fp8"},
                         {"mxfp8", "bf16"}, {"nvfp4", "nvfp4"}, {"int4", "bf16"}};

std::string indented(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  out.erase(out.find_last_not_of(" \n") + 1);
  return out;
}

// Text drawn with a fixed seed and its speed, then the quality on the held-out text.
void show_model(const DemoArguments& o, const std::string& name, const std::string& heldout) {
  ModelOptions exact;
  exact.model = o.models + "/" + name;
  exact.kv = "f32";
  const std::shared_ptr<const Model> teacher_model = load_model(exact, "f32", false);
  fmt::print("\n{}  {}\n", bold(name), teacher_model->describe());
  Table table({"weights", "kv cache", "weight memory", "session", "prompt tok/s", "tok/s",
               "perplexity", "KL from f32"});
  for (const Run& run : kRuns) {
    ModelOptions options = exact;
    options.kv = run.kv;
    const std::shared_ptr<const Model> model = load_model(options, run.weights, false);
    Session session(model, session_options(options));
    GenerateOptions g;
    g.max_new_tokens = o.tokens.value_or(96);
    g.sampling = model->default_sampling();
    g.sampling.seed = 3;
    g.stop_token = stop_on_interrupt();
    fmt::print("\n  {}\n", bold(fmt::format("{} weights, {} cache", run.weights, run.kv)));
    GenerateResult result = generate(session, o.prompt, g);
    fmt::print("{}\n", indented(o.prompt + result.text));
    std::fflush(stdout);
    // The text again, twice: the best time is what the machine can do, the rest is its other work.
    for (int i = 0; i < 2; ++i) {
      session.truncate(0);
      const GenerateResult again = generate(session, o.prompt, g);
      result.prompt_seconds = std::min(result.prompt_seconds, again.prompt_seconds);
      result.generate_seconds = std::min(result.generate_seconds, again.generate_seconds);
    }
    if (g.stop_token.stop_requested()) throw Error(ErrorCode::interrupted, "demo: interrupted");
    const int64_t session_bytes = session.bytes();
    Session scored(model, session_options(options)), teacher(teacher_model, session_options(exact));
    const TextScore score = halftone::score(scored, heldout, 256, &teacher);
    table.add(
        {run.weights, run.kv, bytes(static_cast<double>(model->weight_bytes())),
         bytes(static_cast<double>(session_bytes)),
         fmt::format("{:.0f}", static_cast<double>(result.prompt_tokens) / result.prompt_seconds),
         fmt::format("{:.0f}", static_cast<double>(result.tokens.size()) / result.generate_seconds),
         fmt::format("{:.2f}", score.perplexity), significant(score.kl, 3)});
  }
  fmt::print("\n{}", table.text());
  std::fflush(stdout);
}

int run_demo(const DemoArguments& o) {
  for (const char* name : {"bard", "bard-moe"}) {
    const std::string path = o.models + "/" + name;
    if (access(path.c_str(), R_OK) != 0) {
      wrong_input(
          fmt::format("demo: \"{}\" does not exist; --models names the folder with bard and "
                      "bard-moe (examples/models of the repository)",
                      path));
    }
  }
  const std::string heldout = read_text("demo: the held-out text", o.models + "/heldout.txt");
  Stream& stream = Stream::default_stream();
  fmt::print(
      "{}, {}, {} threads. Perplexity and KL divergence (nats a token, from the f32 model) on "
      "{}/heldout.txt, windows of 256 tokens.\n",
      cpu_name(), name(cpu_level()), stream.threads(), o.models);
  show_model(o, "bard", heldout);
  show_model(o, "bard-moe", heldout);
  fmt::print(
      "\n{}  mode is qk+pv; \"format\" is what rounding the operands costs, \"kernel\" what "
      "the code adds\n(rounding P to the second format included)\n\n{}",
      bold("attention"), accuracy_table(check_attention(stream)));
  return kOk;
}

std::function<int()> declare_demo(CLI::App& app) {
  const auto o = std::make_shared<DemoArguments>();
  app.add_option("--models", o->models, "folder with bard, bard-moe and heldout.txt")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--prompt", o->prompt, "the text to continue")
      ->type_name("TEXT")
      ->capture_default_str();
  add_number(app, "-n,--max-tokens", o->tokens, 1, 400, "tokens to write each time (default 96)");
  return [o] { return run_demo(*o); };
}

}  // namespace

Command demo_command() {
  return {"demo", "both bundled models in every format: text, speed, memory, quality",
          "  halftone demo\n"
          "  halftone demo --prompt \"JULIET:\" -n 64\n",
          declare_demo};
}

}  // namespace halftone::app
