// The options and the loading that commands with a model share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "halftone/engine.h"

namespace halftone::app {

struct ModelOptions {
  std::string model, weights, kv = "bf16", device = "cpu";
  std::optional<int64_t> threads;
};
void add_model_options(CLI::App&, ModelOptions&);

// Names that --weights takes.
std::vector<std::string> weight_names();
// Each ends in wrong_input with the nearest valid choice.
void check_weights(const std::string& option, const std::string& name);
Format parse_kv(const std::string& name);
void check_model_path(const std::string& path);

std::shared_ptr<const Model> load_model(const ModelOptions&, const std::string& weights,
                                        bool progress);
SessionOptions session_options(const ModelOptions&);

int64_t peak_memory();  // of this process, bytes

}  // namespace halftone::app
