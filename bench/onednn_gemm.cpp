// Our products beside oneDNN's in the same run, call by call in turn: f32 and bf16, 512 rows and
// one row. Built where oneDNN 2.x is installed (libdnnl-dev); OMP_NUM_THREADS sets its threads.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <random>
#include <unordered_map>

#include "halftone/matmul.h"
#include "halftone/quantize.h"

namespace {

using namespace halftone;
using Memory = dnnl::memory;
using Clock = std::chrono::steady_clock;

constexpr int64_t kSize = 4096;

Tensor random_normal(const Shape& shape, Format format, uint32_t seed) {
  Tensor x = Tensor::empty(shape, Format::f32);
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(engine);
  return convert(x, format);
}

// y = x W^T with W in the layout oneDNN likes best, reordered before the measurement.
struct Peer {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  dnnl::matmul product;
  std::vector<Memory> weights;
  Memory x, out;

  Peer(Tensor input, const Tensor& w, Tensor result, int64_t copies) {
    const auto type = w.format() == Format::f32 ? Memory::data_type::f32 : Memory::data_type::bf16;
    const int64_t m = input.size(0);
    const Memory::desc x_desc({m, kSize}, type, Memory::format_tag::ab);
    const Memory::desc out_desc({m, kSize}, type, Memory::format_tag::ab);
    const Memory::desc any({kSize, kSize}, type, Memory::format_tag::any);
    const dnnl::matmul::primitive_desc description({x_desc, any, out_desc}, engine);
    product = dnnl::matmul(description);
    Memory ours({{kSize, kSize}, type, Memory::format_tag::ba}, engine, w.data());
    for (int64_t i = 0; i < copies; ++i) {
      weights.emplace_back(description.weights_desc(), engine);
      dnnl::reorder(ours, weights.back()).execute(stream, ours, weights.back());
    }
    stream.wait();
    x = Memory(x_desc, engine, input.data());
    out = Memory(out_desc, engine, result.data());
  }
  void run(size_t turn) {
    product.execute(stream, {{DNNL_ARG_SRC, x},
                             {DNNL_ARG_WEIGHTS, weights[turn % weights.size()]},
                             {DNNL_ARG_DST, out}});
    stream.wait();
  }
};

template <class F>
double seconds(const F& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void compare(Format format, int64_t m, Stream& stream) {
  const Tensor w = random_normal({kSize, kSize}, format, 1);
  const Tensor x = random_normal({m, kSize}, format, 2);
  const Tensor ours = Tensor::empty({m, kSize}, format), theirs = Tensor::empty({m, kSize}, format);
  // One row: copies of the weights in turn, 320 MB, so that they come from memory.
  const int64_t copies = m > 1 ? 1 : std::max<int64_t>(2, (int64_t{320} << 20) / w.bytes());
  std::vector<Tensor> weights = {w};
  while (static_cast<int64_t>(weights.size()) < copies) weights.push_back(w.contiguous_copy());
  MatmulProblem problem;
  problem.m = m, problem.n = problem.k = kSize;
  problem.x = problem.weight = problem.out = format;
  const MatmulPlan p = plan(problem, Device::cpu());
  Peer peer(x, w, theirs, copies);
  std::vector<double> mine, others;
  const size_t repeats = m > 1 ? 15 : 60;
  for (size_t i = 0; i < repeats; ++i) {
    mine.push_back(seconds([&] {
      run(p, {x, weights[i % weights.size()], ours, {}, {}}, stream);
    }));
    others.push_back(seconds([&] { peer.run(i); }));
  }
  const auto median = [](std::vector<double>& times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  const double a = median(mine), b = median(others);
  const double work =
      m > 1 ? 2.0 * static_cast<double>(m * kSize * kSize) : static_cast<double>(w.bytes());
  std::printf("%-4s m %-4lld median %7.1f, oneDNN %7.1f %s, ratio %.2f; best %7.1f, %7.1f\n",
              name(format), static_cast<long long>(m), work / a * 1e-9, work / b * 1e-9,
              m > 1 ? "GFLOP/s" : "GB/s", b / a, work / mine[0] * 1e-9, work / others[0] * 1e-9);
}

}  // namespace

int main() {
  Stream& stream = Stream::default_stream();
  for (Format format : {Format::f32, Format::bf16}) {
    for (int64_t m : {512, 1}) compare(format, m, stream);
  }
}
