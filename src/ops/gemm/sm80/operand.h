// An operand of a GEMM on a GPU: values and scales in the layout of its tensor.
#pragma once
#include "formats/recipe.h"
#include "formats/scale_layout.h"
#include "pipe/codes.h"

namespace halftone::gemm {

// The layout that both halves of a gate, and all experts of a layer, have in common. Strides in
// bytes.
struct GpuLayout {
  int64_t row_bytes = 0, row_step = 1;  // rows of the operand are every row_step-th of the tensor
  int64_t scale_row = 0,
          scale_step = 0;  // to the next row of scale blocks, to the next group of a row
  int64_t zero_row = 0, zero_step = 0;
  uint32_t tensor_rows = 0, columns = 0;
  uint32_t block_rows = 0;  // that share a scale; 0: all
  uint32_t group = 0;       // columns that share a scale; 0: the whole row
  Format format = Format::f32, scale_format = Format::f32;
  ScaleLayout scales = ScaleLayout::linear;
};
// And the addresses of one matrix.
struct alignas(16) GpuSource {
  const uint8_t* data = nullptr;
  const uint8_t* scales = nullptr;      // null: 1
  const uint8_t* zeros = nullptr;       // asymmetric INT4, u8
  const float* tensor_scale = nullptr;  // null: 1
  int64_t first_row = 0;                // of the tensor
};

HT_DEVICE GpuSource load_source(const GpuSource* from, hw::Site site = hw::Site::current()) {
  struct Words {
    hw::Words4 at[sizeof(GpuSource) / 16];
  } words;
  const auto* source = reinterpret_cast<const hw::Words4*>(from);
  HT_UNROLL
  for (uint32_t i = 0; i < sizeof(GpuSource) / 16; ++i) {
    words.at[i] = hw::load_global(source + i, site);
  }
  return std::bit_cast<GpuSource>(words);
}

HT_DEVICE void store_source(GpuSource* to, const GpuSource& source,
                            hw::Site site = hw::Site::current()) {
  struct Words {
    hw::Words4 at[sizeof(GpuSource) / 16];
  };
  const auto words = std::bit_cast<Words>(source);
  HT_UNROLL
  for (uint32_t i = 0; i < sizeof(GpuSource) / 16; ++i) {
    hw::store_global(reinterpret_cast<hw::Words4*>(to) + i, words.at[i], site);
  }
}

HT_DEVICE const uint8_t* row_address(const GpuLayout& l, const GpuSource& s, uint32_t row) {
  return s.data + (s.first_row + row * l.row_step) * l.row_bytes;
}

// The scale block of a row of the tensor. In 32 bits, and mostly without a division: a 64-bit one
// is a hundred instructions, which GEMVs run for every tile.
HT_DEVICE uint32_t block_of_row(const GpuLayout& l, int64_t row) {
  const auto r = static_cast<uint32_t>(row);
  return l.block_rows == 1 ? r : l.block_rows > 0 ? r / l.block_rows : 0;
}

// The address of a scale, and how to load it: loads are issued early, decoded late.
HT_DEVICE const uint8_t* scale_address(const GpuLayout& l, const GpuSource& s, uint32_t row,
                                       uint32_t column) {
  const int64_t r = s.first_row + row * l.row_step;
  const uint32_t g = l.group > 0 ? column / l.group : 0;
  if (l.scales != ScaleLayout::linear) {
    return s.scales +
           scale_offset(l.scales, l.tensor_rows, (l.columns + l.group - 1) / l.group, r, g);
  }
  return s.scales + block_of_row(l, r) * l.scale_row + g * l.scale_step;
}
HT_HOST_DEVICE uint32_t scale_bytes(Format format) {
  return format == Format::f32 ? 4 : format == Format::f16 || format == Format::bf16 ? 2 : 1;
}
HT_DEVICE uint32_t load_scale(Format format, const uint8_t* at,
                              hw::Site site = hw::Site::current()) {
  if (format == Format::f32) return hw::load_global(reinterpret_cast<const uint32_t*>(at), site);
  if (format == Format::f16 || format == Format::bf16) {
    return hw::load_global(reinterpret_cast<const uint16_t*>(at), site);
  }
  return hw::load_global(at, site);
}
HT_DEVICE float scale_of(const GpuLayout& l, const GpuSource& s, uint32_t row, uint32_t column,
                         hw::Site site = hw::Site::current()) {
  const uint8_t* at = scale_address(l, s, row, column);
  return decode_scale(l.scale_format, load_scale(l.scale_format, at, site));
}
HT_DEVICE uint32_t zero_of(const GpuLayout& l, const GpuSource& s, uint32_t row, uint32_t column,
                           hw::Site site = hw::Site::current()) {
  if (s.zeros == nullptr) return kInt4Zero;
  const int64_t r = s.first_row + row * l.row_step;
  const uint32_t g = l.group > 0 ? column / l.group : 0;
  return hw::load_global(s.zeros + block_of_row(l, r) * l.zero_row + g * l.zero_step, site);
}
// The scale of a whole row, which multiplies its sum.
HT_DEVICE float row_scale(const GpuLayout& l, const GpuSource& s, uint32_t row,
                          hw::Site site = hw::Site::current()) {
  float scale = s.tensor_scale != nullptr ? hw::load_global(s.tensor_scale, site) : 1.0f;
  if (s.scales != nullptr && l.group == 0) scale *= scale_of(l, s, row, 0, site);
  return scale;
}

// An element without its scale.
HT_DEVICE float element_of(const GpuLayout& l, const GpuSource& s, uint32_t row, uint32_t column,
                           hw::Site site = hw::Site::current()) {
  const uint8_t* at = row_address(l, s, row);
  if (l.format == Format::f32 || l.format == Format::f16 || l.format == Format::bf16) {
    return pipe::load_element(
        l.format, reinterpret_cast<const char*>(at) + column * pipe::bytes_of(l.format), site);
  }
  const auto bits = static_cast<uint32_t>(bits_of(l.format));
  if (bits == 8) return pipe::decode_code(l.format, hw::load_global(at + column, site));
  const uint64_t bit = uint64_t{column} * bits;
  const uint32_t low = bit % 8;
  uint32_t code = hw::load_global(at + bit / 8, site);
  if (low + bits > 8) code |= uint32_t{hw::load_global(at + bit / 8 + 1, site)} << 8;
  code = code >> low & ((1u << bits) - 1);
  const bool integer = may_have_zero_points(l.format);
  return pipe::decode_code(l.format, code,
                           integer ? static_cast<float>(zero_of(l, s, row, column, site)) : 0);
}

}  // namespace halftone::gemm
