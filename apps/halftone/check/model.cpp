// Q, K and V as a model makes them.
#include <algorithm>

#include "check/attention.h"
#include "halftone/engine.h"
#include "halftone/quantize.h"
#include "model_options.h"

namespace halftone {

std::vector<AttentionData> model_attention_data(const std::string& path, const std::string& text,
                                                int64_t tokens, int threads) {
  app::ModelOptions load;
  load.model = path, load.threads = threads;
  const std::shared_ptr<const Model> model = app::load_model(load, "", false);
  std::vector<int32_t> ids = model->tokenizer().encode(text, true);
  SessionOptions options;
  options.kv = Format::f32, options.threads = threads;
  if (model->config().max_positions > 0) tokens = std::min(tokens, model->config().max_positions);
  options.max_length = tokens;
  ids.resize(std::min(ids.size(), static_cast<size_t>(tokens)));

  // A pass may take a part of the tokens only: rows of the parts behind each other.
  const auto layers = static_cast<size_t>(model->config().layers);
  const auto length = static_cast<int64_t>(ids.size());
  std::vector<AttentionTensors> parts(layers);
  std::vector<int64_t> filled(layers, 0);
  options.on_attention = [&](int64_t layer, const Tensor& q, const Tensor& k, const Tensor& v) {
    AttentionTensors& part = parts[static_cast<size_t>(layer)];
    int64_t& at = filled[static_cast<size_t>(layer)];
    const auto keep = [&](const Tensor& x, Tensor* whole) {
      if (!whole->defined()) {
        *whole = Tensor::zeros({1, length, x.size(1), x.size(2)}, Format::f32);
      }
      const Tensor f32 = convert(x, Format::f32).contiguous_copy();
      std::copy_n(f32.data<float>(), f32.numel(),
                  whole->data<float>() + at * x.size(1) * x.size(2));
    };
    keep(q, &part.q), keep(k, &part.k), keep(v, &part.v);
    at += q.size(0);
  };
  Session session(model, options);
  session.forward(ids);

  std::vector<AttentionData> all;
  for (size_t layer = 0; layer < layers; ++layer) {
    all.push_back({"layer " + std::to_string(layer), {parts[layer]}, true});
  }
  all.push_back({"all layers", parts, true});
  return all;
}

}  // namespace halftone
