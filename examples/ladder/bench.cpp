// Measures the steps beside cuBLASLt on a GPU.
//   ladder_bench [--json FILE] [--commit TEXT] [--steps 5,6,7,8,9] [--no-sustained]
//
// For every size: correctness first (sampled rows against FP64, and nothing left unwritten), then
// all kernels in turn, round after round, over buffers that together exceed the L2 several times.
// Burst: after a rest, graphs of about 4 ms. Sustained: replays for half a second, the median of
// the second half; the power limit decides it. Medians over the rounds.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halftone/error.h"
#include "halftone/graph.h"
#include "ladder.h"
#include "matrices.h"

using namespace halftone;

namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::device, what); }
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define CHECK(call) check(call, #call)

struct Buffers {
  Tensor a, b, c;
};

struct Candidate {
  std::string name;
  int step;  // 0: cuBLASLt
  std::function<void(const Buffers&, Stream&)> run;
  double relative_error = 0;
  std::vector<double> burst, sustained;  // microseconds
};

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// The first answers of its heuristic, as row-major C = A B^T: to the library, which thinks in
// columns, that is C^T = B A^T with both operands K-major.
class CublasLt {
 public:
  CublasLt() {
    CHECK(cublasLtCreate(&handle_));
    if (cudaMalloc(&workspace_, kWorkspace) != cudaSuccess) fail("no memory for the workspace");
  }
  std::vector<Candidate> candidates(int64_t m, int64_t n, int64_t k, int wanted) {
    cublasLtMatmulDesc_t operation;
    CHECK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transpose = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transpose,
                                         sizeof transpose));
    cublasLtMatrixLayout_t a, b, c;
    CHECK(cublasLtMatrixLayoutCreate(&a, CUDA_R_16BF, uint64_t(k), uint64_t(n), k));
    CHECK(cublasLtMatrixLayoutCreate(&b, CUDA_R_16BF, uint64_t(k), uint64_t(m), k));
    CHECK(cublasLtMatrixLayoutCreate(&c, CUDA_R_16BF, uint64_t(n), uint64_t(m), n));
    cublasLtMatmulPreference_t preference;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t bytes = kWorkspace;
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &bytes, sizeof bytes));
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(wanted));
    int count = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, operation, a, b, c, c, preference, wanted,
                                         found.data(), &count));
    std::vector<Candidate> list;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulAlgo_t algorithm = found[size_t(i)].algo;
      list.push_back({"cuBLASLt, choice " + std::to_string(i + 1),
                      0,
                      [=, this](const Buffers& x, Stream& stream) {
                        const float one = 1, zero = 0;
                        CHECK(cublasLtMatmul(handle_, operation, &one, x.b.data(), a, x.a.data(), b,
                                             &zero, x.c.data(), c, x.c.data(), c, &algorithm,
                                             workspace_, kWorkspace,
                                             static_cast<cudaStream_t>(stream.native())));
                      },
                      0,
                      {},
                      {}});
    }
    return list;
  }

 private:
  static constexpr size_t kWorkspace = 64 << 20;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
};

struct Options {
  std::string json, commit = "unknown";
  std::vector<int> steps = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  bool sustained = true;
};

double milliseconds(const Graph& graph, Stream& stream, Event& begin, Event& end) {
  begin.record(stream);
  graph.replay(stream);
  end.record(stream);
  end.synchronize();
  return double{end.milliseconds_since(begin)};
}

void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(350)); }

void measure(std::vector<Candidate>& candidates, const std::vector<Buffers>& sets, double flop,
             bool sustained, Stream& stream) {
  Event begin(stream.device()), end(stream.device());
  std::vector<Graph> graphs;
  std::vector<int> runs;
  for (Candidate& c : candidates) {
    c.run(sets[0], stream);  // loads the kernel
    stream.synchronize();
    begin.record(stream);
    c.run(sets[1], stream);
    end.record(stream);
    end.synchronize();
    const double once = double{end.milliseconds_since(begin)};
    const int in_graph = std::clamp(int(4 / std::max(once, flop / 900e9)), 1, 64);
    runs.push_back(in_graph);
    graphs.push_back(Graph::capture(stream, [&](Stream& s) {
      for (int i = 0; i < in_graph; ++i) c.run(sets[size_t(i) % sets.size()], s);
    }));
    milliseconds(graphs.back(), stream, begin, end);
  }
  for (int round = 0; round < 5; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (round > 0 && candidates[i].step > 0 && candidates[i].step < 3) continue;  // slow, steady
      rest();
      std::vector<double> times;
      for (int replay = 0; replay < 3; ++replay) {
        times.push_back(milliseconds(graphs[i], stream, begin, end) / runs[i] * 1e3);
      }
      candidates[i].burst.push_back(median(times));
    }
  }
  for (int round = 0; sustained && round < 3; ++round) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (round > 0 && candidates[i].step > 0 && candidates[i].step < 5) continue;
      rest();
      std::vector<double> times;
      for (double sum = 0; sum < 500;) {
        const double time = milliseconds(graphs[i], stream, begin, end);
        sum += time;
        times.push_back(time / runs[i] * 1e3);
      }
      candidates[i].sustained.push_back(
          median({times.begin() + static_cast<long>(times.size() / 2), times.end()}));
    }
  }
}

