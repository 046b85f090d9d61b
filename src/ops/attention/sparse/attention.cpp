// Sparse attention over selected tokens of latent caches (MLA) on the CPU: the tokens of a query
// are gathered and dequantised to BF16 rows, which then serve all heads as one attention tile.
#include "halftone/sparse_attention.h"

#include <algorithm>

#include "base/message.h"
#include "formats/codec.h"
#include "halftone/quantize.h"
#include "ops/attention/cpu/run_tiles.h"
#include "ops/attention/sparse/sparse.h"

namespace halftone {

namespace {

#define HALFTONE_SPARSE_ROW(level)                                                          \
  SparseAttentionKernel {                                                                   \
    {                                                                                       \
      "sparse_attention_" #level, Device::Kind::cpu, CpuLevel::level, sparse_problem_error, \
          &cpu_##level::attention_cpu                                                       \
    }                                                                                       \
  }
constexpr SparseAttentionKernel kKernels[] = {
#if defined(__x86_64__)
    HALFTONE_SPARSE_ROW(avx512_bf16),
    HALFTONE_SPARSE_ROW(avx512),
    HALFTONE_SPARSE_ROW(avx2),
#endif
    HALFTONE_SPARSE_ROW(baseline),
};
#undef HALFTONE_SPARSE_ROW

// Heads of a tile: their O (256 KB at value size 512) and a chunk of packed keys fit L2, and a
// gathered token serves them all.
constexpr int64_t kTileHeads = 128;

int64_t tile_heads(const SparseAttentionProblem& p) { return std::min(p.heads, kTileHeads); }
int64_t head_tiles(const SparseAttentionProblem& p) {
  return (p.heads + kTileHeads - 1) / kTileHeads;
}
int64_t max_tokens(const SparseAttentionProblem& p) {
  return p.indices + (p.extra ? p.extra_indices : 0);
}
int64_t chunk_of(const SparseAttentionProblem& p) {
  return attention_chunk(std::max(p.cache.dim, p.value_dim));
}
bool has_token_scales(const SparseAttentionProblem& p) {
  return p.cache.format == LatentFormat::fp8 || (p.extra && p.extra->format == LatentFormat::fp8);
}
int64_t byte_stride(const Tensor& t, int dim) { return t.stride(dim) * bits(t.format()) / 8; }

// Dequantises a token to BF16, except `scale`, which is applied to the score and to P.
void dequantise_token(const AttentionCpu& cpu, const LatentView& view, int64_t slot, uint16_t* out,
                      float* scale) {
  const LatentEncoding& encoding = view.encoding;
  *scale = 1;
  if (encoding.fp8_dims > 0) {
    const uint8_t* values = view.row(slot);
    const uint8_t* scales = view.row_scales(slot);
    uint8_t exponents[1024 / 32 + 1];
    std::memset(exponents, 127, sizeof exponents);
    bool exact = true;
    if (view.layout.format == LatentFormat::fp8) {
      *scale = load_f32(scales);
    } else {
      for (int64_t g = 0; g < encoding.fp8_dims; g += encoding.group) {
        uint8_t exponent = 0;
        if (view.layout.format == LatentFormat::fp8_584) {
          exponent = scales[g / encoding.group];
        } else {
          uint32_t bits;
          std::memcpy(&bits, scales + g / encoding.group * 4, 4);
          exact = exact && (bits & 0x807fffffu) == 0 && bits >= 0x00800000u && bits < 0x7f800000u;
          exponent = static_cast<uint8_t>(bits >> 23);
        }
        std::memset(exponents + g / 32, exponent, static_cast<size_t>(encoding.group / 32));
      }
    }
    const int64_t exact_dims = exact ? encoding.fp8_dims / 32 * 32 : 0;
    if (exact_dims > 0) cpu.dequantise_mxfp8(values, exponents, exact_dims, out);
    for (int64_t i = exact_dims; i < encoding.fp8_dims; ++i) {
      const float factor = view.layout.format == LatentFormat::fp8
                               ? 1.0f
                               : load_f32(scales + i / encoding.group * 4);
      out[i] = encode_bf16(decode_e4m3(values[i]) * factor);
    }
  }
  std::memcpy(out + encoding.fp8_dims, view.bf16_elements(slot),
              static_cast<size_t>(view.layout.dim - encoding.fp8_dims) * 2);
}

}  // namespace

Support can_run(const SparseAttentionProblem& problem, const Device& device) {
  std::string reason;
  const auto* kernel =
      choose(std::span<const SparseAttentionKernel>(kKernels), problem, device, &reason);
  return kernel != nullptr ? Support{} : Support{false, reason};
}

SparseAttentionPlan plan(const SparseAttentionProblem& problem, const Device& device) {
  std::string reason;
  const auto* kernel =
      choose(std::span<const SparseAttentionKernel>(kKernels), problem, device, &reason);
  require_support({kernel != nullptr, reason});
  const int64_t heads = tile_heads(problem);
  return {problem, device, kernel,
          kernel->function->scratch_bytes(problem.cache.dim, problem.value_dim, heads, 1,
                                          problem.heads <= kAttentionDecodeRows)};
}

std::string describe(const SparseAttentionPlan& plan) {
  require(plan.kernel != nullptr, "the plan of sparse attention is empty; make it with plan()");
  const SparseAttentionProblem& p = plan.problem;
  return concat(
      plan.kernel->name, ": cache ", name(p.cache.format), ", ", p.heads, " heads of ", p.cache.dim,
      "/", p.value_dim, ", ", p.indices, " entries a query",
      p.extra ? concat(" and ", p.extra_indices, " of a second cache in ", name(p.extra->format))
              : "",
      "; tiles of ", tile_heads(p), " heads, chunks of ", chunk_of(p), " tokens, ",
      plan.workspace_bytes, " bytes of scratch a thread");
}

void run(const SparseAttentionPlan& plan, const SparseAttentionTensors& t, Stream& stream) {
  require(plan.kernel != nullptr, "the plan of sparse attention is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(), ", the plan on ",
          plan.device.name());
  const SparseAttentionProblem& p = plan.problem;
  const AttentionCpu& cpu = *plan.kernel->function;
  const SparseCaches caches = check_sparse_tensors(p, t);

  // The tokens of each query without the skipped ones: how many, how many of the first cache,
  // slots.
  const int64_t queries = p.batch * p.query_length, stride = 2 + max_tokens(p);
  auto* lists = reinterpret_cast<int32_t*>(
      attention_memory(AttentionMemory::lists, std::max<int64_t>(1, queries * stride * 4)));
  for (int64_t query = 0; query < queries; ++query) {
    int32_t* list = lists + query * stride;
    list[0] = list[1] = 0;
    for_selected_tokens(p, t, query / p.query_length, query % p.query_length,
                        [&](int32_t slot, bool extra) {
                          list[2 + list[0]++] = slot;
                          list[1] += extra ? 0 : 1;
                        });
  }

  const int64_t chunk = chunk_of(p), tiles = head_tiles(p), row_bytes = p.cache.dim * 2;
  const auto prepare = [&](int64_t unit, AttentionTile* tile) {
    const int64_t query = unit / tiles, b = query / p.query_length, i = query % p.query_length;
    const int64_t head = unit % tiles * kTileHeads;
    tile->is_decode = p.heads <= kAttentionDecodeRows;
    tile->head_dim = p.cache.dim, tile->value_dim = p.value_dim;
    tile->dot = bf16_dot(tile->is_decode), tile->rounding = AttentionRounding::bf16;
    tile->score_scale = softmax_scale(p) * 1.44269504f;
    tile->queries = 1, tile->group = std::min(kTileHeads, p.heads - head);
    tile->q_format = p.q;
    tile->q_head_bytes = byte_stride(t.q, 2);
    tile->q = t.q.data<uint8_t>() + b * byte_stride(t.q, 0) + i * byte_stride(t.q, 1) +
              head * tile->q_head_bytes;
    tile->keys = lists[query * stride];
    tile->range_end = tile->keys;
    tile->end_chunk = (tile->keys + chunk - 1) / chunk;
    if (p.sinks) {
      tile->sink_stride = t.sinks.stride(0);
      tile->sinks = t.sinks.data<float>() + head * tile->sink_stride;
      tile->lse_without_sink = true;
    }
    tile->out_format = p.out;
    tile->out_head_bytes = byte_stride(t.out, 2);
    tile->out = t.out.data<uint8_t>() + b * byte_stride(t.out, 0) + i * byte_stride(t.out, 1) +
                head * tile->out_head_bytes;
    if (p.lse) {
      tile->lse_head = t.lse.stride(1);
      tile->lse =
          t.lse.data<float>() + b * t.lse.stride(0) + head * tile->lse_head + i * t.lse.stride(2);
    }
    return true;
  };
  const auto load = [&](int64_t unit, AttentionTile* tile) {
    const int32_t* list = lists + unit / tiles * stride;
    const int64_t first = tile->first_chunk * chunk;
    const int64_t count = std::min(tile->keys, tile->end_chunk * chunk) - first;
    const int64_t scale_begin = (count * row_bytes + 63) / 64 * 64;
    uint8_t* rows =
        attention_memory(AttentionMemory::rows, std::max<int64_t>(64, scale_begin + count * 4));
    for (int64_t j = 0; j < count; ++j) {
      const LatentView& view = first + j < list[1] ? caches.main : caches.extra;
      float scale;
      dequantise_token(cpu, view, list[2 + first + j],
                       reinterpret_cast<uint16_t*>(rows + j * row_bytes), &scale);
      std::memcpy(rows + scale_begin + j * 4, &scale, 4);
    }
    // Key `first` is the first gathered row.
    tile->k.data = rows - first * row_bytes;
    tile->k.format = Format::bf16;
    tile->k.row_bytes = tile->k.head_bytes = row_bytes;
    if (has_token_scales(p)) {
      tile->k.scales = rows + scale_begin - first * 4;
      tile->k.scale_row_bytes = 4;
    }
    tile->v = tile->k;
  };
  run_attention(cpu,
                {queries * tiles, (max_tokens(p) + chunk - 1) / chunk, tile_heads(p), p.value_dim,
                 plan.workspace_bytes, prepare, load},
                stream);
}

Tensor sparse_attention(const Tensor& q, const LatentLayout& layout, const Tensor& cache,
                        const Tensor& indices, const SparseAttentionOptions& options,
                        Stream& stream) {
  require(q.defined() && q.rank() == 4, "sparse attention takes q as [batch, length, heads, dim]");
  require(indices.defined() && indices.rank() == 3,
          "sparse attention takes indices as [batch, length, entries]");
  SparseAttentionProblem p;
  p.batch = q.size(0), p.query_length = q.size(1), p.heads = q.size(2);
  p.cache = layout, p.value_dim = options.value_dim, p.indices = indices.size(2);
  p.extra = options.extra;
  if (p.extra) {
    require(options.extra_indices.defined() && options.extra_indices.rank() == 3,
            "sparse attention takes extra_indices as [batch, length, entries]");
    p.extra_indices = options.extra_indices.size(2);
  }
  p.q = p.out = q.format();
  p.softmax_scale = options.softmax_scale;
  p.sinks = options.sinks.defined();
  SparseAttentionTensors t{q,
                           cache,
                           options.extra_cache,
                           indices,
                           options.extra_indices,
                           options.lengths,
                           options.extra_lengths,
                           options.sinks,
                           {},
                           {}};
  const SparseAttentionPlan made = plan(p, q.device());
  t.out = Tensor::empty({p.batch, p.query_length, p.heads, p.value_dim}, p.out);
  run(made, t, stream);
  return t.out;
}

}  // namespace halftone
