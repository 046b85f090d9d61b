// Permuted copies, on every processor and on GPUs.
#pragma once
#include <cstdint>

namespace halftone {

class Stream;

// out is [outer..., rows, columns]; strides in bytes. The source is contiguous along the rows of
// out (`transposed`), along its columns, or along neither.
struct PermuteArgs {
  const char* x = nullptr;
  char* out = nullptr;
  int element = 4;  // bytes: 1, 2, 4 or 8
  int outer = 0;    // leading dimensions
  int64_t extent[8] = {}, x_stride[8] = {}, out_stride[8] = {};
  int64_t rows = 1, columns = 1;
  int64_t x_row = 0, x_column = 0, out_row = 0;
  bool transposed = false;
  int64_t strips = 1;     // of permute_tile(element) rows
  bool streamed = false;  // larger than the caches: results by streaming stores
};
// Sides of a tile: 256 contiguous bytes on both sides, so that a page's address is looked up for
// four lines.
constexpr int64_t permute_tile(int element) { return element == 1 ? 128 : 256 / element; }
using PermuteFunction = void (*)(const PermuteArgs&, int64_t begin, int64_t end);
// Strips [begin, end) of all outer indices.
void permute_strips(const PermuteArgs&, int64_t begin, int64_t end);

// `outer`: the product of the leading extents.
using PermuteGpuFunction = void (*)(const PermuteArgs&, int64_t outer, Stream&);
void permute_gpu(const PermuteArgs&, int64_t outer, Stream&);

}  // namespace halftone
