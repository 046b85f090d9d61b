// Checks of tensor arguments that the operation families share. Messages name the operation, the
// argument, its value and the rule.
#pragma once
#include <algorithm>

#include "base/rows.h"
#include "base/thread_pool.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// The stream is of the plan's device.
void check_stream(const char* operation, const Stream&, const Device&);

// Defined, of this format, on this device, with these extents and a last stride of 1.
void check_tensor(const char* operation, const char* argument, const Tensor&, const Shape&, Format,
                  const Device&);

// x is [rows, columns] or [outer, inner, columns] with outer * inner rows; other strides are free.
Rows check_rows(const char* operation, const char* argument, const Tensor& x, int64_t rows,
                int64_t columns, Format, const Device&);

// The output must be the input itself (same elements in the same order) or share no memory with it.
void check_overlap(const char* operation, const char* out_name, const Tensor& out,
                   const char* in_name, const Tensor& in);

// [..., columns] seen as [rows, columns]: any row-major tensor, or one of rank 2 or 3 with strides.
Tensor as_rows(const char* operation, const char* argument, const Tensor& x);
// Product of all extents but the last.
int64_t row_count(const Tensor& x);

// Calls f(begin, end) over rows in pieces of 16 Ki elements, which keep the threads evenly busy;
// on the caller alone when they are few. An operation on elements in a cache does about 8 a
// nanosecond (docs/findings/cpu-small-operations.md).
template <class F>
void for_rows(Stream& stream, int64_t rows, int64_t columns, const F& f) {
  constexpr int64_t kPiece = 16 * 1024, kPerNanosecond = 8;
  if (rows <= 0 || columns <= 0) return;
  stream.pool().parallel_for(rows, std::max<int64_t>(1, kPiece / columns),
                             rows * columns / kPerNanosecond, f);
}

}  // namespace halftone
