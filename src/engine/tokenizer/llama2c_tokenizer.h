// tokenizer.bin of the llama2.c project: pieces with scores, joined by the highest score.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "halftone/engine.h"

namespace halftone {

std::unique_ptr<Tokenizer> load_llama2c_tokenizer(const std::string& path);

// The number of pieces, when the file is such a tokenizer.
std::optional<int64_t> probe_llama2c_tokenizer(const std::string& path);

}  // namespace halftone
