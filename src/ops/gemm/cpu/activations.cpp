#include "ops/gemm/cpu/activations.h"

#include <algorithm>
#include <vector>

#include "base/message.h"
#include "formats/row_quantizer.h"
#include "formats/scale_layout.h"

namespace halftone::gemm {

namespace {

// A buffer of the thread that grows to the longest row once.
template <class T>
T* scratch(int64_t count) {
  thread_local std::vector<T> buffer;
  if (buffer.size() < static_cast<size_t>(count)) buffer.resize(static_cast<size_t>(count));
  return buffer.data();
}

float scale_at(Format format, const uint8_t* scales, int64_t i) {
  return read_scale(format, scales + i * halftone::scale_bytes(format));
}

// The scales of row `row` of x, decoded.
void read_scales(const Tensor& x, int64_t row, int64_t groups, float* out) {
  const Scaling& s = x.scaling();
  const auto* base = x.scales().data<uint8_t>();
  if (s.layout != ScaleLayout::linear) {
    for (int64_t g = 0; g < groups; ++g) {
      out[g] = decode_scale(s.format, base[scale_offset(s.layout, x.size(0), groups, row, g)]);
    }
    return;
  }
  const Tensor& t = x.scales();
  const int64_t first = s.block_rows > 0 ? row / s.block_rows * t.stride(0) : 0;
  for (int64_t g = 0; g < groups; ++g) {
    out[g] = scale_at(s.format, base, first + g * t.stride(1));
  }
}

bool is_code_format(Format f) { return is_fp8(f) || is_block(f) || f == Format::int8; }

}  // namespace

std::string refuse_x(const XSpec& x, int64_t k) {
  if (x.quantize) {
    if (!is_plain_float(x.format)) {
      return concat("x is ", name(x.format), "; only f32, f16 and bf16 are quantised on the way");
    }
    const QuantizeOptions& q = *x.quantize;
    if (!is_code_format(q.format)) {
      return concat("x is to be quantised to ", name(q.format),
                    "; it must be fp8, a block format or int8");
    }
    // One scale for several rows would make a row's result depend on the others.
    const bool given = q.scaling.block_rows == 0 && q.scaling.block_cols == 0 && q.tensor_scale;
    if (q.scaling.block_rows != 1 && !given) {
      return concat("x is to be quantised with ", to_string(q.scaling),
                    " scales; they must lie within one row, or be one for the tensor given as "
                    "tensor_scale");
    }
    QuantizeOptions within = q;
    if (!has_tensor_scale(q.format)) within.tensor_scale.reset();
    within.scaling.layout = ScaleLayout::linear;
    const Support support = can_quantize({1, k}, within);
    return support.ok ? "" : concat("x is to be quantised: ", support.reason);
  }
  if (is_plain_float(x.format)) {
    return x.scaled ? concat("x is ", name(x.format), " with scales; only codes have them") : "";
  }
  if (!is_code_format(x.format)) {
    return concat("x is ", name(x.format),
                  "; it must be f32, f16, bf16, fp8, a block format or int8");
  }
  if (k % elements_of_unit(x.format) != 0) {
    return concat("x is ", name(x.format), " with K = ", k, ": K must be a multiple of ",
                  elements_of_unit(x.format), ", whole bytes of codes");
  }
  if (!x.scaled) {
    return is_block(x.format) ? concat("x is ", name(x.format), " without scales; attach them")
                              : "";
  }
  const Scaling& s = x.scaling;
  if (s.block_rows < 0 || s.block_cols < 0 || s.asymmetric) {
    return concat("x has ", to_string(s), " scales; they must be symmetric blocks");
  }
  if (s.layout != ScaleLayout::linear &&
      (bits(s.format) != 8 || s.block_rows != 1 || s.block_cols < 1)) {
    return concat("x has ", to_string(s), " scales; tiled ones are bytes of single rows");
  }
  if (is_block(x.format) && s.block_cols > 0 && k % s.block_cols != 0) {
    return concat("x is ", name(x.format), " with K = ", k, ": K must be a multiple of the group, ",
                  s.block_cols);
  }
  return "";
}

XRows::XRows(const XSpec& spec, bool octets, int64_t k)
    : spec_(spec), codes_(spec.format), packed_(spec.format), octets_(octets), k_(k) {
  if (spec.quantize) {
    recipe_ = make_recipe(*spec.quantize);
    codes_ = spec.quantize->format;
    spec_.scaled = true;
    spec_.scaling = spec.quantize->scaling;
  }
  if (is_plain_float(codes_)) return;
  packed_ = Format::bf16;
  const Scaling& s = spec_.scaling;
  group_ = spec_.scaled && s.block_cols > 0 ? s.block_cols : k;
  groups_ = ceil_div(k, group_);
  const bool four_bits = bits(codes_) < 8;
  if (!spec_.scaled || s.block_cols == 0) {
    kind_ = Kind::row;
  } else if (s.format == Format::ue8m0 || (four_bits && s.format == Format::fp8_e4m3)) {
    kind_ = Kind::exact;
  } else if (octets && group_ % 16 == 0) {
    kind_ = Kind::lanes;
  } else {
    kind_ = Kind::rounded;
    packed_ = Format::f32;
  }
}

int64_t XRows::panel_bytes(const Kernels& kernels, int64_t m) const {
  const int64_t block = int64_t{kernels.chunk} * kernels.block_chunks;
  return m * ceil_div(k_, block) * block * kernels.element_bytes;
}

int64_t XRows::scale_bytes(const Kernels& kernels, int64_t m) const {
  if (kind_ != Kind::lanes) return 0;
  const int64_t block = int64_t{kernels.chunk} * kernels.block_chunks;
  return m * ceil_div(k_, block) * kernels.block_chunks * kernels.lanes * 4;
}

// Lane d of a chunk holds its elements from d * per_lane on.
void XRows::spread(const Kernels& kernels, const float* scales, const Panel& panel,
                   int64_t to) const {
  const int64_t per_lane = kernels.chunk / kernels.lanes;
  const int64_t lanes = int64_t{kernels.block_chunks} * kernels.lanes;
  for (int64_t lane0 = 0, b = 0; lane0 * per_lane < k_; lane0 += lanes, ++b) {
    float* out = panel.scales + (b * panel.m + to) * lanes;
    for (int64_t i = 0; i < lanes; ++i) {
      const int64_t g = (lane0 + i) * per_lane / group_;
      out[i] = g < groups_ ? scales[g] : 0;
    }
  }
}

void XRows::pack_codes(const Kernels& kernels, const uint8_t* codes, const float* scales,
                       float row_scale, const Panel& panel, int64_t to) const {
  const int64_t block_bytes = int64_t{kernels.chunk} * kernels.block_chunks * kernels.element_bytes;
  char* out = static_cast<char*>(panel.x) + to * block_bytes;
  const FormatKernels& formats = format_kernels();
  const void* values = codes;
  if (packed_ == Format::f32) {
    float* row = scratch<float>(k_);
    formats.dequantize_row(codes_, codes, k_, {scales, nullptr, group_, row_scale}, packed_, row);
    values = row;
  } else if (packed_ == Format::bf16) {
    uint16_t* row = scratch<uint16_t>(k_);
    if (kind_ == Kind::exact) {
      formats.dequantize_row(codes_, codes, k_, {scales, nullptr, group_, 1.0f}, packed_, row);
    } else {
      formats.decode_bf16(codes_, codes, k_, row);
    }
    values = row;
  }
  kernels.pack(values, packed_, octets_, k_, out, panel.m * block_bytes);
  if (integer()) {
    int32_t sum = 0;
    for (int64_t i = 0; i < k_; ++i) sum += static_cast<int8_t>(codes[i]);
    panel.row_offsets[to] = static_cast<uint32_t>(sum) * static_cast<uint32_t>(kernels.weight_bias);
  }
  if (kind_ == Kind::lanes) spread(kernels, scales, panel, to);
  if (has_row_scales()) {
    panel.row_scales[to] = kind_ == Kind::row ? scales[0] * row_scale : row_scale;
  }
}

void XRows::pack(const Kernels& kernels, const Tensor& x, int64_t row, const Panel& panel,
                 int64_t to) const {
  const uint8_t* data = x.data<uint8_t>() + row * x.stride(0) * bits(x.format()) / 8;
  if (is_plain_float(x.format())) return pack(kernels, data, x.format(), panel, to);
  std::vector<float>& scales = [&]() -> std::vector<float>& {
    thread_local std::vector<float> buffer;
    buffer.assign(static_cast<size_t>(groups_), 1.0f);
    return buffer;
  }();
  if (x.has_scales()) read_scales(x, row, groups_, scales.data());
  pack_codes(kernels, data, scales.data(), x.has_scales() ? x.tensor_scale_value() : 1.0f, panel,
             to);
}

void XRows::pack(const Kernels& kernels, const void* x, Format format, const Panel& panel,
                 int64_t to) const {
  if (!spec_.quantize) {
    const int64_t block_bytes =
        int64_t{kernels.chunk} * kernels.block_chunks * kernels.element_bytes;
    kernels.pack(x, format, octets_, k_, static_cast<char*>(panel.x) + to * block_bytes,
                 panel.m * block_bytes);
    return;
  }
  const FormatKernels& formats = format_kernels();
  thread_local std::vector<uint8_t> codes, stored;
  thread_local std::vector<float> scales;
  codes.resize(static_cast<size_t>(k_));
  stored.resize(static_cast<size_t>(groups_) * 4);
  scales.assign(static_cast<size_t>(groups_), 1.0f);
  const QuantizeOptions& q = *spec_.quantize;
  if (q.scaling.block_rows == 0) {  // one given scale
    formats.encode(format, codes_, x, k_, 1.0f / *q.tensor_scale, kInt4Zero, codes.data());
    return pack_codes(kernels, codes.data(), &*q.tensor_scale, 1.0f, panel, to);
  }
  Recipe recipe = recipe_;
  if (has_tensor_scale(codes_) && !q.tensor_scale) {
    // A tensor scale for each row, so that rows do not depend on one another.
    const float amax = bits_float(formats.amax(format, x, k_));
    if (amax < bits_float(kInfinityBits)) set_tensor_amax(amax, &recipe);
  }
  formats.quantize_row(recipe, format, x, k_, codes.data(), stored.data(), nullptr);
  for (int64_t g = 0; g < groups_; ++g) {
    scales[static_cast<size_t>(g)] = scale_at(recipe.scale_format, stored.data(), g);
  }
  pack_codes(kernels, codes.data(), scales.data(), recipe.tensor_scale, panel, to);
}

}  // namespace halftone::gemm
