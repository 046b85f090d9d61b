// halftone demo: both bundled models in six formats, and the accuracy of every attention mode.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "check/accuracy_table.h"
#include "check/attention.h"
#include "command.h"
#include "console.h"
#include "demo_report.h"
#include "interrupt.h"
#include "measure/machine.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct DemoArguments {
  std::string models = "examples/models";
  std::string prompt = "ROMEO:";
  std::string table;
  std::optional<int64_t> tokens;
  bool json = false;
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
DemoModel show_model(const DemoArguments& o, const std::string& name, const std::string& heldout) {
  ModelOptions exact;
  exact.model = o.models + "/" + name;
  exact.kv = "f32";
  const std::shared_ptr<const Model> teacher_model = load_model(exact, "f32", false);
  DemoModel seen{name, teacher_model->describe(), {}};
  if (!o.json) fmt::print("\n{}  {}\n", bold(name), seen.description);
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
    GenerateResult result = generate(session, o.prompt, g);
    DemoRun row{run.weights, run.kv, o.prompt + result.text};
    if (!o.json) {
      fmt::print("\n  {}\n{}\n", bold(fmt::format("{} weights, {} cache", run.weights, run.kv)),
                 indented(row.text));
      std::fflush(stdout);
    }
    // The text again, twice: the best time is what the machine can do, the rest is its other work.
    for (int i = 0; i < 2; ++i) {
      session.truncate(0);
      const GenerateResult again = generate(session, o.prompt, g);
      result.prompt_seconds = std::min(result.prompt_seconds, again.prompt_seconds);
      result.generate_seconds = std::min(result.generate_seconds, again.generate_seconds);
    }
    if (g.stop_token.stop_requested()) throw Error(ErrorCode::interrupted, "demo: interrupted");
    row.weight_bytes = model->weight_bytes();
    row.session_bytes = session.bytes();
    row.prompt_tokens_per_second =
        static_cast<double>(result.prompt_tokens) / result.prompt_seconds;
    row.tokens_per_second = static_cast<double>(result.tokens.size()) / result.generate_seconds;
    Session scored(model, session_options(options)), teacher(teacher_model, session_options(exact));
    const TextScore score = halftone::score(scored, heldout, 256, &teacher);
    row.perplexity = score.perplexity;
    row.kl = score.kl;
    seen.runs.push_back(std::move(row));
  }
  return seen;
}

// The path of this program, from the working folder where it is inside.
std::string own_path() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "halftone";
  const auto relative = path.lexically_relative(std::filesystem::current_path(error));
  return relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
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
  std::ofstream table;
  if (!o.table.empty()) {  // before minutes of work
    table.open(o.table);
    if (!table) {
      wrong_input(
          fmt::format("demo: --table \"{}\" cannot be written: {}", o.table, std::strerror(errno)));
    }
  }
  const std::string heldout = read_text("demo: the held-out text", o.models + "/heldout.txt");
  Stream& stream = Stream::default_stream();
  DemoReport report;
  report.machine =
      fmt::format("{}, {}, {} threads", cpu_name(), name(cpu_level()), stream.threads());
  report.models_folder = o.models;
  report.command = own_path();
  report.table = o.table;
  for (const char* name : {"bard", "bard-moe"}) {
    report.models.push_back(show_model(o, name, heldout));
  }
  report.attention = check_attention(stream);
  if (!o.table.empty()) {
    table << "Attention, the error of the operands' formats apart from the kernel's; a mode is the "
             "formats of qk+pv.\nThe kernel's includes the rounding of P to the second format.\n\n"
          << accuracy_table(report.attention);
    table.close();
    if (!table) {
      wrong_input(
          fmt::format("demo: --table \"{}\" cannot be written: {}", o.table, std::strerror(errno)));
    }
  }
  if (o.json) {
    nlohmann::json json = demo_json(report);
    json["machine"] = machine(stream.threads());
    json["prompt"] = o.prompt;
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("\n{}", demo_screen(report));
  }
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
  app.add_option("--table", o->table, "file for the accuracy of every attention mode")
      ->type_name("FILE");
  app.add_flag("--json", o->json, "one JSON object on stdout, with the texts and every row");
  return [o] { return run_demo(*o); };
}

}  // namespace

Command demo_command() {
  return {"demo", "both bundled models in every format: text, speed, memory, quality",
          "  halftone demo\n"
          "  halftone demo --prompt \"JULIET:\" -n 64\n"
          "  halftone demo --table build/demo-attention.txt\n"
          "  halftone demo --json\n",
          declare_demo};
}

}  // namespace halftone::app
