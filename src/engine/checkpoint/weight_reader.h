// Taking the tensors of a model out of its checkpoint.
#pragma once
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/model/upload.h"
#include "engine/model/weights.h"

namespace halftone {

// What a model is made of: its weights, or tensors of their shapes and formats without memory, to
// count and to plan with.
enum class Contents : uint8_t { weights, none };

// Takes tensors one by one to the model's device, where they get their format, and knows at the end
// which were never asked for.
class WeightReader {
 public:
  WeightReader(const Checkpoint&, const LoadOptions&, Contents = Contents::weights);

  // A matrix or a table with its scales, if any.
  Tensor matrix(const std::string& prefix, int64_t n, int64_t k) {
    return take(prefix + ".weight", Shape{n, k});
  }
  // Stacked experts [experts, n, k]; plain floats are stored input-major, [experts, k, n].
  Tensor stacked(const std::string& name, int64_t experts, int64_t n, int64_t k);
  // A small tensor as stored, or in the plain format asked for.
  Tensor tensor(const std::string& name, const Shape& shape) { return take(name, shape); }
  Tensor vector(const std::string& name, int64_t n) { return tensor(name, Shape{n}); }
  // In f32, so that every product can add it.
  Tensor bias(const std::string& name, int64_t n);
  // One positive number; nothing where the checkpoint has no such tensor.
  std::optional<float> scale(const std::string& name);
  bool contains(const std::string& name) const { return checkpoint_.contains(name); }
  void ignore(const std::string& name) { left_.erase(name); }

  // Waits for everything. Error when a tensor is left that no part of the model asked for.
  void finish();
  int64_t bytes() const { return bytes_; }
  int64_t parameters() const { return parameters_; }

 private:
  Tensor take(const std::string& name, const Shape& shape);
  Tensor adopt(const std::string& name, const Tensor& stored, const Shape& shape);
  Tensor without_memory(const Shape& shape, const KeptFormat&) const;

  const Checkpoint& checkpoint_;
  WeightFormat format_;
  Device device_;
  Contents contents_;
  Stream stream_, device_stream_;  // of the CPU, and of the model's device
  Upload upload_{device_stream_, stream_};
  std::function<void(double)> progress_;
  std::set<std::string> left_;
  size_t total_ = 1;
  int64_t bytes_ = 0, parameters_ = 0;
};

}  // namespace halftone
