// Scaled dot-product attention in every mode. A mode is written `qk+pv`: the format of Q and K, and
// that of P and V, for example nvfp4+fp8. docs/numerics.md has the rules in full.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct AttentionMode {
  Format qk = Format::bf16;
  Format pv = Format::bf16;
  bool operator==(const AttentionMode&) const = default;
};
std::string to_string(const AttentionMode&);           // "nvfp4+bf16"
AttentionMode parse_attention_mode(std::string_view);  // Error with the nearest valid mode
std::vector<AttentionMode> attention_modes();          // every mode this version supports

// Shapes, formats and mask, no data.
//
// Scores are q . k * softmax_scale, then softcap, then the mask tensor. A key is visible when
// causal, the window, the chunk and a boolean mask all let it. Products are in the formats of
// `mode`, accumulated in FP32; P is rounded to mode.pv, its sum is not.
// Q may be f32, f16, bf16 or mode.qk; K and V any format that dequantises exactly to mode.qk and
// mode.pv.
struct AttentionProblem {
  int64_t batch = 0;
  int64_t heads = 0, kv_heads = 0;      // heads is a multiple of kv_heads (GQA)
  int64_t query_length = 0;             // longest of the batch
  int64_t key_length = 0;               // longest of the batch
  int64_t head_dim = 0, value_dim = 0;  // value_dim 0: head_dim
  Format q = Format::bf16, k = Format::bf16, v = Format::bf16, out = Format::bf16;
  // Formats of the products: P is rounded to mode.pv before P V.
  AttentionMode mode;
  bool causal = false;                          // aligned bottom-right
  int64_t window_left = -1, window_right = -1;  // -1: unbounded; relative to the aligned diagonal
  // Llama 4: keys j in the same chunk as the query's position i (aligned bottom-right) are visible,
  // floor(i / size) = floor(j / size). 0: none.
  int64_t attention_chunk_size = 0;
  std::optional<float> softmax_scale;  // default head_dim^-0.5
  float softcap = 0;                   // 0: none
  // Format of AttentionTensors::mask. u8: boolean, a key is visible where it is not 0. f32, f16,
  // bf16: added to the score, -inf masks the key.
  std::optional<Format> mask;
  // A learned logit a query head (gpt-oss, StreamingLLM): one more key, of value 0, in the softmax.
  bool sinks = false;
  std::optional<int64_t> page_size;  // paged KV: tokens of a page
  bool variable_length = false;      // seqused_k or cu_seqlens given
  bool lse = false;
  // A row has the same bits in whatever batch: a GPU may not split long caches according to how
  // many sequences there are. On CPUs it has them anyway.
  bool batch_invariant = false;
  // A promise for programmatic dependent launch: whatever writes lengths, pages, and keys and
  // values except the last of a sequence has ended before `run` is called or, in a graph, before
  // the graph is launched. In a graph decode on Hopper and later then prefetches the cache before
  // the kernels ahead have ended.
  bool prefetch_cache = false;
};

// fp8 and int8 operands carry f32 scales or none: per tensor, head, row or 128 tokens, [batch,
// length or ceil(length / 128), heads, 1] where any extent may be 1; packed sequences (no batch)
// not per 128 tokens. With a paged cache, pages are the batch and their rows the length. Block
// formats carry theirs in the linear layout.
struct AttentionTensors {
  // [batch, query_length, heads, head_dim]; with cu_seqlens_q: [total_q, heads, head_dim].
  Tensor q;
  // [batch, key_length, kv_heads, head_dim]; paged: [pages, page_size, kv_heads, head_dim];
  // with cu_seqlens_k: [total_k, kv_heads, head_dim]. Any strides but the last, which is 1.
  Tensor k, v;
  Tensor out;  // as q with value_dim
  // LSE, f32 [batch, heads, query_length]: the natural logarithm of the softmax's divisor, the sink
  // included; -inf (or the sink) for a row with no visible key.
  Tensor lse;
  // [batch, heads, query_length, key_length], each extent may be 1 (broadcast) and each stride
  // anything, 0 included. Query i and key j count from the beginning of their sequence.
  Tensor mask;
  Tensor sinks;       // f32 [heads]
  Tensor page_table;  // i32 [batch, max_pages]
  // On a GPU lengths and page table are read when the kernel runs, and not checked before: a
  // sequence is as long as its entry, the plan and the tensor allow; a page that does not exist is
  // of zeros.
  Tensor seqused_k;     // i32 [batch]: keys in use
  Tensor cu_seqlens_q;  // i32 [batch + 1]
  Tensor cu_seqlens_k;  // i32 [batch + 1]
};

