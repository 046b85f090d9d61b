#include "engine/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "engine/config.h"
#include "engine/json.h"
#include "engine/llama2c.h"
#include "engine/safetensors.h"

namespace halftone {

namespace {

class DirectoryCheckpoint : public Checkpoint {
 public:
  explicit DirectoryCheckpoint(const std::string& directory)
      : config_(read_config(directory)), store_(Safetensors::open_directory(directory)) {}

  const ModelConfig& config() const override { return config_.model; }
  const SamplingOptions& default_sampling() const override { return config_.sampling; }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, entry] : store_.tensors()) result.push_back(name);
    return result;
  }
  bool contains(const std::string& name) const override { return store_.find(name) != nullptr; }
  Tensor tensor(const std::string& name) const override { return store_.tensor(name); }
  Tensor weight(const std::string& prefix) const override;

 private:
  template <class... Parts>
  [[noreturn]] void malformed(const std::string& name, const Parts&... parts) const {
    const StoredTensor* entry = store_.find(name);
    fail(ErrorCode::malformed_file, entry != nullptr ? store_.path_of(*entry) + ": " : "",
         "tensor ", quote(name), parts...);
  }
  // A companion of the weight `name`, which must be there.
  Tensor companion(const std::string& name, const std::string& companion) const {
    if (!contains(companion)) malformed(name, " has no ", quote(companion), " beside it");
    return tensor(companion);
  }
  Tensor fp8_weight(const std::string& name, const Tensor& codes) const;
  Tensor nvfp4_weight(const std::string& name, const Tensor& bytes) const;

  CheckpointConfig config_;
  Safetensors store_;
};

Tensor DirectoryCheckpoint::weight(const std::string& prefix) const {
  const std::string name = prefix + ".weight";
  const Tensor stored = tensor(name);
  if (is_plain_float(stored.format())) return stored;
  if (is_fp8(stored.format())) return fp8_weight(name, stored);
  if (stored.format() == Format::u8) return nvfp4_weight(name, stored);
  malformed(name, " is ", to_string(stored), "; a weight is F32, F16, BF16, F8_E4M3 or U8 (NVFP4)");
}

Tensor DirectoryCheckpoint::fp8_weight(const std::string& name, const Tensor& codes) const {
  if (config_.scheme.method != WeightScheme::Method::fp8) {
    malformed(name, " is ", halftone::name(codes.format()),
              " but the quantization_config of the checkpoint does not say fp8");
  }
  if (codes.rank() != 2) malformed(name, " is ", to_string(codes), "; a weight has two dimensions");
  const std::string scale_name = name + "_scale_inv";
  const Tensor scales = companion(name, scale_name);
  const int64_t rows = config_.scheme.block_rows, cols = config_.scheme.block_cols;
  const Shape expected{(codes.size(0) + rows - 1) / rows, (codes.size(1) + cols - 1) / cols};
  if (scales.shape() != expected) {
    malformed(scale_name, " is ", to_string(scales), "; weight ", to_string(codes.shape()),
              " in blocks of ", rows, "x", cols, " needs ", to_string(expected));
  }
  const bool readable = is_plain_float(scales.format()) || scales.format() == Format::ue8m0;
  if (!readable) malformed(scale_name, " is ", to_string(scales), "; scales are F32, BF16 or F16");
  return codes.quantized({scales.format(), rows, cols}, scales);
}

Tensor DirectoryCheckpoint::nvfp4_weight(const std::string& name, const Tensor& bytes) const {
  if (config_.scheme.method != WeightScheme::Method::nvfp4) {
    malformed(name, " is u8 but the quantization_config of the checkpoint does not say NVFP4");
  }
  if (bytes.rank() != 2 || bytes.size(1) > std::numeric_limits<int64_t>::max() / 2) {
    malformed(name, " is ", to_string(bytes), "; a packed weight is [N, K/2]");
  }
  const Shape shape{bytes.size(0), bytes.size(1) * 2};
  const Shape expected{shape[0], (shape[1] + 15) / 16};
  const std::string scale_name = name + "_scale";
  const Tensor scales = companion(name, scale_name);
  if (scales.format() != Format::fp8_e4m3 || scales.shape() != expected) {
    malformed(scale_name, " is ", to_string(scales), "; an NVFP4 weight ", to_string(shape),
              " needs fp8_e4m3 ", to_string(expected));
  }
  const std::string tensor_scale_name = name + "_scale_2";
  const Tensor tensor_scale = companion(name, tensor_scale_name);
  if (tensor_scale.format() != Format::f32 || tensor_scale.numel() != 1) {
    malformed(tensor_scale_name, " is ", to_string(tensor_scale), "; it must be one F32");
  }
  // The bytes are the packed codes; `bytes` keeps the mapping alive through the copied owner.
  const auto owner = std::make_shared<const Tensor>(bytes);
  return Tensor::share(owner, bytes.data(), shape, row_major(shape), Format::nvfp4)
      .quantized({Format::fp8_e4m3, 1, 16}, scales, tensor_scale.reshape({1}));
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
