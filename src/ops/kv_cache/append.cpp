// Appends K and V to the pages of a cache, with QK norm and RoPE fused where a kernel takes the
// shape.
#include <algorithm>
#include <cstring>
#include <optional>

#include "base/arguments.h"
#include "base/backend.h"
#include "base/message.h"
#include "formats/quantize_rows.h"
#include "halftone/kv_cache.h"
#include "halftone/norm.h"
#include "ops/heads/kernels.h"
#include "ops/kv_cache/kernels.h"

namespace halftone {

namespace {

QuantizeOptions quantization_of(Format f) {
  QuantizeOptions options(f);
  options.scaling = cache_scaling(f);
  if (has_tensor_scale(f)) options.tensor_scale = 1.0f;
  return options;
}

// Stores rows [begin, end) of x, counted over rows and heads, to their slots in the cache.
void store_rows(const AppendArgs& args, int part, int64_t begin, int64_t end) {
  const CacheShape& shape = args.shape;
  const int64_t dim = shape.head_dim, row_bytes = packed_bytes(args.format, dim);
  const int64_t source_bytes = dim * bits(args.source) / 8;
  const FormatKernels& kernels = format_kernels();
  for (int64_t i = begin; i < end; ++i) {
    const int64_t row = i / shape.heads, head = i % shape.heads;
    const int64_t position =
        args.positions != nullptr ? args.positions[row] : args.first + row % args.tokens;
    const int64_t slot = shape.slot(row / args.tokens, position);
    if (slot < 0) continue;
    const int64_t target_row = slot * shape.heads + head;
    const char* source = args.x[part][i];
    uint8_t* target = args.codes[part] + target_row * row_bytes;
    if (args.scales[part] != nullptr) {
      const int64_t scales = args.recipe.group > 0 ? dim / args.recipe.group : 1;
      const int64_t scale_bytes = scales * bits(args.recipe.scale_format) / 8;
      uint8_t* const scale = args.scales[part] + target_row * scale_bytes;
      const RowsIn in{args.source, source, 1, dim, source_bytes};
      if (const float fixed = args.static_scale[part]; fixed > 0) {
        std::memcpy(scale, &fixed, sizeof fixed);
        quantize_rows_with_scale(args.format, fixed, in, target, row_bytes);
      } else {
        quantize_rows(args.recipe, in, {target, row_bytes, scale, scale_bytes});
      }
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
  if (!(x.device() == device)) {
    fail(ErrorCode::invalid_argument, what, " is on ", x.device().name(), ", the cache on ",
         device.name());
  }
  require(x.rank() == 3 && x.size(1) == o.kv_heads && x.size(2) == o.head_dim, what, " has shape ",
          shown(x.shape()), "; the cache takes [rows, ", o.kv_heads, ", ", o.head_dim, "]");
  require(x.stride(2) == 1 || o.head_dim == 1, what, " has stride ", x.stride(2),
          " in its last dimension; it must be 1");
}

// 0: none.
float static_scale(const KvCacheOptions& options, int64_t layer, int part) {
  const std::vector<float>& scales = part == 0 ? options.key_scales : options.value_scales;
  return scales.empty() ? 0.0f : scales[static_cast<size_t>(layer)];
}

// Arguments of the fused heads kernel; nothing where it does not take a step.
std::optional<HeadsArgs> heads_args(const KvCache& cache, int64_t layer, const Tensor& q,
                                    const Tensor& k, const Tensor& v, const HeadTransform& to,
                                    const Tensor& positions) {
  const KvCacheOptions& options = cache.options();
  const Format format = options.format;
  if (k.device().is_cpu() || !(is_quantised_cache(format) || k.format() == format)) return {};
  const Tensor pages[2] = {cache.keys(layer), cache.values(layer)};
  HeadsArgs args;
  args.tokens = k.size(0), args.head_dim = options.head_dim, args.format = k.format();
  args.eps = to.eps, args.count = 3;
  args.shape = {options.kv_heads, options.head_dim, options.page_size, options.sequences,
                cache.page_table().size(1)};
  args.sequence_tokens = std::max<int64_t>(args.tokens / options.sequences, 1);
  args.cache_positions = positions.data<int32_t>();
  // Outside a graph the kernels of an earlier call may still run.
  args.prefetch_positions =
      to.prefetch_positions && (k.device().kind() != Device::Kind::cuda || cuda::captures());
  if (to.rope != nullptr) {
    const bool whole = to.rope->problem.options.style == RopeStyle::half_split &&
                       2 * static_cast<int64_t>(to.rope->frequencies.size()) == options.head_dim;
    if (!whole) return {};
    args.frequencies = to.rope->on_device.data<double>();
    args.magnitude = to.rope->magnitude, args.positions = positions.data();
  }
  const Tensor* const all[3] = {&q, &k, &v};
  for (int i = 0; i < 3; ++i) {
    HeadRows& rows = args.rows[i];
    rows.x = rows_of(*all[i]), rows.heads = all[i]->size(1);
    const Tensor& weight = i == 0 ? to.q_weight : to.k_weight;
    if (i < 2 && weight.defined()) {
      rows.weight = weight.data(), rows.weight_format = weight.format();
      rows.weight_offset = to.weight_offset;
    }
    rows.rotates = i < 2 && to.rope != nullptr;
    if (i == 0) {
      rows.out = rows.x;
      continue;
    }
    rows.cached = true;
    if (!is_quantised_cache(format)) {
      rows.pages = pages[i - 1].data<char>();
      continue;
    }
    rows.static_scale = static_scale(options, layer, i - 1);
    rows.codes.recipe = make_recipe(quantization_of(format));
    rows.codes.codes = pages[i - 1].data<uint8_t>();
    rows.codes.scales = pages[i - 1].scales().data<uint8_t>();
  }
  if (*heads_gpu_error(args) != 0) return {};
  return args;
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
  const bool fits = positions.defined() && positions.format() == Format::i32 &&
                    positions.device() == device_ && positions.shape() == Shape{k.size(0)} &&
                    positions.contiguous();
  if (fits) return;  // what follows is only for the message
  fail(ErrorCode::invalid_argument, "positions is ",
       positions.defined() ? to_string(positions) : "undefined", "; the cache takes i32 [",
       k.size(0), "] on ", device_.name(), ", without gaps");
}

void KvCache::append(int64_t layer, const Tensor& k, const Tensor& v, const Tensor& positions,
                     Stream& stream) {
  check_append(layer, k, v, stream);
  check_positions(k, positions);
  store(layer, k, v, positions.data<int32_t>(), stream);
}

void KvCache::check_heads(const Tensor& q, const Tensor& k, const HeadTransform& to) const {
  const bool fits = q.defined() && q.rank() == 3 && q.size(0) == k.size(0) &&
                    q.size(2) == k.size(2) && q.format() == k.format() && q.device() == device_;
  if (!fits) {
    fail(ErrorCode::invalid_argument, "q is ", q.defined() ? to_string(q) : "undefined",
         "; beside k ", to_string(k),
         " it must have as many rows and elements of a head, in its format and on its device");
  }
  for (const Tensor* weight : {&to.q_weight, &to.k_weight}) {
    if (!weight->defined()) continue;
    check_tensor("kv_cache", weight == &to.q_weight ? "q_weight" : "k_weight", *weight,
                 {options_.head_dim}, weight->format(), device_);
  }
}

bool KvCache::appends_in_one_pass(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const HeadTransform& to, const Tensor& positions) const {
  return heads_args(*this, 0, q, k, v, to, positions).has_value();
}

void KvCache::append(int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v,
                     const HeadTransform& to, const Tensor& positions, Stream& stream) {
  check_append(layer, k, v, stream);
  check_positions(k, positions);
  check_heads(q, k, to);
  if (const auto args = heads_args(*this, layer, q, k, v, to, positions))
    return heads_gpu(*args, stream);
  for (const Tensor* x : {&q, &k}) {
    const Tensor& weight = x == &q ? to.q_weight : to.k_weight;
    if (weight.defined()) {
      NormProblem problem{x->size(0) * x->size(1), x->size(2), x->format(), weight.format(),
                          to.eps};
      problem.weight_offset = to.weight_offset;
      run(plan(problem, device_), {*x, weight, *x, {}, {}, {}}, stream);
    }
    if (to.rope == nullptr) continue;
    RopePlan rope = *to.rope;
    rope.problem.tokens = x->size(0), rope.problem.heads = x->size(1);
    run(rope, {*x, positions}, stream);
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
  const bool quantised = is_quantised_cache(options_.format);
  if (quantised) args.recipe = make_recipe(quantization_of(options_.format));
  for (int part = 0; part < 2; ++part) {
    args.codes[part] = parts[part].data<uint8_t>();
    if (quantised) args.scales[part] = parts[part].scales().data<uint8_t>();
    args.static_scale[part] = static_scale(options_, layer, part);
  }
  if (!device_.is_cpu()) return append_gpu(args, stream);
  for (int part = 0; part < 2; ++part) {
    for_rows(stream, args.rows * options_.kv_heads, options_.head_dim,
             [&](int64_t begin, int64_t end) { store_rows(args, part, begin, end); });
  }
}

}  // namespace halftone
