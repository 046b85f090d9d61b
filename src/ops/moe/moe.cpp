// The grouped product: tokens sorted by expert, two products and a third per expert, and the
// combination in the order of the experts.
#include "halftone/moe.h"

#include <algorithm>

#include "base/kernel_table.h"
#include "base/message.h"
#include "ops/product/kernel_sets.h"
#include "ops/product/run.h"
#include "ops/product/weights.h"

namespace halftone {

struct MoeKernel : KernelRow<MoeProblem, const product::Kernels*> {};

namespace {

using product::Job;
using product::Kernels;
using product::Weights;

// Tokens that go through the buffers at a time: enough to use a weight well, few enough that the
// buffers stay small; a panel of one expert never has more rows.
constexpr int64_t kTokens = product::kPanelRows;

std::string accepts_any(const MoeProblem&) { return ""; }
[[maybe_unused]] std::string accepts_bf16(const MoeProblem& p) {
  return product::refuse_bf16(p.x, p.weight, p.scaled, p.scaling);
}

constexpr MoeKernel kTable[] = {
#if defined(__x86_64__)
    {{"moe_avx512_bf16_dot", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_bf16,
      &cpu_avx512_bf16::bf16_kernels}},
    {{"moe_avx512_bf16_f32", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts_any,
      &cpu_avx512_bf16::f32_kernels}},
    {{"moe_avx512_f32", Device::Kind::cpu, CpuLevel::avx512, accepts_any,
      &cpu_avx512::f32_kernels}},
    {{"moe_avx2_f32", Device::Kind::cpu, CpuLevel::avx2, accepts_any, &cpu_avx2::f32_kernels}},
#endif
    {{"moe_baseline_f32", Device::Kind::cpu, CpuLevel::baseline, accepts_any,
      &cpu_baseline::f32_kernels}},
};

// A row of the grouped product: one token at one of its experts.
struct Row {
  int32_t token, slot;
};

struct Workspace {
  std::vector<Row> rows;           // by expert, then token
  std::vector<int32_t> first_row;  // of each expert, and the end
  std::vector<int32_t> row_of;     // [token, slot]
  std::vector<Weights> weights;    // gate, up and down of each expert
  std::vector<Job> jobs;
  Tensor packed_x, packed_h, gate, up, down;
};

std::string refuse(const MoeProblem& p) {
  if (p.tokens < 0) return concat("tokens is ", p.tokens, "; it must not be negative");
  if (p.experts < 1) return concat("experts is ", p.experts, "; it must be at least 1");
  if (p.top_k < 1 || p.top_k > p.experts) {
    return concat("top_k is ", p.top_k, "; it must be 1 to the number of experts, ", p.experts);
  }
  if (!is_plain_float(p.x)) return concat("x is ", name(p.x), "; it must be f32, f16 or bf16");
  std::string reason =
      product::refuse_weight(p.weight, p.scaled, p.scaling, p.intermediate, p.hidden);
  if (!reason.empty()) return concat("gate and up: ", reason);
  reason = product::refuse_weight(p.weight, p.scaled, p.scaling, p.hidden, p.intermediate);
  return reason.empty() ? reason : concat("down: ", reason);
}

void check_experts(const MoeProblem& p, const std::vector<Tensor>* experts, const char* what,
                   int64_t n, int64_t k) {
  require(experts != nullptr && static_cast<int64_t>(experts->size()) == p.experts, what, " has ",
          experts != nullptr ? experts->size() : 0, " tensors; the plan needs ", p.experts);
  for (size_t e = 0; e < experts->size(); ++e) {
    const Tensor& w = (*experts)[e];
    const bool fits = w.defined() && w.rank() == 2 && w.size(0) == n && w.size(1) == k &&
                      w.format() == p.weight && w.has_scales() == p.scaled &&
                      (!p.scaled || w.scaling() == p.scaling);
    if (fits) continue;
    fail(ErrorCode::invalid_argument, what, "[", e, "] is ",
         w.defined() ? to_string(w) : "undefined", "; the plan needs ", name(p.weight), " [", n,
         ", ", k, "]", p.scaled ? " with scales " : "", p.scaled ? to_string(p.scaling) : "");
  }
}

void check(const MoeProblem& p, const MoeTensors& t) {
  const auto matrix = [](const Tensor& m, const char* what, int64_t rows, int64_t columns,
                         Format format) {
    require(m.defined() && m.rank() == 2 && m.size(0) == rows && m.size(1) == columns, what, " is ",
            shown(m.shape()), "; the plan needs [", rows, ", ", columns, "]");
    require(m.format() == format, what, " is ", name(m.format()), "; the plan needs ",
            name(format));
    require(m.stride(1) == 1 || columns == 1 || rows == 0, what, " has strides ",
            shown(m.strides()), "; its last dimension must be contiguous");
  };
  matrix(t.x, "x", p.tokens, p.hidden, p.x);
  matrix(t.out, "out", p.tokens, p.hidden, p.x);
  matrix(t.routing.experts, "routing.experts", p.tokens, p.top_k, Format::i32);
  matrix(t.routing.weights, "routing.weights", p.tokens, p.top_k, Format::f32);
  check_experts(p, t.gate, "gate", p.intermediate, p.hidden);
  check_experts(p, t.up, "up", p.intermediate, p.hidden);
  check_experts(p, t.down, "down", p.hidden, p.intermediate);
  for (int64_t i = 0; i < p.tokens; ++i) {
    const int32_t* chosen = t.routing.experts.data<int32_t>() + i * t.routing.experts.stride(0);
    for (int64_t s = 0; s < p.top_k; ++s) {
      require(chosen[s] >= 0 && chosen[s] < p.experts, "routing.experts[", i, ", ", s, "] is ",
              chosen[s], "; there are ", p.experts, " experts");
    }
  }
}

// Rows of the tokens [t0, t0 + tokens), by expert and then by token: a counting sort.
void group_by_expert(const MoeProblem& p, const Routing& routing, int64_t t0, int64_t tokens,
                     Workspace* w) {
  const auto expert = [&](int64_t t, int64_t s) {
    return static_cast<size_t>(
        routing.experts.data<int32_t>()[(t0 + t) * routing.experts.stride(0) + s]);
  };
  std::fill(w->first_row.begin(), w->first_row.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t s = 0; s < p.top_k; ++s) ++w->first_row[expert(t, s) + 1];
  }
  for (size_t e = 1; e < w->first_row.size(); ++e) w->first_row[e] += w->first_row[e - 1];
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t s = 0; s < p.top_k; ++s) {
      const int32_t row = w->first_row[expert(t, s)]++;
      w->rows[static_cast<size_t>(row)] = {static_cast<int32_t>(t), static_cast<int32_t>(s)};
      w->row_of[static_cast<size_t>(t * p.top_k + s)] = row;
    }
  }
  // The starts moved to the ends of their experts, which are the starts of the next ones.
  for (size_t e = w->first_row.size() - 1; e > 0; --e) w->first_row[e] = w->first_row[e - 1];
  w->first_row[0] = 0;
}

