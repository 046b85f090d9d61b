// Host side common to the attention kernels of sm_90a.
#include "ops/attention/sm90/host.h"

#include <algorithm>

#include "base/message.h"
#include "ops/attention/sm90/softmax.cuh"

namespace halftone::attention_sm90 {

bool masked(const AttentionProblem& p) {
  return p.causal || p.window_left >= 0 || p.window_right >= 0 || p.attention_chunk_size > 0;
}

bool aligned(const Tensor& t) {
  if (reinterpret_cast<uintptr_t>(t.data()) % 16 != 0) return false;
  for (int dim = 0; dim + 1 < t.rank(); ++dim) {
    if (t.size(dim) != 1 && (t.stride(dim) * bits(t.format()) % 128 != 0 || t.stride(dim) < 0))
      return false;
  }
  return true;
}
bool tma_compatible(const Tensor& t) {
  bool forward = aligned(t);
  for (int dim = 0; dim + 1 < t.rank(); ++dim) forward &= t.size(dim) == 1 || t.stride(dim) > 0;
  return forward && t.numel() > 0;
}

pipe::TensorBox box_of(const Tensor& t, uint32_t rows, uint32_t heads, int64_t length,
                       tile::Swizzle swizzle) {
  const int64_t bytes = bits(t.format()) / 8;
  pipe::TensorBox box;
  box.type = t.format() == Format::bf16  ? hw::Type::bf16
             : t.format() == Format::f16 ? hw::Type::f16
                                         : hw::Type::e4m3;
  box.address = const_cast<void*>(t.data()), box.rank = 4;
  for (int i = 0; i < 4; ++i) {
    const int dim = t.rank() - 1 - i;
    box.extent[static_cast<size_t>(i)] = dim < 0 ? 1 : static_cast<uint64_t>(t.size(dim));
    if (i == 0) continue;
    // A dimension of extent 1 does not use its stride, but the driver checks it.
    const bool used = dim >= 0 && t.size(dim) != 1;
    const int64_t line = used ? t.stride(dim) * bytes : (t.size(-1) * bytes + 15) / 16 * 16;
    box.stride[static_cast<size_t>(i - 1)] = static_cast<uint64_t>(line);
  }
  box.extent[2] = std::min(box.extent[2], static_cast<uint64_t>(length));
  box.box = {tile::span(swizzle) / static_cast<uint32_t>(bytes), heads, rows, 1, 1};
  box.swizzle = swizzle;
  return box;
}

bool mask_tma_compatible(const Tensor& t, int64_t keys) {
  bool rows = tma_compatible(t) && t.size(3) == keys && (keys == 1 || t.stride(3) == 1);
  for (int dim = 0; dim < 3; ++dim) rows &= t.size(dim) == 1 || t.stride(dim) >= keys;
  return rows;
}

pipe::TensorBox mask_box(const Tensor& t) {
  const int64_t bytes = bits(t.format()) / 8;
  pipe::TensorBox box;
  box.type = hw::Type::u8, box.address = const_cast<void*>(t.data()), box.rank = 4;
  box.extent[0] = static_cast<uint64_t>(t.size(3) * bytes);
  for (int dim = 0; dim < 3; ++dim) {
    const auto at = static_cast<size_t>(2 - dim);
    // A dimension of extent 1 does not use its stride, but the driver checks it.
    const int64_t line =
        t.size(dim) != 1 ? t.stride(dim) * bytes : (t.size(3) * bytes + 15) / 16 * 16;
    box.extent[at + 1] = static_cast<uint64_t>(t.size(dim));
    box.stride[at] = static_cast<uint64_t>(line);
  }
  box.box = {128, 64, 1, 1, 1};
  box.swizzle = tile::Swizzle::b128;
  return box;
}

namespace {

KeyRange range_of(const AttentionProblem& p) {
  constexpr auto bound = [](int64_t x) {  // beyond any length: unbounded
    return static_cast<int32_t>(x > kLongest ? -1 : x);
  };
  KeyRange range;
  range.queries = static_cast<int32_t>(p.query_length);
  range.count = static_cast<int32_t>(p.key_length);
  range.left = bound(p.window_left);
  range.right = p.causal ? 0 : bound(p.window_right);
  range.chunk = p.attention_chunk_size > kLongest ? static_cast<int32_t>(kLongest)
                                                  : static_cast<int32_t>(p.attention_chunk_size);
  return range;
}

}  // namespace

void set_common(const AttentionProblem& p, const AttentionTensors& t, const DeviceProperties& chip,
                Params* params) {
  params->out = const_cast<uint16_t*>(t.out.data<uint16_t>());
  const int row_dim = t.out.rank() - 3;
  params->out_batch = row_dim == 0 ? 0 : t.out.stride(0);
  params->out_row = t.out.stride(row_dim), params->out_head = t.out.stride(row_dim + 1);
  if (p.lse) {
    params->lse = const_cast<float*>(t.lse.data<float>());
    params->lse_batch = t.lse.stride(0), params->lse_head = t.lse.stride(1);
    params->lse_row = t.lse.stride(2);
  }
  if (p.sinks) params->sinks = t.sinks.data<float>(), params->sink_stride = t.sinks.stride(0);
  params->batch = static_cast<uint32_t>(p.batch), params->heads = static_cast<uint32_t>(p.heads);
  params->group = static_cast<uint32_t>(p.heads / p.kv_heads);
  params->value_dim = static_cast<uint32_t>(value_dim(p));
  params->range = range_of(p);
  params->scale_log2 = softmax_scale(p) * kLog2e;
  // K and V of a section (head and sequence pairs that run together) take this part of the L2; the
  // rest is for Q, O and what comes next. An eighth is 2 to 5 % faster than half for heads of 128
  // and 256 and up to 2048 keys, and as fast beyond; heads of 64 lose 4 % by it.
  const double part = p.head_dim > 64 ? 0.125 : 0.5;
  const double bytes = static_cast<double>(p.key_length + 1) *
                       static_cast<double>(p.head_dim + value_dim(p)) *
                       static_cast<double>(bits(p.k)) / 8 / params->group;
  const double groups = static_cast<double>(chip.l2_bytes) * part / bytes / params->group;
  params->section = params->group * (groups < 1       ? 1
                                     : groups > 65536 ? 65536
                                                      : static_cast<uint32_t>(groups));
}

namespace {

Rows rows_of(const Tensor& t) {
  const int row_dim = t.rank() - 3;
  const int64_t bytes = bits(t.format()) / 8;  // 4-bit formats are not read as rows
  return {static_cast<const uint8_t*>(t.data()),
          row_dim == 0 ? 0 : t.stride(0) * bytes,
          t.stride(row_dim) * bytes,
          t.stride(row_dim + 1) * bytes,
          static_cast<uint32_t>(t.size(-1)),
          aligned(t)};
}

void set_scores(const AttentionProblem& p, const AttentionTensors& t, SoftcapMask* softcap_mask) {
  const float scale = softmax_scale(p);
  softcap_mask->active = p.mask || p.softcap != 0 || !(scale > 0);
  softcap_mask->scale_log2 = scale * kLog2e;
  if (p.softcap != 0) {
    softcap_mask->softcap_log2 = p.softcap * kLog2e;
    softcap_mask->softcap_exponent = 2 * kLog2e * scale / p.softcap;
  }
  if (!p.mask) return;
  softcap_mask->mask_kind = *p.mask == Format::u8     ? MaskKind::boolean
                            : *p.mask == Format::f32  ? MaskKind::f32
                            : *p.mask == Format::bf16 ? MaskKind::bf16
                                                      : MaskKind::f16;
  const auto stride = [&](int dim) { return t.mask.size(dim) == 1 ? 0 : t.mask.stride(dim); };
  softcap_mask->mask = t.mask.data();
  softcap_mask->batch = stride(0), softcap_mask->head = stride(1), softcap_mask->query = stride(2);
  softcap_mask->key = stride(3);
}

}  // namespace

void set_general(const AttentionProblem& p, const AttentionTensors& t, const DeviceProperties& chip,
                 GeneralParams* params) {
  set_common(p, t, chip, params);
  set_scores(p, t, &params->scores);
  params->q_rows = rows_of(t.q), params->k_rows = rows_of(t.k), params->v_rows = rows_of(t.v);
  const auto lengths = [](const Tensor& x) { return x.defined() ? x.data<int32_t>() : nullptr; };
  params->cu_queries = lengths(t.cu_seqlens_q), params->cu_keys = lengths(t.cu_seqlens_k);
  params->used_keys = lengths(t.seqused_k);
  const int64_t query_rows = t.q.size(t.q.rank() - 3);
  int64_t key_rows = t.k.size(t.k.rank() - 3);
  params->query_rows = static_cast<int32_t>(std::min(query_rows, 2 * kLongest - 1));
  params->key_rows = static_cast<int32_t>(std::min(key_rows, 2 * kLongest - 1));
  if (p.page_size) {
    params->pages = t.page_table.data<int32_t>(), params->pages_stride = t.page_table.stride(0);
    params->page_size = static_cast<uint32_t>(*p.page_size);
    params->page_count = static_cast<uint32_t>(t.k.size(0));
    key_rows = t.page_table.size(1) * *p.page_size;
  }
  params->range.count = static_cast<int32_t>(std::min<int64_t>(params->range.count, key_rows));
  params->pack = params->splits = 1;
  params->out_by_elements = !aligned(t.out) || value_dim(p) % 8 != 0;
}

std::string size_error(const AttentionProblem& p, const char* kernel) {
  if (p.head_dim > 256 || value_dim(p) > 256) {
    return concat("head_dim is ", p.head_dim, " and value_dim ", value_dim(p), "; ", kernel,
                  " takes up to 256");
  }
  if (p.query_length > kLongest || p.key_length > kLongest) {
    return concat("query_length is ", p.query_length, " and key_length ", p.key_length, "; ",
                  kernel, " takes up to ", kLongest);
  }
  if (p.page_size && *p.page_size > kLongest) {
    return concat("page_size is ", *p.page_size, "; ", kernel, " takes up to ", kLongest);
  }
  // Tiles, of 64 rows at least, are numbered in 32 bits; so are the rows of the split-KV combine.
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.heads) *
                      static_cast<double>(p.query_length < kMinFullTileQueries ? kMinFullTileQueries
                                                                               : p.query_length);
  if (rows >= 0x1p31) {
    return concat("batch ", p.batch, " x heads ", p.heads, " x query_length ", p.query_length,
                  " is too much; ", kernel, " takes fewer than 2^31 rows");
  }
  return {};
}

}  // namespace halftone::attention_sm90
