// The files beside the tensors of a written checkpoint: configuration, quantisation, tokenizer.
#pragma once
#include <functional>
#include <string>

#include "engine/weights.h"
#include "halftone/engine.h"

namespace halftone {

// `path_of` gives the full path of a file name in the directory that is written.
void write_model_files(const std::string& source, const ModelConfig&, const WeightFormat&,
                       const std::function<std::string(const char*)>& path_of);

}  // namespace halftone
