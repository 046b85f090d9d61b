// Append to a paged KV cache: where rows go in its pages, shared by CPU and GPU kernels.
#pragma once
#include <cstdint>

#include "base/rows.h"
#include "formats/recipe.h"
#include "halftone/dtype.h"

namespace halftone {

struct CacheShape {
  int64_t heads = 0, head_dim = 0, page_size = 0;
  int64_t sequences = 1, pages = 0;  // of one sequence

  // The slot of a position, counted over all pages; -1: no page is there.
  HALFTONE_CODEC int64_t slot(int64_t sequence, int64_t position) const {
    const int64_t page = position / page_size;
    if (position < 0 || page >= pages) return -1;
    return (page * sequences + sequence) * page_size + position % page_size;
  }
};

inline bool is_quantised_cache(Format f) { return !is_plain_float(f); }
// One FP32 per token and head, or one E4M3 per 16 elements.
inline Scaling cache_scaling(Format f) {
  return is_block(f) ? default_scaling(f) : Scaling{Format::f32, 1, 0};
}

// K and V at once: index 0 and 1.
struct AppendArgs {
  CacheShape shape;
  Rows x[2];  // counted over rows and heads
  Format source = Format::bf16, format = Format::bf16;
  Recipe recipe;  // of a quantised cache
  uint8_t *codes[2] = {}, *scales[2] = {};
  float static_scale[2] = {};          // of fp8; 0: a scale a row
  int64_t rows = 0, tokens = 1;        // of all sequences, of one
  const int32_t* positions = nullptr;  // [rows], or null: the first token of each is at `first`
  int64_t first = 0;
};

void append_gpu(const AppendArgs&, class Stream&);

}  // namespace halftone
