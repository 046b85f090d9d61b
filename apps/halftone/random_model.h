// Models of known shapes with random weights, made where they will run: what decoding costs does
// not depend on what the weights say.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"

namespace halftone {

struct RandomModel {
  const char* name;
  ModelConfig config;
};
// "llama-3-8b", "qwen3-30b-a3b", "gpt-oss-20b", and "small", which any machine holds.
const std::vector<RandomModel>& random_models();
// The extents of stories260K.
ModelConfig tiny_llama();

// Tensors are made when they are asked for, on a device, plain but for stacked experts, which are
// in MXFP4: normal weights that keep the size of what they multiply.
class RandomCheckpoint : public Checkpoint {
 public:
  // Matrices in `format`.
  RandomCheckpoint(const ModelConfig&, const Device&, Format format);

  const ModelConfig& config() const override { return config_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override { return shapes_.count(name) > 0; }
  Tensor tensor(const std::string& name) const override;
  Tensor weight(const std::string& prefix) const override {
    return tensor(contains(prefix) ? prefix : prefix + ".weight");
  }

 private:
  // N(0, 1 / columns) in the format, on the device: rows of these are every matrix's.
  const Tensor& drawn(int64_t columns) const;

  ModelConfig config_;
  SamplingOptions sampling_;
  Device device_;
  Format format_;
  std::map<std::string, Shape> shapes_;
  mutable std::map<int64_t, Tensor> drawn_;  // by columns
  mutable int64_t offset_ = 0;               // where the next tensor begins in them
};

}  // namespace halftone
