// Embedding kernels: one per CPU ISA level, and those of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;

struct EmbeddingArgs {
  const void* ids;  // on the CPU checked by the caller
  int64_t id_stride;
  bool wide_ids;  // i64, else i32
  const char* table;
  int64_t table_stride;  // bytes from row to row
  Format format, out_format;
  char* out;
  int64_t out_stride;  // bytes
  int64_t columns;
  // Scales in the linear layout; null: none. Strides in elements; a block of 0 is everything.
  const char* scales;
  Format scale_format;
  int64_t block_rows, block_columns;
  int64_t scale_row_stride, scale_column_stride;
  const uint8_t* zero_points;  // as the scales; null: symmetric
  int64_t zero_row_stride, zero_column_stride;
  float tensor_scale;
  const float* tensor_scale_at;  // where only the device can read it; else null
};
// Writes tokens [begin, end).
using EmbeddingFunction = void (*)(const EmbeddingArgs&, int64_t begin, int64_t end);

HALFTONE_DECLARE_LEVELS(void embedding_rows(const EmbeddingArgs&, int64_t begin, int64_t end))

struct EmbeddingRange {
  int64_t tokens, vocabulary;
};
using EmbeddingGpuFunction = void (*)(const EmbeddingArgs&, const EmbeddingRange&, Stream&);
void embedding_gpu(const EmbeddingArgs&, const EmbeddingRange&, Stream&);

}  // namespace halftone