std::vector<Candidate> bench(int64_t size, const Options& options, CublasLt& lt, Stream& stream) {
  const Device device = stream.device();
  const auto a = ladder::random_matrix(size, size, 1), b = ladder::random_matrix(size, size, 2);
  const std::vector<uint16_t> nan(size_t(size * size), 0xffff);
  const auto on_device = [&](const std::vector<uint16_t>& values) {
    return Tensor::copy_of(values.data(), values.size() * 2, {size, size}, Format::bf16).to(device);
  };
  std::vector<Buffers> sets;
  for (int i = 0; i < (size > 4096 ? 2 : 4); ++i) {  // 0.4 to 0.8 GB
    sets.push_back({on_device(a), on_device(b), on_device(nan)});
  }

  std::vector<Candidate> candidates;
  for (int step : options.steps) {
    const ladder::Step& s = ladder::steps()[size_t(step - 1)];
    candidates.push_back(
        {s.name,
         step,
         [step](const Buffers& x, Stream& on) { ladder::multiply(step, x.a, x.b, x.c, on); },
         0,
         {},
         {}});
  }
  for (Candidate& c : lt.candidates(size, size, size, 4)) candidates.push_back(std::move(c));

  for (Candidate& c : candidates) {
    const Buffers x{sets[0].a, sets[0].b, on_device(nan)};
    c.run(x, stream);
    stream.synchronize();
    const Tensor back = x.c.to(Device::cpu());
    const auto* values = back.data<uint16_t>();
    const ladder::Distance d = ladder::distance(a, b, {values, values + size * size}, size, size,
                                                size, size > 4096 ? 4 : 8);
    c.relative_error = d.relative;
    // Rounding to bf16 alone gives 1.7e-3; a step of K left out of 8192 would give 4e-2.
    if (d.unwritten > 0 || !(d.relative < 2e-3) || !(d.worst <= 1)) {
      fail(c.name + " is wrong: relative error " + std::to_string(d.relative) + ", " +
           std::to_string(d.unwritten) + " elements unwritten");
    }
  }
  measure(candidates, sets, 2.0 * double(size) * double(size) * double(size), options.sustained,
          stream);
  return candidates;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw Error(ErrorCode::invalid_argument, word + " wants a value");
      return argv[++i];
    };
    if (word == "--json") {
      options.json = value();
    } else if (word == "--commit") {
      options.commit = value();
    } else if (word == "--no-sustained") {
      options.sustained = false;
    } else if (word == "--steps") {
      options.steps.clear();
      const std::string list = value();
      for (const char c : list) {
        if (c >= '1' && c <= '9') options.steps.push_back(c - '0');
      }
    } else {
      throw Error(ErrorCode::invalid_argument, word + " is unknown; see the head of bench.cpp");
    }
  }
  return options;
}

int run(const Options& options) {
  Stream stream(Device::cuda());
  const DeviceProperties& gpu = properties(stream.device());
  CublasLt lt;
  std::string rows;
  std::printf("%s, %s, %d multiprocessors\n", gpu.name.c_str(), gpu.driver.c_str(), gpu.sm_count);
  for (const int64_t size : {int64_t{4096}, int64_t{8192}}) {
    const double flop = 2.0 * double(size) * double(size) * double(size);
    const auto candidates = bench(size, options, lt, stream);
    double best_burst = 1e30, best_sustained = 1e30;  // of cuBLASLt's choices
    for (const Candidate& c : candidates) {
      if (c.step != 0) continue;
      best_burst = std::min(best_burst, median(c.burst));
      if (options.sustained) best_sustained = std::min(best_sustained, median(c.sustained));
    }
    std::printf(
        "%ld^3                      burst us  TFLOPS  of Lt | sustained us  TFLOPS  of Lt\n",
        static_cast<long>(size));
    for (const Candidate& c : candidates) {
      const double burst = median(c.burst), held = median(c.sustained);
      std::printf("%d %-26s %9.1f %7.1f %6.3f | %9.1f %7.1f %6.3f  error %.2e\n", c.step,
                  c.name.c_str(), burst, flop / burst * 1e-6, best_burst / burst, held,
                  held > 0 ? flop / held * 1e-6 : 0, held > 0 ? best_sustained / held : 0,
                  c.relative_error);
      char line[512];
      std::snprintf(line, sizeof line,
                    "%s\n    {\"size\": %ld, \"step\": %d, \"name\": \"%s\", \"burst_us\": %.2f, "
                    "\"burst_tflops\": %.1f, \"sustained_us\": %.2f, \"sustained_tflops\": %.1f, "
                    "\"relative_error\": %.3e}",
                    rows.empty() ? "" : ",", static_cast<long>(size), c.step, c.name.c_str(), burst,
                    flop / burst * 1e-6, held, held > 0 ? flop / held * 1e-6 : 0, c.relative_error);
      rows += line;
    }
  }
  if (!options.json.empty()) {
    std::FILE* file = std::fopen(options.json.c_str(), "w");
    if (file == nullptr) throw Error(ErrorCode::io, options.json + " cannot be written");
    std::fprintf(file,
                 "{\n  \"benchmark\": \"ladder\", \"commit\": \"%s\", \"device\": \"%s\",\n"
                 "  \"driver\": \"%s\", \"cublaslt\": %zu,\n"
                 "  \"method\": \"interleaved, 5 burst rounds of 3 graphs of 4 ms after 0.35 s of "
                 "rest, 3 sustained rounds of 0.5 s, medians; 2 or 4 sets of buffers\",\n"
                 "  \"results\": [%s\n  ]\n}\n",
                 options.commit.c_str(), gpu.name.c_str(), gpu.driver.c_str(), cublasLtGetVersion(),
                 rows.c_str());
    std::fclose(file);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ladder_bench: %s\n", e.what());
    return 2;
  }
}
