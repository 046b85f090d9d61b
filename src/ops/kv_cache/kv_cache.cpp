#include "halftone/kv_cache.h"

#include <algorithm>
#include <cstring>

#include "base/arguments.h"
#include "base/device_memory.h"
#include "base/memory_limit.h"
#include "base/message.h"
#include "formats/quantize_rows.h"
#include "halftone/norm.h"
#include "ops/heads/kernels.h"
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

bool is_quantised(Format f) { return !is_plain_float(f); }

// One f32 per token and head, or one E4M3 per 16 elements.
Scaling scaling_of(Format f) {
  return f == Format::nvfp4 ? default_scaling(Format::nvfp4) : Scaling{Format::f32, 1, 0};
}

// [sequences * pages, page_size, kv_heads, head_dim], zeros.
Tensor make_pages(const KvCacheOptions& o, int64_t pages, const Device& device) {
  pages *= o.sequences;
  Tensor data = Tensor::zeros({pages, o.page_size, o.kv_heads, o.head_dim}, o.format, device);
  if (!is_quantised(o.format)) return data;
  const Scaling scaling = scaling_of(o.format);
  const int64_t groups = o.format == Format::nvfp4 ? o.head_dim / 16 : 1;
  return data.quantized(
      scaling, Tensor::zeros({pages, o.page_size, o.kv_heads, groups}, scaling.format, device));
}

void copy_bytes(const Tensor& from, const Tensor& to) {
  copy_memory(to.device(), to.data(), from.device(), from.data(),
              static_cast<size_t>(packed_bytes(from.format(), from.numel())));
}

