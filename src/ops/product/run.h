// Runs products on a team of threads.
#pragma once
#include <span>

#include "base/thread_pool.h"
#include "ops/product/product.h"

namespace halftone::product {

// Rows of x packed at a time: with a block of K they take 512 KiB, half of the second-level cache.
inline constexpr int64_t kPanelRows = 256;

// y = x W^T for one weight and a panel of at most kPanelRows packed rows.
struct Job {
  const Weights* weights = nullptr;
  const void* x = nullptr;  // packed, see pack_panel
  int64_t m = 0;
  void* out = nullptr;  // [m, n], strides in bytes
  int64_t out_row = 0;
  const void* residual = nullptr;  // in the format of out
  int64_t residual_row = 0;
  const void* bias = nullptr;
  Format bias_format = Format::f32, out_format = Format::f32;
  int64_t first_task = 0, columns = 0;  // set by run_jobs
};

// Bytes of m packed rows of k elements.
int64_t panel_bytes(const Kernels&, int64_t m, int64_t k);
// Packs row `row` of a panel of m rows.
void pack_panel_row(const Kernels&, const void* x, Format format, bool octets, int64_t k,
                    int64_t row, int64_t m, void* panel);

// All jobs in one parallel region. Results do not depend on the number of threads.
void run_jobs(const Kernels&, std::span<Job>, ThreadPool&);

// Calls f(begin, end) over [0, count), on the caller alone when `work` (bytes or operations, about
// a nanosecond per 16) is less than waking the team costs.
void parallel(ThreadPool&, int64_t count, int64_t grain, int64_t work,
              FunctionRef<void(int64_t, int64_t)> f);

}  // namespace halftone::product
