// How a checkpoint convention stores the matrices of a model. One file of src/engine/schemes each,
// listed in scheme.cpp.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/safetensors.h"
#include "engine/json.h"
#include "halftone/quantize.h"

namespace halftone {

// The stored tensors of one module ("model.layers.0.mlp.up_proj"), by their endings.
class ModuleParts {
 public:
  ModuleParts(const Safetensors& store, std::string module)
      : store_(store), module_(std::move(module)) {}

  bool has(const char* ending) const { return store_.find(module_ + ending) != nullptr; }
  // A missing one is an Error that names it.
  Tensor get(const char* ending) const;
  // "FILE: tensor MODULE+ENDING" and `parts`.
  template <class... Parts>
  [[noreturn]] void malformed(const std::string& ending, const Parts&... parts) const {
    fail(ErrorCode::malformed_file, place(ending), parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const std::string& ending, const Parts&... parts) const {
    fail(ErrorCode::unsupported, place(ending), parts...);
  }
  const std::string& module() const { return module_; }

 private:
  std::string place(const std::string& ending) const;

  const Safetensors& store_;
  std::string module_;
};

// Which modules are quantised is what their stored tensors say; lists of ignored ones are checked
// to be lists of names and no more.
class WeightScheme {
 public:
  virtual ~WeightScheme() = default;
  // Named in messages and by `halftone generate`: "fp8 128x128", "compressed-tensors nvfp4".
  virtual std::string describe() const = 0;
  // Ending of the tensor that holds a module's codes: what the checkpoint has in place of
  // ".weight".
  virtual const char* codes_ending() const { return ".weight"; }
  // Endings of the tensors that belong to the codes.
  virtual std::vector<std::string> companion_endings() const = 0;
  // A weight with its scales, of a module whose codes are stored in no plain float format.
  virtual Tensor weight(const ModuleParts&) const = 0;
};

// Null when the field is absent. A scheme that is unknown or unfinished is Error::unsupported.
std::unique_ptr<WeightScheme> parse_quantization_config(const JsonField& field);
// The "quantization" object of hf_quant_config.json.
std::unique_ptr<WeightScheme> parse_modelopt_config(const JsonField& field);

// The schemes, by "quant_method".
std::unique_ptr<WeightScheme> read_fp8_scheme(const JsonField& field);
std::unique_ptr<WeightScheme> read_modelopt_scheme(const JsonField& field);
std::unique_ptr<WeightScheme> read_compressed_tensors_scheme(const JsonField& field);
std::unique_ptr<WeightScheme> read_mxfp4_scheme(const JsonField& field);

// --- weights of codes and scales, checked --------------------------------------------------------

void check_names(const JsonField& field);  // an array of strings, or absent

// fp8 or int8 codes with plain float or ue8m0 scales at `ending`: one, one a row ([N] or [N, 1]),
// or one a block of `rows` x `cols`, where these are given.
Tensor scaled_weight(const ModuleParts&, const Tensor& codes, const char* ending, int64_t rows = 0,
                     int64_t cols = 0);
// U8 pairs [N, K/2] with E4M3 scales [N, K/16]; `tensor_scale` multiplies.
Tensor nvfp4_weight(const ModuleParts&, const char* codes, float tensor_scale);
// The one f32 of a tensor, finite and not negative.
float scalar_of(const ModuleParts&, const char* ending);
// U8 pairs (mxfp4) or E4M3 codes (mxfp8) with UE8M0 scales, stored as U8 or F8_E8M0, a 32 elements.
Tensor mx_weight(const ModuleParts&, const char* codes, const char* scales);

}  // namespace halftone
