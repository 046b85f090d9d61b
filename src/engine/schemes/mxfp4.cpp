// quant_method "mxfp4" (gpt-oss): the experts of a layer as *_blocks U8 [experts, N, K/32, 16] and
// *_scales U8 [experts, N, K/32]; all else is plain.
#include "engine/checkpoint/scheme.h"

namespace halftone {

namespace {

class Mxfp4Scheme : public WeightScheme {
 public:
  std::string describe() const override { return "mxfp4"; }
  const char* codes_ending() const override { return "_blocks"; }
  std::vector<std::string> companion_endings() const override { return {"_scales"}; }
  Tensor weight(const ModuleParts& parts) const override {
    return mx_weight(parts, "_blocks", "_scales");
  }
};

}  // namespace

std::unique_ptr<WeightScheme> read_mxfp4_scheme(const JsonField& field) {
  check_names(field["modules_to_not_convert"]);
  return std::make_unique<Mxfp4Scheme>();
}

}  // namespace halftone