// A panel of rows of one expert, at most kPanelRows of them.
struct Panel {
  int64_t expert, begin, rows;
};
template <class F>
void for_each_panel(const Workspace& w, const F& f) {
  for (size_t e = 0; e + 1 < w.first_row.size(); ++e) {
    for (int64_t r = w.first_row[e]; r < w.first_row[e + 1]; r += product::kPanelRows) {
      f(Panel{static_cast<int64_t>(e), r,
              std::min<int64_t>(product::kPanelRows, w.first_row[e + 1] - r)});
    }
  }
}

// Panels of the packed rows follow one another; `row_bytes` is what one row takes in them.
void* panel_at(const Tensor& packed, const Panel& panel, int64_t row_bytes) {
  return packed.data<char>() + panel.begin * row_bytes;
}

// Packs every row of every panel: f gives the row's address.
template <class F>
void pack_rows(const Kernels& kernels, const Workspace& w, int64_t k, Format format, bool octets,
               const Tensor& packed, ThreadPool& pool, int64_t rows, const F& source) {
  const int64_t row_bytes = product::panel_bytes(kernels, 1, k);
  product::parallel(pool, rows, 4, rows * k * 4, [&](int64_t begin, int64_t end) {
    for_each_panel(w, [&](const Panel& panel) {
      const int64_t from = std::max(begin, panel.begin);
      const int64_t to = std::min(end, panel.begin + panel.rows);
      for (int64_t r = from; r < to; ++r) {
        product::pack_panel_row(kernels, source(r), format, octets, k, r - panel.begin, panel.rows,
                                panel_at(packed, panel, row_bytes));
      }
    });
  });
}

