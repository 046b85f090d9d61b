// Attention entry points: the table of kernels, plan, run, and the CPU driver, which divides a
// problem into tiles.
#include "halftone/attention.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/message.h"
#include "base/token_scales.h"
#include "ops/attention/cpu/run_tiles.h"
#include "ops/attention/decode/launch.h"
#include "ops/attention/kernels.h"
#include "ops/attention/sm80/launch.h"
#include "ops/attention/sm90/launch.h"

namespace halftone {

namespace {

#define HALFTONE_ATTENTION_ROW(level)                                                   \
  AttentionKernel {                                                                     \
    {                                                                                   \
      "attention_" #level, Device::Kind::cpu, CpuLevel::level, attention_problem_error, \
          &cpu_##level::attention_cpu                                                   \
    }                                                                                   \
  }
constexpr AttentionKernel kKernels[] = {
#if defined(__x86_64__)
    HALFTONE_ATTENTION_ROW(avx512_bf16),
    HALFTONE_ATTENTION_ROW(avx512),
    HALFTONE_ATTENTION_ROW(avx2),
#endif
    HALFTONE_ATTENTION_ROW(baseline),
    AttentionKernel{{"attention_decode", Device::Kind::cuda, CpuLevel::baseline,
                     attention_decode_error, &attention_decode_gpu, Arch::sm_80, true}},
    AttentionKernel{{"attention_decode_quantised", Device::Kind::cuda, CpuLevel::baseline,
                     attention_decode_quantised_error, &attention_decode_gpu, Arch::sm_90a, true}},
    AttentionKernel{{"attention_sm90", Device::Kind::cuda, CpuLevel::baseline, attention_sm90_error,
                     &attention_sm90_gpu, Arch::sm_90a}},
    AttentionKernel{{"attention_sm90_fp8", Device::Kind::cuda, CpuLevel::baseline,
                     attention_sm90_fp8_error, &attention_sm90_fp8_gpu, Arch::sm_90a}},
    AttentionKernel{{"attention_sm90_dequant", Device::Kind::cuda, CpuLevel::baseline,
                     attention_sm90_dequant_error, &attention_sm90_dequant_gpu, Arch::sm_90a}},
    AttentionKernel{{"attention_sm80", Device::Kind::cuda, CpuLevel::baseline, attention_sm80_error,
                     &attention_sm80_gpu, Arch::sm_80, true}},
};
#undef HALFTONE_ATTENTION_ROW

// Rows of a prefill tile. 192 rows pay for packing a chunk of K and V (about 15 cycles a key
// against 4 a row and key) and keep O, 96 KB at head size 128, in L2.
constexpr int64_t kTileRows = 192;

int64_t tile_queries(const AttentionProblem& p) {
  const int64_t group = p.heads / p.kv_heads;
  return std::clamp<int64_t>(kTileRows / group, 1, std::max<int64_t>(p.query_length, 1));
}

int64_t tile_rows(const AttentionProblem& p) { return tile_queries(p) * (p.heads / p.kv_heads); }

bool is_decode_problem(const AttentionProblem& p) { return tile_rows(p) <= kAttentionDecodeRows; }

int64_t byte_stride(const Tensor& t, int dim) { return t.stride(dim) * bits(t.format()) / 8; }
// 0 where the scale is shared by the whole dimension.
int64_t scale_stride(const Tensor& t, int dim) {
  return t.scales().size(dim) == 1 ? 0 : byte_stride(t.scales(), dim);
}
float f32_scale(const uint8_t* p) {
  float x;
  std::memcpy(&x, p, 4);
  return x;
}

// Rows of K or V of one sequence from a head on. A scale shared by all goes into `factor`.
AttentionRows rows_of(const Tensor& t, const AttentionProblem& p, const AttentionTensors& all,
                      int64_t b, int64_t key_begin, int64_t head, float* factor) {
  const int head_dim = t.rank() - 2, row_dim = t.rank() - 3;
  AttentionRows rows;
  rows.data = t.data<uint8_t>() + head * byte_stride(t, head_dim);
  rows.format = t.format();
  rows.row_bytes = byte_stride(t, row_dim);
  rows.head_bytes = byte_stride(t, head_dim);
  if (p.page_size) {
    rows.pages = all.page_table.data<int32_t>() + b * all.page_table.stride(0);
    rows.page_size = *p.page_size;
    rows.page_bytes = byte_stride(t, 0);
  } else {
    rows.data += key_begin * rows.row_bytes + (t.rank() == 4 ? b * byte_stride(t, 0) : 0);
  }
  if (!t.has_scales()) return rows;
  if (is_block(t.format())) *factor *= t.tensor_scale_value();
  const uint8_t* scales = t.scales().data<uint8_t>() + head * scale_stride(t, head_dim);
  rows.scale_row_bytes = scale_stride(t, row_dim);
  if (tokens_of_scale(t.size(row_dim), t.scales().size(row_dim)) > 1) {
    rows.scale_rows = kScaleTokens;
    rows.scale_rows_bytes = std::exchange(rows.scale_row_bytes, 0);
  }
  rows.scale_head_bytes = scale_stride(t, head_dim);
  if (p.page_size) {
    rows.scale_page_bytes = scale_stride(t, 0);
  } else {
    scales += key_begin * rows.scale_row_bytes + (t.rank() == 4 ? b * scale_stride(t, 0) : 0);
  }
  const bool shared = rows.scale_row_bytes == 0 && rows.scale_rows == 0 &&
                      rows.scale_page_bytes == 0 && rows.scale_head_bytes == 0;
  if (shared && !is_block(t.format())) {
    *factor *= f32_scale(scales);
  } else {
    rows.scales = scales;
  }
  return rows;
}

// Divides the problem into units of work: some queries of a sequence for one KV head, or for all of
// them in decode.
struct Driver {
  const AttentionProblem& p;
  const AttentionTensors& t;
  bool is_decode = is_decode_problem(p);
  int64_t kv_heads = is_decode ? p.kv_heads : 1;  // of a unit
  int64_t queries = tile_queries(p);
  int64_t tiles = (p.query_length + queries - 1) / queries;
  int64_t chunk = attention_chunk(std::max(p.head_dim, value_dim(p)));

