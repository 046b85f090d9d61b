// A model's files behind one face: configuration and named tensors, whatever the container.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "halftone/engine.h"

namespace halftone {

// Tensors carry the Hugging Face names ("model.layers.0.self_attn.q_proj.weight"); those of other
// containers are renamed on reading. Data stays in the mapped files; a tensor keeps its file
// mapped.
class Checkpoint {
 public:
  // A directory (config.json + model.safetensors or model.safetensors.index.json), or a llama2.c
  // .bin file. Everything is validated here; malformed files are Error::malformed_file that name
  // the file, the field and the rule.
  static std::unique_ptr<Checkpoint> open(const std::string& path);
  virtual ~Checkpoint() = default;

  virtual const ModelConfig& config() const = 0;
  virtual const SamplingOptions& default_sampling() const = 0;  // of generation_config.json
  // Of the model's tensors: a weight in several parts counts once, as "….weight".
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  // As stored, without scales. A missing name is an Error that offers the nearest.
  virtual Tensor tensor(const std::string& name) const = 0;
  // The weight [N, K] of a linear layer or an embedding, `prefix` without ".weight", or the stacked
  // experts of a layer under their own name: plain, or with its scales in whatever convention the
  // checkpoint has (src/engine/schemes).
  virtual Tensor weight(const std::string& prefix) const = 0;
};

}  // namespace halftone
