// Histograms: rules, plan, the CPU kernel, run and one-liner.
#include "halftone/histogram.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/arguments.h"
#include "base/kernel_table.h"
#include "formats/row_reader.h"
#include "ops/histogram/gpu.h"

namespace halftone {

namespace {

// Counts the row segments of a unit of work, in FP32.
struct HistogramArgs {
  const RowReader& x;
  int64_t columns = 0, pieces = 0;  // segments of kPiece elements a row
  const float* edges = nullptr;
  int64_t bins = 0;
  int64_t* counts = nullptr;
  std::atomic<int64_t>* wrong = nullptr;  // smallest index of a value that is refused
};
constexpr int64_t kPiece = 16 * 1024;
// Tables up to this length are counted separately by each unit and added at its end; longer ones
// are shared, where two threads seldom hit the same bin.
constexpr int64_t kOwn = 2048;

// -1: outside the edges; -2: not a number, or without edges outside the bins.
int32_t bin_of(const HistogramArgs& args, float v) {
  if (v != v) return -2;
  if (!(v >= args.edges[0] && v <= args.edges[args.bins])) return -1;
  // The last edge that is not above v, by binary search.
  const float* first = args.edges;
  for (int64_t n = args.bins; n > 1;) {
    const int64_t half = n / 2;
    first += first[half] <= v ? half : 0;
    n -= half;
  }
  return static_cast<int32_t>(first - args.edges);
}

void histogram_pieces(const HistogramArgs& args, int64_t begin, int64_t end) {
  alignas(64) float buffer[RowReader::kMost];
  int64_t own[kOwn] = {};
  const bool apart = args.bins <= kOwn;
  for (int64_t piece = begin; piece < end; ++piece) {
    const int64_t row = piece / args.pieces, first = piece % args.pieces * kPiece;
    const int64_t last = std::min(args.columns, first + kPiece);
    for (int64_t i = first; i < last; i += RowReader::kMost) {
      const int64_t n = std::min(RowReader::kMost, last - i);
      const float* x = args.x.read(row, i, n, buffer);
      int32_t bins[RowReader::kMost];
      if (args.edges == nullptr) {
        const auto most = static_cast<float>(args.bins);
        for (int64_t k = 0; k < n; ++k) {  // without a branch, so that it is vectorised
          const float v = x[k];
          const int32_t inside = v >= 0 && v < most ? -1 : 0;
          bins[k] = (static_cast<int32_t>(inside != 0 ? v : 0.0f) & inside) | (~inside & -2);
        }
      } else {
        for (int64_t k = 0; k < n; ++k) bins[k] = bin_of(args, x[k]);
      }
      for (int64_t k = 0; k < n; ++k) {
        const int32_t bin = bins[k];
        if (bin >= 0 && apart) {
          ++own[bin];
        } else if (bin >= 0) {
          std::atomic_ref(args.counts[bin]).fetch_add(1, std::memory_order_relaxed);
        } else if (bin == -2) {
          const int64_t index = row * args.columns + i + k;
          int64_t smallest = args.wrong->load();
          while (index < smallest && !args.wrong->compare_exchange_weak(smallest, index)) {
          }
        }
      }
    }
  }
  if (!apart) return;
  for (int64_t bin = 0; bin < args.bins; ++bin) {
    if (own[bin] != 0) {
      std::atomic_ref(args.counts[bin]).fetch_add(own[bin], std::memory_order_relaxed);
    }
  }
}

}  // namespace

using HistogramFunction = void (*)(const HistogramArgs&, int64_t begin, int64_t end);
struct HistogramKernel
    : KernelRow<HistogramProblem, CpuOrGpu<HistogramFunction, HistogramGpuFunction>> {};

namespace {

std::string accepts(const HistogramProblem& p) {
  if (p.bins < 1 || p.bins > (1 << 24)) {
    return concat("histogram: bins is ", p.bins, "; it must be from 1 to 2^24");
  }
  const std::string reason = RowReader::refuse(p.x, p.scaled);
  return reason.empty() ? reason : concat("histogram: x is ", reason);
}

constexpr HistogramKernel kKernels[] = {
    {{"histogram", Device::Kind::cpu, CpuLevel::baseline, accepts, histogram_pieces}},
    HALFTONE_GPU_ROW("histogram", accepts, histogram_gpu)};

void run_on_gpu(const HistogramPlan& plan, const HistogramTensors& t, Stream& stream) {
  const HistogramProblem& p = plan.problem;
  HistogramGpuArgs args;
  // Contiguous rows are one.
  const bool flat = t.x.contiguous() && !t.x.has_scales() && t.x.numel() > 0;
  args.x = number_rows(flat ? t.x.reshape({t.x.numel()}) : t.x);
  args.elements = t.x.numel(), args.bins = p.bins;
  args.counts = t.counts.data<uint64_t>();
  if (p.edges) {
    check_tensor("histogram", "edges", t.edges, {p.bins + 1}, Format::f32, plan.device);
    args.edges = t.edges.data<float>();
  }
  plan.kernel->function.gpu(args, stream);
}

}  // namespace

std::string describe(const HistogramPlan& plan) {
  const HistogramProblem& p = plan.problem;
  return concat(plan.kernel->name, ": ", p.bins, p.edges ? " bins between edges" : " bins", " of ",
                to_string(p.shape), " ", name(p.x), ", on ", plan.device.name());
}
Support can_run(const HistogramProblem& problem, const Device& device) {
  return support_of(kKernels, problem, device);
}
HistogramPlan plan(const HistogramProblem& problem, const Device& device) {
  return {problem, device, kernel_for(kKernels, problem, device)};
}

void run(const HistogramPlan& plan, const HistogramTensors& t, Stream& stream) {
  const HistogramProblem& p = plan.problem;
  require(plan.kernel != nullptr, "histogram: the plan is empty; make it with plan()");
  check_stream("histogram", stream, plan.device);
  require(t.x.defined() && t.x.shape() == p.shape && t.x.format() == p.x &&
              t.x.has_scales() == p.scaled && t.x.device() == plan.device,
          "histogram: x is ", t.x.defined() ? to_string(t.x) : std::string("undefined"),
          ", the plan was made for ", name(p.x), " ", shown(p.shape));
  const int64_t columns = p.shape.rank() > 0 ? p.shape[p.shape.rank() - 1] : 1;
  require(columns <= 1 || t.x.numel() == 0 || t.x.stride(-1) == 1 || (!p.scaled && bits(p.x) >= 8),
          "histogram: x has a last stride of ", columns > 1 ? t.x.stride(-1) : 1,
          "; of quantised formats it must be 1");
  check_tensor("histogram", "counts", t.counts, {p.bins}, Format::i64, plan.device);
  check_overlap("histogram", "counts", t.counts, "x", t.x);
  require(t.edges.defined() == p.edges, "histogram: edges are ", p.edges ? "missing" : "given",
          ", the plan was made ", p.edges ? "with" : "without", " them");
  if (plan.kernel->function.gpu != nullptr) return run_on_gpu(plan, t, stream);
  std::atomic<int64_t> wrong{std::numeric_limits<int64_t>::max()};
  const RowReader reader(t.x);
  HistogramArgs args{reader};
  if (p.edges) {
    check_tensor("histogram", "edges", t.edges, {p.bins + 1}, Format::f32, plan.device);
    args.edges = t.edges.data<float>();
    for (int64_t i = 0; i < p.bins; ++i) {
      require(args.edges[i] <= args.edges[i + 1], "histogram: edges[", i, "] is ", args.edges[i],
              " and edges[", i + 1, "] ", args.edges[i + 1], "; they must ascend");
    }
  }
  args.columns = columns;
  args.pieces = std::max<int64_t>(1, (columns + kPiece - 1) / kPiece);
  args.bins = p.bins;
  args.counts = t.counts.data<int64_t>();
  args.wrong = &wrong;
  std::fill_n(args.counts, p.bins, 0);
  if (t.x.numel() == 0) return;
  for_rows(stream, t.x.numel() / columns * args.pieces, std::min(columns, kPiece),
           [&](int64_t begin, int64_t end) { plan.kernel->function.cpu(args, begin, end); });
  const int64_t index = wrong.load();
  if (index == std::numeric_limits<int64_t>::max()) return;
  // Elements of packed formats are read in pairs.
  float pair[2];
  const int64_t column = index % columns, even = column / 2 * 2;
  const float* found =
      reader.read(index / columns, even, std::min<int64_t>(2, columns - even), pair);
  const float value = found[column - even];
  fail(ErrorCode::invalid_argument, "histogram: x[", index, "] is ", value,
       p.edges ? "; it has no place between edges"
               : concat("; without edges values must be from 0 to below bins, ", p.bins));
}

Tensor histogram(const Tensor& x, int64_t bins, Stream& stream) {
  require(x.defined(), "histogram: x is undefined");
  const HistogramPlan made =
      plan(HistogramProblem{x.shape(), x.format(), x.has_scales(), bins, false}, x.device());
  const Tensor counts = Tensor::empty({bins}, Format::i64, x.device());
  run(made, {x, counts, {}}, stream);
  return counts;
}

Tensor histogram(const Tensor& x, const Tensor& edges, Stream& stream) {
  require(x.defined(), "histogram: x is undefined");
  require(edges.defined() && edges.rank() == 1 && edges.size(0) >= 2,
          "histogram: edges must be f32 [bins + 1], at least two");
  const int64_t bins = edges.size(0) - 1;
  const HistogramPlan made =
      plan(HistogramProblem{x.shape(), x.format(), x.has_scales(), bins, true}, x.device());
  const Tensor counts = Tensor::empty({bins}, Format::i64, x.device());
  run(made, {x, counts, edges}, stream);
  return counts;
}

}  // namespace halftone
