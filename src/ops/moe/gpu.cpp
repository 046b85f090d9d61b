#include "ops/moe/gpu.h"

#include <algorithm>

#include "base/message.h"
#include "hw/image.h"
#include "ops/moe/gpu_combine.cuh"
#include "ops/moe/gpu_route.cuh"
#include "ops/moe/gpu_sort.cuh"

namespace halftone::experts {

namespace {

using product::GpuProduct;
using product::GpuSource;
using product::GpuWeight;
using product::GpuX;

// What enters gate and up, and what enters down: bf16 or f32.
product::XSpec x_spec(const MoeProblem& p) { return {p.x, false, {}, p.quantize_x}; }
product::XSpec h_spec(const MoeProblem& p) {
  return {p.x == Format::bf16 ? Format::bf16 : Format::f32, false, {}, p.quantize_x};
}
GpuWeight routed_weight(const MoeProblem& p, const product::XSpec& x) {
  return product::gpu_weight(x, p.weight, p.scaled, p.scaling);
}
GpuWeight shared_weight(const MoeProblem& p, const product::XSpec& x) {
  return product::gpu_weight(x, p.shared_weight, p.shared_scaled, p.shared_scaling);
}

struct GpuWorkspace {
  GpuX x, h, shared_x, shared_h;  // what enters gate and up, and down
  bool many = false, shared_many = false;
  uint32_t x_part = 0, h_part = 0;  // rows of the parts of both products
  Tensor token_of, row_of, row_weights, parts, part_counts;
  Tensor h_rows, shared_h_rows, down;
  int64_t parts_at_most = 0;
};

bool many_rows(int64_t rows, const GpuX& x) { return !product::is_few(rows * x.terms()); }

std::shared_ptr<void> workspace(const MoeProblem& p, const Device& device, int64_t* bytes) {
  auto made = std::make_shared<GpuWorkspace>();
  GpuWorkspace& w = *made;
  const bool shared = p.shared_intermediate > 0;
  const int64_t rows = p.tokens * p.top_k;
  const product::XSpec x = x_spec(p), h = h_spec(p);
  w.x = GpuX(x, routed_weight(p, x), p.hidden);
  w.h = GpuX(h, routed_weight(p, h), p.intermediate);
  const int64_t average = product::ceil_div(rows, p.experts);
  w.many = many_rows(average, w.x);
  w.x_part = product::rows_of_part(w.x.terms(), w.many, average);
  w.h_part = product::rows_of_part(w.h.terms(), w.many, average);
  *bytes = 0;
  const auto allot = [&](const Shape& shape, Format format) {
    const Tensor t = Tensor::empty(shape, format, device);
    *bytes += t.bytes();
    return t;
  };
  const auto rows_of = [&](GpuX* enters, int64_t m) {
    enters->allocate(m, device);
    *bytes += enters->bytes();
  };
  rows_of(&w.x, p.tokens);
  rows_of(&w.h, rows);
  w.h_rows = allot({rows, p.intermediate}, h.format);
  w.down = allot({rows + (shared ? p.tokens : 0), p.hidden}, Format::f32);
  w.token_of = allot({rows}, Format::i32);
  w.row_of = allot({rows}, Format::i32);
  if (p.scale_input) w.row_weights = allot({rows}, Format::f32);
  // Every expert with rows has one part that may not be full.
  w.parts_at_most = std::min(p.experts, rows) + rows / std::min(w.x_part, w.h_part);
  w.parts = allot({2, w.parts_at_most, 4}, Format::i32);
  w.part_counts = allot({2}, Format::i32);
  if (!shared) return made;
  w.shared_x = GpuX(x, shared_weight(p, x), p.hidden);
  w.shared_h = GpuX(h, shared_weight(p, h), p.shared_intermediate);
  w.shared_many = many_rows(p.tokens, w.shared_x);
  rows_of(&w.shared_x, p.tokens);
  rows_of(&w.shared_h, p.tokens);
  w.shared_h_rows = allot({p.tokens, p.shared_intermediate}, h.format);
  return made;
}

void sort(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w, Stream& stream) {
  GpuSortParams s;
  s.chosen = t.routing.experts.data<int32_t>();
  s.chosen_row = t.routing.experts.stride(0);
  s.tokens = static_cast<uint32_t>(p.tokens), s.top_k = static_cast<uint32_t>(p.top_k);
  s.experts = static_cast<uint32_t>(p.experts);
  s.faults = fault_reporter(stream.device());
  s.token_of = w.token_of.data<int32_t>(), s.row_of = w.row_of.data<int32_t>();
  if (p.scale_input) {
    s.weights = t.routing.weights.data<float>(), s.weights_row = t.routing.weights.stride(0);
    s.row_weights = w.row_weights.data<float>();
  }
  auto* parts = w.parts.data<product::GpuPart>();
  auto* counts = w.part_counts.data<uint32_t>();
  s.in = {parts, counts, w.x_part};
  s.out = {parts + w.parts_at_most, counts + 1, w.h_part};
  launch(hw::image_of<GpuSort>("moe_sort"), product::taking_turns(GpuSort::shape(s), stream), s,
         stream);
}

void set_out(const Tensor& out, int64_t row, GpuProduct* g) {
  g->n = static_cast<uint32_t>(out.size(1));
  g->finish.out_format = out.format();
  g->finish.out_row = out.stride(0) * bits(out.format()) / 8;
  g->finish.out = out.data<char>() + row * g->finish.out_row;
}
void set_gate(const MoeProblem& p, GpuProduct* g) {
  g->finish.gate = true;
  g->finish.gated = p.gated;
}

// One of the two products of the routed experts: of gate and up, or of down.
void multiply_experts(const MoeProblem& p, const GpuWorkspace& w, const GpuExperts& e, bool down,
                      GpuProduct g, Stream& stream) {
  g.experts = e.sources.data<GpuSource>() + (down ? 2 : 0);
  g.expert_step = 3;
  g.plain_experts = e.plain;
  g.parts = w.parts.data<product::GpuPart>() + (down ? w.parts_at_most : 0);
  g.part_count = w.part_counts.data<uint32_t>() + (down ? 1 : 0);
  g.part_rows = down ? w.h_part : w.x_part;
  const Tensor& bias = down ? e.down_bias : e.gate_up_bias;
  if (bias.defined()) {
    const int64_t size = bits(bias.format()) / 8, step = !down && e.interleaved ? 2 : 1;
    g.finish.bias_format = bias.format();
    g.finish.bias_step = size * step;
    g.finish.bias_expert = size * bias.size(1);
    g.finish.bias[0] = bias.data<char>();
    g.finish.bias[1] = g.finish.bias[0] + size * (step == 2 ? 1 : p.intermediate);
  }
  launch_product(routed_weight(p, down ? h_spec(p) : x_spec(p)), g, w.many,
                 static_cast<uint32_t>(w.parts_at_most), stream);
}

void multiply_shared(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w,
                     const GpuExperts& e, Stream& stream) {
  const GpuWeight up = shared_weight(p, x_spec(p)), down = shared_weight(p, h_spec(p));
  GpuProduct g;
  set_weight(up, e.shared_up, &g);
  g.source[0] = e.shared[0], g.source[1] = e.shared[1];
  set_gate(p, &g);
  set_out(w.shared_h_rows, 0, &g);
  w.shared_x.enter(t.x, p.tokens, &g, stream);
  launch_product(up, g, w.shared_many, 0, stream);
  GpuProduct d;
  set_weight(down, e.shared_down, &d);
  d.source[0] = d.source[1] = e.shared[2];
  set_out(w.down, p.tokens * p.top_k, &d);
  w.shared_h.enter(w.shared_h_rows, p.tokens, &d, stream);
  launch_product(down, d, w.shared_many, 0, stream);
}

void combine(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w, Stream& stream) {
  GpuCombineParams c;
  c.down = w.down.data<float>();
  c.row_of = w.row_of.data<int32_t>();
  if (!p.scale_input) {
    c.weights = t.routing.weights.data<float>();
    c.weights_row = t.routing.weights.stride(0);
  }
  if (p.shared_intermediate > 0) c.shared = p.tokens * p.top_k;
  if (t.shared_scale.defined()) {
    c.shared_scale = t.shared_scale.data<float>();
    c.shared_step = t.shared_scale.stride(0);
  }
  c.out = t.out.data<char>();
  c.out_row = t.out.stride(0) * bits(p.x) / 8;
  c.tokens = static_cast<uint32_t>(p.tokens), c.top_k = static_cast<uint32_t>(p.top_k);
  c.hidden = static_cast<uint32_t>(p.hidden);
  c.format = p.x;
  launch(hw::image_of<GpuCombine>("moe_combine"),
         product::taking_turns(GpuCombine::shape(c), stream), c, stream);
}

void run_gpu(const MoePlan& plan, const MoeTensors& t, Stream& stream) {
  const MoeProblem& p = plan.problem;
  if (p.tokens == 0) return;
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const GpuExperts& e = *t.weights->experts->gpu;
  sort(p, t, w, stream);
  GpuProduct g;
  set_weight(routed_weight(p, x_spec(p)), e.up, &g);
  set_gate(p, &g);
  set_out(w.h_rows, 0, &g);
  w.x.enter(t.x, p.tokens, &g, stream);
  g.x_rows = w.token_of.data<int32_t>();
  if (p.scale_input) g.finish.row_weights = w.row_weights.data<float>();
  multiply_experts(p, w, e, false, g, stream);
  GpuProduct d;
  set_weight(routed_weight(p, h_spec(p)), e.down, &d);
  set_out(w.down, 0, &d);
  w.h.enter(w.h_rows, p.tokens * p.top_k, &d, stream);
  multiply_experts(p, w, e, true, d, stream);
  if (p.shared_intermediate > 0) multiply_shared(p, t, w, e, stream);
  combine(p, t, w, stream);
}

}  // namespace

std::string accepts_gpu(const MoeProblem& p) {
  constexpr int64_t kExperts = 4096, kRows = int64_t{1} << 21, kExtent = int64_t{1} << 30;
  if (p.experts > kExperts) {
    return concat("experts is ", p.experts, "; moe_gpu takes up to ", kExperts);
  }
  if (p.tokens > kRows / p.top_k) {
    return concat("tokens is ", p.tokens, " and top_k ", p.top_k, "; moe_gpu takes up to ", kRows,
                  " rows of experts");
  }
  if (p.hidden > kExtent || p.intermediate > kExtent || p.shared_intermediate > kExtent) {
    return concat("hidden is ", p.hidden, " and intermediate ", p.intermediate,
                  "; moe_gpu takes up to ", kExtent);
  }
  return product::refuse_gpu_x({p.x, false, {}, p.quantize_x});
}

const MoeGpu moe_gpu = {workspace, run_gpu};

namespace {

void check_expert(const Tensor& w, const std::string& what, const Shape& shape, Format format,
                  bool scaled, const Scaling& scaling, const Device& device) {
  require(w.defined() && w.shape() == shape && w.format() == format && w.has_scales() == scaled &&
              (!scaled || w.scaling() == scaling),
          what, " is ", w.defined() ? to_string(w) : "undefined", "; the problem needs ",
          name(format), scaled ? " with " + to_string(scaling) + " scales " : " ",
          to_string(shape));
  require(w.device() == device, what, " is on ", w.device().name(), ", other experts on ",
          device.name());
}

bool same_strides(const product::GpuLayout& a, const product::GpuLayout& b) {
  return a.row_bytes == b.row_bytes && a.scale_row == b.scale_row && a.scale_step == b.scale_step &&
         a.zero_row == b.zero_row && a.zero_step == b.zero_step;
}

}  // namespace

std::shared_ptr<BoundExperts> bind_gpu(const MoeProblem& p, const ExpertTensors& given,
                                       const Device& device) {
  ExpertTensors t = given;
  auto bound = std::make_shared<BoundExperts>();
  auto gpu = std::make_shared<GpuExperts>();
  std::vector<GpuSource> sources;
  const auto check = [&](const Tensor& w, const std::string& what, const Shape& shape) {
    check_expert(w, what, shape, p.weight, p.scaled, p.scaling, device);
    bound->kept.push_back(w);
  };
  if (t.gate_up.defined()) {
    if (t.input_major) {
      t.gate_up = k_innermost(t.gate_up, "gate_up");
      t.all_down = k_innermost(t.all_down, "all_down");
    }
    check(t.gate_up, "gate_up", {p.experts, 2 * p.intermediate, p.hidden});
    check(t.all_down, "all_down", {p.experts, p.hidden, p.intermediate});
    gpu->up = product::gpu_layout(t.gate_up, "gate_up");
    gpu->down = product::gpu_layout(t.all_down, "all_down");
    if (t.interleaved) gpu->up.row_step = 2;
    for (int64_t e = 0; e < p.experts; ++e) {
      sources.push_back(product::gpu_source(t.gate_up, e));
      sources.push_back(sources.back());
      sources.back().first_row = t.interleaved ? 1 : p.intermediate;
      sources.push_back(product::gpu_source(t.all_down, e));
    }
  } else {
    require(!t.input_major && !t.interleaved,
            "input_major and interleaved are set; they describe the fused tensors only");
    check_count(p, &t.gate, "gate");
    check_count(p, &t.up, "up");
    check_count(p, &t.down, "down");
    gpu->up = product::gpu_layout(t.gate[0], "gate");
    gpu->down = product::gpu_layout(t.down[0], "down");
    for (size_t e = 0; e < t.gate.size(); ++e) {
      const auto add = [&](const Tensor& w, const char* what, const Shape& shape,
                           const product::GpuLayout& layout) {
        check(w, concat(what, "[", e, "]"), shape);
        require(same_strides(product::gpu_layout(w, what), layout), what, "[", e,
                "] has other strides than the experts before; they must be the same");
        sources.push_back(product::gpu_source(w));
      };
      add(t.gate[e], "gate", {p.intermediate, p.hidden}, gpu->up);
      add(t.up[e], "up", {p.intermediate, p.hidden}, gpu->up);
      add(t.down[e], "down", {p.hidden, p.intermediate}, gpu->down);
    }
  }
  for (const GpuSource& s : sources) gpu->plain = gpu->plain && product::is_plain(s);
  gpu->sources =
      Tensor::copy_of(sources.data(), sources.size() * sizeof(GpuSource),
                      {static_cast<int64_t>(sources.size() * sizeof(GpuSource))}, Format::u8)
          .to(device);
  if (p.shared_intermediate > 0) {
    const Tensor* all[] = {&t.shared_gate, &t.shared_up, &t.shared_down};
    for (int i = 0; i < 3; ++i) {
      const Shape shape =
          i < 2 ? Shape{p.shared_intermediate, p.hidden} : Shape{p.hidden, p.shared_intermediate};
      check_expert(*all[i], "a shared expert", shape, p.shared_weight, p.shared_scaled,
                   p.shared_scaling, device);
      gpu->shared[i] = product::gpu_source(*all[i]);
      bound->kept.push_back(*all[i]);
    }
    gpu->shared_up = product::gpu_layout(t.shared_gate, "shared_gate");
    gpu->shared_down = product::gpu_layout(t.shared_down, "shared_down");
    require(same_strides(gpu->shared_up, product::gpu_layout(t.shared_up, "shared_up")),
            "shared_up has other strides than shared_gate; they must be the same");
  }
  const auto bias = [&](const Tensor& b, const char* what, int64_t columns) {
    if (!b.defined()) return b;
    require(b.shape() == Shape{p.experts, columns} && is_plain_float(b.format()) &&
                b.contiguous() && b.device() == device,
            what, " is ", to_string(b), "; it must be f32, f16 or bf16 [", p.experts, ", ", columns,
            "], row-major on ", device.name());
    return b;
  };
  gpu->gate_up_bias = bias(t.gate_up_bias, "gate_up_bias", 2 * p.intermediate);
  gpu->down_bias = bias(t.down_bias, "down_bias", p.hidden);
  gpu->interleaved = t.interleaved;
  bound->device = device;
  bound->gpu = std::move(gpu);
  return bound;
}

void route_gpu(const RoutingTensors& t, const RoutingOptions& o, const Routing& out,
               Stream& stream) {
  GpuRouteParams p;
  p.logits = t.logits.data<char>();
  p.row = t.logits.stride(0), p.column = t.logits.stride(1);
  p.format = t.logits.format();
  if (t.selection_bias.defined()) {
    p.bias = t.selection_bias.data<float>();
    p.bias_step = t.selection_bias.stride(0);
  }
  p.chosen = out.experts.data<int32_t>();
  p.weights = out.weights.data<float>();
  p.tokens = static_cast<uint32_t>(t.logits.size(0));
  p.experts = static_cast<uint32_t>(t.logits.size(1));
  p.options = o;
  if (t.expert_table.defined()) {
    p.ids = t.token_ids.data<int32_t>();
    p.id_step = t.token_ids.stride(0);
    p.table = t.expert_table.data();
    p.table_row = t.expert_table.stride(0), p.table_column = t.expert_table.stride(1);
    p.table_rows = t.expert_table.size(0);
    p.wide = t.expert_table.format() == Format::i64;
    p.faults = fault_reporter(stream.device());
  }
  if (p.tokens == 0) return;
  launch(hw::image_of<GpuRoute>("moe_route"), GpuRoute::shape(p), p, stream);
}

}  // namespace halftone::experts
