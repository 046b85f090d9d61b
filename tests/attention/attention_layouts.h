// The same problem in other layouts: rows moved, keys in pages.
#pragma once
#include <algorithm>
#include <cstring>
#include <numeric>

#include "attention/attention_fixture.h"

namespace halftone::test {

// Bytes of a contiguous tensor, moved in runs.
inline Tensor gather_rows(const Tensor& t, const Shape& shape, const std::vector<int64_t>& rows) {
  const int64_t row_bytes = packed_bytes(t.format(), t.numel()) / (t.size(0) * t.size(1));
  Tensor out = Tensor::zeros(shape, t.format());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0) continue;
    std::memcpy(out.data<char>() + static_cast<int64_t>(i) * row_bytes,
                t.data<char>() + rows[i] * row_bytes, static_cast<size_t>(row_bytes));
  }
  return out;
}
// Rows of dimensions 0 and 1 of a quantised or plain tensor, laid out as [first, second, ...].
inline Tensor rearrange(const Tensor& t, int64_t first, int64_t second,
                        const std::vector<int64_t>& rows) {
  const auto shape = [&](const Tensor& x) {
    return first < 0 ? Shape{second, x.size(2), x.size(3)}
                     : Shape{first, second, x.size(2), x.size(3)};
  };
  const Tensor data = gather_rows(t, shape(t), rows);
  if (!t.has_scales()) return data;
  return data.quantized(t.scaling(), gather_rows(t.scales(), shape(t.scales()), rows),
                        t.tensor_scale());
}

inline Tensor i32(const std::vector<int32_t>& values, const Shape& shape) {
  return Tensor::from<int32_t>(values, shape, Format::i32);
}

// The same keys in pages that lie in another order.
inline Case paged(const Case& c, int64_t page_size) {
  const AttentionProblem& p = c.problem;
  const int64_t pages_each = (p.key_length + page_size - 1) / page_size;
  const int64_t pages = p.batch * pages_each + 1;  // one is never used
  std::vector<int32_t> table(static_cast<size_t>(p.batch * pages_each));
  std::iota(table.begin(), table.end(), 1);
  std::reverse(table.begin(), table.end());
  std::vector<int64_t> rows(static_cast<size_t>(pages * page_size), -1);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t j = 0; j < p.key_length; ++j) {
      const int64_t page = table[static_cast<size_t>(b * pages_each + j / page_size)];
      rows[static_cast<size_t>(page * page_size + j % page_size)] = b * p.key_length + j;
    }
  }
  Case result = c;
  result.problem.page_size = page_size;
  result.tensors.k = rearrange(c.tensors.k, pages, page_size, rows);
  result.tensors.v = rearrange(c.tensors.v, pages, page_size, rows);
  result.tensors.page_table = i32(table, {p.batch, pages_each});
  return result;
}

}  // namespace halftone::test
