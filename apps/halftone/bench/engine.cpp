// What the engine adds to the kernels of a token, on models so small that it shows.
#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "bench/engine.h"
#include "engine/model/model.h"
#include "halftone/matmul.h"
#include "measure/roofs.h"
#include "random_model.h"

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

// A session and what draws its tokens.
class Decoding {
 public:
  Decoding(const std::shared_ptr<const LoadedModel>& model, int threads)
      : session_(model, options(threads)), sampler_(sampling()) {}
  // `count` tokens after an empty context.
  void run(int count) {
    session_.truncate(0);
    int32_t token = 1;
    for (int i = 0; i < count; ++i) {
      const std::span<const float> logits = session_.forward({&token, 1});
      token = sampler_.sample(logits, session_.tokens());
    }
  }
  Stream& stream() { return session_.stream(); }

 private:
  static SessionOptions options(int threads) {
    SessionOptions o;
    o.kv = Format::f32, o.threads = threads;
    return o;
  }
  static SamplingOptions sampling() {
    SamplingOptions o;
    o.temperature = 0.8f, o.top_p = 0.95f;
    return o;
  }
  Session session_;
  Sampler sampler_;
};

std::shared_ptr<const LoadedModel> random_model(const ModelConfig& config) {
  return std::make_shared<LoadedModel>(RandomCheckpoint(config, Device::cpu(), Format::f32),
                                       nullptr, LoadOptions{});
}

BenchRow row_of(const std::string& name, std::vector<double> seconds) {
  BenchRow row;
  row.name = name;
  row.seconds = timing_of(std::move(seconds));
  row.value = 1 / row.seconds.median;
  row.unit = "/s";
  return row;
}

// The layers of tiny_llama and every call of their tokens, with so little in each that calls,
// checks and choices of kernels are what is left: a bound from above, since each kernel still does
// its least.
ModelConfig empty_llama() {
  ModelConfig c = tiny_llama();
  c.hidden = c.head_dim = c.intermediate = c.vocabulary = 8;
  c.heads = c.kv_heads = 1;
  return c;
}

}  // namespace

std::vector<BenchRow> bench_engine_overhead(const CpuBench& asked) {
  const int repeats = asked.quick ? 9 : 31, threads = asked.stream.threads();
  const char* const own = "engine overhead of a token, 5 layers of 8 columns";
  const char* const whole = "token of 260 K parameters";
  const char* const beyond = "token of 260 K parameters, beyond its products";
  std::vector<BenchRow> rows;
  if (asked.choice.begins(own)) {
    constexpr int kTokens = 16;  // few keys: attention over many would be work
    Decoding decoding(random_model(empty_llama()), threads);
    std::vector<double> seconds;
    for (int i = -1; i < 32 * repeats; ++i) {  // the first warms up
      const double all = seconds_of([&] { decoding.run(kTokens); });
      if (i >= 0) seconds.push_back(all / kTokens);
    }
    rows.push_back(row_of(own, std::move(seconds)));
  }
  if (asked.choice.only_lists()) {
    static_cast<void>(asked.choice.begins(whole)), static_cast<void>(asked.choice.begins(beyond));
    return rows;
  }
  if (!asked.choice.asks_for(whole) && !asked.choice.asks_for(beyond)) return rows;
  if (!asked.choice.begins(asked.choice.asks_for(whole) ? whole : beyond)) return rows;
  constexpr int kTokens = 256;
  const auto model = random_model(tiny_llama());
  Decoding decoding(model, threads);
  const Products products(*model);
  std::vector<double> all, rest;
  for (int i = -1; i < repeats; ++i) {  // by turns; the first of each warms up
    const double tokens = seconds_of([&] { decoding.run(kTokens); });
    const double alone = seconds_of([&] {
      for (int j = 0; j < kTokens; ++j) products.run(decoding.stream());
    });
    if (i < 0) continue;
    all.push_back(tokens / kTokens), rest.push_back((tokens - alone) / kTokens);
  }
  if (asked.choice.asks_for(whole)) rows.push_back(row_of(whole, std::move(all)));
  if (asked.choice.asks_for(beyond)) rows.push_back(row_of(beyond, std::move(rest)));
  return rows;
}

}  // namespace halftone
