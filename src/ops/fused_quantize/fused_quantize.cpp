// Norms and activations with fused quantisation: on a CPU each operation runs on a tile of rows
// that its thread then quantises from the cache; on a GPU one kernel computes and quantises rows,
// or where none does, a second one quantises all rows.
#include "halftone/fused_quantize.h"

#include "base/message.h"
#include "formats/gpu/kernels.h"
#include "formats/quantize_rows.h"
#include "halftone/activation.h"
#include "halftone/norm.h"
#include "ops/map/kernels.h"
#include "ops/norm/kernels.h"

namespace halftone {

namespace {

// x as [rows, columns], on the stream's device.
Tensor matrix(const char* what, const char* argument, const Tensor& x, const Stream& stream) {
  require(x.defined() && x.rank() >= 1 && x.contiguous() && is_plain_float(x.format()), what, ": ",
          argument, " must be row-major [..., columns] in f32, f16 or bf16");
  require(x.device() == stream.device(), what, ": ", argument, " is on ", x.device().name(),
          " and the stream on ", stream.device().name(), "; both must be on the same device");
  const int64_t columns = x.size(-1);
  return x.reshape({columns > 0 ? x.numel() / columns : 0, columns});
}

void same_shape(const char* what, const char* argument, const Tensor& a, const Tensor& x) {
  require(a.shape() == x.shape() && a.format() == x.format(), what, ": ", argument, " is ",
          name(a.format()), " ", to_string(a.shape()), "; it must be as the first operand, ",
          name(x.format()), " ", to_string(x.shape()));
}

}  // namespace

void norm_quantize_into(NormProblem problem, const NormTensors& t, const QuantizeOptions& options,
                        Tensor& out, Stream& stream) {
  const Tensor x = matrix("norm_quantize", "x", t.x, stream);
  const auto beside = [&](const char* argument, const Tensor& other) {
    if (!other.defined()) return Tensor();
    same_shape("norm_quantize", argument, other, t.x);
    return matrix("norm_quantize", argument, other, stream);
  };
  const Tensor residual = beside("residual", t.residual);
  const Tensor residual_out = beside("residual_out", t.residual_out);
  problem.rows = x.size(0), problem.columns = x.size(1), problem.x = x.format();
  problem.residual = residual.defined();
  problem.weighted = t.weight.defined(), problem.bias = t.bias.defined();
  if (problem.weighted) {
    problem.weight = t.weight.format();
  } else if (problem.bias) {
    problem.weight = t.bias.format();
  }
  const Support support = can_run(problem, stream.device());
  require(support.ok, "norm_quantize: ", support.reason);
  if (!stream.device().is_cpu()) {
    check_one_pass(options);
    const NormArgs args = norm_args(plan(problem, stream.device()),
                                    {x, t.weight, {}, residual, t.bias, residual_out});
    const QuantizeArgs to = quantize_target(options, out, stream);
    if (norm_quantize_gpu(args, problem.rows, to, stream)) return;
  }
  const auto part = [](const Tensor& whole, int64_t begin, int64_t end) {
    return whole.defined() ? whole.slice(0, begin, end) : Tensor();
  };
  const auto produce = [&](int64_t begin, int64_t end, const Tensor& tile) {
    NormProblem rows = problem;
    rows.rows = end - begin;
    run(plan(rows, stream.device()),
        {x.slice(0, begin, end), t.weight, tile, part(residual, begin, end), t.bias,
         part(residual_out, begin, end)},
        stream);
  };
  quantize_produced(x.format(), options, x, out, stream, produce);
}

namespace {

Tensor norm_quantize(NormKind kind, float eps, const NormTensors& t, const QuantizeOptions& options,
                     Stream& stream) {
  require(t.x.defined(), "norm_quantize: x is undefined");
  Tensor out = empty_quantized(t.x.shape(), options, t.x.device());
  NormProblem problem;
  problem.kind = kind, problem.eps = eps;
  norm_quantize_into(problem, t, options, out, stream);
  return out;
}

}  // namespace

Tensor rms_norm_quantize(const Tensor& x, const Tensor& weight, float eps,
                         const QuantizeOptions& options, Stream& stream) {
  return norm_quantize(NormKind::rms, eps, {x, weight, {}, {}}, options, stream);
}

Tensor rms_norm_residual_quantize(const Tensor& x, Tensor& residual, const Tensor& weight,
                                  float eps, const QuantizeOptions& options, Stream& stream) {
  require(residual.defined(), "rms_norm_residual_quantize: residual is undefined");
  return norm_quantize(NormKind::rms, eps, {x, weight, {}, residual}, options, stream);
}

Tensor layer_norm_quantize(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                           const QuantizeOptions& options, Stream& stream) {
  return norm_quantize(NormKind::layer, eps, {x, weight, {}, {}, bias}, options, stream);
}

Tensor layer_norm_residual_quantize(const Tensor& x, Tensor& residual, const Tensor& weight,
                                    const Tensor& bias, float eps, const QuantizeOptions& options,
                                    Stream& stream) {
  require(residual.defined(), "layer_norm_residual_quantize: residual is undefined");
  return norm_quantize(NormKind::layer, eps, {x, weight, {}, residual, bias}, options, stream);
}

void activation_quantize_into(const Tensor& x, const ActivationFunction& function,
                              const QuantizeOptions& options, Tensor& out, Stream& stream) {
  const Tensor rows = matrix("activation_quantize", "x", x, stream);
  const auto problem = [&](int64_t count) {
    return ActivationProblem{{count, rows.size(1)}, function, x.format(), x.format()};
  };
  const Support support = can_run(problem(rows.size(0)), stream.device());
  require(support.ok, "activation_quantize: ", support.reason);
  if (!stream.device().is_cpu()) {
    check_one_pass(options);
    MapArgs args;
    args.operation = MapOperation::activation, args.function.function = function;
    args.in[0].base = rows.data<char>();
    const QuantizeArgs to = quantize_target(options, out, stream);
    if (map_quantize_gpu(args, false, x.format(), to, stream)) return;
  }
  const auto produce = [&](int64_t begin, int64_t end, const Tensor& tile) {
    run(plan(problem(end - begin), stream.device()), {rows.slice(0, begin, end), tile}, stream);
  };
  quantize_produced(x.format(), options, rows, out, stream, produce);
}

Tensor activation_quantize(const Tensor& x, const ActivationFunction& function,
                           const QuantizeOptions& options, Stream& stream) {
  require(x.defined(), "activation_quantize: x is undefined");
  Tensor out = empty_quantized(x.shape(), options, x.device());
  activation_quantize_into(x, function, options, out, stream);
  return out;
}

void gated_quantize_into(const Tensor& gate, const Tensor& up, const GatedActivation& function,
                         const QuantizeOptions& options, Tensor& out, Stream& stream) {
  const Tensor gates = matrix("gated_quantize", "gate", gate, stream);
  const bool interleaved = !up.defined();
  require(!interleaved || gates.size(1) % 2 == 0, "gated_quantize: gate has ", gates.size(1),
          " columns; without up they are pairs");
  Tensor ups;
  if (!interleaved) {
    same_shape("gated_quantize", "up", up, gate);
    ups = matrix("gated_quantize", "up", up, stream);
  }
  const int64_t columns = interleaved ? gates.size(1) / 2 : gates.size(1);
  const auto problem = [&](int64_t count) {
    return GatedProblem{count, columns, gate.format(), function, interleaved};
  };
  const Support support = can_run(problem(gates.size(0)), stream.device());
  require(support.ok, "gated_quantize: ", support.reason);
  if (!stream.device().is_cpu()) {
    check_one_pass(options);
    MapArgs args;
    args.operation = MapOperation::gated, args.function = function, args.operands = 2;
    args.in[0].base = gates.data<char>();
    args.in[1].base = interleaved ? args.in[0].base : ups.data<char>();
    const QuantizeArgs to = quantize_target(options, out, stream);
    if (map_quantize_gpu(args, interleaved, gate.format(), to, stream)) return;
  }
  const auto produce = [&](int64_t begin, int64_t end, const Tensor& tile) {
    run(plan(problem(end - begin), stream.device()),
        {gates.slice(0, begin, end), interleaved ? Tensor() : ups.slice(0, begin, end), tile},
        stream);
  };
  quantize_produced(gate.format(), options, interleaved ? Tensor() : gates, out, stream, produce);
}

Tensor gated_quantize(const Tensor& gate, const Tensor& up, const GatedActivation& function,
                      const QuantizeOptions& options, Stream& stream) {
  require(gate.defined() && gate.rank() >= 1, "gated_quantize: gate is undefined");
  Shape shape = gate.shape();
  if (!up.defined()) shape[shape.rank() - 1] /= 2;
  Tensor out = empty_quantized(shape, options, gate.device());
  gated_quantize_into(gate, up, function, options, out, stream);
  return out;
}

}  // namespace halftone
