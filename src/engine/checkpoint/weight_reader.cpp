#include "engine/checkpoint/weight_reader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/format_traits.h"
#include "base/message.h"
#include "formats/scale_shape.h"

namespace halftone {

WeightReader::WeightReader(const Checkpoint& checkpoint, const LoadOptions& options,
                           Contents contents)
    : checkpoint_(checkpoint),
      format_(parse_weight_format(options.weights)),
      device_(options.device),
      contents_(contents),
      stream_(Device::cpu(), options.threads),
      device_stream_(options.device, options.threads),
      progress_(options.progress) {
  for (std::string& name : checkpoint.names()) left_.insert(std::move(name));
  total_ = std::max<size_t>(left_.size(), 1);
}

void WeightReader::finish() {
  for (const std::string& name : left_) {
    if (is_unused(name)) continue;
    fail(ErrorCode::malformed_file, "tensor ", name, " of the checkpoint belongs to no part of a ",
         checkpoint_.config().architecture,
         "; the model is of another architecture or config.json is not its own");
  }
  device_stream_.synchronize();
  if (progress_) progress_(1.0);
}

Tensor WeightReader::take(const std::string& name, const Shape& shape) {
  return adopt(name, stored_tensor(checkpoint_, name), shape);
}

Tensor WeightReader::stacked(const std::string& name, int64_t experts, int64_t n, int64_t k) {
  const Tensor stored = stored_tensor(checkpoint_, name);
  if (stored.has_scales() || stored.shape() != Shape{experts, k, n}) {
    return adopt(name, stored, {experts, n, k});
  }
  const Tensor turned = stored.transpose(1, 2);
  const bool reads = contents_ == Contents::weights;
  return adopt(name, reads ? turned.contiguous_copy() : turned, {experts, n, k});
}

Tensor WeightReader::bias(const std::string& name, int64_t n) {
  const Tensor kept = take(name, Shape{n});
  if (contents_ == Contents::none) return without_memory(kept.shape(), {Format::f32, false, {}});
  return to_plain(kept, Format::f32, device_stream_);
}

std::optional<float> WeightReader::scale(const std::string& name) {
  if (!contains(name)) return {};
  const Tensor stored = checkpoint_.tensor(name);
  if (stored.numel() != 1 || !is_plain_float(stored.format())) {
    fail(ErrorCode::unsupported, "tensor ", name, " is ", to_string(stored),
         "; a static scale of the cache is one number a layer, in f32, f16 or bf16");
  }
  const float value = *convert(stored, Format::f32).data<float>();
  if (!std::isnormal(value) || value < 0) {
    fail(ErrorCode::malformed_file, "tensor ", name, " is ", value,
         "; a scale must be positive and normal");
  }
  left_.erase(name);
  return value;
}

// Nobody reads what it points at, but for a tensor scale, which is a parameter of some kernels.
Tensor WeightReader::without_memory(const Shape& shape, const KeptFormat& kept) const {
  alignas(64) static uint8_t nothing[64];
  const auto view = [&](const Shape& extents, Format format) {
    return Tensor::view(nothing, extents, format, device_);
  };
  const Tensor tensor = view(shape, kept.format);
  if (!kept.scaled) return tensor;
  const Shape scales = scale_shape(shape, kept.scaling);
  return tensor.quantized(
      kept.scaling, view(scales, kept.scaling.format),
      has_tensor_scale(kept.format) ? Tensor::from({1.0f}, {1}).to(device_) : Tensor(),
      kept.scaling.asymmetric ? view(scales, Format::u8) : Tensor());
}

Tensor WeightReader::adopt(const std::string& name, const Tensor& stored, const Shape& shape) {
  if (!(stored.shape() == shape)) {
    fail(ErrorCode::malformed_file, "tensor ", name, " is ", to_string(stored.shape()),
         " in the checkpoint, but config.json asks for ", to_string(shape));
  }
  if (role_of(name) == TensorRole::small && !is_plain_float(stored.format())) {
    fail(ErrorCode::malformed_file, "tensor ", name, " is stored in ",
         halftone::name(stored.format()), "; f32, f16 or bf16 is expected");
  }
  left_.erase(name);
  // Adaptive scales are searched by the CPU, whose threads share a tensor that has one scale;
  // everything else is done where the weights will be.
  const bool adaptive = format_.quantized && format_.quantized->adaptive;
  Tensor kept;
  if (contents_ == Contents::none) {
    kept = without_memory(shape, kept_format(name, stored, format_));
  } else if (adaptive && stored.device().is_cpu()) {
    kept = upload_(keep(name, stored, format_, stream_));
  } else {
    kept = keep(name, upload_(stored), format_, device_stream_);
  }
  bytes_ += kept.bytes();
  parameters_ += kept.numel();
  if (progress_) {
    progress_(1.0 - static_cast<double>(left_.size()) / static_cast<double>(total_));
  }
  return kept;
}

}  // namespace halftone
