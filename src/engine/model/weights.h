// In which format each tensor of a checkpoint is kept in memory, or written by `save_checkpoint`.
#pragma once
#include <optional>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "halftone/quantize.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// What a tensor is to the model decides what may be done to it.
enum class TensorRole : uint8_t {
  linear,  // a matrix of a layer: the ones that are quantised
  table,   // embedding and output head: 16 bits at least, unless a plain format is asked for
  small,   // norms, routers, biases: as stored, unless a plain format is asked for
};
// By name: "model.layers.0.mlp.gate.weight" is a router, "…mlp.gate_proj.weight" a matrix.
TensorRole role_of(const std::string& name);

// Tensors that some checkpoints hold and no computation here needs: rotary frequencies follow from
// the configuration, activation scales belong to kernels that quantise activations by them. Static
// scales of a cache are needed by models, but not by a checkpoint written anew.
bool is_unused(const std::string& name);

// A tensor of any role with its scales, if it has some.
Tensor stored_tensor(const Checkpoint&, const std::string& name);

// LoadOptions::weights and the format of `save_checkpoint`, read.
struct WeightFormat {
  std::optional<Format> plain;               // every tensor in this format
  std::optional<QuantizeOptions> quantized;  // every linear layer in this one
};
// Empty text: as stored. Error with the nearest valid name.
WeightFormat parse_weight_format(const std::string& text);

// How a tensor is kept: a pure function of its name, what is stored and what is asked for. An Error
// names the tensor when the format cannot hold it.
struct KeptFormat {
  Format format = Format::f32;
  bool scaled = false;
  Scaling scaling;  // when scaled
};
KeptFormat kept_format(const std::string& name, const Tensor& stored, const WeightFormat&);

// The tensor in that format: `stored` itself where nothing changes.
Tensor keep(const std::string& name, const Tensor& stored, const WeightFormat&, Stream&);

// f32, f16 or bf16 values of a tensor, whatever it is stored in.
Tensor to_plain(const Tensor& stored, Format format, Stream&);

}  // namespace halftone
