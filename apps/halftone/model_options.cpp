#include "model_options.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/message.h"
#include "console.h"
#include "halftone/quantize.h"

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
  app.add_option("--device", options.device, "where to run")
      ->type_name("DEVICE")
      ->capture_default_str();
  add_number(app, "--threads", options.threads, 1, 1024, "processor threads; default: all usable");
}

std::vector<std::string> weight_names() {
  std::vector<std::string> names = {"f32", "f16", "bf16"};
  for (std::string& name : quantization_names()) names.push_back(std::move(name));
  return names;
}

void check_weights(const std::string& option, const std::string& name) {
  const std::vector<std::string> names = weight_names();
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  try {
    parse_quantization(name);
  } catch (const Error&) {
    unknown_choice(option, name, names);
  }
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

std::shared_ptr<const Model> load_model(const ModelOptions& options, const std::string& weights,
                                        bool progress) {
  check_model_path(options.model);
  LoadOptions load;
  load.weights = weights;
  load.device = Device::parse(options.device);
  load.threads = static_cast<int>(options.threads.value_or(0));
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

SessionOptions session_options(const ModelOptions& options) {
  SessionOptions session;
  session.kv = parse_kv(options.kv);
  session.threads = static_cast<int>(options.threads.value_or(0));
  return session;
}

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace halftone::app
