#include "engine/checkpoint/scheme.h"

#include <cmath>
#include <limits>

namespace halftone {

std::unique_ptr<WeightScheme> parse_quantization_config(const JsonField& field) {
  if (!field.present()) return nullptr;
  const JsonField method = field["quant_method"];
  const std::string& name = method.text();
  if (name == "fp8") return read_fp8_scheme(field);
  if (name == "modelopt" || name == "modelopt_fp4") return read_modelopt_scheme(field);
  if (name == "compressed-tensors") return read_compressed_tensors_scheme(field);
  if (name == "mxfp4") return read_mxfp4_scheme(field);
  method.unsupported(" is ", quote(name),
                     "; \"fp8\", \"modelopt\", \"compressed-tensors\" and \"mxfp4\" are read");
}

std::unique_ptr<WeightScheme> parse_modelopt_config(const JsonField& field) {
  return read_modelopt_scheme(field);
}

void check_names(const JsonField& field) {
  for (const JsonField& item : field.items()) item.text();
}

// --- modules -------------------------------------------------------------------------------------

std::string ModuleParts::place(const std::string& ending) const {
  const StoredTensor* entry = store_.find(module_ + ending);
  return concat(entry != nullptr ? store_.path_of(*entry) + ": " : "", "tensor ",
                quote(module_ + ending));
}

Tensor ModuleParts::get(const char* ending) const {
  if (!has(ending)) {
    fail(ErrorCode::malformed_file, "tensor ", quote(module_ + ".weight"), " has no ",
         quote(module_ + ending), " beside it");
  }
  return store_.tensor(module_ + ending);
}

// --- weights -------------------------------------------------------------------------------------

namespace {

// The same bytes read as another format.
Tensor reinterpret(const Tensor& bytes, const Shape& shape, Format format) {
  const auto owner = std::make_shared<const Tensor>(bytes);  // keeps the file mapped
  return Tensor::share(owner, bytes.data(), shape, row_major(shape), format);
}

Shape unpacked_shape(const ModuleParts& parts, const char* ending, const Tensor& bytes) {
  const bool fits = bytes.format() == Format::u8 && bytes.rank() >= 2 && bytes.rank() <= 4 &&
                    bytes.size(-1) <= std::numeric_limits<int64_t>::max() / 2;
  if (!fits) {
    parts.malformed(ending, " is ", to_string(bytes), "; packed codes are U8 [N, K/2]");
  }
  Shape shape = bytes.shape();
  shape[shape.rank() - 1] *= 2;
  return shape;
}

}  // namespace

Tensor scaled_weight(const ModuleParts& parts, const Tensor& codes, const char* ending,
                     int64_t rows, int64_t cols) {
  if (codes.rank() != 2) {
    parts.malformed(".weight", " is ", to_string(codes), "; a weight has two dimensions");
  }
  Tensor scales = parts.get(ending);
  if (!is_plain_float(scales.format()) && scales.format() != Format::ue8m0) {
    parts.malformed(ending, " is ", to_string(scales), "; scales are F32, BF16, F16 or F8_E8M0");
  }
  const int64_t n = codes.size(0), k = codes.size(1);
  Scaling scaling{scales.format(), rows, cols};
  Shape expected{1, 1};
  if (rows > 0 && cols > 0) {
    expected = {(n + rows - 1) / rows, (k + cols - 1) / cols};
  } else if (scales.numel() != 1 || scales.rank() == 2) {
    if (scales.numel() == 1) {
      expected = {1, 1};
      if (n == 1) scaling.block_rows = 1;
    } else {
      scaling.block_rows = 1;
      expected = {n, 1};
    }
  }
  const bool shorter =
      (rows == 0 || cols == 0) && scales.rank() < 2 && scales.numel() == element_count(expected);
  if (shorter) scales = scales.reshape(expected);
  if (scales.shape() != expected) {
    parts.malformed(ending, " is ", to_string(scales), "; weight ", to_string(codes.shape()),
                    rows > 0 ? concat(" in blocks of ", rows, "x", cols) : std::string(), " needs ",
                    to_string(expected), rows > 0 ? "" : " or one value");
  }
  return codes.quantized(scaling, scales);
}

float scalar_of(const ModuleParts& parts, const char* ending) {
  const Tensor value = parts.get(ending);
  if (value.format() != Format::f32 || value.numel() != 1) {
    parts.malformed(ending, " is ", to_string(value), "; it must be one F32");
  }
  const float scalar = *value.data<float>();
  if (!(scalar >= 0) || !std::isfinite(scalar)) {
    parts.malformed(ending, " is ", scalar, "; it must be finite and not negative");
  }
  return scalar;
}

Tensor nvfp4_weight(const ModuleParts& parts, const char* codes, float tensor_scale) {
  const Tensor bytes = parts.get(codes);
  const Shape shape = unpacked_shape(parts, codes, bytes);
  if (shape.rank() != 2) {
    parts.malformed(codes, " is ", to_string(bytes), "; a weight has two dimensions");
  }
  const Tensor scales = parts.get(".weight_scale");
  const Shape expected{shape[0], (shape[1] + 15) / 16};
  if (scales.format() != Format::fp8_e4m3 || scales.shape() != expected) {
    parts.malformed(".weight_scale", " is ", to_string(scales), "; an NVFP4 weight ",
                    to_string(shape), " needs fp8_e4m3 ", to_string(expected));
  }
  return reinterpret(bytes, shape, Format::nvfp4)
      .quantized({Format::fp8_e4m3, 1, 16}, scales, Tensor::from({tensor_scale}, {1}));
}

Tensor mx_weight(const ModuleParts& parts, const char* codes, const char* scales) {
  Tensor stored = parts.get(codes);
  const Shape& s = stored.shape();
  // gpt-oss keeps the groups of 16 bytes apart.
  if (s.rank() == 4 && s[3] == 16) stored = stored.reshape({s[0], s[1], s[2] * s[3]});
  const bool packed = stored.format() == Format::u8;
  if (!packed && (stored.format() != Format::fp8_e4m3 || stored.rank() < 2)) {
    parts.malformed(codes, " is ", to_string(stored),
                    "; codes with a scale a 32 are U8 [N, K/2] or F8_E4M3 [N, K]");
  }
  const Shape shape = packed ? unpacked_shape(parts, codes, stored) : stored.shape();
  Shape expected = shape;
  expected[expected.rank() - 1] = (shape[shape.rank() - 1] + 31) / 32;
  const Tensor exponents = parts.get(scales);
  const bool bytes = exponents.format() == Format::u8 || exponents.format() == Format::ue8m0;
  if (!bytes || exponents.shape() != expected) {
    parts.malformed(scales, " is ", to_string(exponents), "; a weight ", to_string(shape),
                    " needs u8 ", to_string(expected));
  }
  return reinterpret(stored, shape, packed ? Format::mxfp4 : Format::mxfp8)
      .quantized({Format::ue8m0, 1, 32}, reinterpret(exponents, expected, Format::ue8m0));
}

}  // namespace halftone
