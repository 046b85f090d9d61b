// config.json, generation_config.json and hf_quant_config.json of a model directory.
#pragma once
#include <string>
#include <vector>

#include "engine/checkpoint/scheme.h"
#include "engine/json.h"
#include "halftone/engine.h"

namespace halftone {

struct CheckpointConfig {
  ModelConfig model;
  SamplingOptions sampling;
  std::shared_ptr<const WeightScheme> scheme;  // null: plain floats
};

// Reads the files of a directory. Every number is checked against its range; what no part of
// Halftone implements is Error::unsupported, never ignored.
CheckpointConfig read_config(const std::string& directory);

// The parts, for tests.
ModelConfig parse_model_config(const JsonField& root);
SamplingOptions parse_generation_config(const JsonField& root, ModelConfig& model);

}  // namespace halftone
