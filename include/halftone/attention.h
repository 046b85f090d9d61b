// Scaled dot-product attention in every mode. A mode is written `qk+pv`: the format of Q and K, and
// that of P and V, for example nvfp4+fp8.
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
// The score of a query and a key is q . k * softmax_scale; with softcap > 0 it becomes
// softcap * tanh(score / softcap) (Gemma 2); then the mask tensor is added (Transformers' order).
// A key takes part when causal, the window, the chunk and a boolean mask all let it.
//
// `mode` says in which formats the products are, so that a mode means the same on every device and
// only the order of the sums differs:
//  * f32 multiplies in f32; f16 multiplies f16 numbers exactly and adds in f32; every other mode
//    multiplies exact expansions to bf16 and adds in f32 (subnormal bf16 numbers count as 0).
//  * Q may be f32, f16 or bf16 in every mode, or mode.qk itself; where products are bf16, Q in f32
//    or f16 is rounded to bf16. This is how decode runs over a quantised cache.
//  * K and V may be in any format that expands exactly into mode.qk and mode.pv: a quantised one
//    into f32, f16 and bf16; fp8, mxfp8 and mxfp4 into fp8.
//  * P, the softmax before its division, is rounded to mode.pv; for fp8 it is multiplied by 2^8
//    before, so that a row's largest is 256 of at most 448. The divisor is the sum of the P that
//    are not rounded. Where V has a scale a row, P times that scale is rounded to bf16.
//    The tensor cores of Hopper add products of fp8 with 13 fraction bits, cut off: scores are such
//    sums over head_dim, P V over tiles of 96 to 256 keys, whose P are relative to the tile's
//    largest; a scale a row of V is taken over a power of two that none of its tile exceeds, and P
//    times it rounded to fp8.
//  * P in NVFP4 has two levels. Within a tile of keys (256, 128 above dimensions of 256, 64 above
//    512; on Hopper 96 up to 64, 128 up to 192 and 128, else 64), P is taken relative to the row's
//    largest score in the tile, so that it is at most 1; that score and 1/2688 are the f32 second
//    level, folded into O. Each 16 keys from a multiple of 16, hidden ones as 0, share
//    scale = E4M3(448 * largest P); an element is E2M1(P * RN(2688 / scale)), 0 where the scale is
//    0. Conversions round to nearest even and saturate, products and the quotient are single
//    roundings of f32. V has its scales along value_dim, like K, and expands exactly.
struct AttentionProblem {
  int64_t batch = 0;
  int64_t heads = 0, kv_heads = 0;      // heads is a multiple of kv_heads
  int64_t query_length = 0;             // largest of the batch
  int64_t key_length = 0;               // largest of the batch
  int64_t head_dim = 0, value_dim = 0;  // value_dim 0: head_dim
  Format q = Format::bf16, k = Format::bf16, v = Format::bf16, out = Format::bf16;
  // Format of the products: P is rounded to mode.pv before the second one.
  AttentionMode mode;
  bool causal = false;                          // aligned bottom-right
  int64_t window_left = -1, window_right = -1;  // -1: unbounded, relative to the aligned diagonal
  // Llama 4: a query at position i (aligned bottom-right) sees keys j of the same chunk alone,
  // floor(i / size) = floor(j / size). 0: none.
  int64_t attention_chunk_size = 0;
  std::optional<float> softmax_scale;  // default head_dim^-0.5
  float softcap = 0;                   // 0: none
  // Format of AttentionTensors::mask. u8: boolean, a key takes part where it is not 0. f32, f16,
  // bf16: added to the score, -inf hides the key.
  std::optional<Format> mask;
  // A learned logit a query head (gpt-oss, StreamingLLM): it takes part in the softmax as a key
  // whose value is 0 would.
  bool sinks = false;
  bool paged = false;
  int64_t page_size = 0;
  bool variable_length = false;  // seqused_k or cu_seqlens given
  bool lse = false;
  // A row has the same bits in whatever batch: a GPU may not cut long caches according to how many
  // sequences there are. On CPUs it has them anyway.
  bool batch_invariant = false;
  // A promise: whatever writes lengths and pages, and keys and values but the last of a sequence,
  // has ended before `run` is called or, of a graph, before that is launched. In a graph decode on
  // Hopper and later then reads the cache before the kernels ahead have ended.
  bool prefetch_cache = false;
};

