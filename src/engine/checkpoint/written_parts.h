// The tensors that a weight becomes in a checkpoint, by the convention that its format is saved in.
#pragma once
#include <string>
#include <vector>

#include "engine/model/weights.h"

namespace halftone {

struct WrittenPart {
  std::string ending;  // behind the module's name: ".weight", ".weight_scale", ...
  Format format;
  Shape shape;
  Tensor (*of)(const Tensor& weight);
};
// ".weight" alone for a plain format; fp8 in blocks with weight_scale_inv; nvfp4 as ModelOpt; fp8
// per row or tensor, int8 per row, int4, mxfp8 and mxfp4 as compressed-tensors. Empty when no
// convention describes the format.
std::vector<WrittenPart> written_parts(const KeptFormat&, const Shape& shape);

// compressed-tensors' name of the format, or null when another convention has it.
const char* compressed_tensors_format(Format);

}  // namespace halftone
