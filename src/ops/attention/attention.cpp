// Validation, plan, and the CPU driver: cuts a problem into tiles and hands them to the threads.
#include "halftone/attention.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "base/message.h"
#include "base/thread_pool.h"
#include "halftone/quantize.h"
#include "ops/attention/kernels.h"

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
};
#undef HALFTONE_ATTENTION_ROW

// Rows of a tile. 192 rows pay for packing a chunk of K and V (about 15 cycles a key against 4 a
// row and key) and keep O, 96 KB at head_dim 128, in the second-level cache.
constexpr int64_t kTileRows = 192;

// Beyond this much memory for the results of chunks, units are not split: long caches with many
// rows a unit have work enough for a thread each.
constexpr int64_t kMostPartialBytes = int64_t{64} << 20;

int64_t tile_queries(const AttentionProblem& p) {
  const int64_t group = p.heads / p.kv_heads;
  return std::clamp<int64_t>(kTileRows / group, 1, std::max<int64_t>(p.query_length, 1));
}

int64_t tile_rows(const AttentionProblem& p) { return tile_queries(p) * (p.heads / p.kv_heads); }

bool few_rows(const AttentionProblem& p) { return tile_rows(p) <= kAttentionFewRows; }

// Memory of the calling thread that outlives the call: after the first run of a size nothing is
// allocated, and a plan can be run by several threads at once.
class ThreadMemory {
 public:
  uint8_t* get(int64_t bytes) {
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<uint8_t*>(
          std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
      if (data_ == nullptr) {
        fail(ErrorCode::out_of_memory, "attention needs ", bytes,
             " bytes of scratch a thread, which the system refused");
      }
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t[], Free> data_;
  int64_t size_ = 0;
};
thread_local ThreadMemory scratch_memory, partial_memory;

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
  if (p.paged) {
    rows.pages = all.page_table.data<int32_t>() + b * all.page_table.stride(0);
    rows.page_size = p.page_size;
    rows.page_bytes = byte_stride(t, 0);
  } else {
    rows.data += key_begin * rows.row_bytes + (t.rank() == 4 ? b * byte_stride(t, 0) : 0);
  }
  if (!t.has_scales()) return rows;
  if (is_block(t.format())) *factor *= t.tensor_scale_value();
  const uint8_t* scales = t.scales().data<uint8_t>() + head * scale_stride(t, head_dim);
  rows.scale_row_bytes = scale_stride(t, row_dim);
  rows.scale_head_bytes = scale_stride(t, head_dim);
  if (p.paged) {
    rows.scale_page_bytes = scale_stride(t, 0);
  } else {
    scales += key_begin * rows.scale_row_bytes + (t.rank() == 4 ? b * scale_stride(t, 0) : 0);
  }
  const bool shared =
      rows.scale_row_bytes == 0 && rows.scale_page_bytes == 0 && rows.scale_head_bytes == 0;
  if (shared && !is_block(t.format())) {
    *factor *= f32_scale(scales);
  } else {
    rows.scales = scales;
  }
  return rows;
}

// Cuts the problem into units of work: some queries of a sequence for one KV head, or for all of
// them when they are few.
struct Driver {
  const AttentionProblem& p;
  const AttentionTensors& t;
  bool few = few_rows(p);
  int64_t kv_heads = few ? p.kv_heads : 1;  // of a unit
  int64_t queries = tile_queries(p);
  int64_t tiles = (p.query_length + queries - 1) / queries;
  int64_t chunk = attention_chunk(std::max(p.head_dim, value_dim(p)));

  int64_t units() const { return p.batch * p.kv_heads / kv_heads * tiles; }

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
    tile->head_dim = p.head_dim, tile->value_dim = value_dim(p);
    tile->bf16_products = p.mode.qk != Format::f32 && p.mode.qk != Format::f16;
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
      tile->q_scales =
          t.q.scales().data<uint8_t>() + (s.query_begin + first) * tile->q_scale_query_bytes +
          head * tile->q_scale_head_bytes + (row_dim == 1 ? b * scale_stride(t.q, 0) : 0);
    }
    tile->score_scale = score, tile->value_scale = value;

    // Query i stands at key i + keys - queries.
    constexpr int64_t kFar = int64_t{1} << 40;
    const int64_t position = first + s.keys - s.queries;
    int64_t right = p.window_right < 0 ? kFar : p.window_right;
    if (p.causal) right = 0;
    tile->keys = s.keys;
    tile->range_begin = p.window_left < 0 ? -kFar : position - p.window_left;
    tile->range_end = position + right + 1;
    const int64_t begin = std::max<int64_t>(0, tile->range_begin);
    const int64_t end = std::min(s.keys, tile->range_end + tile->queries - 1);
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
  result.workspace_bytes =
      kernel->function->scratch_bytes(problem.head_dim, value_dim(problem), tile_rows(problem),
                                      few_rows(problem) ? problem.kv_heads : 1);
  return result;
}

