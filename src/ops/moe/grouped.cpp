// MoE on CPUs: tokens sorted by expert, the gated GEMM and `down` of each expert, and the combine
// in the order of expert index.
#include "ops/moe/grouped.h"

#include <algorithm>

#include "ops/gemm/cpu/weights.h"

namespace halftone::experts {

namespace {

using gemm::Job;
using gemm::Kernels;
using gemm::Weights;
using gemm::XRows;

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
  if (p.shared_intermediate == 0) return;
  for (int64_t t = 0; t < tokens; ++t) {
    w->rows[static_cast<size_t>(tokens * p.top_k + t)] = {static_cast<int32_t>(t), -1};
  }
}

// A panel: at most kPanelRows rows of one expert.
struct Panel {
  int64_t expert, begin, rows;
  bool shared;
  int64_t inter;
};
template <class F>
void for_each_panel(const MoeProblem& p, const Workspace& w, int64_t tokens, const F& f) {
  const auto cut = [&](int64_t expert, int64_t begin, int64_t end, bool shared, int64_t inter) {
    for (int64_t r = begin; r < end; r += gemm::kPanelRows) {
      f(Panel{expert, r, std::min<int64_t>(gemm::kPanelRows, end - r), shared, inter});
    }
  };
  for (size_t e = 0; e + 1 < w.first_row.size(); ++e) {
    cut(static_cast<int64_t>(e), w.first_row[e], w.first_row[e + 1], false, p.intermediate);
  }
  if (p.shared_intermediate == 0) return;
  cut(p.experts, tokens * p.top_k, (p.top_k + 1) * tokens, true, p.shared_intermediate);
}

// Where the rows of a panel are among those packed before: every row takes as much room as the
// longest kind.
struct Packed {
  const Tensor &x, &scales, &row_scales, &offsets;
  int64_t row_bytes, row_scale_bytes;

  XRows::Panel of(const Panel& panel) const {
    XRows::Panel out;
    out.m = panel.rows;
    out.x = x.data<char>() + panel.begin * row_bytes;
    if (scales.defined()) {
      out.scales = reinterpret_cast<float*>(scales.data<char>() + panel.begin * row_scale_bytes);
    }
    out.row_scales = row_scales.data<float>() + panel.begin;
    out.row_offsets = offsets.data<uint32_t>() + panel.begin;
    return out;
  }
};
Packed packed(const Kernels& kernels, const XRows& a, const XRows& b, const Tensor& x,
              const Tensor& scales, const Tensor& row_scales, const Tensor& offsets) {
  return {x,
          scales,
          row_scales,
          offsets,
          std::max(a.panel_bytes(kernels, 1), b.panel_bytes(kernels, 1)),
          std::max(a.scale_bytes(kernels, 1), b.scale_bytes(kernels, 1))};
}

// Calls f(panel, row) for every row of every panel, on several threads.
template <class F>
void for_each_row(const MoeProblem& p, const Workspace& w, int64_t tokens, int64_t k,
                  ThreadPool& pool, const F& f) {
  const int64_t rows = tokens * (p.top_k + (p.shared_intermediate > 0 ? 1 : 0));
  gemm::parallel(pool, rows, 4, rows * k * 4, [&](int64_t begin, int64_t end) {
    for_each_panel(p, w, tokens, [&](const Panel& panel) {
      const int64_t to = std::min(end, panel.begin + panel.rows);
      for (int64_t r = std::max(begin, panel.begin); r < to; ++r) f(panel, r);
    });
  });
}

void combine(const MoeProblem& p, const MoeTensors& t, const Workspace& w, const Kernels& kernels,
             int64_t t0, int64_t tokens, ThreadPool& pool) {
  const int64_t size = bits(p.x) / 8;
  gemm::parallel(pool, tokens, 1, tokens * p.hidden * p.top_k, [&](int64_t begin, int64_t end) {
    float sums[512];
    for (int64_t i = begin; i < end; ++i) {
      const int32_t* row_of = w.row_of.data() + i * p.top_k;
      const float* weights =
          t.routing.weights.data<float>() + (t0 + i) * t.routing.weights.stride(0);
      for (int64_t h = 0; h < p.hidden; h += 512) {
        const int64_t count = std::min<int64_t>(512, p.hidden - h);
        const auto add = [&](int64_t row, float weight) {
          const float* y = w.down.data<float>() + row * p.hidden + h;
          for (int64_t j = 0; j < count; ++j) sums[j] += weight * y[j];
        };
        std::fill_n(sums, count, 0.0f);
        // Rows are sorted by expert: the next larger row is the next expert.
        for (int32_t done = -1, left = p.top_k; left > 0; --left) {
          int64_t next = -1;
          for (int64_t s = 0; s < p.top_k; ++s) {
            if (row_of[s] > done && (next < 0 || row_of[s] < row_of[next])) next = s;
          }
          done = row_of[next];
          add(done, p.scale_input ? 1.0f : weights[next]);
        }
        if (p.shared_intermediate > 0) {
          const Tensor& scale = t.shared_scale;
          add(tokens * p.top_k + i,
              scale.defined() ? scale.data<float>()[(t0 + i) * scale.stride(0)] : 1.0f);
        }
        gemm::EpilogueArgs epilogue;
        epilogue.sums = sums;
        epilogue.count = count;
        epilogue.out = t.out.data<char>() + ((t0 + i) * t.out.stride(0) + h) * size;
        epilogue.out_format = p.x;
        if (const Tensor& r = t.residual; r.defined()) {
          epilogue.residual = r.data<char>() + ((t0 + i) * r.stride(0) + h) * size;
          epilogue.residual_format = p.x;
        }
        kernels.epilogue(epilogue);
      }
    }
  });
}

// The weights of the experts, the views of separate ones made for those with rows.
const Weights* weights_of(const MoeProblem& p, const MoeTensors& t, Workspace* w) {
  if (t.weights != nullptr) return t.weights->experts->weights.data();
  for (int64_t e = 0; e < p.experts; ++e) {
    const auto i = static_cast<size_t>(e);
    if (w->first_row[i] == w->first_row[i + 1]) continue;
    w->views[3 * i] = expert_view(p, *t.gate, e, "gate", p.intermediate, p.hidden);
    w->views[3 * i + 1] = expert_view(p, *t.up, e, "up", p.intermediate, p.hidden);
    w->views[3 * i + 2] = expert_view(p, *t.down, e, "down", p.hidden, p.intermediate);
  }
  return w->views.data();
}

const float* bias_of(const MoeTensors& t, Tensor BoundExperts::*bias, const Panel& panel) {
  if (t.weights == nullptr || panel.shared) return nullptr;
  const Tensor& all = (*t.weights->experts).*bias;
  return all.defined() ? all.data<float>() + panel.expert * all.size(1) : nullptr;
}

Job job_of(const XRows& rows, const XRows::Panel& panel) {
  Job job;
  job.x = panel.x;
  job.x_scales = panel.scales;
  job.m = panel.m;
  if (rows.has_row_scales()) job.row_scales = panel.row_scales;
  if (rows.integer()) job.row_offsets = panel.row_offsets;
  return job;
}

}  // namespace

