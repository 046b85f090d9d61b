// Embedding lookup: rows of the table as the conversions of src/formats read them.
#include <cstring>
#include <vector>

#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "ops/embedding/kernels.h"

namespace halftone {

namespace {

int64_t id_at(const EmbeddingArgs& args, int64_t token) {
  const int64_t where = token * args.id_stride;
  return args.wide_ids ? static_cast<const int64_t*>(args.ids)[where]
                       : static_cast<const int32_t*>(args.ids)[where];
}

}  // namespace

void embedding_rows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  const FormatKernels& formats = format_kernels();
  const bool codes = !is_plain_float(args.format);
  const int64_t group = args.block_columns > 0 ? args.block_columns : args.columns;
  const int64_t groups = group > 0 ? (args.columns + group - 1) / group : 0;
  const int64_t scale_size = scale_bytes(args.scale_format);
  std::vector<float> scales(static_cast<size_t>(groups), 1.0f);
  std::vector<uint8_t> zeros(args.zero_points != nullptr ? static_cast<size_t>(groups) : 0);
  for (int64_t token = begin; token < end; ++token) {
    const int64_t id = id_at(args, token);
    const char* row = args.table + id * args.table_stride;
    char* out = args.out + token * args.out_stride;
    if (!codes && args.format == args.out_format) {
      std::memcpy(out, row, static_cast<size_t>(args.columns * plain_bytes(args.format)));
      continue;
    }
    if (!codes) {
      formats.convert(args.format, args.out_format, row, args.columns, out);
      continue;
    }
    const int64_t block_row = args.block_rows == 0 ? 0 : id / args.block_rows;
    for (int64_t g = 0; g < groups; ++g) {
      const auto i = static_cast<size_t>(g);
      if (args.scales != nullptr) {
        const int64_t at = block_row * args.scale_row_stride + g * args.scale_column_stride;
        scales[i] = read_scale(args.scale_format, args.scales + at * scale_size);
      }
      if (args.zero_points != nullptr) {
        zeros[i] = args.zero_points[block_row * args.zero_row_stride + g * args.zero_column_stride];
      }
    }
    const RowScales of_row{scales.data(), zeros.empty() ? nullptr : zeros.data(), group,
                           args.tensor_scale};
    formats.dequantize_row(args.format, reinterpret_cast<const uint8_t*>(row), args.columns, of_row,
                           args.out_format, out);
  }
}

}  // namespace halftone