std::string describe(const AttentionPlan& plan) {
  require(plan.kernel != nullptr, "the attention plan is empty; make it with plan()");
  const AttentionProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", to_string(p.mode), ", q ", name(p.q), ", k ", name(p.k),
                ", v ", name(p.v), ", ", p.heads, "/", p.kv_heads, " heads of ", p.head_dim,
                p.causal ? ", causal" : "", p.paged ? ", paged" : "", "; tiles of ",
                tile_queries(p), " queries x ", p.heads / p.kv_heads, " heads, chunks of ",
                attention_chunk(std::max(p.head_dim, value_dim(p))), " keys, ",
                plan.workspace_bytes, " bytes of scratch a thread");
}

void run(const AttentionPlan& plan, const AttentionTensors& t, Stream& stream) {
  require(plan.kernel != nullptr, "the attention plan is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(), ", the plan on ",
          plan.device.name());
  check_attention_tensors(plan.problem, t);
  const AttentionCpu& cpu = *plan.kernel->function;
  const AttentionProblem& p = plan.problem;
  const Driver driver{p, t};
  const int64_t units = driver.units();
  const auto prepare = [&](int64_t unit, AttentionTile* tile) {
    tile->scratch = scratch_memory.get(plan.workspace_bytes);
    return driver.tile(unit, tile);
  };

  // When there are fewer units than would keep the threads busy, runs of chunks of a unit go to
  // several threads, and their results are folded afterwards: the same sums in the same order.
  const int64_t chunks = (p.key_length + driver.chunk - 1) / driver.chunk;
  const int64_t threads = stream.threads();
  const int64_t floats = cpu.partial_floats(p.value_dim, tile_rows(p) * driver.kv_heads);
  const int64_t partial_bytes = units * chunks * floats * static_cast<int64_t>(sizeof(float));
  const bool whole =
      units == 0 || threads == 1 || units >= 4 * threads || partial_bytes > kMostPartialBytes;
  const int64_t pieces = whole ? 1 : std::min(chunks, (4 * threads + units - 1) / units);
  if (pieces <= 1) {
    stream.pool().parallel_for(units, 1, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        AttentionTile tile;
        if (prepare(unit, &tile)) cpu.run(tile);
      }
    });
    return;
  }

  auto* partial = reinterpret_cast<float*>(partial_memory.get(partial_bytes));
  const auto place = [&](int64_t unit, int64_t c, AttentionTile* tile) {
    tile->partial = partial + (unit * chunks + c) * floats;
    tile->partial_stride = floats;
  };
  stream.pool().parallel_for(units * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      AttentionTile tile;
      const int64_t unit = i / pieces, piece = i % pieces;
      if (!prepare(unit, &tile)) continue;
      const int64_t first = tile.first_chunk, count = tile.end_chunk - first;
      tile.first_chunk = first + count * piece / pieces;
      tile.end_chunk = first + count * (piece + 1) / pieces;
      place(unit, tile.first_chunk, &tile);
      if (tile.first_chunk < tile.end_chunk) cpu.run(tile);
    }
  });
  stream.pool().parallel_for(units, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      AttentionTile tile;
      if (!prepare(unit, &tile)) continue;
      place(unit, tile.first_chunk, &tile);
      cpu.merge(tile);
    }
  });
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 Stream& stream) {
  for (const Tensor* t : {&q, &k, &v}) {
    require(t->rank() == 4, "attention takes q, k and v as [batch, length, heads, head_dim], not ",
            to_string(t->shape()));
  }
  AttentionProblem p;
  p.batch = q.size(0), p.query_length = q.size(1), p.heads = q.size(2), p.head_dim = q.size(3);
  p.key_length = k.size(1), p.kv_heads = k.size(2), p.value_dim = v.size(3);
  p.causal = options.causal;
  p.window_left = options.window_left, p.window_right = options.window_right;
  p.softmax_scale = options.softmax_scale;
  p.out = is_plain_float(q.format()) ? q.format() : Format::bf16;

  AttentionTensors t;
  t.q = q, t.k = k, t.v = v;
  p.mode = options.mode.value_or(
      AttentionMode{k.format(), is_plain_float(v.format())
                                    ? v.format()
                                    : (is_plain_float(k.format()) ? k.format() : Format::bf16)});
  const auto to_format = [&](const Tensor& x, Format target) {
    if (!is_plain_float(x.format()) || x.format() == target) return x;
    if (is_plain_float(target)) return convert(x, target, stream);
    QuantizeOptions quantization(target);
    if (!is_block(target)) quantization.scaling = {Format::f32, 1, 0};  // per row
    return quantize(x, quantization, stream);
  };
  t.k = to_format(k, p.mode.qk);
  t.v = to_format(v, p.mode.pv);
  if (!is_plain_float(p.mode.qk)) t.q = to_format(q, p.mode.qk);
  p.q = t.q.format(), p.k = t.k.format(), p.v = t.v.format();
  t.out = Tensor::empty({p.batch, p.query_length, p.heads, p.value_dim}, p.out);
  run(plan(p, q.device()), t, stream);
  return t.out;
}

}  // namespace halftone
