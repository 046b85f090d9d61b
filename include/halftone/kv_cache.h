// Keys and values of one sequence per layer, paged, in any cache format.
#pragma once
#include <vector>

#include "halftone/attention.h"
#include "halftone/error.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct KvCacheOptions {
  // f32, bf16, f16, fp8_e4m3 (one f32 scale a token and head) or nvfp4 (one E4M3 scale per 16
  // elements, no tensor scale).
  Format format = Format::bf16;
  int64_t layers = 0, kv_heads = 0, head_dim = 0;
  int64_t page_size = 64;
  int64_t max_length = 0;
};

Support can_run(const KvCacheOptions&, const Device&);

// Storage doubles by whole pages up to max_length; growing moves it, so tensors of a layer are
// asked for after the append. Not shared between threads.
class KvCache {
 public:
  explicit KvCache(const KvCacheOptions&, Device = Device::cpu());
  const KvCacheOptions& options() const { return options_; }
  int64_t length() const { return length_; }
  int64_t bytes() const;
  // Writes k, v (f32, f16 or bf16 [tokens, kv_heads, head_dim]) of one layer behind `length()`,
  // quantised to the cache's format. `advance` makes them count.
  void append(int64_t layer, const Tensor& k, const Tensor& v, Stream&);
  void advance(int64_t tokens);
  // Forgets everything from `length` on.
  void truncate(int64_t length);
  // [pages, page_size, kv_heads, head_dim] with scales.
  Tensor keys(int64_t layer) const;
  Tensor values(int64_t layer) const;
  Tensor page_table() const;  // i32 [1, pages]

 private:
  void reserve(int64_t length);
  KvCacheOptions options_;
  Device device_;
  int64_t length_ = 0;
  std::vector<Tensor> keys_, values_;
  Tensor page_table_;
};

}  // namespace halftone
