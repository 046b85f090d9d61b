// quant_method "fp8": F8_E4M3 codes with a multiplier a block as weight_scale_inv (DeepSeek-V3,
// Qwen3-FP8; F32, BF16 or, with "scale_fmt": "ue8m0", powers of two in either F32 or F8_E8M0), or
// without weight_block_size with one multiplier a tensor as weight_scale.
#include "engine/checkpoint/scheme.h"
#include "engine/limits.h"

namespace halftone {

namespace {

class Fp8Scheme : public WeightScheme {
 public:
  Fp8Scheme(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {}
  std::string describe() const override {
    return rows_ == 0 ? "fp8 per tensor" : concat("fp8 ", rows_, "x", cols_);
  }
  std::vector<std::string> companion_endings() const override {
    return {".weight_scale_inv", ".weight_scale"};
  }
  Tensor weight(const ModuleParts& parts) const override {
    const Tensor codes = parts.get(".weight");
    if (!is_fp8(codes.format())) {
      parts.malformed(".weight", " is ", to_string(codes),
                      "; the checkpoint's quantization_config ",
                      "says fp8, not NVFP4: weights are F8_E4M3 or plain");
    }
    if (rows_ == 0) return scaled_weight(parts, codes, ".weight_scale");
    return scaled_weight(parts, codes, ".weight_scale_inv", rows_, cols_);
  }

 private:
  int64_t rows_, cols_;
};

}  // namespace

std::unique_ptr<WeightScheme> read_fp8_scheme(const JsonField& field) {
  const JsonField format = field["fmt"];
  if (const std::string f = format.text_or("e4m3"); f != "e4m3" && f != "float8_e4m3fn") {
    format.unsupported(" is ", quote(f), "; \"e4m3\" is implemented");
  }
  const JsonField scales = field["scale_fmt"];
  if (const std::string s = scales.text_or("float"); s != "float" && s != "ue8m0") {
    scales.unsupported(" is ", quote(s), "; \"float\" and \"ue8m0\" are implemented");
  }
  // Activations stay in 16 or 32 bits here, so neither scheme's scales for them are used.
  const JsonField activations = field["activation_scheme"];
  if (const std::string a = activations.text_or("dynamic"); a != "dynamic" && a != "static") {
    activations.unsupported(" is ", quote(a), "; \"dynamic\" and \"static\" are known");
  }
  int64_t rows = 0, cols = 0;
  const JsonField block = field["weight_block_size"];
  if (block.present()) {
    const std::vector<JsonField> sizes = block.items();
    if (sizes.size() != 2) block.expected("an array [rows, columns]");
    rows = sizes[0].integer(1, kMaxWidth);
    cols = sizes[1].integer(1, kMaxWidth);
  }
  check_names(field["modules_to_not_convert"]);
  return std::make_unique<Fp8Scheme>(rows, cols);
}

}  // namespace halftone
