// Paged KV cache, a cache of K and V per layer in any cache format: of one sequence, or of several
// that are always equally long.
#pragma once
#include <vector>

#include "halftone/attention.h"
#include "halftone/error.h"
#include "halftone/rope.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct KvCacheOptions {
  // f32, bf16, f16, fp8_e4m3 (one f32 scale a token and head) or nvfp4 (one E4M3 scale per 16
  // elements, no tensor scale).
  Format format = Format::bf16;
  int64_t layers = 0, kv_heads = 0, head_dim = 0;
  int64_t page_size = 64;
  int64_t max_length = 0;  // of a sequence
  int64_t sequences = 1;
  // fp8_e4m3: static scales, one a layer, in place of a scale a token and head; a layer with 0
  // keeps those. Values are x * (1 / scale), saturated. Empty: no layer has one.
  std::vector<float> key_scales, value_scales;
};

Support can_run(const KvCacheOptions&, const Device&);

// What queries and keys go through on their way to attention, in this order.
struct HeadTransform {
  Tensor q_weight, k_weight;  // [head_dim] of RMS norms over each head (QK norm); undefined: none
  float eps = 1e-6f, weight_offset = 0;
  const RopePlan* rope = nullptr;  // of head_dim and format, whatever its tokens and heads; or none
  // A promise for programmatic dependent launch: whatever writes positions and pages has ended
  // before the call or, in a graph, before the graph is launched. In a graph angles and slots are
  // then prefetched before the kernels ahead have ended, on Hopper and later.
  bool prefetch_positions = false;
};

// Storage doubles by whole pages up to max_length; growing moves it, so get the tensors of a layer
// after the append. Not shared between threads.
class KvCache {
 public:
  explicit KvCache(const KvCacheOptions&, Device = Device::cpu());
  const KvCacheOptions& options() const { return options_; }
  int64_t length() const { return length_; }
  int64_t bytes() const;
  // Of a cache that has room for `length` tokens and no more.
  static int64_t bytes(const KvCacheOptions&, int64_t length);
  // Makes room for sequences of this length, so that appending up to it moves nothing.
  void reserve(int64_t length);
  // Appends k, v (f32, f16 or bf16 [rows, kv_heads, head_dim], the rows of each sequence together)
  // of one layer after `length()`, quantised to the cache's format. `advance` makes them count.
  void append(int64_t layer, const Tensor& k, const Tensor& v, Stream&);
  // The same at `positions` (i32 [rows], on the cache's device), which are read when the kernel
  // runs: a captured graph appends elsewhere each time. Rows beyond what is reserved are left out.
  void append(int64_t layer, const Tensor& k, const Tensor& v, const Tensor& positions, Stream&);
  // Fused QK norm, RoPE and append: q [rows, heads, head_dim] in place, then k and v appended. The
  // same bits as one after the other, in one kernel where a GPU has it for the shape. k holds
  // nothing of use afterwards.
  void append(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
              const HeadTransform&, const Tensor& positions, Stream&);
  // Whether that is one kernel for these rows.
  bool appends_in_one_pass(const Tensor& q, const Tensor& k, const Tensor& v, const HeadTransform&,
                           const Tensor& positions) const;
  void advance(int64_t tokens);  // of each sequence
  // Forgets everything from `length` on.
  void truncate(int64_t length);
  // [pages, page_size, kv_heads, head_dim] with scales.
  Tensor keys(int64_t layer) const;
  Tensor values(int64_t layer) const;
  // i32 [sequences, pages of one]: page i of sequence s is i * sequences + s, wherever it grows to.
  Tensor page_table() const;

 private:
  void check_positions(const Tensor& k, const Tensor& positions) const;
  void check_heads(const Tensor& q, const Tensor& k, const HeadTransform&) const;
  void check_append(int64_t layer, const Tensor& k, const Tensor& v, const Stream&) const;
  void store(int64_t layer, const Tensor& k, const Tensor& v, const int32_t* positions, Stream&);
  KvCacheOptions options_;
  Device device_;
  int64_t length_ = 0;
  std::vector<Tensor> keys_, values_;
  Tensor page_table_;
};

}  // namespace halftone
