// What the engine adds to the products of a token, on a model so small that it shows.
#include <algorithm>
#include <chrono>
#include <functional>

#include "bench_engine.h"
#include "engine/model.h"
#include "halftone/matmul.h"
#include "random_model.h"
#include "roofs.h"

namespace halftone {

namespace {

// The products of one token, each with the model's own weights.
class Products {
 public:
  explicit Products(const LoadedModel& model) {
    for (const LayerWeights& l : model.layers()) {
      for (const Tensor* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) add(*w);
    }
    add(model.head());
  }
  void run(Stream& stream) const {
    for (const auto& [plan, tensors] : calls_) halftone::run(plan, tensors, stream);
  }

 private:
  void add(const Tensor& weight) {
    MatmulProblem problem;
    problem.m = 1, problem.n = weight.size(0), problem.k = weight.size(1);
    problem.x = problem.weight = problem.out = Format::f32;
    MatmulTensors tensors;
    tensors.x = Tensor::zeros({1, problem.k}, Format::f32);
    tensors.weight = weight;
    tensors.out = Tensor::empty({1, problem.n}, Format::f32);
    calls_.emplace_back(plan(problem, Device::cpu()), tensors);
  }
  std::vector<std::pair<MatmulPlan, MatmulTensors>> calls_;
};

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

BenchRow bench_engine_overhead(Stream& stream, bool quick) {
  constexpr int kTokens = 256;
  const int repeats = quick ? 9 : 31;
  const auto model = std::make_shared<LoadedModel>(
      RandomCheckpoint(tiny_llama(), Device::cpu(), Format::f32), nullptr, LoadOptions{});
  SessionOptions options;
  options.kv = Format::f32;
  options.threads = stream.threads();
  Session session(model, options);
  SamplingOptions sampling;
  sampling.temperature = 0.8f, sampling.top_p = 0.95f;
  Sampler sampler(sampling);
  const Products products(*model);
  const auto tokens = [&] {
    session.truncate(0);
    int32_t token = 1;
    for (int i = 0; i < kTokens; ++i) {
      const std::span<const float> logits = session.forward({&token, 1});
      token = sampler.sample(logits, session.tokens());
    }
  };
  const auto products_alone = [&] {
    for (int i = 0; i < kTokens; ++i) products.run(session.stream());
  };
  std::vector<double> overheads;
  for (int i = -1; i < repeats; ++i) {  // by turns; the first of each warms up
    const double all = seconds_of(tokens), alone = seconds_of(products_alone);
    if (i >= 0) overheads.push_back((all - alone) / kTokens);
  }
  BenchRow row;
  row.name = "engine overhead of a token beyond its products, 260 K parameters";
  row.seconds = timing_of(std::move(overheads));
  row.value = 1 / row.seconds.median;
  row.unit = "/s";
  return row;
}

}  // namespace halftone
