// What can be quantised how, and the memory that it takes.
#include <algorithm>
#include <cmath>

#include "base/message.h"
#include "formats/codec.h"
#include "formats/gpu/kernels.h"
#include "formats/recipe.h"
#include "formats/scale_shape.h"
#include "halftone/quantize.h"

namespace halftone {

Shape scale_shape(const Shape& shape, const Scaling& scaling) {
  Shape result = shape;
  const int last = shape.rank() - 1;
  const auto blocks = [](int64_t extent, int64_t block) {
    return block == 0 ? 1 : (extent + block - 1) / block;
  };
  result[last] = blocks(shape[last], scaling.block_cols);
  if (last > 0) result[last - 1] = blocks(shape[last - 1], scaling.block_rows);
  return result;
}

Support can_quantize(const Shape& shape, const QuantizeOptions& options) {
  const auto no = [](auto&&... parts) { return Support{false, concat(parts...)}; };
  const Format format = options.format;
  const Scaling& scaling = options.scaling;
  if (!is_quantised(format)) {
    std::string names;
    for (const Format f : kElementFormats) names += concat(names.empty() ? "" : ", ", name(f));
    return no("format ", name(format), " has no quantisation; choose one of ", names);
  }
  if (shape.rank() < 1) return no("x has rank 0; quantize needs at least one dimension");
  const int64_t columns = shape[shape.rank() - 1];
  if (is_block(format)) {
    Scaling defined = default_scaling(format);
    defined.layout = scaling.layout;
    if (!(scaling == defined)) {
      return no("scaling ", to_string(scaling), " does not fit ", name(format),
                ", which is defined with ", to_string(default_scaling(format)), " scales");
    }
    if (columns % scaling.block_cols != 0) {
      return no("the last dimension of x, ", columns, ", is not a multiple of ", scaling.block_cols,
                ", the block of ", name(format));
    }
  } else {
    const bool power_of_two = scaling.format == Format::ue8m0 && is_fp8(format);
    if (!is_plain_float(scaling.format) && !power_of_two) {
      return no("scales of ", name(format), " are f32, f16, bf16",
                is_fp8(format) ? " or ue8m0" : "", ", not ", name(scaling.format));
    }
    if (scaling.block_rows < 0 || scaling.block_cols < 0) {
      return no("scaling ", to_string(scaling), " has a negative block");
    }
  }
  if (format == Format::int4) {
    if (scaling.block_rows != 1) {
      return no("int4 scales lie within one row: block_rows is ", scaling.block_rows,
                " and must be 1");
    }
    if (scaling.block_cols % 2 != 0 || columns % 2 != 0) {
      return no("int4 packs two elements a byte: the last dimension, ", columns,
                ", and the group, ", scaling.block_cols, ", must be even");
    }
  }
  if (scaling.asymmetric && !may_have_zero_points(format)) {
    return no("only int4 has zero points; ", name(format), " is symmetric");
  }
  if (scaling.layout != ScaleLayout::linear &&
      (bits(scaling.format) != 8 || scaling.block_rows != 1)) {
    return no("scale layout ", name(scaling.layout),
              " arranges one-byte scales of single rows, not ", to_string(scaling));
  }
  if (options.tensor_scale) {
    if (!has_tensor_scale(format)) {
      return no("only nvfp4 has a tensor scale; ", name(format), " has none");
    }
    if (!(*options.tensor_scale > 0 && std::isfinite(*options.tensor_scale))) {
      return no("tensor_scale is ", *options.tensor_scale, "; it must be finite and above 0");
    }
  }
  return {};
}

Tensor empty_quantized(const Shape& shape, const QuantizeOptions& options) {
  return empty_quantized(shape, options, Device::cpu());
}
Tensor empty_quantized(const Shape& shape, const QuantizeOptions& options, const Device& device) {
  const Support support = can_quantize(shape, options);
  require(support.ok, "empty_quantized: ", support.reason);
  const Scaling& scaling = options.scaling;
  const Shape linear = scale_shape(shape, scaling);
  Shape scales = linear;
  if (scaling.layout != ScaleLayout::linear) {
    const int64_t groups = linear[linear.rank() - 1];
    const int64_t rows = linear.rank() > 1 ? linear[linear.rank() - 2] : 1;
    int64_t matrices = 1;
    for (int i = 0; i < linear.rank() - 2; ++i) matrices *= linear[i];
    scales = {matrices * scale_layout_bytes(scaling.layout, rows, groups)};
  }
  return Tensor::empty(shape, options.format, device)
      .quantized(scaling, Tensor::zeros(scales, scaling.format, device),
                 has_tensor_scale(options.format) ? Tensor::from({1.0f}, {1}).to(device) : Tensor(),
                 scaling.asymmetric ? Tensor::zeros(linear, Format::u8, device) : Tensor());
}

}  // namespace halftone
