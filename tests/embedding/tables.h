// Embedding tables in every format.
#pragma once
#include <random>
#include <span>

#include "base/format_traits.h"
#include "support/compare.h"

namespace halftone::test {

struct TableCase {
  Format format;
  Scaling scaling;
  bool tensor_scale = false;
};
inline std::vector<TableCase> table_cases() {
  return {
      {Format::fp8_e4m3, {Format::f32, 128, 128}},
      {Format::fp8_e4m3, {Format::f32, 1, 0}},
      {Format::fp8_e4m3, {Format::bf16, 0, 0}},
      {Format::fp8_e4m3, {Format::f32, 1, 128}},
      {Format::fp8_e5m2, {Format::f16, 1, 0}},
      {Format::mxfp8, {Format::ue8m0, 1, 32}},
      {Format::mxfp6, {Format::ue8m0, 1, 32}},
      {Format::mxfp6_e3m2, {Format::ue8m0, 1, 32}},
      {Format::mxfp4, {Format::ue8m0, 1, 32}},
      {Format::nvfp4, {Format::fp8_e4m3, 1, 16}, true},
      {Format::int8, {Format::f32, 1, 0}},
      {Format::int8, {Format::f16, 1, 128}},
      {Format::int4, {Format::f16, 1, 32}},
      {Format::int4, {Format::f16, 1, 64, ScaleLayout::linear, true}},
      {Format::int4, {Format::bf16, 1, 128}},
  };
}

inline Tensor random_bytes(const Shape& shape, Format format, uint64_t seed, int mask = 255) {
  std::mt19937_64 engine(seed);
  Tensor t = Tensor::zeros(shape, format);
  for (int64_t i = 0; i < packed_bytes(format, t.numel()); ++i) {
    t.data<uint8_t>()[i] = static_cast<uint8_t>(engine() & static_cast<uint64_t>(mask));
  }
  return t;
}

// Random quantised values with random scales: every bit pattern is a legal table. Columns are
// rounded up to whole bytes.
inline Tensor random_table(const TableCase& c, int64_t rows, int64_t columns) {
  const int64_t unit = elements_of_unit(c.format);
  columns = (columns + unit - 1) / unit * unit;
  const auto blocks = [](int64_t size, int64_t block) {
    return block == 0 ? 1 : (size + block - 1) / block;
  };
  const Shape shape{blocks(rows, c.scaling.block_rows), blocks(columns, c.scaling.block_cols)};
  Tensor scales;
  if (c.scaling.format == Format::fp8_e4m3) {
    scales = random_bytes(shape, Format::fp8_e4m3, 1, 0x7f);
  } else if (c.scaling.format == Format::ue8m0) {
    scales = random_bytes(shape, Format::ue8m0, 2, 0x8f);
  } else {
    scales = random_tensor(shape, c.scaling.format, 3);
  }
  return random_bytes({rows, columns}, c.format, 4)
      .quantized(c.scaling, scales, c.tensor_scale ? Tensor::from({0.37f}, {1}) : Tensor(),
                 c.scaling.asymmetric ? random_bytes(shape, Format::u8, 5, 15) : Tensor());
}

inline Tensor ids_of(std::initializer_list<int32_t> values) {
  return Tensor::from<int32_t>(std::span(values.begin(), values.size()),
                               {static_cast<int64_t>(values.size())}, Format::i32);
}

}  // namespace halftone::test
