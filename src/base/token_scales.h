// Scales of blocks of tokens: of a tensor [batch, tokens, heads, dim] in fp8 or int8 with scales
// [batch, ceil(tokens / 128), heads, 1].
#pragma once
#include "halftone/tensor.h"

namespace halftone {

inline constexpr int64_t kScaleTokens = 128;

// Whether such scales may stand beside those of tensors, heads and rows: the extents alone tell
// them apart, as up to 128 tokens have one scale in either case.
inline bool may_have_token_scales(const Shape& shape, const Scaling& scaling) {
  return shape.rank() == 4 && scaling.format == Format::f32 && scaling.block_rows <= 1 &&
         scaling.block_cols == 0 && !scaling.asymmetric;
}
// How many of `tokens` share one of `scales`, where there is more than one.
inline int64_t tokens_of_scale(int64_t tokens, int64_t scales) {
  return scales == tokens || scales == 1 ? 1 : kScaleTokens;
}

}  // namespace halftone
