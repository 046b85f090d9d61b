// The options and the loading that commands with a model share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "halftone/engine.h"
#include "weight_names.h"

namespace halftone::app {

struct ModelOptions {
  std::string model, weights, kv = "bf16", device = "cpu";
  std::string activations;  // empty: those of the device, see activations_of
  std::optional<int64_t> threads;
  bool batch_invariant = false;
};
// As given; else bf16 on a GPU, whose tensor cores take it as it is, and f32 on a CPU.
std::string activations_of(const ModelOptions&);
void add_model_options(CLI::App&, ModelOptions&);

// Each ends in wrong_input with the nearest valid choice.
Format parse_kv(const std::string& name);
void check_model_path(const std::string& path);

LoadOptions load_options(const ModelOptions&, const std::string& weights);
std::shared_ptr<const Model> load_model(const ModelOptions&, const std::string& weights,
                                        bool progress);
SessionOptions session_options(const ModelOptions&);

struct SamplingArguments {
  std::optional<int64_t> top_k;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<uint64_t> seed;
  // What the model's own configuration says, changed by the options that were given.
  SamplingOptions over(const Model&) const;
};
void add_sampling_options(CLI::App&, SamplingArguments&);

const char* to_string(GenerateResult::Finish);

int64_t peak_memory();  // of this process, bytes

}  // namespace halftone::app