void combine(const MoeProblem& p, const MoeTensors& t, const Workspace& w, const Kernels& kernels,
             int64_t t0, int64_t tokens, ThreadPool& pool) {
  const int64_t size = bits(p.x) / 8;
  product::parallel(pool, tokens, 1, tokens * p.hidden * p.top_k, [&](int64_t begin, int64_t end) {
    float sums[512];
    for (int64_t i = begin; i < end; ++i) {
      const int32_t* row_of = w.row_of.data() + i * p.top_k;
      const float* weights =
          t.routing.weights.data<float>() + (t0 + i) * t.routing.weights.stride(0);
      for (int64_t h = 0; h < p.hidden; h += 512) {
        const int64_t count = std::min<int64_t>(512, p.hidden - h);
        std::fill_n(sums, count, 0.0f);
        // Rows are sorted by expert: the next larger row is the next expert.
        for (int32_t done = -1, left = p.top_k; left > 0; --left) {
          int64_t next = -1;
          for (int64_t s = 0; s < p.top_k; ++s) {
            if (row_of[s] > done && (next < 0 || row_of[s] < row_of[next])) next = s;
          }
          done = row_of[next];
          const float* y = w.down.data<float>() + done * p.hidden + h;
          for (int64_t j = 0; j < count; ++j) sums[j] += weights[next] * y[j];
        }
        product::Finish finish;
        finish.sums = sums;
        finish.count = count;
        finish.out = t.out.data<char>() + ((t0 + i) * t.out.stride(0) + h) * size;
        finish.out_format = p.x;
        kernels.finish(finish);
      }
    }
  });
}

void run_tokens(const MoePlan& plan, const MoeTensors& t, int64_t t0, int64_t tokens,
                ThreadPool& pool) {
  const MoeProblem& p = plan.problem;
  const Kernels& kernels = *plan.row->function;
  Workspace& w = *static_cast<Workspace*>(plan.workspace.get());
  group_by_expert(p, t.routing, t0, tokens, &w);
  const int64_t rows = tokens * p.top_k;
  const bool octets = product::octet_order(product::code_of(p.weight, p.scaled, p.scaling));

  const int64_t x_row = t.x.stride(0) * bits(p.x) / 8;
  pack_rows(kernels, w, p.hidden, p.x, octets, w.packed_x, pool, rows, [&](int64_t r) {
    return t.x.data<char>() + (t0 + w.rows[static_cast<size_t>(r)].token) * x_row;
  });
  w.jobs.clear();
  const int64_t x_bytes = product::panel_bytes(kernels, 1, p.hidden);
  for_each_panel(w, [&](const Panel& panel) {
    for (int side = 0; side < 2; ++side) {
      Job job;
      job.weights = &w.weights[static_cast<size_t>(panel.expert * 3 + side)];
      job.x = panel_at(w.packed_x, panel, x_bytes);
      job.m = panel.rows;
      job.out = (side == 0 ? w.gate : w.up).data<float>() + panel.begin * p.intermediate;
      job.out_row = p.intermediate * 4;
      w.jobs.push_back(job);
    }
  });
  product::run_jobs(kernels, w.jobs, pool);

  // silu(gate) * up replaces gate, in the format that enters `down`.
  const Format h_format = p.x == Format::bf16 ? Format::bf16 : Format::f32;
  const int64_t h_bytes = product::panel_bytes(kernels, 1, p.intermediate);
  const auto gate = [&](int64_t r) { return w.gate.data<float>() + r * p.intermediate; };
  pack_rows(kernels, w, p.intermediate, h_format, octets, w.packed_h, pool, rows, [&](int64_t r) {
    kernels.swiglu(gate(r), w.up.data<float>() + r * p.intermediate, p.intermediate, gate(r),
                   h_format);
    return static_cast<const void*>(gate(r));
  });
  w.jobs.clear();
  for_each_panel(w, [&](const Panel& panel) {
    Job job;
    job.weights = &w.weights[static_cast<size_t>(panel.expert * 3 + 2)];
    job.x = panel_at(w.packed_h, panel, h_bytes);
    job.m = panel.rows;
    job.out = w.down.data<float>() + panel.begin * p.hidden;
    job.out_row = p.hidden * 4;
    w.jobs.push_back(job);
  });
  product::run_jobs(kernels, w.jobs, pool);
  combine(p, t, w, kernels, t0, tokens, pool);
}

}  // namespace

