#include "engine/session/sensitivity.h"

#include <cmath>
#include <random>

#include "base/message.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model.h"
#include "engine/model/weights.h"

namespace halftone {

namespace {

// Seeds whose divergences are averaged: one of them varies by a third around the mean.
constexpr int kSeeds = 3;

std::vector<Tensor> matrices_of(const Model& model) {
  std::vector<Tensor> result;
  for (const LayerWeights& l : dynamic_cast<const LoadedModel&>(model).layers()) {
    for (const Tensor* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) {
      if (t->defined()) result.push_back(*t);
    }
    for (const auto* experts : {&l.expert_gate, &l.expert_up, &l.expert_down}) {
      result.insert(result.end(), experts->begin(), experts->end());
    }
  }
  return result;
}

struct SquaredError {
  double error = 0, size = 0;
  void add(const Tensor& values, const Tensor& exact) {
    const auto *a = values.data<float>(), *b = exact.data<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
      size += double{b[i]} * b[i];
    }
  }
  double relative() const { return size > 0 ? error / size : 0; }
};

Tensor in_f32(const Tensor& t) {
  Stream& stream = Stream::default_stream();
  return to_plain(t, Format::f32, stream);
}

std::shared_ptr<const Model> load(const std::string& path, const std::string& weights) {
  LoadOptions options;
  options.weights = weights;
  return Model::load(path, options);
}

SessionOptions exact_cache(Format kv) {
  SessionOptions options;
  options.kv = kv;
  return options;
}

// Another checkpoint's tensors in f32, with normal noise of a size relative to each matrix.
class NoisyCheckpoint : public Checkpoint {
 public:
  NoisyCheckpoint(const Checkpoint& other, double noise, uint64_t seed)
      : other_(other), noise_(noise), seed_(seed) {}
  const ModelConfig& config() const override { return other_.config(); }
  const SamplingOptions& default_sampling() const override { return other_.default_sampling(); }
  std::vector<std::string> names() const override { return other_.names(); }
  bool contains(const std::string& name) const override { return other_.contains(name); }
  Tensor tensor(const std::string& name) const override { return other_.tensor(name); }
  Tensor weight(const std::string& prefix) const override {
    const Tensor exact = in_f32(other_.weight(prefix));
    if (role_of(prefix + ".weight") != TensorRole::linear) return exact;
    Tensor noisy = exact.contiguous_copy();
    auto* values = noisy.data<float>();
    double size = 0;
    for (int64_t i = 0; i < noisy.numel(); ++i) size += double{values[i]} * values[i];
    const double deviation = noise_ * std::sqrt(size / static_cast<double>(noisy.numel()));
    std::mt19937_64 generator(std::hash<std::string>()(prefix) ^ seed_);
    std::normal_distribution<double> normal(0, deviation);
    for (int64_t i = 0; i < noisy.numel(); ++i) {
      values[i] = static_cast<float>(values[i] + normal(generator));
    }
    return noisy;
  }

 private:
  const Checkpoint& other_;
  double noise_;
  uint64_t seed_;
};

// Products over a cache narrower than f16 are of bf16 numbers: queries and the softmax round too.
double rounding_of_products(Format kv, int64_t head_dim) {
  const bool in_bf16 = kv == Format::fp8_e4m3 || kv == Format::nvfp4;
  return in_bf16 ? cache_squared_error(Format::bf16, head_dim) : 0;
}

}  // namespace

double squared_error(const Model& model, const Model& exact) {
  const std::vector<Tensor> a = matrices_of(model), b = matrices_of(exact);
  require(a.size() == b.size(), "the models have ", a.size(), " and ", b.size(), " matrices");
  SquaredError sum;
  for (size_t i = 0; i < a.size(); ++i) sum.add(in_f32(a[i]), in_f32(b[i]));
  return sum.relative();
}

double cache_squared_error(Format kv, int64_t head_dim) {
  if (kv == Format::f32) return 0;
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal;
  Tensor x = Tensor::empty({512, head_dim}, Format::f32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(generator);
  QuantizeOptions options;
  if (kv == Format::fp8_e4m3) options.scaling = {Format::f32, 1, 0};  // one a token and head
  if (kv == Format::nvfp4) {
    options = QuantizeOptions(Format::nvfp4);
    options.tensor_scale = 1.0f;
  }
  const Tensor stored = is_plain_float(kv) ? convert(x, kv) : quantize(x, options);
  SquaredError sum;
  sum.add(in_f32(stored), x);
  return sum.relative();
}

Sensitivity measure_sensitivity(const std::string& path, std::string_view text, int64_t window) {
  Sensitivity result;
  const auto exact = load(path, "f32");
  Session teacher(exact, exact_cache(Format::f32));
  const std::unique_ptr<Checkpoint> checkpoint = Checkpoint::open(path);
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const NoisyCheckpoint noisy(*checkpoint, result.noise, static_cast<uint64_t>(seed));
    LoadOptions options;
    options.weights = "f32";
    Session session(std::make_shared<LoadedModel>(noisy, Tokenizer::load(path), options),
                    exact_cache(Format::f32));
    const double kl = score(session, text, window, &teacher).kl;
    result.weights += kl / (result.noise * result.noise) / kSeeds;
  }
  Session f16(exact, exact_cache(Format::f16));
  result.cache = score(f16, text, window, &teacher).kl /
                 cache_squared_error(Format::f16, exact->config().head_dim);
  return result;
}

Sweep sweep_formats(const std::string& path, std::string_view text, int64_t window,
                    const std::vector<std::string>& weights, const std::vector<Format>& caches,
                    const std::function<void(double)>& progress) {
  Sweep sweep;
  sweep.sensitivity = measure_sensitivity(path, text, window);
  const auto exact = load(path, "f32");
  Session teacher(exact, exact_cache(Format::f32));
  sweep.exact = score(teacher, text, window);
  const int64_t head_dim = exact->config().head_dim;
  for (const std::string& format : weights) {
    const auto model = load(path, format);
    const double weight_error = squared_error(*model, *exact);
    for (const Format kv : caches) {
      const double cache_error = cache_squared_error(kv, head_dim);
      SweepRow row;
      row.weights = format;
      row.kv = name(kv);
      row.weight_bytes = model->weight_bytes();
      row.weight_error = std::sqrt(weight_error);
      row.cache_error = std::sqrt(cache_error);
      Session session(model, exact_cache(kv));
      row.score = score(session, text, window, &teacher);
      row.expected_kl =
          sweep.sensitivity.weights * weight_error +
          sweep.sensitivity.cache * (cache_error + rounding_of_products(kv, head_dim));
      row.nll_change = row.score.nll - sweep.exact.nll;
      row.nll_deviation = std::sqrt(2 * row.expected_kl / static_cast<double>(sweep.exact.tokens));
      sweep.rows.push_back(row);
      if (progress) {
        progress(static_cast<double>(sweep.rows.size()) /
                 static_cast<double>(weights.size() * caches.size()));
      }
    }
  }
  return sweep;
}

}  // namespace halftone
