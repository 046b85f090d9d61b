// Elements of a tensor of any format as f32, a run of a row at a time.
#pragma once
#include <optional>

#include "formats/kernels.h"
#include "formats/scale_reader.h"

namespace halftone {

class RowReader {
 public:
  static constexpr int64_t kMost = 1024;  // elements of one read

  // Why `x` cannot be read; empty when it can. Quantised formats are decoded exactly and rounded
  // once to f32; without scales fp8 and int8 stand for their values. i32, i64 and u8 are rounded.
  static std::string refuse(Format format, bool scaled);

  explicit RowReader(const Tensor& x);
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;
  // Elements [begin, begin + count) of row `row` (counted over all dimensions but the last), at
  // most kMost: in `buffer`, or where they lie. `begin` is even for 4-bit formats.
  const float* read(int64_t row, int64_t begin, int64_t count, float* buffer) const;
  // The elements as they lie; null unless they are plain floats side by side.
  const void* dense(int64_t row, int64_t begin) const;
  // Asks the memory for elements that will be read soon.
  void prefetch(int64_t row, int64_t begin, int64_t count) const;

 private:
  Tensor x_;
  std::optional<ScaleReader> scales_;
  float factor_ = 1;
  const FormatKernels* kernels_;
};

}  // namespace halftone
