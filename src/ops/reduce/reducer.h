// Reductions on the CPU: the order of the sums, from row segments that one kernel call takes.
#pragma once
#include <algorithm>
#include <limits>
#include <optional>

#include "formats/row_reader.h"
#include "ops/reduce/kernels.h"
#include "ops/reduce/operations.h"

namespace halftone {

class Reducer {
 public:
  // The tree along the last dimension: segments of 64 chains, 64 segments a chunk, chunks; halving
  // between.
  static constexpr int64_t kRun = RowReader::kMost;
  static constexpr int64_t kRuns = 64;
  static constexpr int64_t kChunk = kRun * kRuns;
  // Other dimensions: so many rows are added before their sum is added to the sum of those before.
  static constexpr int64_t kBlockRows = 128;
  // Columns of a unit of work: contiguous segments of source rows where they are added, so that
  // memory is read in order; what RowReader reads at a time elsewhere.
  static constexpr int64_t kBlockColumns = 4096, kColumns = RowReader::kMost;

  Reducer(const ReduceProblem& problem, ReduceFunction run, const ReduceTensors& t)
      : p_(problem), run_(run), x_(t.x), out_(t.out) {
    if (p_.operation == Reduction::dot) y_.emplace(t.y);
    switch (p_.operation) {
      case Reduction::sum_of_squares:
        step_ = ReduceStep::squares;
        break;
      case Reduction::dot:
        step_ = ReduceStep::products;
        break;
      case Reduction::max:
      case Reduction::argmax:
        step_ = ReduceStep::max;
        break;
      case Reduction::min:
      case Reduction::argmin:
        step_ = ReduceStep::min;
        break;
      default:
        break;
    }
    n_ = p_.shape[axis_of(p_)];
  }

  // One segment of elements, in FP32 or as the kernel reads them.
  void reduce(int64_t row, int64_t begin, int64_t n, float* x, float* y, float* out,
              bool columns) const {
    const void* direct = y_ ? nullptr : x_.dense(row, begin);
    if (direct != nullptr) return run_({step_, direct, p_.x, nullptr, n, out, columns});
    run_({step_, x_.read(row, begin, n, x), Format::f32, y_ ? y_->read(row, begin, n, y) : nullptr,
          n, out, columns});
  }

  // One chunk of a row; `runs` receives the results of its segments.
  float chunk(int64_t row, int64_t index, float* runs) const {
    alignas(64) float x[kRun], y[kRun];
    const int64_t begin = index * kChunk, end = std::min(n_, begin + kChunk);
    int64_t count = 0;
    for (int64_t i = begin; i < end; i += kRun) {
      const int64_t n = std::min(kRun, end - i);
      reduce(row, i, n, x, y, runs + count, false);
      ++count;
    }
    float halved[kRuns];
    std::copy_n(runs, count, halved);
    return halve(halved, count);
  }

  // Sums elements half a range apart until one is left.
  float halve(float* values, int64_t count) const {
    if (count == 0) return 0;
    for (; count > 1; count = (count + 1) / 2) {
      const int64_t half = (count + 1) / 2;
      for (int64_t i = 0; i + half < count; ++i) {
        const float a = values[i], b = values[i + half];
        if (step_ == ReduceStep::max) {
          values[i] = a != a || a > b ? a : b;
        } else if (step_ == ReduceStep::min) {
          values[i] = a != a || a < b ? a : b;
        } else {
          values[i] = a + b;
        }
      }
    }
    return values[0];
  }

  // The first of n elements that is found; there is one.
  template <class Found>
  static int64_t first_place(const float* x, int64_t n, const Found& found) {
    int64_t at = 0;
    for (; n - at >= 32; at += 32) {
      int any = 0;
      for (int k = 0; k < 32; ++k) any |= static_cast<int>(found(x[at + k]));
      if (any != 0) break;
    }
    while (!found(x[at])) ++at;
    return at;
  }

