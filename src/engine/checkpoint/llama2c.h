// The checkpoint container of the llama2.c project, version 0: seven int32, then f32 weights.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint.h"

namespace halftone {

// The header, if the file could be such a checkpoint (plausible numbers); no other check.
struct Llama2cHeader {
  int32_t dim = 0, hidden_dim = 0, layers = 0, heads = 0, kv_heads = 0, vocabulary = 0;
  int32_t max_length = 0;
  bool shared_classifier = true;  // stored as the sign of the vocabulary's size
};
std::optional<Llama2cHeader> probe_llama2c(const std::string& path);

std::unique_ptr<Checkpoint> open_llama2c(const std::string& path);

}  // namespace halftone
