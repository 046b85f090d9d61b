// Experts in device memory as the kernels of GPUs read them.
#include <climits>

#include "base/message.h"
#include "ops/moe/gpu.h"

namespace halftone::experts {

using gemm::GpuSource;

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

bool same_strides(const gemm::GpuLayout& a, const gemm::GpuLayout& b) {
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
    gpu->up = gemm::gpu_layout(t.gate_up, "gate_up");
    gpu->down = gemm::gpu_layout(t.all_down, "all_down");
    if (t.interleaved) gpu->up.row_step = 2;
    for (int64_t e = 0; e < p.experts; ++e) {
      sources.push_back(gemm::gpu_source(t.gate_up, e));
      sources.push_back(sources.back());
      sources.back().first_row = t.interleaved ? 1 : p.intermediate;
      sources.push_back(gemm::gpu_source(t.all_down, e));
    }
  } else {
    require(!t.input_major && !t.interleaved,
            "input_major and interleaved are set; they describe the fused tensors only");
    check_count(p, &t.gate, "gate");
    check_count(p, &t.up, "up");
    check_count(p, &t.down, "down");
    gpu->up = gemm::gpu_layout(t.gate[0], "gate");
    gpu->down = gemm::gpu_layout(t.down[0], "down");
    for (size_t e = 0; e < t.gate.size(); ++e) {
      const auto add = [&](const Tensor& w, const char* what, const Shape& shape,
                           const gemm::GpuLayout& layout) {
        check(w, concat(what, "[", e, "]"), shape);
        require(same_strides(gemm::gpu_layout(w, what), layout), what, "[", e,
                "] has other strides than the experts before; they must be the same");
        sources.push_back(gemm::gpu_source(w));
      };
      add(t.gate[e], "gate", {p.intermediate, p.hidden}, gpu->up);
      add(t.up[e], "up", {p.intermediate, p.hidden}, gpu->up);
      add(t.down[e], "down", {p.hidden, p.intermediate}, gpu->down);
    }
  }
  const size_t experts = sources.size() / 3;
  std::vector<GpuSource> gates_and_ups, downs;
  for (size_t e = 0; e < experts; ++e) {
    gates_and_ups.insert(gates_and_ups.end(), {sources[3 * e], sources[3 * e + 1]});
    downs.push_back(sources[3 * e + 2]);
  }
  gpu->up_matrices = gemm::sm90_matrices(gpu->up, gates_and_ups.data(), 2 * experts);
  gpu->down_matrices = gemm::sm90_matrices(gpu->down, downs.data(), experts);
  std::vector<Tensor> up, down;
  if (t.gate_up.defined()) {
    up = {t.gate_up}, down = {t.all_down};
  } else {
    up = t.gate, down = t.down;
    up.insert(up.end(), t.up.begin(), t.up.end());
  }
  const auto align = [](const std::vector<Tensor>& all, const gemm::Sm90Matrices& matrices,
                        OperandAlignment* a) {
    gemm::set_weight_alignment(all, a);
    a->one_tensor_map = matrices.last <= INT_MAX;
    a->whole_scale_blocks = matrices.scales_of_runs;
  };
  align(up, gpu->up_matrices, &gpu->alignment.up);
  align(down, gpu->down_matrices, &gpu->alignment.down);
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
      gpu->shared[i] = gemm::gpu_source(*all[i]);
      bound->kept.push_back(*all[i]);
    }
    gpu->shared_up = gemm::gpu_layout(t.shared_gate, "shared_gate");
    gpu->shared_down = gemm::gpu_layout(t.shared_down, "shared_down");
    const Tensor shared[] = {t.shared_gate, t.shared_up};
    gemm::set_weight_alignment(shared, &gpu->alignment.shared_up);
    gemm::set_weight_alignment({&t.shared_down, 1}, &gpu->alignment.shared_down);
    require(same_strides(gpu->shared_up, gemm::gpu_layout(t.shared_up, "shared_up")),
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

}  // namespace halftone::experts
