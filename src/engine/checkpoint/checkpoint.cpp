#include "engine/checkpoint/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "engine/checkpoint/llama2c.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/json.h"
#include "engine/model/config.h"

namespace halftone {

namespace {

class DirectoryCheckpoint : public Checkpoint {
 public:
  explicit DirectoryCheckpoint(const std::string& directory);

  const ModelConfig& config() const override { return config_.model; }
  const SamplingOptions& default_sampling() const override { return config_.sampling; }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : store_.tensors()) {
      if (is_companion(name)) continue;
      result.push_back(is_codes(name) ? name.substr(0, name.size() - codes_.size()) + weight_
                                      : name);
    }
    return result;
  }
  bool contains(const std::string& name) const override {
    if (store_.find(name) != nullptr) return true;
    return name.ends_with(weight_) &&
           store_.find(name.substr(0, name.size() - weight_.size()) + codes_) != nullptr;
  }
  Tensor tensor(const std::string& name) const override { return store_.tensor(name); }
  Tensor weight(const std::string& prefix) const override;

 private:
  // Whether the tensor holds codes under a name of its scheme's own.
  bool is_codes(const std::string& name) const {
    return codes_ != ".weight" && name.ends_with(codes_);
  }
  // Whether the tensor belongs to a module's codes.
  bool is_companion(const std::string& name) const;

  CheckpointConfig config_;
  Safetensors store_;
  // Endings of a weight in several parts: as stored, and as the model asks for it.
  std::string codes_ = ".weight", weight_ = ".weight";
};

DirectoryCheckpoint::DirectoryCheckpoint(const std::string& directory)
    : config_(read_config(directory)), store_(Safetensors::open_directory(directory)) {
  if (config_.scheme == nullptr) return;
  codes_ = config_.scheme->codes_ending();
  if (codes_[0] != '.') weight_.clear();  // stacked experts have no ".weight"
}

bool DirectoryCheckpoint::is_companion(const std::string& name) const {
  if (config_.scheme == nullptr) return false;
  for (const std::string& ending : config_.scheme->companion_endings()) {
    if (!name.ends_with(ending)) continue;
    const std::string module = name.substr(0, name.size() - ending.size());
    if (store_.find(module + codes_) != nullptr || store_.find(module + ".weight") != nullptr) {
      return true;
    }
  }
  return false;
}

Tensor DirectoryCheckpoint::weight(const std::string& prefix) const {
  const WeightScheme* scheme = config_.scheme.get();
  const ModuleParts parts(store_, prefix);
  const bool has_codes = scheme != nullptr && parts.has(scheme->codes_ending());
  if (has_codes && codes_ != ".weight") return scheme->weight(parts);
  if (parts.has("")) return store_.tensor(prefix);  // stacked experts in a plain float format
  const Tensor stored = store_.tensor(prefix + ".weight");
  if (is_plain_float(stored.format())) return stored;
  if (scheme == nullptr) {
    parts.malformed(".weight", " is ", to_string(stored), "; without a quantization_config in ",
                    "config.json a weight is F32, F16 or BF16");
  }
  return scheme->weight(parts);
}

// The only llama2.c checkpoint of a directory without config.json, or "".
std::string find_llama2c(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() == ".bin" && probe_llama2c(path)) found.push_back(path);
  }
  return found.size() == 1 ? found.front() : "";
}

}  // namespace

std::unique_ptr<Checkpoint> Checkpoint::open(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) {
    fail(ErrorCode::io, "model ", quote(path),
         " does not exist; give a directory with config.json ",
         "and safetensors, or a llama2.c checkpoint");
  }
  if (!S_ISDIR(info.st_mode)) {
    const bool safetensors = path.size() > 12 && path.ends_with(".safetensors");
    if (safetensors || path.ends_with(".gguf")) {
      fail(ErrorCode::invalid_argument, "model ", quote(path), " is a single ",
           safetensors ? "safetensors" : "GGUF",
           " file; give the directory that holds config.json and the safetensors files");
    }
    return open_llama2c(path);
  }
  std::string directory = path;
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  if (access((directory + "/config.json").c_str(), F_OK) != 0) {
    const std::string single = find_llama2c(directory);
    if (!single.empty()) return open_llama2c(single);
    fail(ErrorCode::io, "model directory ", quote(path),
         " holds no config.json; it must hold config.json and model.safetensors");
  }
  return std::make_unique<DirectoryCheckpoint>(directory);
}

}  // namespace halftone
