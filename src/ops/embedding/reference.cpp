// Embedding lookup in FP64.
#include "base/message.h"
#include "formats/codec.h"
#include "halftone/embedding.h"

namespace halftone {

namespace {

double element(const Tensor& table, int64_t row, int64_t column, double zero_point) {
  const int64_t at = row * table.stride(0) + column;
  require(is_plain_float(table.format()) || is_quantised(table.format()),
          "embedding_reference: the table is ", name(table.format()),
          "; it must be a weight format");
  return element_at(table.format(), table.data(), at, static_cast<int>(zero_point));
}

double scale_value(const Tensor& scales, int64_t at) {
  switch (scales.format()) {
    case Format::f32:
      return scales.data<float>()[at];
    case Format::f16:
      return decode_f16(scales.data<uint16_t>()[at]);
    case Format::bf16:
      return decode_bf16(scales.data<uint16_t>()[at]);
    case Format::fp8_e4m3:
      return decode_e4m3(scales.data<uint8_t>()[at]);
    default:
      return decode_ue8m0(scales.data<uint8_t>()[at]);
  }
}

}  // namespace

Tensor embedding_reference(const Tensor& ids, const Tensor& table) {
  require(ids.rank() == 1 && table.rank() == 2,
          "embedding_reference: ids must be [tokens] and the "
          "table [vocabulary, columns]");
  const int64_t columns = table.size(1);
  Tensor out = Tensor::empty({ids.size(0), columns}, Format::f32);
  for (int64_t t = 0; t < ids.size(0); ++t) {
    const int64_t row = ids.format() == Format::i64 ? ids.data<int64_t>()[t * ids.stride(0)]
                                                    : ids.data<int32_t>()[t * ids.stride(0)];
    require(row >= 0 && row < table.size(0), "embedding_reference: ids[", t, "] is ", row);
    for (int64_t c = 0; c < columns; ++c) {
      double scale = 1, zero_point = kInt4Zero;
      if (table.has_scales()) {
        const Scaling& scaling = table.scaling();
        const int64_t block_row = scaling.block_rows == 0 ? 0 : row / scaling.block_rows;
        const int64_t block_column = scaling.block_cols == 0 ? 0 : c / scaling.block_cols;
        const auto at = [&](const Tensor& parts) {
          return block_row * parts.stride(0) + block_column * parts.stride(1);
        };
        scale = scale_value(table.scales(), at(table.scales())) * table.tensor_scale_value();
        if (scaling.asymmetric) {
          zero_point = table.zero_points().data<uint8_t>()[at(table.zero_points())];
        }
      }
      out.data<float>()[t * columns + c] =
          static_cast<float>(element(table, row, c, zero_point) * scale);
    }
  }
  return out;
}

}  // namespace halftone