struct AttentionKernel;
struct AttentionPlan {
  AttentionProblem problem;
  Device device;
  const AttentionKernel* kernel = nullptr;
  // Of each CPU thread, which keeps it between calls; on a GPU of the plan, whose runs must not
  // overlap.
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;
};
std::string describe(const AttentionPlan&);

Support can_run(const AttentionProblem&, const Device&);
AttentionPlan plan(const AttentionProblem&, const Device&);
// A row with no visible key gives 0. Keys past the end of a sequence are never read. Masked K and V
// need not be finite, except that the Hopper kernels for bf16, f16 and fp8+fp8 need a finite V
// within a sequence. On a given ISA level the bits of a row are a function of its query, of its
// visible keys and of whether its sequence is in decode (queries in this call * heads / kv_heads up
// to 8): neither the batch nor the layout of the cache nor the threads matter (docs/numerics.md).
void run(const AttentionPlan&, const AttentionTensors&, Stream&);

struct AttentionOptions {
  // Default: from the formats of the tensors. When given and the tensors are plain floats, Q, K
  // (and V) are quantised to the mode first.
  std::optional<AttentionMode> mode;
  bool causal = false;
  int64_t window_left = -1, window_right = -1;
  int64_t attention_chunk_size = 0;
  std::optional<float> softmax_scale;
  float softcap = 0;
  Tensor mask, sinks;  // as in AttentionTensors; none when undefined
  // Whether K is smoothed before it is quantised here; by default in int8, unless softcap or sinks
  // are given, which do not allow it.
  std::optional<bool> smooth_keys;
  // Tokens that share a scale where fp8 and int8 are made here: 1, a scale a row, 128, or 0, all.
  int64_t scale_tokens = 1;
  // Whether Q and K are Hadamard-transformed before they are quantised here (hadamard.h), which
  // spreads outliers over their rows and changes no score.
  bool hadamard = false;
};
// q [batch, length, heads, head_dim], k and v [batch, length, kv_heads, head_dim], on the stream's
// device, as is the result. What is not in the mode's formats is quantised there.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {},
                 Stream& = Stream::default_stream());

// Quantises x as attention() does its operands: x itself where it is quantised already; fp8 and
// int8 with a scale a row of a head, or, with `scale_tokens` 128, for 128 tokens of a head, or,
// with 0, one for the tensor; nvfp4 and mxfp4 with adaptive scales. x is [batch, length, heads,
// head_dim], or any tensor where a row has its scale. With 128 tokens the values lie head by head,
// as the strides of the result say.
Tensor attention_operand(const Tensor& x, Format, Stream& = Stream::default_stream(),
                         int64_t scale_tokens = 1);
// Quantises V as attention() does: as attention_operand, but in fp8 a row's scale is the power of
// two above (docs/numerics.md).
Tensor attention_values(const Tensor& v, Format, Stream& = Stream::default_stream(),
                        int64_t scale_tokens = 1);
// K less its mean over the keys, channel by channel of each KV head, in f32 (SageAttention):
// softmax is invariant to it. k is [batch, length, kv_heads, head_dim] or one sequence of it;
// `mean`, if not null, receives the means, length 1. The LSE of the original is larger by
// softmax_scale * q . mean.
Tensor smooth_keys(const Tensor& k, Tensor* mean = nullptr, Stream& = Stream::default_stream());

// FP64 from the operands as quantised (P as exact softmax); `lse` may be null. f32 result.
Tensor attention_reference(const AttentionProblem&, const AttentionTensors&, Tensor* lse = nullptr);

}  // namespace halftone
