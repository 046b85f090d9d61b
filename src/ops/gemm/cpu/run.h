// Runs GEMMs on CPUs on a team of threads.
#pragma once
#include <span>

#include "base/thread_pool.h"
#include "ops/gemm/cpu/kernels.h"

namespace halftone::gemm {

// Rows of x packed at a time, for which a dequantised strip of W is used.
inline constexpr int64_t kPanelRows = 512;

// y = x W^T for one weight and a panel of at most kPanelRows packed rows. With `up`, of the same
// shape and scaling, `weights` is the gate: y = gated(x gate^T + bias, x up^T + up_bias).
struct Job {
  const Weights* weights = nullptr;
  const Weights* up = nullptr;
  const void* x = nullptr;                // packed, see XRows
  const float* x_scales = nullptr;        // null, or of the panel, see XRows
  const float* row_scales = nullptr;      // [m]; null: 1
  const uint32_t* row_offsets = nullptr;  // [m], of integer sums; null: 0
  int64_t m = 0;
  int64_t x_row = 0, x_block = 0;  // bytes to the next row, block of K; 0: as packed
  void* out = nullptr;             // [m, n], strides in bytes
  int64_t out_row = 0;
  const void* residual = nullptr;
  int64_t residual_row = 0;
  const void* bias = nullptr;
  const void* up_bias = nullptr;
  Format bias_format = Format::f32, residual_format = Format::f32, out_format = Format::f32;
  ActivationFunction activation{Activation::identity};
  GatedActivation gated;
  int64_t first_task = 0, columns = 0;  // set by run_jobs
};

// Whether rows of x, `row_bytes` apart, are read as they lie: a job takes them unpacked, with x_row
// = row_bytes and x_block = that of one packed row.
bool reads_rows(const Kernels&, const Weights&, Format x, const void* data, int64_t row_bytes);
// All jobs in one parallel region. Results do not depend on the number of threads.
void run_jobs(const Kernels&, std::span<Job>, ThreadPool&);

// Calls f(begin, end) over [0, count), on the caller alone when `work` (bytes, or multiply-adds by
// 4: 32 a nanosecond) is less than a team is worth.
void parallel(ThreadPool&, int64_t count, int64_t grain, int64_t work,
              FunctionRef<void(int64_t, int64_t)> f);

}  // namespace halftone::gemm
