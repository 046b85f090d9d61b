// quant_method "compressed-tensors" (LLM Compressor, vLLM). Formats by group of modules:
//   float-quantized        F8_E4M3 [N, K], weight_scale one, a row [N, 1] or a block
//   int-quantized          I8 [N, K], weight_scale one or a row
//   naive-quantized        either of these
//   pack-quantized         weight_packed I32 [N, K/8] of 4-bit codes + 8, low bits first;
//   weight_scale
//                          a group, weight_shape [2]
//   nvfp4-pack-quantized   weight_packed U8, weight_scale E4M3 per 16, weight_global_scale divides
//   mxfp4-pack-quantized   weight_packed U8, weight_scale UE8M0 per 32
//   mxfp8-quantized        F8_E4M3, weight_scale UE8M0 per 32
// Activations stay in 16 or 32 bits, whatever input_activations says.
#include "engine/checkpoint/scheme.h"
#include "engine/limits.h"

namespace halftone {

namespace {

// The codes of packed formats have a name of their own; the checkpoint may hold both kinds.
class CompressedTensorsScheme : public WeightScheme {
 public:
  std::string describe() const override { return "compressed-tensors " + formats; }
  const char* codes_ending() const override { return ".weight_packed"; }
  std::vector<std::string> companion_endings() const override {
    return {".weight_scale", ".weight_global_scale", ".weight_shape", ".weight_zero_point",
            ".weight_g_idx"};
  }
  Tensor weight(const ModuleParts& parts) const override {
    for (const char* unknown : {".weight_zero_point", ".weight_g_idx"}) {
      if (parts.has(unknown)) {
        parts.unsupported(unknown, " is there; symmetric weights in their own order are read");
      }
    }
    if (!parts.has(".weight_packed")) return unpacked(parts);
    const Tensor codes = parts.get(".weight_packed");
    if (codes.format() == Format::i32) return int4(parts, codes);
    if (parts.has(".weight_global_scale")) {
      const float divisor = scalar_of(parts, ".weight_global_scale");
      if (divisor == 0) parts.malformed(".weight_global_scale", " is 0; it divides the weight");
      return nvfp4_weight(parts, ".weight_packed", 1 / divisor);
    }
    return mx_weight(parts, ".weight_packed", ".weight_scale");
  }

  std::string formats;
  int64_t block_rows = 0, block_cols = 0;

 private:
  Tensor unpacked(const ModuleParts& parts) const {
    const Tensor codes = parts.get(".weight");
    const Format scales = parts.get(".weight_scale").format();
    if (codes.format() == Format::fp8_e4m3 && (scales == Format::u8 || scales == Format::ue8m0)) {
      return mx_weight(parts, ".weight", ".weight_scale");
    }
    if (codes.format() == Format::fp8_e4m3 || codes.format() == Format::int8) {
      return scaled_weight(parts, codes, ".weight_scale", block_rows, block_cols);
    }
    parts.malformed(".weight", " is ", to_string(codes), "; the checkpoint's quantisation is ",
                    describe());
  }

