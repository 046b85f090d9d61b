// Rotary embedding as config.json describes it.
#pragma once
#include "engine/json.h"
#include "halftone/engine.h"

namespace halftone {

// Reads both generations of keys into `model.rope`: rope_theta beside rope_scaling {rope_type|type,
// ...}, or rope_parameters {rope_type, rope_theta, ...}. A scaling that lengthens the context also
// raises model.max_positions, which must be set, as must head_dim.
void read_rope(const JsonField& root, double default_theta, ModelConfig& model);

}  // namespace halftone
