#include "engine/model/step.h"

#include <algorithm>

#include "base/branches.h"
#include "base/message.h"

namespace halftone {

namespace {

// Where the parts of Activations::inputs begin: each at a line of its own.
constexpr int64_t kLine = 64 / sizeof(int32_t);
constexpr int64_t lines(int64_t count) { return (count + kLine - 1) / kLine * kLine; }

}  // namespace

Activations::Activations(const ModelConfig& c, int64_t sequences, int64_t rows, Format format,
                         const Device& device) {
  const auto make = [&](const Shape& shape, Format f) { return Tensor::empty(shape, f, device); };
  const int64_t ids_at = lines(sequences), positions_at = ids_at + lines(rows);
  inputs = Tensor::zeros({positions_at + rows}, Format::i32, device);
  inputs_host = device.is_cpu() ? inputs : Tensor::empty_pinned(inputs.shape(), Format::i32);
  keys_in_use = inputs.slice(0, 0, sequences);
  ids = inputs.slice(0, ids_at, ids_at + rows);
  positions = inputs.slice(0, positions_at, positions_at + rows);
  residual = make({rows, c.hidden}, format);
  normed = make({rows, c.hidden}, format);
  q = make({rows, c.heads * c.head_dim}, format);
  k = make({rows, c.kv_heads * c.head_dim}, format);
  v = make({rows, c.kv_heads * c.head_dim}, format);
  attended = make({rows, c.heads * c.head_dim}, format);
  const auto sparse = std::count(c.sparse_layer.begin(), c.sparse_layer.end(), true);
  if (sparse < c.layers) {
    gate = make({rows, c.intermediate}, format);
    up = make({rows, c.intermediate}, format);
  }
  if (sparse > 0) {
    router = make({rows, c.experts}, Format::f32);
    experts = make({rows, c.experts_per_token}, Format::i32);
    expert_weights = make({rows, c.experts_per_token}, Format::f32);
  }
}

int64_t Activations::bytes() const {
  int64_t total = 0;
  for (const Tensor* t : {&inputs, &residual, &normed, &q, &k, &v, &attended, &gate, &up, &router,
                          &experts, &expert_weights}) {
    total += t->bytes();
  }
  return total;
}

void Activations::set_inputs(std::span<const int32_t> tokens, int64_t held, Stream& stream) {
  const bool apart = inputs_host.data() != inputs.data();
  if (apart) stream.synchronize();  // the copy of the pass before may still read the host's side
  auto* host = inputs_host.data<int32_t>();
  const auto rows = static_cast<int64_t>(tokens.size());
  const int64_t sequences = keys_in_use.size(0), count = rows / sequences;
  const int64_t ids_at = lines(sequences), positions_at = ids_at + lines(ids.size(0));
  std::fill_n(host, sequences, static_cast<int32_t>(held + count));
  std::copy(tokens.begin(), tokens.end(), host + ids_at);
  for (int64_t row = 0; row < rows; ++row) {
    host[positions_at + row] = static_cast<int32_t>(held + row % count);
  }
}

void Activations::upload(Stream& stream) const {
  if (inputs_host.data() != inputs.data()) copy(inputs_host, inputs, stream);
}

namespace {

bool same(const MatmulProblem& a, const MatmulProblem& b) {
  return a.m == b.m && a.n == b.n && a.k == b.k && a.x == b.x && a.weight == b.weight &&
         a.scaling == b.scaling && a.scaled == b.scaled && a.out == b.out && a.bias == b.bias &&
         a.alignment == b.alignment && a.residual == b.residual && a.gated == b.gated &&
         a.separate_up == b.separate_up && a.norm.has_value() == b.norm.has_value() &&
         (!a.norm || (a.norm->eps == b.norm->eps && a.norm->weight == b.norm->weight));
}

bool same(const NormProblem& a, const NormProblem& b) {
  return a.rows == b.rows && a.columns == b.columns && a.x == b.x && a.weight == b.weight;
}

bool same(const MoeProblem& a, const MoeProblem& b) {
  return a.tokens == b.tokens && a.intermediate == b.intermediate && a.x == b.x &&
         a.weight == b.weight && a.scaling == b.scaling && a.scaled == b.scaled &&
         a.alignment == b.alignment;
}

// One plan per distinct problem: layers share it, and its workspace.
template <class Plan, class Problem>
const Plan* shared_plan(std::deque<Plan>& plans, const Problem& problem, const Device& device) {
  for (const Plan& existing : plans) {
    if (same(existing.problem, problem)) return &existing;
  }
  plans.push_back(plan(problem, device));
  return &plans.back();
}

// Up to so many rows on a GPU the gate and its other half are one product: both end in one kernel,
// where the bytes of W are the time. Beyond, products apart are the faster ones.
constexpr int64_t kGatedRows = 64;

}  // namespace

// Products as wide as the cache is stored, and at least in 16 bits where it is narrower: the query
// keeps the activations' format and P is never rounded to 8 bits.
AttentionMode cache_mode(Format cache) {
  switch (cache) {
    case Format::bf16:
      return {Format::bf16, Format::bf16};
    case Format::fp8_e4m3:
      return {Format::fp8_e4m3, Format::bf16};
    case Format::nvfp4:
      return {Format::nvfp4, Format::bf16};
    default:
      return {Format::f32, Format::f32};
  }
}

Step::Step(const LoadedModel& model, const Activations& buffers, const KvCache& cache,
           int64_t tokens, bool batch_invariant)
    : model_(model),
      buffers_(buffers),
      sequences_(cache.options().sequences),
      tokens_(tokens),
      batch_invariant_(batch_invariant),
      device_(model.device()) {
  const ModelConfig& c = model.config();
  const Format activations = buffers.residual.format();

  EmbeddingProblem embedding;
  const int64_t count = sequences_ * tokens;
  embedding.tokens = count;
  embedding.vocabulary = c.vocabulary;
  embedding.columns = c.hidden;
  embedding.table = model.embedding().format();
  embedding.scaled = model.embedding().has_scales();
  if (embedding.scaled) embedding.scaling = model.embedding().scaling();
  embedding.out = activations;
  embedding_ = plan(embedding, device_);
  embedding_tensors_ = {rows(buffers.ids), model.embedding(), rows(buffers.residual)};

  const Tensor positions = rows(buffers.positions);
  const Shape query_heads{count, c.heads, c.head_dim}, key_heads{count, c.kv_heads, c.head_dim};
  q_rope_ = plan(RopeProblem{count, c.heads, c.head_dim, activations, c.rope}, device_);
  k_rope_ = plan(RopeProblem{count, c.kv_heads, c.head_dim, activations, c.rope}, device_);
  q_rope_tensors_ = {rows(buffers.q).reshape(query_heads), positions};
  k_rope_tensors_ = {rows(buffers.k).reshape(key_heads), positions};

  if (buffers.gate.defined()) {
    swiglu_ = plan(SwigluProblem{count, c.intermediate, activations}, device_);
    swiglu_tensors_ = {rows(buffers.gate), rows(buffers.up), rows(buffers.gate)};
  }
  routing_.top_k = static_cast<int>(c.experts_per_token);
  routing_.renormalize = c.renormalize;

  const Shape attended{sequences_, tokens, c.heads, c.head_dim};
  attention_tensors_.q = rows(buffers.q).reshape(attended);
  attention_tensors_.out = rows(buffers.attended).reshape(attended);
  attention_tensors_.seqused_k = buffers.keys_in_use;
  AttentionProblem attention;
  attention.batch = sequences_;
  attention.heads = c.heads;
  attention.kv_heads = c.kv_heads;
  attention.query_length = tokens;
  attention.head_dim = c.head_dim;
  attention.q = attention.out = activations;
  attention.k = attention.v = cache.options().format;
  attention.mode = cache_mode(cache.options().format);
  attention.causal = true;
  attention.sinks = c.attention_sinks;
  attention.page_size = cache.options().page_size;
  attention.variable_length = true;
  attention.batch_invariant = batch_invariant;
  attention.prefetch_cache = true;  // a pass writes the last keys alone; lengths are its inputs
  attention.key_length = std::max(tokens, cache.options().page_size);
  for (int64_t i = 0; i < c.layers; ++i) {
    const int64_t window = c.windows.empty() ? 0 : c.windows[static_cast<size_t>(i)];
    if (attention_with(window) != nullptr) continue;
    attention.window_left = window - 1;  // -1: all
    require_support(can_run(attention, device_));
    attentions_.emplace_back().problem = attention;
    attentions_.back().problem.key_length = 0;  // planned when the cache's size is known
  }

  layers_.reserve(model.layers().size());
  for (const LayerWeights& weights : model.layers()) plan_layer(weights);
  const Layer& first = layers_.front();
  one_pass_ = cache.appends_in_one_pass(q_rope_tensors_.x, first.key_rows, first.value_rows,
                                        turned(first), positions);
}

MatmulProblem Step::problem_of(const MatmulTensors& t) const {
  MatmulProblem problem;
  problem.m = t.x.size(0);
  problem.n = t.weight.size(0);
  problem.k = t.weight.size(1);
  problem.x = t.x.format();
  problem.weight = t.weight.format();
  problem.scaled = t.weight.has_scales();
  if (problem.scaled) problem.scaling = t.weight.scaling();
  problem.out = t.out.format();
  problem.bias = t.bias.defined();
  problem.residual = t.residual.defined();
  problem.static_weights = true, problem.batch_invariant = batch_invariant_;
  problem.alignment = alignment_of(t);
  if (t.up.defined()) problem.gated = GatedActivation::swiglu(), problem.separate_up = true;
  if (t.norm.defined()) problem.norm = MatmulNorm{model_.config().rms_eps, t.norm.format()};
  return problem;
}

Step::Product Step::product(const MatmulTensors& tensors, int branch) {
  // Only passes of one token are captured.
  return {shared_plan(products_[tokens_ == 1 ? branch : 0], problem_of(tensors), device_), tensors};
}

Step::Norm Step::norm(const Tensor& x, const Tensor& weight, const Tensor& out) {
  NormProblem problem;
  problem.rows = x.size(0);
  problem.columns = x.size(1);
  problem.x = x.format();
  problem.weight = weight.format();
  problem.eps = model_.config().rms_eps;
  return {shared_plan(norms_, problem, device_), {x, weight, out, {}}};
}

void Step::plan_layer(const LayerWeights& weights) {
  const ModelConfig& c = model_.config();
  const Activations& b = buffers_;
  const int64_t count = sequences_ * tokens_;
  const Tensor residual = rows(b.residual), normed = rows(b.normed);
  const Tensor q = rows(b.q), k = rows(b.k), v = rows(b.v), attended = rows(b.attended);
  Layer layer;
  const size_t index = layers_.size();
  layer.attention = attention_with(c.windows.empty() ? 0 : c.windows[index]);
  // Products that normalise x themselves take it as it is; the others behind a norm.
  const auto normalised = [&](std::initializer_list<MatmulTensors*> products, const Tensor& weight,
                              Norm* ahead) {
    bool within = true;
    for (MatmulTensors* t : products) {
      t->x = residual, t->norm = weight;
      within = within && normalises(problem_of(*t), device_);
    }
    if (within) return;
    *ahead = norm(residual, weight, normed);
    for (MatmulTensors* t : products) t->x = normed, t->norm = {};
  };
  MatmulTensors to_q{{}, weights.q, q, weights.q_bias, {}};
  MatmulTensors to_k{{}, weights.k, k, weights.k_bias, {}};
  MatmulTensors to_v{{}, weights.v, v, weights.v_bias, {}};
  normalised({&to_q, &to_k, &to_v}, weights.input_norm, &layer.input_norm);
  layer.q = product(to_q), layer.k = product(to_k, 1), layer.v = product(to_v, 2);
  if (weights.q_norm.defined()) {
    const Tensor q_heads = q.reshape({count * c.heads, c.head_dim});
    const Tensor k_heads = k.reshape({count * c.kv_heads, c.head_dim});
    layer.q_norm = norm(q_heads, weights.q_norm, q_heads);
    layer.k_norm = norm(k_heads, weights.k_norm, k_heads);
  }
  layer.key_rows = k.reshape({count, c.kv_heads, c.head_dim});
  layer.value_rows = v.reshape({count, c.kv_heads, c.head_dim});
  layer.heads = {weights.q_norm, weights.k_norm, c.rms_eps};
  layer.o = product({attended, weights.o, residual, weights.o_bias, residual});
  layer.sparse = weights.sparse;
  if (weights.sparse) {
    layer.post_norm = norm(residual, weights.post_norm, normed);
    layer.router = product({normed, weights.router, rows(b.router), weights.router_bias, {}});
    layer.experts.x = normed;
    layer.experts.routing = {rows(b.experts), rows(b.expert_weights)};
    layer.experts.out = layer.experts.residual = residual;
    if (weights.experts.experts != nullptr) {
      layer.experts.weights = &weights.experts;
    } else {
      layer.experts.gate = &weights.expert_gate;
      layer.experts.up = &weights.expert_up;
      layer.experts.down = &weights.expert_down;
    }
    MoeProblem problem = moe_problem(c, weights.typical());
    problem.tokens = count;
    problem.x = normed.format(), problem.batch_invariant = batch_invariant_;
    problem.alignment = alignment_of(layer.experts);
    layer.moe = shared_plan(mixtures_, problem, device_);
  } else {
    MatmulTensors to_gate{{}, weights.gate, rows(b.gate), {}, {}};
    MatmulTensors to_up{{}, weights.up, rows(b.up), {}, {}};
    // One rounds gate and up before the activation, the other does not.
    if (!device_.is_cpu() && (count <= kGatedRows || batch_invariant_)) {
      to_gate.up = weights.up;
      normalised({&to_gate}, weights.post_norm, &layer.post_norm);
    } else {
      normalised({&to_gate, &to_up}, weights.post_norm, &layer.post_norm);
      layer.up = product(to_up, 1);
    }
    layer.gate = product(to_gate);
    layer.down = product({rows(b.gate), weights.down, residual, {}, residual});
  }
  layers_.push_back(std::move(layer));
}

int64_t Step::workspace_bytes() const {
  int64_t total = 0;
  for (const AttentionPlan& p : attentions_) total += p.workspace_bytes;
  for (const auto& branch : products_) {
    for (const MatmulPlan& p : branch) total += p.workspace_bytes;
  }
  for (const MoePlan& p : mixtures_) total += p.workspace_bytes;
  return total;
}

AttentionPlan* Step::attention_with(int64_t window) {
  for (AttentionPlan& p : attentions_) {
    if (p.problem.window_left == window - 1) return &p;
  }
  return nullptr;
}

// The cache grows by pages; the problems change only then, not with every token.
void Step::set_capacity(const KvCache& cache) {
  attention_tensors_.page_table = cache.page_table();
  plan_attention(attention_tensors_.page_table.size(1) * cache.options().page_size);
}

void Step::plan_attention(int64_t length) {
  for (AttentionPlan& p : attentions_) {
    const int64_t page = *p.problem.page_size, capacity = (length + page - 1) / page * page;
    if (p.problem.key_length == capacity) continue;
    AttentionProblem problem = p.problem;
    problem.key_length = capacity;
    p = plan(problem, device_);
  }
}

void Step::set_rope_length(int64_t length) {
  const RopeOptions& options = q_rope_.problem.options;
  if (!depends_on_length(options)) return;
  const int64_t trained = options.dynamic ? options.dynamic->original_max_position
                                          : options.longrope->original_max_position;
  // Up to the trained length nothing depends on it, and beyond it only dynamic scaling goes on.
  const int64_t effective = length <= trained ? 0 : options.dynamic ? length : trained + 1;
  if (effective == q_rope_.problem.length) return;
  for (RopePlan* p : {&q_rope_, &k_rope_}) {
    RopeProblem problem = p->problem;
    problem.length = effective;
    *p = plan(problem, device_);
  }
}

void Step::attend(int64_t layer, KvCache& cache, Stream& stream) {
  attention_tensors_.k = cache.keys(layer);
  attention_tensors_.v = cache.values(layer);
  attention_tensors_.sinks = model_.layers()[static_cast<size_t>(layer)].sinks;
  if (layer == 0) set_capacity(cache);
  run(*layers_[static_cast<size_t>(layer)].attention, attention_tensors_, stream);
}

// Queries, and keys and values into the cache.
void Step::project_heads(size_t index, KvCache& cache, Stream& stream,
                         const OnAttention& on_attention) {
  const Layer& layer = layers_[index];
  const auto number = static_cast<int64_t>(index);
  const Tensor &queries = q_rope_tensors_.x, &positions = q_rope_tensors_.positions;
  if (one_pass_ && !on_attention) {
    const MatmulCall calls[] = {layer.q.call(), layer.k.call(), layer.v.call()};
    if (!run_fused(calls, stream)) run_beside(stream, {layer.q, layer.k, layer.v});
    return cache.append(number, queries, layer.key_rows, layer.value_rows, turned(layer), positions,
                        stream);
  }
  const auto branch = [&](const Product& product, const Norm& norm, const RopePlan& rope,
                          const RopeTensors& heads) {
    return [&](Stream& on) {
      product(on);
      if (norm.plan != nullptr) norm(on);
      run(rope, heads, on);
    };
  };
  run_beside(stream, {branch(layer.q, layer.q_norm, q_rope_, q_rope_tensors_),
                      branch(layer.k, layer.k_norm, k_rope_, k_rope_tensors_), layer.v});
  if (on_attention) on_attention(number, queries, layer.key_rows, layer.value_rows);
  cache.append(number, layer.key_rows, layer.value_rows, positions, stream);
}

HeadTransform Step::turned(const Layer& layer) const {
  HeadTransform result = layer.heads;
  result.rope = &k_rope_;
  result.prefetch_positions = true;  // inputs of a pass
  return result;
}

void Step::run_layers(KvCache& cache, int64_t length, Stream& stream,
                      const OnAttention& on_attention) {
  set_rope_length(length);
  run(embedding_, embedding_tensors_, stream);
  for (size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    if (layer.input_norm.plan != nullptr) layer.input_norm(stream);
    project_heads(i, cache, stream, on_attention);
    attend(static_cast<int64_t>(i), cache, stream);
    layer.o(stream);
    if (layer.post_norm.plan != nullptr) layer.post_norm(stream);
    if (layer.sparse) {
      layer.router(stream);
      route(layer.router.tensors.out, routing_, layer.experts.routing, stream);
      run(*layer.moe, layer.experts, stream);
    } else {
      if (layer.up.plan != nullptr) {
        run_beside(stream, {layer.gate, layer.up});
        run(swiglu_, swiglu_tensors_, stream);
      } else {
        layer.gate(stream);
      }
      layer.down(stream);
    }
  }
}

// The last row of each sequence, [sequences, columns].
Tensor Step::last_rows(const Tensor& buffer) const {
  const int64_t columns = buffer.size(1), pitch = tokens_ * columns;
  char* first = buffer.data<char>() + (tokens_ - 1) * columns * bits(buffer.format()) / 8;
  return Tensor::view(first, {sequences_, columns}, {pitch, 1}, buffer.format(), buffer.device());
}

void Step::run_head(Head head, const Tensor& logits, Stream& stream) {
  const auto chosen = [&](const Tensor& buffer) {
    return head == Head::every_row ? rows(buffer) : last_rows(buffer);
  };
  const Tensor normed = chosen(buffers_.normed), residual = chosen(buffers_.residual);
  norm(residual, model_.final_norm(), normed)(stream);
  product({normed, model_.head(), logits, {}, {}})(stream);
}

}  // namespace halftone
