#include "ops/moe/gpu.h"

#include <algorithm>

#include "base/message.h"
#include "hw/image.h"
#include "ops/moe/gpu_combine.cuh"
#include "ops/moe/gpu_grouped.h"
#include "ops/moe/gpu_route.cuh"
#include "ops/moe/gpu_sort.cuh"

namespace halftone::experts {

namespace {

using gemm::GpuGemm;
using gemm::GpuSource;

// What enters gate and up, and what enters down: bf16 or f32.
gemm::XSpec x_spec(const MoeProblem& p) { return {p.x, false, {}, p.quantize_x}; }
gemm::XSpec h_spec(const MoeProblem& p) {
  return {p.x == Format::bf16 ? Format::bf16 : Format::f32, false, {}, p.quantize_x};
}
struct GpuWorkspace {
  GroupedGemm in, out, shared_in,
      shared_out;  // products into the intermediate rows and out of them
  Tensor token_of, row_of, row_weights, chunks, chunk_counts;
  Tensor h_rows, shared_h_rows, down;
  int64_t max_chunks = 0;
};

}  // namespace

gemm::GemmProblem up_problem(const MoeProblem& p) {
  gemm::GemmProblem g{p.tokens * p.top_k, p.intermediate, p.hidden,  p.experts, true,
                      p.weight,           p.scaled,       p.scaling, false,     x_spec(p)};
  g.gathered = true;
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment.up;
  return g;
}
gemm::GemmProblem down_problem(const MoeProblem& p) {
  gemm::GemmProblem g{p.tokens * p.top_k, p.hidden, p.intermediate, p.experts, false,
                      p.weight,           p.scaled, p.scaling,      false,     h_spec(p)};
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment.down;
  return g;
}
gemm::GemmProblem shared_up_problem(const MoeProblem& p) {
  gemm::GemmProblem g{p.tokens,        p.shared_intermediate, p.hidden,         0,     true,
                      p.shared_weight, p.shared_scaled,       p.shared_scaling, false, x_spec(p)};
  g.shared_expert = true;
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment.shared_up;
  return g;
}
gemm::GemmProblem shared_down_problem(const MoeProblem& p) {
  gemm::GemmProblem g{p.tokens,        p.hidden,        p.shared_intermediate, 0,     false,
                      p.shared_weight, p.shared_scaled, p.shared_scaling,      false, h_spec(p)};
  g.shared_expert = true;
  g.batch_invariant = p.batch_invariant, g.alignment = p.alignment.shared_down;
  return g;
}

std::shared_ptr<void> workspace_gpu(const MoeProblem& p, const MoeKernels& kernels,
                                    const Device& device, int64_t* bytes) {
  auto made = std::make_shared<GpuWorkspace>();
  GpuWorkspace& w = *made;
  const bool shared = p.shared_intermediate > 0;
  const int64_t rows = p.tokens * p.top_k;
  const Format h = h_spec(p).format;
  *bytes = 0;
  const auto allot = [&](const Shape& shape, Format format) {
    const Tensor t = Tensor::empty(shape, format, device);
    *bytes += t.bytes();
    return t;
  };
  const auto rows_of = [&](GroupedGemm* s, int64_t m, bool copied = false) {
    s->x.allocate(m, device, copied);
    *bytes += s->x.bytes();
  };
  w.in = {up_problem(p), kernels.up};
  w.out = {down_problem(p), kernels.down};
  rows_of(&w.in, kernels.up.ordered ? rows : p.tokens, kernels.up.ordered);
  rows_of(&w.out, rows);
  w.h_rows = allot({rows, p.intermediate}, h);
  w.down = allot({rows + (shared ? p.tokens : 0), p.hidden}, Format::f32);
  w.token_of = allot({rows}, Format::i32);
  w.row_of = allot({rows}, Format::i32);
  if (p.scale_input) w.row_weights = allot({rows}, Format::f32);
  w.max_chunks = std::max(w.in.max_chunks(), w.out.max_chunks());
  w.chunks = allot({2, w.max_chunks, 4}, Format::i32);
  w.chunk_counts = allot({2}, Format::i32);
  if (!shared) return made;
  w.shared_in = {shared_up_problem(p), kernels.shared_up};
  w.shared_out = {shared_down_problem(p), kernels.shared_down};
  rows_of(&w.shared_in, p.tokens);
  rows_of(&w.shared_out, p.tokens);
  w.shared_h_rows = allot({p.tokens, p.shared_intermediate}, h);
  return made;
}

namespace {

void sort(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w, Stream& stream) {
  GpuSortParams s;
  s.expert_ids = t.routing.experts.data<int32_t>();
  s.chosen_row = t.routing.experts.stride(0);
  s.tokens = static_cast<uint32_t>(p.tokens), s.top_k = static_cast<uint32_t>(p.top_k);
  s.experts = static_cast<uint32_t>(p.experts);
  s.faults = fault_reporter(stream.device());
  s.token_of = w.token_of.data<int32_t>(), s.row_of = w.row_of.data<int32_t>();
  if (p.scale_input) {
    s.weights = t.routing.weights.data<float>(), s.weights_row = t.routing.weights.stride(0);
    s.row_weights = w.row_weights.data<float>();
  }
  auto* chunks = w.chunks.data<gemm::MChunk>();
  auto* counts = w.chunk_counts.data<uint32_t>();
  s.in = {chunks, counts, w.in.choice.chunk_rows};
  s.out = {chunks + w.max_chunks, counts + 1, w.out.choice.chunk_rows};
  launch(hw::image_of<GpuSort>("moe_sort"), with_pdl(GpuSort::shape(s), stream), s, stream);
}

void set_out(const Tensor& out, int64_t row, GpuGemm* g) {
  g->n = static_cast<uint32_t>(out.size(1));
  g->epilogue.out_format = out.format();
  g->epilogue.out_row = out.stride(0) * bits(out.format()) / 8;
  g->epilogue.out = out.data<char>() + row * g->epilogue.out_row;
}
void set_gate(const MoeProblem& p, GpuGemm* g) {
  g->epilogue.gate = true;
  g->epilogue.gated = p.gated;
}

// One of the two products of the routed experts, whose x has entered.
void multiply_experts(const MoeProblem& p, const GpuWorkspace& w, const GpuExperts& e, bool down,
                      GpuGemm g, Stream& stream) {
  const GroupedGemm& of = down ? w.out : w.in;
  g.experts = e.sources.data<GpuSource>() + (down ? 2 : 0);
  g.expert_step = 3, g.expert_count = static_cast<uint32_t>(p.experts);
  g.aligned_experts = of.choice.loop != gemm::GpuLoop::any;
  g.chunks = w.chunks.data<gemm::MChunk>() + (down ? w.max_chunks : 0);
  g.chunk_count = w.chunk_counts.data<uint32_t>() + (down ? 1 : 0);
  g.chunk_rows = of.choice.chunk_rows;
  const Tensor& bias = down ? e.down_bias : e.gate_up_bias;
  if (bias.defined()) {
    const int64_t size = bits(bias.format()) / 8, step = !down && e.interleaved ? 2 : 1;
    g.epilogue.bias_format = bias.format();
    g.epilogue.bias_step = size * step;
    g.epilogue.bias_expert = size * bias.size(1);
    g.epilogue.bias[0] = bias.data<char>();
    g.epilogue.bias[1] = g.epilogue.bias[0] + size * (step == 2 ? 1 : p.intermediate);
  }
  of.launch(g, down ? e.down_matrices : e.up_matrices, stream);
}

// One of the two products of the shared expert.
void multiply_shared(const GroupedGemm& s, const gemm::GpuLayout& layout, GpuGemm g,
                     const Tensor& x, Stream& stream) {
  set_weight(s.choice.weight, layout, &g);
  const gemm::Sm90Matrices matrices = gemm::sm90_matrices(layout, g.source, 2);
  s.x.enter(x, s.problem.m, &g, stream, s.as_codes());
  s.launch(g, matrices, stream);
}
void multiply_shared(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w,
                     const GpuExperts& e, Stream& stream) {
  GpuGemm g;
  g.source[0] = e.shared[0], g.source[1] = e.shared[1];
  set_gate(p, &g);
  set_out(w.shared_h_rows, 0, &g);
  multiply_shared(w.shared_in, e.shared_up, g, t.x, stream);
  GpuGemm d;
  d.source[0] = d.source[1] = e.shared[2];
  set_out(w.down, p.tokens * p.top_k, &d);
  multiply_shared(w.shared_out, e.shared_down, d, w.shared_h_rows, stream);
}

void combine(const MoeProblem& p, const MoeTensors& t, const GpuWorkspace& w, bool sorted,
             Stream& stream) {
  GpuCombineParams c;
  c.down = w.down.data<float>();
  if (sorted) {
    c.row_of = w.row_of.data<int32_t>();
  } else {
    c.expert_ids = t.routing.experts.data<int32_t>(), c.experts = static_cast<uint32_t>(p.experts);
    c.faults = fault_reporter(stream.device());
  }
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
  if (t.residual.defined()) {
    c.residual = t.residual.data<char>();
    c.residual_row = t.residual.stride(0) * bits(p.x) / 8;
  }
  launch(hw::image_of<GpuCombine>("moe_combine"), with_pdl(GpuCombine::shape(c), stream), c,
         stream);
}

}  // namespace

void run_gpu(const MoePlan& plan, const MoeTensors& t, Stream& stream) {
  const MoeProblem& p = plan.problem;
  if (p.tokens == 0) return;
  const auto& w = *static_cast<const GpuWorkspace*>(plan.workspace.get());
  const GpuExperts& e = *t.weights->experts->gpu;
  // The rows of a single token are its slots: nothing is sorted.
  const bool sorted = p.tokens > 1 || !w.in.is_gemv() || !w.out.is_gemv();
  if (sorted) sort(p, t, w, stream);
  const auto* token_of = w.token_of.data<int32_t>();
  GpuGemm g;
  set_weight(w.in.choice.weight, e.up, &g);
  set_gate(p, &g);
  set_out(w.h_rows, 0, &g);
  if (w.in.choice.ordered) {  // rows of x in the order of the experts
    w.in.x.enter(t.x, p.tokens * p.top_k, &g, stream, w.in.as_codes(), token_of);
  } else {
    w.in.x.enter(t.x, p.tokens, &g, stream);
    g.x_rows = token_of;
  }
  const auto choose_rows = [&](GpuGemm* of) {
    of->expert_ids = t.routing.experts.data<int32_t>();
    of->expert_id_rows = static_cast<uint32_t>(p.top_k);
  };
  if (p.scale_input) {
    g.epilogue.row_weights = (sorted ? w.row_weights : t.routing.weights).data<float>();
  }
  if (!sorted) choose_rows(&g), g.x_rows = nullptr, g.x_row = 0;
  multiply_experts(p, w, e, false, g, stream);
  GpuGemm d;
  set_weight(w.out.choice.weight, e.down, &d);
  set_out(w.down, 0, &d);
  // Ahead of it is the other product alone, which has waited for the sort.
  d.static_weights = w.in.reads_list_early() && w.out.reads_list_early();
  if (!sorted) choose_rows(&d);
  w.out.x.enter(w.h_rows, p.tokens * p.top_k, &d, stream, w.out.as_codes());
  multiply_experts(p, w, e, true, d, stream);
  if (p.shared_intermediate > 0) multiply_shared(p, t, w, e, stream);
  combine(p, t, w, sorted, stream);
}

std::string accepts_gpu(const MoeProblem& p) {
  constexpr int64_t kExperts = 4096, kRows = int64_t{1} << 21, kExtent = int64_t{1} << 30;
  if (p.experts > kExperts) {
    return concat("experts is ", p.experts, "; GPUs take up to ", kExperts);
  }
  if (p.tokens > kRows / p.top_k) {
    return concat("tokens is ", p.tokens, " and top_k ", p.top_k, "; GPUs take up to ", kRows,
                  " rows of experts");
  }
  if (p.hidden > kExtent || p.intermediate > kExtent || p.shared_intermediate > kExtent) {
    return concat("hidden is ", p.hidden, " and intermediate ", p.intermediate,
                  "; GPUs take up to ", kExtent);
  }
  return gemm::refuse_gpu_x({p.x, false, {}, p.quantize_x});
}

// The limits that route() names.
static_assert(GpuRoute<false>::floats(4000, 140) <= GpuRoute<false>::kFloats);

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
  p.expert_ids = out.experts.data<int32_t>();
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
  const auto start = [&]<class Route>(const char* name, Route) {
    launch(hw::image_of<Route>(name), with_pdl(Route::shape(p), stream), p, stream);
  };
  // A block each while all tokens have one at once.
  const bool few = p.tokens <= static_cast<uint32_t>(properties(stream.device()).sm_count) &&
                   p.experts <= GpuRoute<true>::kMaxRanked;
  few ? start("moe_route_few", GpuRoute<true>{}) : start("moe_route", GpuRoute<false>{});
}

}  // namespace halftone::experts