  int64_t units() const { return p.batch * p.kv_heads / kv_heads * tiles; }

  // Sets softcap, mask and sinks of query `first` and head `head`.
  void set_score_mod(int64_t b, int64_t head, int64_t first, AttentionTile* tile) const {
    tile->softcap = p.softcap * 1.44269504f;
    if (p.sinks) {
      tile->sink_stride = t.sinks.stride(0);
      tile->sinks = t.sinks.data<float>() + head * tile->sink_stride;
    }
    if (!p.mask) return;
    const auto stride = [&](int dim) {
      return t.mask.size(dim) == 1 ? 0 : byte_stride(t.mask, dim);
    };
    tile->mask_format = *p.mask;
    tile->mask_head_bytes = stride(1), tile->mask_query_bytes = stride(2);
    tile->mask_key_bytes = stride(3);
    tile->mask = t.mask.data<uint8_t>() + b * stride(0) + head * tile->mask_head_bytes +
                 first * tile->mask_query_bytes;
  }

  // False when the unit has no rows. Later queries first: under a causal mask they are the longest.
  bool tile(int64_t unit, AttentionTile* tile) const {
    const int64_t parts = p.kv_heads / kv_heads;
    const int64_t kv_head = unit % parts * kv_heads;
    const int64_t b = unit / parts % p.batch;
    const int64_t first = (tiles - 1 - unit / (parts * p.batch)) * queries;
    const AttentionSequence s = attention_sequence(p, t, b);
    if (first >= s.queries) return false;
    const int64_t group = p.heads / p.kv_heads, head = kv_head * group;

    tile->kv_heads = kv_heads;
    tile->is_decode = s.queries * group <= kAttentionDecodeRows;
    tile->head_dim = p.head_dim, tile->value_dim = value_dim(p);
    tile->dot = p.mode.qk != Format::f32 && p.mode.qk != Format::f16 ? bf16_dot(tile->is_decode)
                                                                     : AttentionDot::f32;
    tile->queries = std::min(queries, s.queries - first), tile->group = group;
    float score = softmax_scale(p) * 1.44269504f, value = 1;
    tile->k = rows_of(t.k, p, t, b, s.key_begin, kv_head, &score);
    tile->v = rows_of(t.v, p, t, b, s.key_begin, kv_head, &value);
    switch (p.mode.pv) {
      case Format::f32:
        tile->rounding = AttentionRounding::none;
        break;
      case Format::f16:
        tile->rounding = AttentionRounding::f16;
        break;
      case Format::fp8_e4m3:
        tile->rounding = AttentionRounding::e4m3;
        value /= kE4m3PScale;
        break;
      case Format::nvfp4:
        tile->rounding = AttentionRounding::nvfp4;
        value /= kNvfp4PScale;
        break;
      default:
        tile->rounding = AttentionRounding::bf16;
    }

    const int row_dim = t.q.rank() - 3;
    tile->q_format = p.q;
    tile->q_query_bytes = byte_stride(t.q, row_dim);
    tile->q_head_bytes = byte_stride(t.q, row_dim + 1);
    tile->q = t.q.data<uint8_t>() + (s.query_begin + first) * tile->q_query_bytes +
              head * tile->q_head_bytes + (row_dim == 1 ? b * byte_stride(t.q, 0) : 0);
    if (t.q.has_scales()) {
      if (is_block(p.q)) score *= t.q.tensor_scale_value();
      tile->q_scale_query_bytes = scale_stride(t.q, row_dim);
      tile->q_scale_head_bytes = scale_stride(t.q, row_dim + 1);
      tile->q_first = s.query_begin + first;
      tile->q_scale_queries = tokens_of_scale(t.q.size(row_dim), t.q.scales().size(row_dim));
      tile->q_scales = t.q.scales().data<uint8_t>() + head * tile->q_scale_head_bytes +
                       (row_dim == 1 ? b * scale_stride(t.q, 0) : 0);
    }
    tile->score_scale = score, tile->value_scale = value;

    // Query i is at the position of key i + keys - queries.
    constexpr int64_t kFar = int64_t{1} << 40;
    const int64_t position = first + s.keys - s.queries;
    int64_t right = p.window_right < 0 ? kFar : p.window_right;
    if (p.causal) right = 0;
    tile->keys = s.keys;
    tile->range_begin = p.window_left < 0 ? -kFar : position - p.window_left;
    tile->range_end = position + right + 1;
    tile->position = position, tile->local_size = p.attention_chunk_size;
    set_score_mod(b, head, first, tile);
    const int64_t begin = std::max<int64_t>(0, attention_keys(p, s, first).begin);
    const int64_t end = attention_keys(p, s, first + tile->queries - 1).end;
    tile->first_chunk = begin / chunk;
    tile->end_chunk = std::max(tile->first_chunk, (end + chunk - 1) / chunk);

    tile->out_format = p.out;
    tile->out_query_bytes = byte_stride(t.out, row_dim);
    tile->out_head_bytes = byte_stride(t.out, row_dim + 1);
    tile->out = t.out.data<uint8_t>() + (s.query_begin + first) * tile->out_query_bytes +
                head * tile->out_head_bytes + (row_dim == 1 ? b * byte_stride(t.out, 0) : 0);
    if (p.lse) {
      tile->lse_query = t.lse.stride(2), tile->lse_head = t.lse.stride(1);
      tile->lse = t.lse.data<float>() + b * t.lse.stride(0) + head * tile->lse_head +
                  first * tile->lse_query;
    }
    return true;
  }
};

}  // namespace

std::span<const AttentionKernel> attention_kernels() { return kKernels; }

Support can_run(const AttentionProblem& problem, const Device& device) {
  std::string reason;
  const auto* kernel = choose(attention_kernels(), problem, device, &reason);
  return kernel != nullptr ? Support{} : Support{false, reason};
}

AttentionPlan plan(const AttentionProblem& problem, const Device& device) {
  std::string reason;
  const AttentionKernel* kernel = choose(attention_kernels(), problem, device, &reason);
  require_support({kernel != nullptr, reason});
  AttentionPlan result;
  result.problem = problem;
  result.problem.value_dim = value_dim(problem);
  result.device = device;
  result.kernel = kernel;
  if (kernel->function.gpu != nullptr) {
    kernel->function.gpu->prepare(result);
    return result;
  }
  const auto scratch = [&](int64_t rows, int64_t kv_heads, bool is_decode) {
    return kernel->function.cpu->scratch_bytes(problem.head_dim, value_dim(problem), rows, kv_heads,
                                               is_decode);
  };
  // Sequences in decode run alike in every plan.
  const bool is_decode = is_decode_problem(problem);
  result.workspace_bytes =
      std::max(scratch(tile_rows(problem), is_decode ? problem.kv_heads : 1, is_decode),
               scratch(std::min(tile_rows(problem), kAttentionDecodeRows),
                       is_decode ? problem.kv_heads : 1, true));
  return result;
}

namespace {

std::string describe_cpu(const AttentionPlan& plan) {
  const AttentionProblem& p = plan.problem;
  return concat("tiles of ", tile_queries(p), " queries x ", p.heads / p.kv_heads,
                " heads, chunks of ", attention_chunk(std::max(p.head_dim, value_dim(p))),
                " keys, ", plan.workspace_bytes, " bytes of scratch a thread");
}

}  // namespace

std::string describe(const AttentionPlan& plan) {
  require(plan.kernel != nullptr, "the attention plan is empty; make it with plan()");
  const AttentionProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", to_string(p.mode), ", q ", name(p.q), ", k ", name(p.k),
                ", v ", name(p.v), ", ", p.heads, "/", p.kv_heads, " heads of ", p.head_dim,
                p.causal ? ", causal" : "", p.page_size ? ", paged" : "", "; ",
                plan.kernel->function.gpu != nullptr ? plan.kernel->function.gpu->describe(plan)
                                                     : describe_cpu(plan));
}
void run(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  require(plan.kernel != nullptr, "the attention plan is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(), ", the plan on ",
          plan.device.name());
  check_attention_tensors(plan.problem, t, plan.device);
  if (plan.kernel->function.gpu != nullptr) return plan.kernel->function.gpu->run(plan, t, stream);
  const AttentionProblem& p = plan.problem;
  const Driver driver{p, t};
  const auto prepare = [&](int64_t unit, AttentionTile* tile) { return driver.tile(unit, tile); };
  const auto nothing = [](int64_t, AttentionTile*) {};
  run_attention(
      *plan.kernel->function.cpu,
      {driver.units(), (p.key_length + driver.chunk - 1) / driver.chunk,
       tile_rows(p) * driver.kv_heads, p.value_dim, plan.workspace_bytes, prepare, nothing},
      stream);
}

}  // namespace halftone