void prepare(const MoeProblem& p, const Kernels& kernels, Workspace* w) {
  const int64_t tokens = std::min(p.tokens, kTokens);
  const bool shared = p.shared_intermediate > 0;
  const int64_t rows = tokens * (p.top_k + (shared ? 1 : 0));
  w->rows.resize(static_cast<size_t>(rows));
  w->row_of.resize(static_cast<size_t>(tokens * p.top_k));
  w->first_row.resize(static_cast<size_t>(p.experts) + 1);
  w->views.resize(static_cast<size_t>(p.experts) * 3);
  w->jobs.reserve(static_cast<size_t>(std::min(rows, p.experts + 1) + rows / kTokens + 1));
  w->scores.resize(p.scale_input ? static_cast<size_t>(rows) : 0);

  gemm::XSpec x{p.x, false, {}, p.quantize_x};
  gemm::XSpec h = x;
  h.format = p.x == Format::bf16 ? Format::bf16 : Format::f32;
  const bool octets = gemm::octet_order(gemm::code_of(p.weight, p.scaled, p.scaling));
  w->x = XRows(x, octets, p.hidden);
  w->h = XRows(h, octets, p.intermediate);
  w->shared_x = w->x, w->shared_h = w->h;
  if (shared) {
    const bool shared_octets =
        gemm::octet_order(gemm::code_of(p.shared_weight, p.shared_scaled, p.shared_scaling));
    w->shared_x = XRows(x, shared_octets, p.hidden);
    w->shared_h = XRows(h, shared_octets, p.shared_intermediate);
  }
  if (kernels.integer) {
    for (XRows* all : {&w->x, &w->h, &w->shared_x, &w->shared_h}) all->use_integers();
  }
  const auto allot = [&](const XRows& a, const XRows& b, Tensor* panels, Tensor* scales,
                         Tensor* row_scales, Tensor* offsets) {
    const Packed room = packed(kernels, a, b, *panels, *scales, *row_scales, *offsets);
    *panels = Tensor::empty({rows * room.row_bytes}, Format::u8);
    if (room.row_scale_bytes > 0) {
      *scales = Tensor::empty({rows * room.row_scale_bytes}, Format::u8);
    }
    *row_scales = Tensor::empty({rows}, Format::f32);
    *offsets = Tensor::empty({rows}, Format::i32);
  };
  allot(w->x, w->shared_x, &w->packed_x, &w->x_scales, &w->x_row_scales, &w->x_offsets);
  allot(w->h, w->shared_h, &w->packed_h, &w->h_scales, &w->h_row_scales, &w->h_offsets);
  w->h_rows = Tensor::empty({rows, std::max(p.intermediate, p.shared_intermediate)}, h.format);
  w->down = Tensor::empty({rows, p.hidden}, Format::f32);
}

