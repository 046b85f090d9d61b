#include "ops/gemm/cpu/run.h"

#include <algorithm>

#include "halftone/dtype.h"
#include "ops/gemm/cpu/weights.h"

namespace halftone::gemm {

namespace {

// Columns whose strips of one block of K are dequantised before any row uses them: 256 KiB, which
// with the rows of x that pass at a time stay in the L2 cache. All of x is read for each group,
// from the L3.
constexpr int64_t kGroupColumns = 64;
// Rows of x that are multiplied by all strips of a group in turn: 192 KiB of a block of K.
constexpr int64_t kPassRows = 48;
// Up to this many rows are bound by reading W: one strip at a time reads its rows from end to end.
constexpr int64_t kFewRows = 64;
constexpr int64_t kTaskColumns = 256;                  // at most, with few rows
constexpr int64_t kSums = kGroupColumns * kPanelRows;  // FP32, on the stack of a thread
int64_t round_up(int64_t x, int64_t step) { return ceil_div(x, step) * step; }

// Up to this many rows of x go to the GEMV, which dequantises no strips.
constexpr int64_t kGemvRows = 4;
bool is_gemv(const Kernels& kernels, const Job& job) {
  return job.m == 1 || (job.m <= kGemvRows && !kernels.integer && job.x_scales == nullptr);
}

// A gate and its up half share the sums of a group.
int64_t group_columns(const Job& job) { return kGroupColumns / (job.up != nullptr ? 2 : 1); }

// Columns of W of a task: enough tasks for every thread to get several, so that a thread that is
// slowed down by a neighbour does less.
int64_t columns_of(const Kernels& kernels, const Job& job, int threads) {
  const int64_t tile = kernels.tile_columns;
  const int64_t fair = round_up(ceil_div(job.weights->n, int64_t{threads} * 8), tile);
  return std::clamp<int64_t>(fair, tile, job.m <= kFewRows ? kTaskColumns : group_columns(job));
}

Prefetch prefetch_of(const Weights& w, int64_t n0, int64_t n1, int64_t byte0, int64_t byte1,
                     int64_t tiles) {
  Prefetch a;
  a.row = w.data + n0 * w.row_bytes + byte0;
  a.row_bytes = w.row_bytes;
  a.bytes = std::min(byte1, w.row_bytes) - byte0;
  a.rows = a.bytes > 0 ? std::min(n1, w.n) - n0 : 0;
  a.lines_per_tile = a.rows > 0 ? ceil_div(a.rows * ceil_div(a.bytes, 64), tiles) : 0;
  return a;
}

// sums [m, stride] = x W^T of rows [n0, n1) of W, a group; the thread's next group probably starts
// at row `next`.
void multiply_group(const Kernels& kernels, const Job& job, const Weights& w, int64_t n0,
                    int64_t n1, int64_t next, float* sums, int64_t stride) {
  constexpr int64_t kScales = int64_t{kMaxBlockChunks} * kMaxLanes;  // of a column
  alignas(64) unsigned char strips[kGroupColumns * kBlockBytes];
  alignas(64) float scales[kGroupColumns * kScales];
  const bool scaled = scaled_in_row(w), both = job.x_scales != nullptr;
  if (both && !scaled) std::fill(std::begin(scales), std::end(scales), 1.0f);
  const int64_t columns = kernels.tile_columns, chunks = ceil_div(w.k, kernels.chunk);
  const int64_t step = scaled || both ? kernels.scaled_block_chunks : kernels.block_chunks;
  const int64_t x_chunk = int64_t{kernels.chunk} * kernels.element_bytes;
  const int64_t strip_row = step * x_chunk, code_step = step * kernels.chunk * bits(w.format) / 8;
  const int64_t tiles = ceil_div(n1 - n0, columns) * ceil_div(job.m, 3);
  for (int64_t c = 0; c < chunks; c += step) {
    const int64_t count = std::min(step, chunks - c), code = c / step * code_step;
    const auto* x = static_cast<const unsigned char*>(job.x) +
                    c / kernels.block_chunks * job.x_block + c % kernels.block_chunks * x_chunk;
    const int64_t lanes = int64_t{kernels.block_chunks} * kernels.lanes;
    const float* x_scales = both ? job.x_scales + c / kernels.block_chunks * job.m * lanes +
                                       c % kernels.block_chunks * kernels.lanes
                                 : nullptr;
    for (int64_t n = n0; n < n1; n += columns) {
      kernels.dequantise_strip(w, n, std::min(columns, n1 - n), c, count,
                               strips + (n - n0) * strip_row, scales + (n - n0) * kScales);
    }
    Prefetch prefetch = c + step < chunks
                            ? prefetch_of(w, n0, n1, code + code_step, code + 2 * code_step, tiles)
                            : prefetch_of(w, next, next + (n1 - n0), 0, code_step, tiles);
    GemmArgs args;
    args.x_row = job.x_row;
    args.chunks = count;
    args.sums_stride = stride;
    args.first = c == 0;
    args.prefetch = &prefetch;
    for (int64_t m = 0; m < job.m; m += kPassRows) {
      args.x = x + m * job.x_row;
      args.m = std::min(kPassRows, job.m - m);
      if (both) args.x_scales = x_scales + m * lanes;
      for (int64_t n = n0; n < n1; n += columns) {
        args.strip = strips + (n - n0) * strip_row;
        args.scales = scaled || both ? scales + (n - n0) * kScales : nullptr;
        args.sums = sums + m * stride + (n - n0);
        kernels.gemm_pass(args);
      }
    }
  }
}

// Scales of whole rows of W, [n0, n0 + count); null when all are 1.
const float* column_scales(const Weights& w, int64_t n0, int64_t count, float* out) {
  const bool per_row = w.scales != nullptr && w.group == 0 && w.code != Code::dequantised;
  if (!per_row && w.tensor_scale == 1.0f) return nullptr;
  for (int64_t i = 0; i < count; ++i) out[i] = row_scale(w, n0 + i);
  return out;
}

// Rows of W whose strips are used before the next ones are dequantised.
int64_t strip_columns(const Kernels& kernels, const Job& job) {
  return job.m <= kFewRows ? int64_t{kernels.tile_columns} : group_columns(job);
}

// Rows of W whose epilogue runs at once: all that there is room for, because a row of outputs costs
// some 50 cycles however short it is.
int64_t finish_columns(const Job& job) {
  const int64_t room = kSums / (job.m * (job.up != nullptr ? 2 : 1));
  return std::min(kTaskColumns, room / group_columns(job) * group_columns(job));
}

// Rows [n0, n1) of W, at most finish_columns.
void run_columns(const Kernels& kernels, const Job& job, int64_t n0, int64_t n1, int64_t next) {
  alignas(64) float sums[kSums];
  const bool gemv = is_gemv(kernels, job);
  const int64_t stride = gemv ? n1 - n0 : round_up(n1 - n0, kernels.tile_columns);
  const int64_t strip = strip_columns(kernels, job), count = n1 - n0;
  const auto add_up = [&](const Weights& w, float* to) {
    if (gemv) {
      return kernels.gemv(w, n0, n1,
                          {job.x, job.x_row, job.x_block, job.m, job.x_scales, to, stride});
    }
    for (int64_t n = n0; n < n1; n += strip, to += strip) {
      const int64_t end = std::min(n + strip, n1);
      multiply_group(kernels, job, w, n, end, end < n1 ? end : next, to, stride);
    }
  };
  float* up = job.up != nullptr ? sums + job.m * stride : nullptr;
  add_up(*job.weights, sums);
  if (up != nullptr) add_up(*job.up, up);

  float scales[2][kTaskColumns];
  const auto at = [](const void* p, int64_t i, Format format) -> const void* {
    return p != nullptr ? static_cast<const char*>(p) + i * (format == Format::f32 ? 4 : 2) : p;
  };
  EpilogueArgs f;
  f.count = count;
  f.out_format = job.out_format;
  f.integer = kernels.integer;
  f.bias_format = job.bias_format;
  f.residual_format = job.residual_format;
  f.activation = job.activation;
  f.gated = job.gated;
  f.scale = column_scales(*job.weights, n0, count, scales[0]);
  f.bias = at(job.bias, n0, job.bias_format);
  if (up != nullptr) {
    f.up_scale = column_scales(*job.up, n0, count, scales[1]);
    f.up_bias = at(job.up_bias, n0, job.bias_format);
  }
  for (int64_t m = 0; m < job.m; ++m) {
    f.sums = sums + m * stride;
    if (up != nullptr) f.up = up + m * stride;
    if (job.row_offsets != nullptr) f.offset = job.row_offsets[m];
    if (job.row_scales != nullptr) f.row_scale = job.row_scales[m];
    f.out =
        const_cast<void*>(at(static_cast<char*>(job.out) + m * job.out_row, n0, job.out_format));
    if (job.residual != nullptr) {
      f.residual =
          at(static_cast<const char*>(job.residual) + m * job.residual_row, n0, job.out_format);
    }
    kernels.epilogue(f);
  }
}

// Rows [n0, n1) of W; the thread probably goes on with row `next`.
void run_task(const Kernels& kernels, const Job& job, int64_t n0, int64_t n1, int64_t next) {
  const int64_t step = finish_columns(job);
  for (int64_t n = n0; n < n1; n += step) {
    const int64_t end = std::min(n + step, n1);
    run_columns(kernels, job, n, end, end < n1 ? end : next);
  }
}

}  // namespace

bool reads_rows(const Kernels& kernels, const Weights& w, Format x, const void* data,
                int64_t row_bytes) {
  return x == kernels.element && !octet_order(w.code) && w.k % kernels.chunk == 0 &&
         (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(row_bytes)) % 64 == 0;
}

void parallel(ThreadPool& pool, int64_t count, int64_t grain, int64_t work,
              FunctionRef<void(int64_t, int64_t)> f) {
  pool.parallel_for(count, grain, work / 32, f);
}

void run_jobs(const Kernels& kernels, std::span<Job> jobs, ThreadPool& pool) {
  int64_t tasks = 0, work = 0;
  for (Job& job : jobs) {
    job.first_task = tasks;
    if (job.m == 0) continue;
    job.columns = columns_of(kernels, job, pool.size());
    if (job.x_row == 0) {
      job.x_row = int64_t{kernels.chunk} * kernels.block_chunks * kernels.element_bytes;
      job.x_block = job.m * job.x_row;
    }
    tasks += ceil_div(job.weights->n, job.columns);
    work += job.weights->n * (job.weights->row_bytes + job.m * job.weights->k / 4) *
            (job.up != nullptr ? 2 : 1);
  }
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      // The last job that starts at or before the task; empty jobs share their successor's start.
      const auto after =
          std::upper_bound(jobs.begin(), jobs.end(), task,
                           [](int64_t t, const Job& job) { return t < job.first_task; });
      const Job& job = *(after - 1);
      const int64_t n0 = (task - job.first_task) * job.columns;
      run_task(kernels, job, n0, std::min(n0 + job.columns, job.weights->n),
               n0 + job.columns * pool.size());
    }
  };
  parallel(pool, tasks, 1, work, run);
}

}  // namespace halftone::gemm
