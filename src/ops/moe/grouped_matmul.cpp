// Dispatch and checks of the products of groups, and how CPUs run them.
#include "ops/moe/grouped_matmul.h"

#include <algorithm>

#include "base/arguments.h"
#include "base/message.h"
#include "ops/gemm/cpu/run.h"
#include "ops/gemm/cpu/weights.h"

namespace halftone {

namespace {

std::string refuse(const GroupedProblem& p) {
  if (p.groups < 1 || p.rows < 0 || p.n < 1 || p.k < 1) {
    return concat("groups is ", p.groups, ", rows ", p.rows, ", N ", p.n, " and K ", p.k,
                  "; rows must not be negative, the others at least 1");
  }
  if (p.masked && p.rows % p.groups != 0) {
    return concat("rows is ", p.rows, "; of masked groups it must be a multiple of their number, ",
                  p.groups);
  }
  if (!is_plain_float(p.out)) {
    return concat("out is ", name(p.out), "; it must be f32, f16 or bf16");
  }
  const std::string reason = gemm::refuse_weight(p.weight, p.scaled, p.scaling, p.n, p.k);
  return reason.empty() ? gemm::refuse_x(grouped::x_spec(p), p.k) : reason;
}

// Without a name, and with the reason, where no kernel takes the problem.
gemm::GemmChoice find(const GroupedProblem& p, const Device& device) {
  gemm::GemmChoice choice;
  choice.reason = refuse(p);
  if (!choice.reason.empty()) return choice;
  if (!device.is_cpu()) {
    choice.reason = grouped::accepts_gpu(p);
  } else if (p.scaled && p.scaling.layout != ScaleLayout::linear) {
    choice.reason = concat("weight has ", to_string(p.scaling), " scales; CPUs take linear ones, ",
                           "see convert_scale_layout");
  }
  if (!choice.reason.empty()) return choice;
  choice = dispatch(grouped::gemm_problem(p), gemm::gemm_device(device), kernel_trace != nullptr);
  if (kernel_trace != nullptr) {
    kernel_trace->insert(kernel_trace->end(), choice.trace.begin(), choice.trace.end());
  }
  return choice;
}

// The rows of a panel, packed, of any of the groups.
struct CpuWorkspace {
  gemm::XRows x;
  Tensor panel, scales, row_scales, row_offsets;
};

std::shared_ptr<void> workspace(const GroupedProblem& p, const gemm::Kernels& kernels,
                                int64_t* bytes) {
  auto w = std::make_shared<CpuWorkspace>();
  const bool octets = gemm::octet_order(gemm::code_of(p.weight, p.scaled, p.scaling));
  w->x = gemm::XRows(grouped::x_spec(p), octets, p.k);
  if (kernels.integer) w->x.use_integers();
  const int64_t rows = std::min(p.rows, gemm::kPanelRows);
  const auto allot = [&](int64_t size, Format format) {
    const Tensor t = Tensor::empty({size}, format);
    *bytes += t.bytes();
    return t;
  };
  w->panel = allot(w->x.panel_bytes(kernels, rows), Format::u8);
  w->scales = allot(w->x.scale_bytes(kernels, rows), Format::u8);
  w->row_scales = allot(rows, Format::f32);
  w->row_offsets = allot(rows, Format::i32);
  return w;
}

// One panel of one group.
void run_panel(const GroupedPlan& plan, const GroupedTensors& t, const gemm::Weights& weights,
               int64_t begin, int64_t rows, ThreadPool& pool) {
  const GroupedProblem& p = plan.problem;
  const gemm::Kernels& kernels = *plan.kernel->choice.cpu;
  const auto& w = *static_cast<const CpuWorkspace*>(plan.workspace.get());
  gemm::XRows::Panel panel;
  panel.m = rows, panel.x = w.panel.data();
  if (w.scales.numel() > 0) panel.scales = reinterpret_cast<float*>(w.scales.data());
  panel.row_scales = w.row_scales.data<float>();
  panel.row_offsets = w.row_offsets.data<uint32_t>();
  gemm::parallel(pool, rows, 4, rows * p.k * 4, [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) w.x.pack(kernels, t.x, begin + r, panel, r);
  });
  gemm::Job job;
  job.weights = &weights;
  job.x = panel.x, job.x_scales = panel.scales, job.m = rows;
  if (w.x.has_row_scales()) job.row_scales = panel.row_scales;
  if (w.x.integer()) job.row_offsets = panel.row_offsets;
  job.out_format = p.out;
  job.out_row = t.out.stride(0) * bits(p.out) / 8;
  job.out = t.out.data<char>() + begin * job.out_row;
  gemm::run_jobs(kernels, {&job, 1}, pool);
}

void run_cpu(const GroupedPlan& plan, const GroupedTensors& t, Stream& stream) {
  const GroupedProblem& p = plan.problem;
  const auto count_of = [&](int64_t g) -> int64_t {
    return t.counts.data<int32_t>()[g * t.counts.stride(0)];
  };
  int64_t all = 0;
  for (int64_t g = 0; g < p.groups; ++g) {
    const int64_t room = p.masked ? p.rows / p.groups : p.rows - all;
    require(count_of(g) >= 0 && count_of(g) <= room, "counts[", g, "] is ", count_of(g),
            "; there is room for ", room, " rows");
    all += count_of(g);
  }
  int64_t next = 0;
  for (int64_t g = 0; g < p.groups; ++g) {
    const int64_t begin = p.masked ? g * (p.rows / p.groups) : next, end = begin + count_of(g);
    next = end;
    if (begin == end) continue;
    const gemm::Weights weights = gemm::view_of(t.weight, "weight", g);
    for (int64_t r = begin; r < end; r += gemm::kPanelRows) {
      run_panel(plan, t, weights, r, std::min(gemm::kPanelRows, end - r), stream.pool());
    }
  }
}

void check(const GroupedProblem& p, const GroupedTensors& t, const Device& device) {
  const auto matrix = [&](const char* what, const Tensor& m, const Shape& shape, Format format) {
    require(m.defined() && m.format() == format && m.shape() == shape && m.device() == device, what,
            " is ", shown(m), "; the plan needs ", name(format), " ", to_string(shape), " on ",
            device.name());
  };
  const auto rows = [&](const char* what, const Tensor& m) {
    require(m.stride(1) == 1 || m.size(1) == 1, what, " has strides ", shown(m.strides()),
            "; its last dimension must be contiguous");
  };
  matrix("x", t.x, {p.rows, p.k}, p.x);
  matrix("counts", t.counts, {p.groups}, Format::i32);
  matrix("weight", t.weight, {p.groups, p.n, p.k}, p.weight);
  matrix("out", t.out, {p.rows, p.n}, p.out);
  rows("x", t.x);
  rows("out", t.out);
  require(t.x.has_scales() == p.x_scaled && (!p.x_scaled || t.x.scaling() == p.x_scaling),
          "x has other scales than the plan: ", shown(t.x));
  require(t.weight.has_scales() == p.scaled && (!p.scaled || t.weight.scaling() == p.scaling),
          "weight has other scales than the plan: ", shown(t.weight));
}

}  // namespace