std::string describe(const MoePlan& plan) {
  const MoeProblem& p = plan.problem;
  return concat(plan.kernel, ": ", p.tokens, " tokens to ", p.top_k, " of ", p.experts,
                " experts, hidden ", p.hidden, ", intermediate ", p.intermediate, ", x ", name(p.x),
                ", weights ", name(p.weight),
                p.scaled ? " (" + to_string(p.scaling) + " scales)" : "", ", workspace ",
                plan.workspace_bytes, " bytes");
}

Support can_run(const MoeProblem& problem, const Device& device) {
  std::string reason = refuse(problem);
  if (reason.empty()) {
    if (choose<MoeKernel>(kTable, problem, device, &reason) != nullptr) reason.clear();
  }
  return {reason.empty(), reason};
}

MoePlan plan(const MoeProblem& p, const Device& device) {
  std::string reason = refuse(p);
  if (!reason.empty()) throw Error(ErrorCode::unsupported, reason);
  MoePlan plan;
  plan.problem = p;
  plan.device = device;
  plan.row = choose<MoeKernel>(kTable, p, device, &reason);
  if (plan.row == nullptr) throw Error(ErrorCode::unsupported, reason);
  plan.kernel = plan.row->name;
  const Kernels& kernels = *plan.row->function;
  const int64_t tokens = std::min(p.tokens, kTokens), rows = tokens * p.top_k;
  auto w = std::make_shared<Workspace>();
  w->rows.resize(static_cast<size_t>(rows));
  w->row_of.resize(static_cast<size_t>(rows));
  w->first_row.resize(static_cast<size_t>(p.experts) + 1);
  w->weights.resize(static_cast<size_t>(p.experts) * 3);
  w->jobs.reserve(static_cast<size_t>(2 * (std::min(rows, p.experts) + rows / kTokens)));
  const int64_t x_bytes = product::panel_bytes(kernels, rows, p.hidden);
  const int64_t h_bytes = product::panel_bytes(kernels, rows, p.intermediate);
  w->packed_x = Tensor::empty({x_bytes}, Format::u8);
  w->packed_h = Tensor::empty({h_bytes}, Format::u8);
  w->gate = Tensor::empty({rows, p.intermediate}, Format::f32);
  w->up = Tensor::empty({rows, p.intermediate}, Format::f32);
  w->down = Tensor::empty({rows, p.hidden}, Format::f32);
  plan.workspace_bytes = x_bytes + h_bytes + w->gate.bytes() * 2 + w->down.bytes();
  plan.workspace = std::move(w);
  return plan;
}

void run(const MoePlan& plan, const MoeTensors& t, Stream& stream) {
  require(plan.row != nullptr, "the plan is empty; make it with plan()");
  const MoeProblem& p = plan.problem;
  check(p, t);
  Workspace& w = *static_cast<Workspace*>(plan.workspace.get());
  for (size_t e = 0; e < static_cast<size_t>(p.experts); ++e) {
    w.weights[3 * e] = product::view_of((*t.gate)[e], "gate");
    w.weights[3 * e + 1] = product::view_of((*t.up)[e], "up");
    w.weights[3 * e + 2] = product::view_of((*t.down)[e], "down");
  }
  for (int64_t t0 = 0; t0 < p.tokens; t0 += kTokens) {
    run_tokens(plan, t, t0, std::min(kTokens, p.tokens - t0), stream.pool());
  }
}

Tensor moe(const Tensor& x, const Routing& routing, const std::vector<Tensor>& gate,
           const std::vector<Tensor>& up, const std::vector<Tensor>& down, Stream& stream) {
  require(x.defined() && x.rank() == 2, "x ", to_string(x.shape()),
          " must have two dimensions, [tokens, hidden]");
  require(!gate.empty() && gate[0].defined() && gate[0].rank() == 2,
          "gate is empty or not made of matrices [intermediate, hidden]");
  require(routing.experts.defined() && routing.experts.rank() == 2,
          "routing.experts must be [tokens, top_k]; see route()");
  MoeProblem p;
  p.tokens = x.size(0);
  p.hidden = x.size(1);
  p.intermediate = gate[0].size(0);
  p.experts = static_cast<int64_t>(gate.size());
  p.top_k = static_cast<int>(routing.experts.size(1));
  p.x = x.format();
  p.weight = gate[0].format();
  p.scaled = gate[0].has_scales();
  if (p.scaled) p.scaling = gate[0].scaling();
  const Tensor out = Tensor::empty(x.shape(), x.format());
  run(plan(p, Device::cpu()), {x, routing, &gate, &up, &down, out}, stream);
  return out;
}

}  // namespace halftone
