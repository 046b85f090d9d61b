#include "engine/checkpoint/written_parts.h"

namespace halftone {

namespace {

Tensor itself(const Tensor& w) { return w; }
Tensor scales_of(const Tensor& w) { return w.scales(); }

// The same bytes under another format.
Tensor bytes_as(const Tensor& t, const Shape& shape, Format format) {
  return Tensor::share(std::make_shared<const Tensor>(t), t.data(), shape, row_major(shape),
                       format);
}

std::vector<WrittenPart> mx_parts(Format format, const Shape& shape) {
  const Shape groups{shape[0], shape[1] / 32};
  const auto exponents = [](const Tensor& w) {
    return bytes_as(w.scales(), w.scales().shape(), Format::u8);
  };
  if (format == Format::mxfp8) {
    const auto codes = [](const Tensor& w) { return bytes_as(w, w.shape(), Format::fp8_e4m3); };
    return {{".weight", Format::fp8_e4m3, shape, codes},
            {".weight_scale", Format::u8, groups, exponents}};
  }
  const auto pairs = [](const Tensor& w) {
    return bytes_as(w, {w.size(0), w.size(1) / 2}, Format::u8);
  };
  return {{".weight_packed", Format::u8, {shape[0], shape[1] / 2}, pairs},
          {".weight_scale", Format::u8, groups, exponents}};
}

// Eight codes a word, low bits first: the bytes as they are.
std::vector<WrittenPart> int4_parts(const Scaling& scaling, const Shape& shape) {
  const int64_t group = scaling.block_cols == 0 ? shape[1] : scaling.block_cols;
  const bool fits =
      scaling.block_rows == 1 && !scaling.asymmetric && shape[1] % 8 == 0 && shape[1] % group == 0;
  if (!fits) return {};
  const auto words = [](const Tensor& w) {
    return bytes_as(w, {w.size(0), w.size(1) / 8}, Format::i32);
  };
  const auto extents = [](const Tensor& w) {
    const int64_t values[] = {w.size(0), w.size(1)};
    return Tensor::from<int64_t>(values, {2}, Format::i64);
  };
  return {{".weight_packed", Format::i32, {shape[0], shape[1] / 8}, words},
          {".weight_scale", scaling.format, {shape[0], shape[1] / group}, scales_of},
          {".weight_shape", Format::i64, {2}, extents}};
}

}  // namespace

std::vector<WrittenPart> written_parts(const KeptFormat& kept, const Shape& shape) {
  if (!kept.scaled) return {{".weight", kept.format, shape, itself}};
  const Scaling& s = kept.scaling;
  switch (kept.format) {
    case Format::nvfp4:
      return {{".weight", Format::nvfp4, shape, itself},
              {".weight_scale", Format::fp8_e4m3, {shape[0], shape[1] / 16}, scales_of},
              {".weight_scale_2", Format::f32, Shape{},
               [](const Tensor& w) { return w.tensor_scale().reshape(Shape{}); }}};
    case Format::mxfp8:
    case Format::mxfp4:
      return mx_parts(kept.format, shape);
    case Format::int4:
      return int4_parts(s, shape);
    case Format::fp8_e4m3:
      if (s.block_rows > 0 && s.block_cols > 0) {
        const Shape blocks{(shape[0] + s.block_rows - 1) / s.block_rows,
                           (shape[1] + s.block_cols - 1) / s.block_cols};
        if (s.block_rows == 1) return {};
        return {{".weight", kept.format, shape, itself},
                {".weight_scale_inv", s.format, blocks, scales_of}};
      }
      break;
    case Format::int8:
      if (s.block_rows != 1) return {};
      break;
    default:
      return {};
  }
  // One scale a row or a tensor.
  if (s.block_cols != 0 || s.block_rows > 1) return {};
  if (s.block_rows == 1) {
    return {{".weight", kept.format, shape, itself},
            {".weight_scale", s.format, {shape[0], 1}, scales_of}};
  }
  // Loaders take the one scale of a tensor as [1], not as a row of a matrix.
  return {{".weight", kept.format, shape, itself},
          {".weight_scale", s.format, {1}, [](const Tensor& w) {
             return w.scales().reshape(Shape{1});
           }}};
}

const char* compressed_tensors_format(Format format) {
  switch (format) {
    case Format::fp8_e4m3:
      return "float-quantized";
    case Format::int8:
      return "int-quantized";
    case Format::int4:
      return "pack-quantized";
    case Format::mxfp8:
      return "mxfp8-quantized";
    case Format::mxfp4:
      return "mxfp4-pack-quantized";
    default:
      return nullptr;
  }
}

}  // namespace halftone
