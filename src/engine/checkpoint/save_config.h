// The files beside the tensors of a written checkpoint: configuration, quantisation, tokenizer.
#pragma once
#include <functional>
#include <map>
#include <string>

#include "engine/model/weights.h"
#include "halftone/engine.h"

namespace halftone {

// `path_of` gives the full path of a file name in the directory that is written.
void write_model_files(const std::string& source, const ModelConfig&, const WeightFormat&,
                       const std::function<std::string(const char*)>& path_of);

// model.safetensors.index.json: which file holds each tensor.
void write_index(const std::string& path, int64_t total_bytes,
                 const std::map<std::string, std::string>& files);

}  // namespace halftone