  void finish_row(int64_t row, float value, int64_t index, const float* runs) const {
    if (!is_arg(p_.operation)) return store(row, &value, 1);
    const auto found = [&](float v) { return (v == value) | ((v != v) & (value != value)); };
    float again[kRuns];
    if (runs == nullptr) {  // of several chunks: this one's segments again
      chunk(row, index, again);
      runs = again;
    }
    int64_t at = index * kChunk;
    while (!found(*runs)) ++runs, at += kRun;
    alignas(64) float buffer[kRun];
    const float* x = x_.read(row, at, std::min(kRun, n_ - at), buffer);
    // One of the two comparisons, and 32 at a time, which the compiler vectorises.
    const int64_t left = std::min(kRun, n_ - at);
    at += value != value ? first_place(x, left, [](float v) { return v != v; })
                         : first_place(x, left, [value](float v) { return v == value; });
    out_.data<int64_t>()[row] = at;
  }

  // The dimensions around the axis, when it is not the last: outputs are rows [outer, inner] of
  // `width` columns.
  struct Around {
    int64_t inner, width;
    // Of the source.
    int64_t row(int64_t output, int64_t n, int64_t i) const {
      return (output / inner * n + i) * inner + output % inner;
    }
  };

  // Adds columns [begin, begin + count) of a block of rows to `to`.
  void block(const Around& around, int64_t output, int64_t index, int64_t begin, int64_t count,
             float* to) const {
    alignas(64) float x[kColumns], y[kColumns];
    std::fill_n(to, count, start());
    const int64_t end = std::min(n_, (index + 1) * kBlockRows);
    for (int64_t i = index * kBlockRows; i < end; ++i) {
      const int64_t row = around.row(output, n_, i);
      for (int64_t c = 0; c < count; c += kColumns) {
        reduce(row, begin + c, std::min(kColumns, count - c), x, y, to + c, true);
      }
    }
  }
  // Adds the sums of all blocks of these columns, in order.
  void join(const Around& around, int64_t output, int64_t begin, int64_t count,
            const float* blocks) const {
    alignas(64) float total[kColumns];
    std::fill_n(total, count, start());
    const ReduceStep step = is_extreme(p_.operation) ? step_ : ReduceStep::sum;
    for (int64_t first = 0; first < n_; first += kBlockRows, blocks += around.width) {
      run_({step, blocks, Format::f32, nullptr, count, total, true});
    }
    store(output * around.width + begin, total, count);
  }

  // The indices of the extremes of columns [begin, begin + count).
  void places(const Around& around, int64_t output, int64_t begin, int64_t count) const {
    alignas(64) float x[kColumns], extreme[kColumns] = {};
    int64_t best[kColumns] = {};
    const bool most = p_.operation == Reduction::argmax;
    for (int64_t i = 0; i < n_; ++i) {
      const int64_t row = around.row(output, n_, i);
      // Columns of many rows are short segments far apart, which no hardware prefetcher predicts.
      if (i + 4 < n_) x_.prefetch(row + 4 * around.inner, begin, count);
      const float* values = x_.read(row, begin, count, x);
      for (int64_t c = 0; c < count; ++c) {
        const float v = values[c], old = extreme[c];
        const bool better = i > 0 && old == old && (v != v || (most ? v > old : v < old));
        if (i == 0 || better) extreme[c] = v, best[c] = i;
      }
    }
    std::copy_n(best, count, out_.data<int64_t>() + output * around.width + begin);
  }

 private:
  float start() const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return step_ == ReduceStep::max ? -kInfinity : step_ == ReduceStep::min ? kInfinity : 0.0f;
  }
  void store(int64_t at, float* values, int64_t count) const {
    if (p_.operation == Reduction::mean) {
      for (int64_t i = 0; i < count; ++i) values[i] /= static_cast<float>(n_);
    }
    if (p_.out == Format::f32) {
      std::copy_n(values, count, out_.data<float>() + at);
    } else {
      format_kernels().convert(Format::f32, p_.out, values, count, out_.data<uint16_t>() + at);
    }
  }

  const ReduceProblem& p_;
  ReduceFunction run_;
  ReduceStep step_ = ReduceStep::sum;
  RowReader x_;
  std::optional<RowReader> y_;
  const Tensor& out_;
  int64_t n_ = 0;
};

}  // namespace halftone