int64_t bytes(const Workspace& w) {
  int64_t total = 0;
  for (const Tensor* t : {&w.packed_x, &w.packed_h, &w.h_rows, &w.down, &w.x_scales, &w.h_scales,
                          &w.x_row_scales, &w.h_row_scales, &w.x_offsets, &w.h_offsets}) {
    if (t->defined()) total += t->bytes();
  }
  return total;
}

void run_tokens(const MoeProblem& p, const Kernels& kernels, const MoeTensors& t, int64_t t0,
                int64_t tokens, Workspace* workspace, ThreadPool& pool) {
  Workspace& w = *workspace;
  group_by_expert(p, t.routing, t0, tokens, &w);
  const Weights* weights = weights_of(p, t, &w);
  const auto panels = [&](const auto& f) { for_each_panel(p, w, tokens, f); };

  const Packed x =
      packed(kernels, w.x, w.shared_x, w.packed_x, w.x_scales, w.x_row_scales, w.x_offsets);
  for_each_row(p, w, tokens, p.hidden, pool, [&](const Panel& panel, int64_t r) {
    const Row row = w.rows[static_cast<size_t>(r)];
    (panel.shared ? w.shared_x : w.x)
        .pack(kernels, t.x, t0 + row.token, x.of(panel), r - panel.begin);
    if (!p.scale_input) return;
    float& score = w.scores[static_cast<size_t>(r)];
    score = w.x.has_row_scales() ? w.x_row_scales.data<float>()[r] : 1.0f;
    if (panel.shared) return;
    const Tensor& all = t.routing.weights;
    score *= all.data<float>()[(t0 + row.token) * all.stride(0) + row.slot];
  });
  // gated(gate, up), in the format of the input of `down`.
  const int64_t h_row = w.h_rows.size(1) * bits(w.h_rows.format()) / 8;
  w.jobs.clear();
  panels([&](const Panel& panel) {
    Job job = job_of(panel.shared ? w.shared_x : w.x, x.of(panel));
    job.weights = weights + panel.expert * 3;
    job.up = job.weights + 1;
    if (p.scale_input) job.row_scales = w.scores.data() + panel.begin;
    job.bias = bias_of(t, &BoundExperts::gate_bias, panel);
    job.up_bias = bias_of(t, &BoundExperts::up_bias, panel);
    job.gated = p.gated;
    job.out = w.h_rows.data<char>() + panel.begin * h_row;
    job.out_row = h_row;
    job.out_format = w.h_rows.format();
    w.jobs.push_back(job);
  });
  gemm::run_jobs(kernels, w.jobs, pool);

  const Packed h =
      packed(kernels, w.h, w.shared_h, w.packed_h, w.h_scales, w.h_row_scales, w.h_offsets);
  for_each_row(p, w, tokens, p.intermediate, pool, [&](const Panel& panel, int64_t r) {
    (panel.shared ? w.shared_h : w.h)
        .pack(kernels, w.h_rows.data<char>() + r * h_row, w.h_rows.format(), h.of(panel),
              r - panel.begin);
  });
  w.jobs.clear();
  panels([&](const Panel& panel) {
    Job job = job_of(panel.shared ? w.shared_h : w.h, h.of(panel));
    job.weights = weights + panel.expert * 3 + 2;
    job.bias = bias_of(t, &BoundExperts::down_bias, panel);
    job.out = w.down.data<float>() + panel.begin * p.hidden;
    job.out_row = p.hidden * 4;
    w.jobs.push_back(job);
  });
  gemm::run_jobs(kernels, w.jobs, pool);
  combine(p, t, w, kernels, t0, tokens, pool);
}

}  // namespace halftone::experts
