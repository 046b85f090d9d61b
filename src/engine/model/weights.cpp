#include "engine/model/weights.h"

#include <algorithm>
#include <vector>

#include "base/message.h"

namespace halftone {

namespace {

bool ends_with(const std::string& text, std::string_view ending) {
  return text.size() >= ending.size() &&
         std::string_view(text).substr(text.size() - ending.size()) == ending;
}

// "float32" and "half" name plain formats too; "fp8" and "int8" are quantisations.
std::optional<Format> plain_format(const std::string& text) {
  try {
    const Format format = parse_format(text);
    if (is_plain_float(format)) return format;
  } catch (const Error&) {
    // not the name of an element format; the caller tries the quantisations
  }
  return std::nullopt;
}

}  // namespace

TensorRole role_of(const std::string& name) {
  for (const char* matrix : {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                             "down_proj", "w1", "w2", "w3"}) {
    if (ends_with(name, std::string(".") + matrix + ".weight")) return TensorRole::linear;
  }
  for (const char* stacked : {".experts.gate_up_proj", ".experts.down_proj"}) {
    if (ends_with(name, stacked)) return TensorRole::linear;
  }
  if (ends_with(name, "embed_tokens.weight") || ends_with(name, "lm_head.weight")) {
    return TensorRole::table;
  }
  return TensorRole::small;
}

// Scales of activations belong to kernels that quantise them by a scale from elsewhere; here
// activations keep 16 bits or have scales of their own. Scales of an FP8 cache are read by name.
bool is_unused(const std::string& name) {
  for (const char* ending : {".rotary_emb.inv_freq", ".input_scale", ".input_global_scale",
                             ".output_scale", ".k_scale", ".v_scale", ".q_scale"}) {
    if (ends_with(name, ending)) return true;
  }
  return false;
}

Tensor stored_tensor(const Checkpoint& checkpoint, const std::string& name) {
  constexpr std::string_view kEnding = ".weight";
  if (role_of(name) == TensorRole::small) return checkpoint.tensor(name);
  const bool stacked = !ends_with(name, kEnding);
  return checkpoint.weight(stacked ? name : name.substr(0, name.size() - kEnding.size()));
}

WeightFormat parse_weight_format(const std::string& text) {
  WeightFormat result;
  if (text.empty()) return result;
  result.plain = plain_format(text);
  if (result.plain) return result;
  try {
    result.quantized = parse_quantization(text);
  } catch (const Error&) {
    std::vector<std::string> names = quantization_names();
    names.insert(names.end(), {"f32", "f16", "bf16"});
    fail(ErrorCode::invalid_argument, "weights is \"", text,
         "\", which is no format for weights; the nearest is \"", nearest(text, names), "\"");
  }
  return result;
}

Tensor to_plain(const Tensor& stored, Format format, Stream& stream) {
  if (stored.format() == format && !stored.has_scales()) return stored;
  if (is_plain_float(stored.format())) return convert(stored, format, stream);
  return dequantize(stored, format, stream);
}

KeptFormat kept_format(const std::string& name, const Tensor& stored, const WeightFormat& target) {
  KeptFormat kept{stored.format(), stored.has_scales(), {}};
  if (kept.scaled) kept.scaling = stored.scaling();
  if (target.plain) return {*target.plain, false, {}};
  const TensorRole role = role_of(name);
  if (!target.quantized || role == TensorRole::small) return kept;
  if (role == TensorRole::table) {
    if (stored.format() == Format::f32) kept.format = Format::bf16;
    return kept;
  }
  const QuantizeOptions& options = *target.quantized;
  // Stored so already: quantising the values again would only lose some. Scales of another format
  // (BF16 in some checkpoints) are as good.
  const bool same = kept.scaled && kept.format == options.format &&
                    kept.scaling.block_rows == options.scaling.block_rows &&
                    kept.scaling.block_cols == options.scaling.block_cols &&
                    kept.scaling.asymmetric == options.scaling.asymmetric;
  if (same) return kept;
  const Support support = can_quantize(stored.shape(), options);
  if (!support.ok) {
    fail(ErrorCode::unsupported, "tensor ", name, " ", to_string(stored.shape()),
         " (rows, K) cannot be stored as ", to_string(options), ": ", support.reason,
         "; choose a format whose groups divide K = ", stored.size(-1),
         ", for example fp8, int8 or bf16");
  }
  return {options.format, true, options.scaling};
}

Tensor keep(const std::string& name, const Tensor& stored, const WeightFormat& target,
            Stream& stream) {
  const KeptFormat kept = kept_format(name, stored, target);
  if (!kept.scaled && !stored.has_scales()) return to_plain(stored, kept.format, stream);
  if (!kept.scaled) return dequantize(stored, kept.format, stream);
  const bool same =
      stored.has_scales() && stored.format() == kept.format && stored.scaling() == kept.scaling;
  if (same) return stored;
  // From 16 or 32 bits directly; from another quantised format through its exact f32 values.
  const Tensor values =
      is_plain_float(stored.format()) ? stored : dequantize(stored, Format::f32, stream);
  return quantize(values, *target.quantized, stream);
}

}  // namespace halftone