// fp8 and int8 operands carry f32 scales or none: one a tensor, head, row or 128 tokens from the
// first, [batch, length or ceil(length / 128), heads, 1] where any extent may be 1; tensors without
// a batch, of packed sequences, not one for 128 tokens. Of a paged cache, pages are the batch and
// their rows the length. Block formats carry theirs in the linear layout.
struct AttentionTensors {
  // [batch, query_length, heads, head_dim]; with cu_seqlens_q: [total_q, heads, head_dim].
  Tensor q;
  // [batch, key_length, kv_heads, head_dim]; paged: [pages, page_size, kv_heads, head_dim];
  // with cu_seqlens_k: [total_k, kv_heads, head_dim]. Any strides but the last, which is 1.
  Tensor k, v;
  Tensor out;  // as q with value_dim
  // f32 [batch, heads, query_length]: the natural logarithm of the softmax's divisor, the sink
  // included; -inf (or the sink) for a row without keys.
  Tensor lse;
  // [batch, heads, query_length, key_length], each extent may be 1 and each stride anything, 0
  // included. Query i and key j count from the beginning of their sequence.
  Tensor mask;
  Tensor sinks;       // f32 [heads]
  Tensor page_table;  // i32 [batch, max_pages]
  // On a GPU lengths and pages are read when the kernel runs, and not checked before: a sequence is
  // as long as its number, the plan and the tensor allow; a page that does not exist is of zeros.
  Tensor seqused_k;     // i32 [batch]: keys in use
  Tensor cu_seqlens_q;  // i32 [batch + 1]
  Tensor cu_seqlens_k;  // i32 [batch + 1]
};

struct AttentionKernel;
struct AttentionPlan {
  AttentionProblem problem;
  Device device;
  const AttentionKernel* kernel = nullptr;
  // Of each CPU thread; threads keep theirs between calls. On a GPU of the plan itself, so that its
  // runs are to follow one another.
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;
};
std::string describe(const AttentionPlan&);

Support can_run(const AttentionProblem&, const Device&);
AttentionPlan plan(const AttentionProblem&, const Device&);
// A row without keys gives 0. On a given ISA level the bits of a row are a function of its
// query, of the keys it sees and of whether its sequence is in decode (queries in this call * heads
// / kv_heads up to 8): neither the batch, the other queries and heads of the call, the layout of
// the cache nor the threads matter; a prompt in one call or in pieces above that limit gives the
// same, and so does decode by one token or by several. Decode adds a score in another order than
// prefill does, which saves it a transposition of every key (docs/findings/cpu-decode.md). Keys
// beyond a sequence are never read. Keys hidden from a row need not be finite; only in the kernels
// for Hopper, of bf16, f16 and fp8 (fp8+fp8), must V be, within a sequence.
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
  // Whether K that is quantised here is smoothed before; by default in int8, unless softcap or
  // sinks are given, which do not allow it.
  std::optional<bool> smooth_keys;
  // That share a scale where fp8 and int8 are made here: 1, a scale a row, 128, or 0, all.
  int64_t scale_tokens = 1;
  // Whether Q and K that are quantised here are transformed before (hadamard.h), which spreads
  // outliers over their rows and changes no score.
  bool hadamard = false;
};
// q [batch, length, heads, head_dim], k and v [batch, length, kv_heads, head_dim], on the stream's
// device, as is the result. What is not in the mode's formats is quantised there.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& = {},
                 Stream& = Stream::default_stream());

// x as attention() makes its operands: itself where it is quantised already; fp8 and int8 with a
// scale a row of a head, or, with `scale_tokens` 128, for 128 tokens of a head, or, with 0, one for
// the tensor; nvfp4 and mxfp4 with adaptive scales. x is [batch, length, heads, head_dim], or any
// tensor where a row has its scale. With 128 tokens the codes lie head by head, which the strides
// of the result say.
Tensor attention_operand(const Tensor& x, Format, Stream& = Stream::default_stream(),
                         int64_t scale_tokens = 1);
// V as attention() makes it: as attention_operand does, but in fp8 a row's scale is the power of
// two above. Kernels that round P to fp8 multiply it by that scale before: a power of two keeps its
// bits, and E4M3 loses at most one of its 17 binades.
Tensor attention_values(const Tensor& v, Format, Stream& = Stream::default_stream(),
                        int64_t scale_tokens = 1);
// K less its mean over the keys, channel by channel of each KV head, in f32: softmax is the same,
// and int8 does not spend its range on what all keys share (SageAttention). k is [batch, length,
// kv_heads, head_dim] or one sequence of it; `mean`, if not null, receives the means, length 1.
// The lse of the original is softmax_scale * q . mean more.
Tensor smooth_keys(const Tensor& k, Tensor* mean = nullptr, Stream& = Stream::default_stream());

// FP64 from the operands as quantised (P as exact softmax); `lse` may be null. f32 result.
Tensor attention_reference(const AttentionProblem&, const AttentionTensors&, Tensor* lse = nullptr);

}  // namespace halftone