std::string describe(const GroupedPlan& plan) {
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  const GroupedProblem& p = plan.problem;
  const gemm::GemmChoice& choice = plan.kernel->choice;
  return concat(choice.name, ": ", p.groups, p.masked ? " masked" : " contiguous", " groups of ",
                p.rows, " rows in all, N ", p.n, ", K ", p.k, ", x ", name(p.x),
                p.x_scaled ? " (" + to_string(p.x_scaling) + " scales)" : "", ", weights ",
                name(p.weight), p.scaled ? " (" + to_string(p.scaling) + " scales)" : "",
                choice.cpu == nullptr ? ", " + choice.tile : "", ", workspace ",
                plan.workspace_bytes, " bytes");
}

OperandAlignment alignment_of(const GroupedTensors& t) {
  OperandAlignment a;
  if (!t.x.defined() || !t.weight.defined() || t.x.device().is_cpu()) return a;
  a.x = gemm::rows_alignment(t.x);
  gemm::set_weight_alignment({&t.weight, 1}, &a);
  return a;
}

Support can_run(const GroupedProblem& p, const Device& device) {
  const gemm::GemmChoice choice = find(p, device);
  return {choice.name != nullptr, choice.reason};
}

GroupedPlan plan(const GroupedProblem& p, const Device& device) {
  auto kernel = std::make_shared<GroupedKernel>(GroupedKernel{find(p, device)});
  if (kernel->choice.name == nullptr) throw Error(ErrorCode::unsupported, kernel->choice.reason);
  GroupedPlan made{p, device, kernel, 0, nullptr};
  made.workspace = kernel->choice.cpu == nullptr
                       ? grouped::workspace_gpu(p, kernel->choice, device, &made.workspace_bytes)
                       : workspace(p, *kernel->choice.cpu, &made.workspace_bytes);
  return made;
}

void run(const GroupedPlan& plan, const GroupedTensors& t, Stream& stream) {
  require(plan.kernel != nullptr, "the plan is empty; make it with plan()");
  require(stream.device() == plan.device, "stream is on ", stream.device().name(),
          "; the plan runs on ", plan.device.name());
  check(plan.problem, t, plan.device);
  if (plan.problem.rows == 0) return;
  if (plan.kernel->choice.cpu == nullptr) {
    check_alignment(plan.kernel->choice, grouped::gemm_problem(plan.problem), alignment_of(t),
                    "GroupedProblem::alignment");
    return grouped::run_gpu(plan, t, stream);
  }
  run_cpu(plan, t, stream);
}

Tensor grouped_matmul(const Tensor& x, const Tensor& counts, const Tensor& weight, bool masked,
                      Stream& stream) {
  require(x.defined() && x.rank() == 2, "x ", shown(x), " must have two dimensions, [rows, k]");
  require(weight.defined() && weight.rank() == 3, "weight ", shown(weight),
          " must have three dimensions, [groups, n, k]");
  GroupedProblem p;
  p.groups = weight.size(0), p.n = weight.size(1), p.k = weight.size(2);
  p.rows = x.size(0), p.masked = masked;
  p.x = x.format(), p.out = is_plain_float(p.x) ? p.x : Format::bf16;
  p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  p.weight = weight.format(), p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  const Tensor out = Tensor::zeros({p.rows, p.n}, p.out, x.device());
  const GroupedTensors tensors{x, counts, weight, out};
  p.alignment = alignment_of(tensors);
  run(plan(p, x.device()), tensors, stream);
  return out;
}

}  // namespace halftone
