// config.json, generation_config.json and hf_quant_config.json of a model directory.
#pragma once
#include <string>
#include <vector>

#include "engine/json.h"
#include "halftone/engine.h"

namespace halftone {

// How the linear layers of a checkpoint are stored.
struct WeightScheme {
  enum class Method : uint8_t {
    none,   // plain floats
    fp8,    // F8_E4M3 with weight_scale_inv blocks (DeepSeek, Qwen3-FP8)
    nvfp4,  // ModelOpt: U8 pairs of E2M1, weight_scale per 16, weight_scale_2
  };
  Method method = Method::none;
  int64_t block_rows = 128, block_cols = 128;  // of weight_scale_inv
  // Modules kept in their plain format; nvfp4 patterns may hold '*'.
  std::vector<std::string> excluded;
};

struct CheckpointConfig {
  ModelConfig model;
  SamplingOptions sampling;
  WeightScheme scheme;
};

// Reads the files of a directory. Every number is checked against its range; what no part of
// Halftone implements is Error::unsupported, never ignored.
CheckpointConfig read_config(const std::string& directory);

// The parts, for tests.
ModelConfig parse_model_config(const JsonField& root);
WeightScheme parse_quantization_config(const JsonField& field);
SamplingOptions parse_generation_config(const JsonField& root, ModelConfig& model);

}  // namespace halftone
