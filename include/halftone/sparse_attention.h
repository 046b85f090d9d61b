// Sparse attention over selected tokens of a latent cache: many query heads over one KV head whose
// values are the first elements of its keys. Multi-head latent attention (MLA) as decode runs it,
// with DeepSeek's sparse selection (V3.2) and its window beside compressed tokens (V4).
// docs/numerics.md has the roundings.
#pragma once
#include <optional>
#include <string>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

// Layout of a token in the cache; FlashMLA's layouts have the same bytes.
// * bf16: `dim` elements.
// * fp8: `dim` E4M3 and one f32 dequantisation scale: value = element * scale.
// * fp8_656 (V3.2, dim 576): 512 E4M3, four f32 scales, one for 128 of them, and 64 bf16 that carry
// the rotary position: 656 bytes.
// * fp8_584 (V4, "MODEL1", dim 512): 448 E4M3 and 64 bf16, 576 bytes; after all tokens of a page 8
// bytes a token, seven E8M0 scales, one for 64 E4M3, and one unused. A page is padded to a multiple
// of 576 bytes.
enum class LatentFormat : uint8_t { bf16, fp8, fp8_656, fp8_584 };
const char* name(LatentFormat);

struct LatentLayout {
  LatentFormat format = LatentFormat::bf16;
  int64_t page_size = 64;  // tokens
  int64_t dim = 576;       // elements a token; fixed by fp8_656 and fp8_584
};
Support can_run(const LatentLayout&, const Device&);

// A cache of zeros. bf16 and fp8: [pages, page_size, dim], the scales f32 [pages, page_size, 1];
// fp8_656: u8 [pages, page_size, 656]; fp8_584: u8 [pages, bytes of a page]. Caches made elsewhere
// may have any stride from page to page.
Tensor latent_cache(const LatentLayout&, int64_t pages);

// Writes rows [tokens, dim] (f32, f16 or bf16) to the slots (i32 [tokens], page * page_size +
// offset in the page; a negative one is skipped, one beyond the cache an error).
void latent_write(const LatentLayout&, const Tensor& cache, const Tensor& rows, const Tensor& slots,
                  Stream& = Stream::default_stream());
// The elements of the slots as f32 [tokens, dim]; zeros for a negative one.
Tensor latent_read(const LatentLayout&, const Tensor& cache, const Tensor& slots);

// out = softmax(q . keys * softmax_scale) values over the selected tokens, by BF16 products and
// FP32 sums.
struct SparseAttentionProblem {
  int64_t batch = 0, query_length = 1, heads = 0;
  LatentLayout cache;
  int64_t value_dim = 512;  // at most cache.dim
  int64_t indices = 0;      // entries of a query's list
  // A second cache with lists of its own, of the same dim: tokens compressed from many.
  std::optional<LatentLayout> extra;
  int64_t extra_indices = 0;
  Format q = Format::bf16, out = Format::bf16;  // f32, f16 or bf16
  std::optional<float> softmax_scale;           // default dim^-0.5
  bool sinks = false, lse = false;
};

struct SparseAttentionTensors {
  Tensor q;  // [batch, query_length, heads, dim]; any strides but the last, which is 1
  Tensor cache, extra_cache;
  // i32 [batch, query_length, entries]: slots. A negative one is skipped, one beyond the cache is
  // an error; a token listed twice counts twice.
  Tensor indices, extra_indices;
  // Optional, i32 [batch] or [batch, query_length]: valid entries of a list, from its beginning.
  Tensor lengths, extra_lengths;
  Tensor sinks;  // f32 [heads]: out *= exp(lse) / (exp(lse) + exp(sink))
  Tensor out;    // [batch, query_length, heads, value_dim]
  // LSE, f32 [batch, heads, query_length], natural logarithm, without the sink; -inf without
  // tokens.
  Tensor lse;
};

struct SparseAttentionKernel;
struct SparseAttentionPlan {
  SparseAttentionProblem problem;
  Device device;
  const SparseAttentionKernel* kernel = nullptr;
  int64_t workspace_bytes = 0;  // of each CPU thread; threads keep theirs between calls
};
std::string describe(const SparseAttentionPlan&);
Support can_run(const SparseAttentionProblem&, const Device&);
SparseAttentionPlan plan(const SparseAttentionProblem&, const Device&);
// A query without tokens gives 0. The bits of a row are a function of its query, of the selected
// tokens, in their order, and of whether the problem has more than 8 heads; batch and threads do
// not matter.
void run(const SparseAttentionPlan&, const SparseAttentionTensors&, Stream&);

struct SparseAttentionOptions {
  int64_t value_dim = 512;
  std::optional<float> softmax_scale;
  Tensor lengths, sinks;
  std::optional<LatentLayout> extra;
  Tensor extra_cache, extra_indices, extra_lengths;
};
// The result has the format of q.
Tensor sparse_attention(const Tensor& q, const LatentLayout&, const Tensor& cache,
                        const Tensor& indices, const SparseAttentionOptions& = {},
                        Stream& = Stream::default_stream());

// FP64 from the caches as quantised; `lse` may be null. f32 result.
Tensor sparse_attention_reference(const SparseAttentionProblem&, const SparseAttentionTensors&,
                                  Tensor* lse = nullptr);

}  // namespace halftone