QuantizeOptions quantization_of(Format f) {
  QuantizeOptions options(f);
  options.scaling = scaling_of(f);
  if (f == Format::nvfp4) options.tensor_scale = 1.0f;
  return options;
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
  if (is_quantised(o.format)) {
    const Scaling scaling = scaling_of(o.format);
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
  // Told before the system lends pages it does not have: layer by layer each allocation succeeds.
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

namespace {

// Rows [begin, end) of x, counted over rows and heads, to their places in the cache.
void store_rows(const AppendArgs& args, int part, int64_t begin, int64_t end) {
  const CacheShape& shape = args.shape;
  const int64_t dim = shape.head_dim, row_bytes = packed_bytes(args.format, dim);
  const int64_t source_bytes = dim * bits(args.source) / 8;
  const FormatKernels& kernels = format_kernels();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i / shape.heads, head = i % shape.heads;
    const int64_t position =
        args.positions != nullptr ? args.positions[row] : args.first + row % args.tokens;
    const int64_t cell = shape.cell(row / args.tokens, position);
    if (cell < 0) continue;
    const int64_t target_row = cell * shape.heads + head;
    const char* source = args.x[part][i];
    uint8_t* target = args.codes[part] + target_row * row_bytes;
    if (args.scales[part] != nullptr) {
      const int64_t scales = args.recipe.group > 0 ? dim / args.recipe.group : 1;
      const int64_t scale_bytes = scales * bits(args.recipe.scale_format) / 8;
      const RowsOut out{target, row_bytes, args.scales[part] + target_row * scale_bytes,
                        scale_bytes};
      quantize_rows(args.recipe, {args.source, source, 1, dim, source_bytes}, out);
    } else if (args.source == args.format) {
      std::memcpy(target, source, static_cast<size_t>(row_bytes));
    } else {
      kernels.convert(args.source, args.format, source, dim, target);
    }
  }
}

Rows rows_of(const Tensor& x) {
  const int64_t bytes = bits(x.format()) / 8, heads = x.size(1);
  return {x.data<char>(), heads, x.stride(0) * bytes, heads == 1 ? 0 : x.stride(1) * bytes};
}

void check_rows(const char* what, const Tensor& x, const KvCacheOptions& o, const Device& device) {
  require(x.defined() && is_plain_float(x.format()), what, " is ",
          x.defined() ? name(x.format()) : "undefined", "; a cache takes f32, f16 or bf16");
  require(x.device() == device, what, " is on ", x.device().name(), ", the cache on ",
          device.name());
  require(x.rank() == 3 && x.size(1) == o.kv_heads && x.size(2) == o.head_dim, what, " has shape ",
          shown(x.shape()), "; the cache takes [rows, ", o.kv_heads, ", ", o.head_dim, "]");
  require(x.stride(2) == 1 || o.head_dim == 1, what, " has stride ", x.stride(2),
          " in its last dimension; it must be 1");
}

}  // namespace

void KvCache::check_append(int64_t layer, const Tensor& k, const Tensor& v,
                           const Stream& stream) const {
  require(layer >= 0 && layer < options_.layers, "layer is ", layer, "; the cache has ",
          options_.layers);
  check_stream("kv_cache", stream, device_);
  check_rows("k", k, options_, device_);
  check_rows("v", v, options_, device_);
  require(k.size(0) == v.size(0) && k.format() == v.format(), "k has ", k.size(0), " rows of ",
          name(k.format()), " and v ", v.size(0), " of ", name(v.format()));
  require(k.size(0) % options_.sequences == 0, "k has ", k.size(0), " rows for the cache's ",
          options_.sequences, " sequences; each takes as many");
}

void KvCache::append(int64_t layer, const Tensor& k, const Tensor& v, Stream& stream) {
  check_append(layer, k, v, stream);
  const int64_t tokens = k.size(0) / options_.sequences;
  require(length_ + tokens <= options_.max_length, "the cache is full: ", length_, " tokens and ",
          tokens, " more exceed max_length ", options_.max_length);
  reserve(length_ + tokens);
  store(layer, k, v, nullptr, stream);
}

void KvCache::check_positions(const Tensor& k, const Tensor& positions) const {
  require(positions.defined() && positions.format() == Format::i32 &&
              positions.device() == device_ && positions.shape() == Shape{k.size(0)} &&
              positions.contiguous(),
          "positions is ", positions.defined() ? to_string(positions) : "undefined",
          "; the cache takes i32 [", k.size(0), "] on ", device_.name(), ", without gaps");
}

void KvCache::append(int64_t layer, const Tensor& k, const Tensor& v, const Tensor& positions,
                     Stream& stream) {
  check_append(layer, k, v, stream);
  check_positions(k, positions);
  store(layer, k, v, positions.data<int32_t>(), stream);
}

void KvCache::append(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                     const HeadTransform& to, const Tensor& positions, Stream& stream) {
  check_append(layer, k, v, stream);
  check_positions(k, positions);
  require(q.defined() && q.rank() == 3 && q.size(0) == k.size(0) && q.size(2) == k.size(2) &&
              q.format() == k.format() && q.device() == device_,
          "q is ", q.defined() ? to_string(q) : "undefined", "; beside k ", to_string(k),
          " it must have as many rows and elements of a head, in its format and on its device");
  const Tensor pages[2] = {keys_[static_cast<size_t>(layer)], values_[static_cast<size_t>(layer)]};
  HeadsArgs args;
  args.tokens = k.size(0), args.head_dim = options_.head_dim, args.format = k.format();
  args.eps = to.eps, args.count = 3;
  args.shape = {options_.kv_heads, options_.head_dim, options_.page_size, options_.sequences,
                page_table_.size(1)};
  args.sequence_tokens = std::max<int64_t>(args.tokens / options_.sequences, 1);
  args.cache_positions = positions.data<int32_t>();
  bool fits = !device_.is_cpu() && (is_quantised(options_.format) || k.format() == options_.format);
  if (to.rope != nullptr) {
    fits = fits && to.rope->problem.options.style == RopeStyle::half_split &&
           2 * static_cast<int64_t>(to.rope->frequencies.size()) == options_.head_dim;
    if (fits) args.frequencies = to.rope->on_device.data<double>();
    args.magnitude = to.rope->magnitude, args.positions = positions.data();
  }
  const Tensor* const all[3] = {&q, &k, &v};
  for (int i = 0; i < 3; ++i) {
    HeadRows& rows = args.rows[i];
    rows.x = rows_of(*all[i]), rows.heads = all[i]->size(1);
    const Tensor& weight = i == 0 ? to.q_weight : to.k_weight;
    if (i < 2 && weight.defined()) {
      check_tensor("kv_cache", i == 0 ? "q_weight" : "k_weight", weight, {options_.head_dim},
                   weight.format(), device_);
      rows.weight = weight.data(), rows.weight_format = weight.format();
      rows.weight_offset = to.weight_offset;
    }
    rows.rotates = i < 2 && to.rope != nullptr;
    if (i == 0) {
      rows.out = rows.x;
      continue;
    }
    rows.cached = true;
    if (!is_quantised(options_.format)) {
      rows.pages = pages[i - 1].data<char>();
      continue;
    }
    rows.codes.recipe = make_recipe(quantization_of(options_.format));
    rows.codes.codes = pages[i - 1].data<uint8_t>();
    rows.codes.scales = pages[i - 1].scales().data<uint8_t>();
  }
  if (fits && *why_no_heads_gpu(args) == 0) return heads_gpu(args, stream);
  for (int i = 0; i < 2; ++i) {
    const Tensor &x = *all[i], &weight = i == 0 ? to.q_weight : to.k_weight;
    if (weight.defined()) {
      NormProblem problem{x.size(0) * x.size(1), x.size(2), x.format(), weight.format(), to.eps};
      problem.weight_offset = to.weight_offset;
      run(plan(problem, device_), {x, weight, x, {}, {}, {}}, stream);
    }
    if (to.rope == nullptr) continue;
    RopePlan rope = *to.rope;
    rope.problem.tokens = x.size(0), rope.problem.heads = x.size(1);
    run(rope, {x, positions}, stream);
  }
  store(layer, k, v, positions.data<int32_t>(), stream);
}

void KvCache::store(int64_t layer, const Tensor& k, const Tensor& v, const int32_t* positions,
                    Stream& stream) {
  const Tensor parts[2] = {keys_[static_cast<size_t>(layer)], values_[static_cast<size_t>(layer)]};
  AppendArgs args;
  args.shape = {options_.kv_heads, options_.head_dim, options_.page_size, options_.sequences,
                page_table_.size(1)};
  args.source = k.format(), args.format = options_.format;
  args.x[0] = rows_of(k), args.x[1] = rows_of(v);
  args.rows = k.size(0), args.tokens = args.rows / options_.sequences;
  args.positions = positions, args.first = length_;
  const bool quantised = is_quantised(options_.format);
  if (quantised) args.recipe = make_recipe(quantization_of(options_.format));
  for (int part = 0; part < 2; ++part) {
    args.codes[part] = parts[part].data<uint8_t>();
    if (quantised) args.scales[part] = parts[part].scales().data<uint8_t>();
  }
  if (!device_.is_cpu()) return append_gpu(args, stream);
  for (int part = 0; part < 2; ++part) {
    for_rows(stream, args.rows * options_.kv_heads, options_.head_dim,
             [&](int64_t begin, int64_t end) { store_rows(args, part, begin, end); });
  }
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
