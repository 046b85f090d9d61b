#include "ops/product/run.h"

#include <algorithm>

#include "ops/product/weights.h"

namespace halftone::product {

namespace {

// f32 sums of a task, on the stack of its thread: 96 columns of a full panel.
constexpr int64_t kSums = 96 * kPanelRows;
// Below this many bytes of weights and multiply-adds / 4, waking threads (about 2 us) costs more
// than it saves.
constexpr int64_t kAlone = 64 * 1024;

int64_t round_up(int64_t x, int64_t step) { return ceil_div(x, step) * step; }

// Columns of W a task takes: enough tasks for every thread to get several, so that a thread that is
// slowed down by a neighbour does less.
int64_t columns_of(const Kernels& kernels, const Job& job, int threads) {
  const int64_t tile = kernels.tile_columns;
  const int64_t fair = round_up(ceil_div(job.weights->n, int64_t{threads} * 8), tile);
  if (job.m == 1) return std::clamp<int64_t>(fair, 2 * tile, 256);
  // Few rows are bound by reading W: one strip at a time reads its rows from end to end.
  if (job.m <= 64) return tile;
  return std::min(fair, kSums / job.m / tile * tile);
}

void run_task(const Kernels& kernels, const Job& job, int64_t n0, int64_t n1) {
  const Weights& w = *job.weights;
  alignas(64) float sums[kSums];
  const int64_t stride = job.m == 1 ? n1 - n0 : round_up(n1 - n0, kernels.tile_columns);
  if (job.m == 1) {
    kernels.gemv(w, n0, n1, job.x, sums);
  } else {
    alignas(64) unsigned char strip[kStripBytes];
    alignas(64) float scales[kMaxBlockChunks * kMaxTileColumns * kMaxLanes];
    const bool scaled = scaled_in_row(w);
    const int64_t block = int64_t{kernels.chunk} * kernels.block_chunks;
    const auto* x = static_cast<const unsigned char*>(job.x);
    for (int64_t b = 0; b * block < w.k; ++b) {
      const int64_t chunks =
          std::min<int64_t>(ceil_div(w.k - b * block, kernels.chunk), kernels.block_chunks);
      for (int64_t n = n0; n < n1; n += kernels.tile_columns) {
        const int64_t rows = std::min<int64_t>(kernels.tile_columns, n1 - n);
        kernels.expand(w, n, rows, b, strip, scales);
        kernels.multiply(x, job.m, strip, scaled ? scales : nullptr, chunks, sums + (n - n0),
                         stride, b == 0);
      }
      x += job.m * block * kernels.element_bytes;
    }
  }

  const bool per_row = w.scales != nullptr && w.group == 0 && w.code != Code::dequantised;
  float column_scales[kSums / kPanelRows > 256 ? kSums / kPanelRows : 256];
  const int64_t size = job.out_format == Format::f32 ? 4 : 2;
  for (int64_t from = n0; from < n1; from += std::size(column_scales)) {
    const int64_t count = std::min<int64_t>(std::size(column_scales), n1 - from);
    Finish f;
    f.count = count;
    f.out_format = job.out_format;
    if (per_row || w.tensor_scale != 1.0f) {
      for (int64_t i = 0; i < count; ++i) column_scales[i] = row_scale(w, from + i);
      f.scale = column_scales;
    }
    f.bias_format = job.bias_format;
    if (job.bias != nullptr) {
      f.bias = static_cast<const char*>(job.bias) + from * (job.bias_format == Format::f32 ? 4 : 2);
    }
    for (int64_t m = 0; m < job.m; ++m) {
      f.sums = sums + m * stride + (from - n0);
      f.out = static_cast<char*>(job.out) + m * job.out_row + from * size;
      if (job.residual != nullptr) {
        f.residual = static_cast<const char*>(job.residual) + m * job.residual_row + from * size;
      }
      kernels.finish(f);
    }
  }
}

}  // namespace

int64_t panel_bytes(const Kernels& kernels, int64_t m, int64_t k) {
  const int64_t block = int64_t{kernels.chunk} * kernels.block_chunks;
  return m * round_up(k, block) * kernels.element_bytes;
}

void pack_panel_row(const Kernels& kernels, const void* x, Format format, bool octets, int64_t k,
                    int64_t row, int64_t m, void* panel) {
  const int64_t block_bytes = int64_t{kernels.chunk} * kernels.block_chunks * kernels.element_bytes;
  kernels.pack(x, format, octets, k, static_cast<char*>(panel) + row * block_bytes,
               m * block_bytes);
}

void parallel(ThreadPool& pool, int64_t count, int64_t grain, int64_t work,
              FunctionRef<void(int64_t, int64_t)> f) {
  if (work < kAlone || pool.size() == 1) {
    for (int64_t i = 0; i < count; i += grain) f(i, std::min(i + grain, count));
  } else {
    pool.parallel_for(count, grain, f);
  }
}

void run_jobs(const Kernels& kernels, std::span<Job> jobs, ThreadPool& pool) {
  int64_t tasks = 0, work = 0;
  for (Job& job : jobs) {
    job.first_task = tasks;
    if (job.m == 0) continue;
    job.columns = columns_of(kernels, job, pool.size());
    tasks += ceil_div(job.weights->n, job.columns);
    work += job.weights->n * (job.weights->row_bytes + job.m * job.weights->k / 4);
  }
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      // The last job that starts at or before the task; empty jobs share their successor's start.
      const auto after =
          std::upper_bound(jobs.begin(), jobs.end(), task,
                           [](int64_t t, const Job& job) { return t < job.first_task; });
      const Job& job = *(after - 1);
      const int64_t n0 = (task - job.first_task) * job.columns;
      run_task(kernels, job, n0, std::min(n0 + job.columns, job.weights->n));
    }
  };
  parallel(pool, tasks, 1, work, run);
}

}  // namespace halftone::product