  // The words' bytes in memory order are two codes each, low one first: the layout of Format::int4.
  Tensor int4(const ModuleParts& parts, const Tensor& words) const {
    const Tensor stated = parts.get(".weight_shape");
    const bool fits = stated.format() == Format::i64 && stated.numel() == 2 && words.rank() == 2;
    if (!fits) parts.malformed(".weight_shape", " is ", to_string(stated), "; it must be I64 [2]");
    const Shape shape{stated.data<int64_t>()[0], stated.data<int64_t>()[1]};
    if (shape[0] != words.size(0) || shape[1] < 1 || shape[1] > kMaxWidth ||
        shape[1] != 8 * words.size(1)) {
      parts.malformed(".weight_packed", " is ", to_string(words), "; a weight of 4 bits ",
                      to_string(shape), " needs i32 [N, K/8] with K a multiple of 8");
    }
    const Tensor scales = parts.get(".weight_scale");
    if (!is_plain_float(scales.format()) || scales.rank() != 2 || scales.size(0) != shape[0] ||
        scales.size(1) < 1 || shape[1] % scales.size(1) != 0) {
      parts.malformed(".weight_scale", " is ", to_string(scales), "; a weight ", to_string(shape),
                      " needs plain floats [N, groups], the groups of equal size");
    }
    const int64_t group = scales.size(1) == 1 ? 0 : shape[1] / scales.size(1);
    const auto owner = std::make_shared<const Tensor>(words);
    return Tensor::share(owner, words.data(), shape, row_major(shape), Format::int4)
        .quantized({scales.format(), 1, group}, scales);
  }
};

void check_weights(const JsonField& weights, const std::string& format,
                   CompressedTensorsScheme& scheme) {
  const JsonField bits = weights["num_bits"], type = weights["type"];
  const bool four = format.find("fp4") != std::string::npos || format == "pack-quantized";
  if (const int64_t given = bits.integer_or(four ? 4 : 8, 1, 64); given != (four ? 4 : 8)) {
    bits.unsupported(" is ", given, "; ", quote(format), " is read with ", four ? 4 : 8, " bits");
  }
  const bool integers = format == "pack-quantized" || format == "int-quantized";
  const std::string kind = type.text_or(integers ? "int" : "float");
  if (format != "naive-quantized" && kind != (integers ? "int" : "float")) {
    type.malformed(" is ", quote(kind), ", but the format is ", quote(format));
  }
  if (!weights["symmetric"].boolean_or(true)) {
    weights["symmetric"].unsupported(" is false; symmetric weights are read");
  }
  const JsonField order = weights["actorder"];
  if (const std::string o = order.text_or("static"); o != "static" && o != "weight") {
    order.unsupported(" is ", quote(o), "; groups of neighbouring columns are read");
  }
  const JsonField group = weights["group_size"];
  const int64_t defined = format.find("nvfp4") == 0 ? 16 : format.find("mx") == 0 ? 32 : 0;
  if (defined > 0 && group.integer_or(defined, -1, kMaxWidth) != defined) {
    group.malformed(" is ", group.integer(-1, kMaxWidth), "; ", quote(format),
                    " is defined with groups of ", defined);
  }
  const JsonField strategy = weights["strategy"];
  if (strategy.text_or("") == "block") {
    const JsonField block = weights["block_structure"];
    const std::vector<JsonField> sizes = block.items();
    if (sizes.size() != 2) block.expected("an array [rows, columns]");
    scheme.block_rows = sizes[0].integer(1, kMaxWidth);
    scheme.block_cols = sizes[1].integer(1, kMaxWidth);
  }
}

}  // namespace

std::unique_ptr<WeightScheme> read_compressed_tensors_scheme(const JsonField& field) {
  const JsonField sparsity = field["sparsity_config"];
  if (const std::string s = sparsity["format"].text_or("dense"); s != "dense") {
    sparsity["format"].unsupported(" is ", quote(s), "; dense checkpoints are read");
  }
  const JsonField status = field["quantization_status"];
  if (const std::string s = status.text_or("compressed"); s != "compressed") {
    status.unsupported(" is ", quote(s), "; \"compressed\" checkpoints are read");
  }
  auto scheme = std::make_unique<CompressedTensorsScheme>();
  const JsonField groups = field["config_groups"];
  for (const Json::Member& member : groups.members()) {
    const JsonField group = groups[member.key];
    const JsonField own = group["format"];
    const JsonField format = own.present() ? own : field["format"];
    const std::string& name = format.text();
    const char* const known[] = {"float-quantized", "int-quantized",        "naive-quantized",
                                 "pack-quantized",  "nvfp4-pack-quantized", "mxfp4-pack-quantized",
                                 "mxfp8-quantized"};
    bool found = false;
    std::string names;
    for (const char* k : known) {
      found = found || name == k;
      names += concat(names.empty() ? "" : ", ", k);
    }
    if (!found) format.unsupported(" is ", quote(name), "; these are read: ", names);
    check_weights(group["weights"], name, *scheme);
    if (scheme->formats.find(name) == std::string::npos) {
      scheme->formats += (scheme->formats.empty() ? "" : ", ") + name;
    }
  }
  if (scheme->formats.empty()) groups.expected("an object with at least one group");
  check_names(field["ignore"]);
  return scheme;
}

}  // namespace halftone
