// quant_method "modelopt", or hf_quant_config.json: NVFP4 (U8 pairs, weight_scale per 16,
// weight_scale_2 a tensor, both multiply), FP8 (one weight_scale, or one a row), MXFP8, and
// mixtures of these. input_scale belongs to kernels that quantise activations.
#include <algorithm>

#include "engine/checkpoint/scheme.h"
#include "engine/limits.h"

namespace halftone {

namespace {

class ModelOptScheme : public WeightScheme {
 public:
  explicit ModelOptScheme(std::string algorithm) : algorithm_(std::move(algorithm)) {}
  std::string describe() const override { return "modelopt " + algorithm_; }
  std::vector<std::string> companion_endings() const override {
    return {".weight_scale", ".weight_scale_2"};
  }
  // What a module is stored in says its dtype; mixtures have no single algorithm.
  Tensor weight(const ModuleParts& parts) const override {
    const Tensor codes = parts.get(".weight");
    const bool mixed = algorithm_ == "MIXED_PRECISION";
    const bool nvfp4 = algorithm_.find("NVFP4") != std::string::npos;
    if (codes.format() == Format::u8 && (mixed || nvfp4)) {
      return nvfp4_weight(parts, ".weight", scalar_of(parts, ".weight_scale_2"));
    }
    if (codes.format() == Format::fp8_e4m3 && (mixed || !nvfp4)) {
      const Format scales = parts.get(".weight_scale").format();
      if (scales == Format::u8 || scales == Format::ue8m0) {
        return mx_weight(parts, ".weight", ".weight_scale");
      }
      return scaled_weight(parts, codes, ".weight_scale");
    }
    parts.malformed(".weight", " is ", to_string(codes), "; the checkpoint's quantisation is ",
                    algorithm_);
  }

 private:
  std::string algorithm_;
};

void check_group(const JsonField& group, int64_t size) {
  if (const int64_t given = group.integer_or(size, 1, kMaxWidth); given != size) {
    group.malformed(" is ", given, "; this algorithm is defined with groups of ", size);
  }
}

}  // namespace

// config.json and hf_quant_config.json state the same facts under different names ("ignore" and
// "config_groups", "exclude_modules" and "group_size").
std::unique_ptr<WeightScheme> read_modelopt_scheme(const JsonField& field) {
  const JsonField algorithm = field["quant_algo"];
  const std::string name = algorithm.text_or("");
  if (name.empty()) return nullptr;  // only the cache is quantised
  const char* const known[] = {
      "NVFP4",          "NVFP4A16", "W4A16_NVFP4", "FP8", "MXFP8", "FP8_PER_CHANNEL_PER_TOKEN",
      "MIXED_PRECISION"};
  if (std::find(std::begin(known), std::end(known), name) == std::end(known)) {
    algorithm.unsupported(" is ", quote(name), "; NVFP4 (also NVFP4A16, W4A16_NVFP4), FP8, ",
                          "FP8_PER_CHANNEL_PER_TOKEN, MXFP8 and MIXED_PRECISION are read");
  }
  const bool nvfp4 = name.find("NVFP4") != std::string::npos;
  if (nvfp4 || name == "MXFP8") {
    const int64_t size = nvfp4 ? 16 : 32;
    check_group(field["group_size"], size);
    const JsonField groups = field["config_groups"];
    if (groups.present()) {
      for (const Json::Member& member : groups.members()) {
        check_group(groups[member.key]["weights"]["group_size"], size);
      }
    }
  }
  check_names(field["exclude_modules"]);
  check_names(field["ignore"]);
  return std::make_unique<ModelOptScheme>(name);
}

}  // namespace halftone
