#include "model_options.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/message.h"
#include "console.h"

namespace halftone::app {

namespace {
const std::vector<std::string>& kv_names() {
  static const std::vector<std::string> names = {"f32", "f16", "bf16", "fp8", "fp8_e4m3", "nvfp4"};
  return names;
}
}  // namespace

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("MODEL", options.model,
                 "directory with config.json and safetensors, or a llama2.c .bin file")
      ->required();
  app.add_option("--weights", options.weights,
                 "requantise the weights on loading: f32, bf16, fp8, mxfp8, nvfp4, int4, ...")
      ->type_name("FORMAT");
  app.add_option("--kv", options.kv, "format of the KV cache: f32, f16, bf16, fp8, nvfp4")
      ->type_name("FORMAT")
      ->capture_default_str();
  app.add_option("--device", options.device, "where to run: cpu, cuda:N, sim:ARCH")
      ->type_name("DEVICE")
      ->capture_default_str();
  const std::string by_device = options.activations.empty() ? "; default: f32, on a GPU bf16" : "";
  CLI::Option* const activations =
      app.add_option("--activations", options.activations,
                     "format of what goes from operation to operation: f32, bf16, f16" + by_device)
          ->type_name("FORMAT");
  if (by_device.empty()) activations->capture_default_str();
  add_number(app, "--threads", options.threads, 1, 1024, "processor threads; default: all usable");
  app.add_flag("--batch-invariant", options.batch_invariant,
               "the same bits in any batch: on a GPU slower, see docs/why.md");
}

Format parse_kv(const std::string& name) {
  const std::vector<std::string>& names = kv_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    unknown_choice("--kv", name, names);
  }
  return parse_format(name);
}

void check_model_path(const std::string& path) {
  if (access(path.c_str(), R_OK) == 0) return;
  wrong_input(
      fmt::format("MODEL \"{}\" does not exist or cannot be read; it must be a directory "
                  "with config.json and safetensors, or a llama2.c .bin file",
                  path));
}

LoadOptions load_options(const ModelOptions& options, const std::string& weights) {
  LoadOptions load;
  load.weights = weights;
  load.device = Device::parse(options.device);
  load.threads = static_cast<int>(options.threads.value_or(0));
  return load;
}

std::shared_ptr<const Model> load_model(const ModelOptions& options, const std::string& weights,
                                        bool progress) {
  check_model_path(options.model);
  LoadOptions load = load_options(options, weights);
  Progress bar(weights.empty() ? "loading" : "loading as " + weights, progress);
  load.progress = bar.callback();
  try {
    return Model::load(options.model, load);
  } catch (const Error& error) {
    // A file that MODEL should hold and does not: the wrong path, not a failing disk.
    if (error.code() == ErrorCode::io) wrong_input(error.what());
    throw;
  }
}

std::string activations_of(const ModelOptions& options) {
  if (!options.activations.empty()) return options.activations;
  return options.device.rfind("cuda", 0) == 0 ? "bf16" : "f32";
}

SessionOptions session_options(const ModelOptions& options) {
  SessionOptions session;
  session.kv = parse_kv(options.kv);
  static const std::vector<std::string> formats = {"f32", "bf16", "f16"};
  const std::string activations = activations_of(options);
  if (std::find(formats.begin(), formats.end(), activations) == formats.end()) {
    unknown_choice("--activations", activations, formats);
  }
  session.activations = parse_format(activations);
  session.threads = static_cast<int>(options.threads.value_or(0));
  session.batch_invariant = options.batch_invariant;
  return session;
}

const char* to_string(GenerateResult::Finish finish) {
  switch (finish) {
    case GenerateResult::Finish::eos:
      return "eos";
    case GenerateResult::Finish::length:
      return "length";
    case GenerateResult::Finish::stop_text:
      return "stop";
    case GenerateResult::Finish::stopped:
      return "interrupted";
  }
  return "?";
}

SamplingOptions SamplingArguments::over(const Model& model) const {
  SamplingOptions s = model.default_sampling();
  if (temperature) s.temperature = static_cast<float>(*temperature);
  if (top_k) s.top_k = static_cast<int>(*top_k);
  if (top_p) s.top_p = static_cast<float>(*top_p);
  if (min_p) s.min_p = static_cast<float>(*min_p);
  if (repetition_penalty) s.repetition_penalty = static_cast<float>(*repetition_penalty);
  if (seed) s.seed = *seed;
  validate(s);
  return s;
}

void add_sampling_options(CLI::App& app, SamplingArguments& o) {
  constexpr double kAny = std::numeric_limits<double>::max();
  add_number(app, "--temperature", o.temperature, 0, kAny, "0 is greedy; default: the model's");
  add_number(app, "--top-k", o.top_k, 0, std::numeric_limits<int32_t>::max(),
             "keep the K likeliest tokens; 0 is off");
  add_number(app, "--top-p", o.top_p, 0, 1, "keep the likeliest tokens up to this sum");
  add_number(app, "--min-p", o.min_p, 0, 1, "drop tokens below this share of the likeliest");
  add_number(app, "--repetition-penalty", o.repetition_penalty, 0, kAny,
             "divides the logits of tokens seen; 1 is off");
  add_number(app, "--seed", o.seed, "the same seed draws the same tokens");
}

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace halftone::app
