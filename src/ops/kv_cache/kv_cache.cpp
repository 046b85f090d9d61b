// Paged KV cache: storage, growth and the page table.
#include "halftone/kv_cache.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/device_memory.h"
#include "base/memory_limit.h"
#include "base/message.h"
#include "ops/kv_cache/kernels.h"

namespace halftone {

namespace {

int64_t pages_of(const KvCacheOptions& o, int64_t length) {
  return (length + o.page_size - 1) / o.page_size;
}

// Elements of the keys and values of `pages` pages of every sequence and layer; -1 beyond 2^58, the
// largest tensors.
int64_t elements_of(const KvCacheOptions& o, int64_t pages) {
  int64_t count = 2;
  for (const int64_t extent : {o.layers, o.sequences, pages, o.page_size, o.kv_heads, o.head_dim}) {
    if (__builtin_mul_overflow(count, extent, &count) || count > int64_t{1} << 58) return -1;
  }
  return count;
}

// [sequences * pages, page_size, kv_heads, head_dim], zeros.
Tensor make_pages(const KvCacheOptions& o, int64_t pages, const Device& device) {
  pages *= o.sequences;
  Tensor data = Tensor::zeros({pages, o.page_size, o.kv_heads, o.head_dim}, o.format, device);
  if (!is_quantised_cache(o.format)) return data;
  const Scaling scaling = cache_scaling(o.format);
  const int64_t groups = is_block(o.format) ? o.head_dim / scaling.block_cols : 1;
  return data.quantized(
      scaling, Tensor::zeros({pages, o.page_size, o.kv_heads, groups}, scaling.format, device));
}

void copy_bytes(const Tensor& from, const Tensor& to) {
  copy_memory(to.device(), to.data(), from.device(), from.data(),
              static_cast<size_t>(packed_bytes(from.format(), from.numel())));
}

}  // namespace

Support can_run(const KvCacheOptions& o, const Device&) {
  const auto no = [](auto... parts) { return Support{false, concat(parts...)}; };
  if (!is_plain_float(o.format) && o.format != Format::fp8_e4m3 && o.format != Format::nvfp4) {
    return no("the cache format is ", name(o.format),
              "; it must be f32, f16, bf16, fp8_e4m3 or nvfp4");
  }
  if (o.layers < 1) return no("layers is ", o.layers, "; it must be at least 1");
  if (o.sequences < 1 || o.sequences > 65535) {
    return no("sequences is ", o.sequences, "; it must be from 1 to 65535");
  }
  if (o.kv_heads < 1) return no("kv_heads is ", o.kv_heads, "; it must be at least 1");
  if (o.head_dim < 1 || o.head_dim > 1024) {
    return no("head_dim is ", o.head_dim, "; it must be from 1 to 1024");
  }
  if (o.format == Format::nvfp4 && o.head_dim % 16 != 0) {
    return no("head_dim is ", o.head_dim, "; a cache in nvfp4 needs a multiple of 16");
  }
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;  // the lengths of attention are i32
  if (o.page_size < 1 || o.page_size > kMost) {
    return no("page_size is ", o.page_size, "; it must be from 1 to 2^31 - 1");
  }
  if (o.max_length < 1 || o.max_length > kMost) {
    return no("max_length is ", o.max_length, "; it must be from 1 to 2^31 - 1");
  }
  for (const std::vector<float>* scales : {&o.key_scales, &o.value_scales}) {
    if (scales->empty()) continue;
    const char* const what = scales == &o.key_scales ? "key_scales" : "value_scales";
    if (o.format != Format::fp8_e4m3) {
      return no(what, " are given for a cache in ", name(o.format), "; only fp8_e4m3 has them");
    }
    if (static_cast<int64_t>(scales->size()) != o.layers) {
      return no(what, " has ", scales->size(), " numbers; the cache has ", o.layers, " layers");
    }
    for (const float scale : *scales) {
      if (scale == 0 || (std::isnormal(scale) && scale > 0)) continue;
      return no(what, " has ", scale, "; a scale must be positive and normal, or 0 for none");
    }
  }
  if (elements_of(o, pages_of(o, o.max_length)) < 0) {
    return no("a cache of ", o.layers, " layers, ", o.kv_heads, " kv_heads, head_dim ", o.head_dim,
              " and max_length ", o.max_length, " (in pages of ", o.page_size,
              ") has more than 2^58 elements");
  }
  return {};
}

KvCache::KvCache(const KvCacheOptions& options, Device device)
    : options_(options), device_(device) {
  const Support support = can_run(options, device);
  require(support.ok, support.reason);
  reserve(1);
}

int64_t KvCache::bytes() const {
  int64_t total = page_table_.bytes();
  for (const Tensor& t : keys_) total += t.bytes();
  for (const Tensor& t : values_) total += t.bytes();
  return total;
}

int64_t KvCache::bytes(const KvCacheOptions& o, int64_t length) {
  const int64_t pages = pages_of(o, length), elements = elements_of(o, pages);
  int64_t scales = 0;
  if (is_quantised_cache(o.format)) {
    const Scaling scaling = cache_scaling(o.format);
    const int64_t wide = scaling.block_cols > 0 ? scaling.block_cols : o.head_dim;
    scales = packed_bytes(scaling.format, elements / wide);
  }
  return packed_bytes(o.format, elements) + scales +
         o.sequences * pages * static_cast<int64_t>(sizeof(int32_t));
}

// Doubles the pages, so that appending n tokens moves each at most twice on average.
void KvCache::reserve(int64_t length) {
  require(length <= options_.max_length, "a length of ", length, " exceeds max_length ",
          options_.max_length);
  const int64_t have = keys_.empty() ? 0 : page_table_.size(1);
  const int64_t need = pages_of(options_, length);
  if (need <= have) return;
  const int64_t pages = std::min(std::max(need, 2 * have), pages_of(options_, options_.max_length));
  // Checked before the system overcommits: layer by layer each allocation would succeed.
  const int64_t bytes = packed_bytes(options_.format, elements_of(options_, pages)) +
                        2 * options_.layers * static_cast<int64_t>(sizeof(Tensor));
  if (device_.is_cpu() && static_cast<size_t>(bytes) > memory_limit()) {
    fail(ErrorCode::out_of_memory, "the cache needs ", bytes, " bytes for ", length, " tokens in ",
         options_.layers, " layers; this machine has ", memory_limit());
  }
  const auto grow = [&](std::vector<Tensor>* all) {
    std::vector<Tensor> grown(static_cast<size_t>(options_.layers));
    for (size_t layer = 0; layer < grown.size(); ++layer) {
      grown[layer] = make_pages(options_, pages, device_);
      if (layer >= all->size()) continue;
      copy_bytes((*all)[layer], grown[layer]);
      if (grown[layer].has_scales()) copy_bytes((*all)[layer].scales(), grown[layer].scales());
    }
    return grown;
  };
  // Both are made before either is replaced: a failed allocation leaves the cache as it was.
  std::vector<Tensor> keys = grow(&keys_), values = grow(&values_);
  Tensor table = Tensor::empty({options_.sequences, pages}, Format::i32);
  for (int64_t s = 0; s < options_.sequences; ++s) {
    for (int64_t i = 0; i < pages; ++i) {
      table.data<int32_t>()[s * pages + i] = static_cast<int32_t>(i * options_.sequences + s);
    }
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
  page_table_ = table.to(device_);
}

void KvCache::advance(int64_t tokens) {
  require(tokens >= 0 && length_ + tokens <= options_.max_length, "advance by ", tokens, " from ",
          length_, " leaves the range 0 to max_length ", options_.max_length);
  reserve(length_ + tokens);
  length_ += tokens;
}

void KvCache::truncate(int64_t length) {
  require(length >= 0 && length <= length_, "truncate to ", length, "; the cache holds ", length_,
          " tokens");
  length_ = length;
}

Tensor KvCache::keys(int64_t layer) const {
  require(layer >= 0 && layer < options_.layers, "layer is ", layer, "; the cache has ",
          options_.layers);
  return keys_[static_cast<size_t>(layer)];
}

Tensor KvCache::values(int64_t layer) const {
  require(layer >= 0 && layer < options_.layers, "layer is ", layer, "; the cache has ",
          options_.layers);
  return values_[static_cast<size_t>(layer)];
}

Tensor KvCache::page_table() const { return page_table_; }

}  // namespace halftone
