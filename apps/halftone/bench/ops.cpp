#include "bench/families.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "base/message.h"
#include "halftone/halftone.h"
#include "measure/roofs.h"

namespace halftone {

namespace {

Tensor random_tensor(const Shape& shape, Format format) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-2, 2);
  Tensor t = Tensor::empty(shape, Format::f32);
  // A short pattern is enough: no kernel looks at what it has seen before.
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<float>()[i] = i < 4096 ? uniform(engine) : t.data<float>()[i - 4096];
  }
  return format == Format::f32 ? t : convert(t, format);
}

struct Bench {
  const CpuBench& asked;
  Stream& stream;
  int repeats;
  std::vector<BenchRow> rows = {};

  // Of data: names alone need one row.
  int64_t kept(int64_t rows) const { return asked.choice.only_lists() ? 1 : rows; }

  // `work` in units of 1e9 a second, against `roof` of the same.
  template <class F>
  void against(const std::string& name, double work, const char* unit, double roof,
               const char* roof_name, const F& f) {
    if (!asked.choice.begins(name)) return;
    BenchRow row;
    row.name = name;
    row.unit = unit;
    row.roof_name = roof_name;
    row.seconds = median_seconds(repeats, [&](int) { f(); });
    row.roof = roof / 1e9;
    (row.unit == "GB/s" ? row.bytes : row.flops) = work;
    row.value = work / row.seconds / 1e9;
    rows.push_back(row);
  }

  // `bytes` a call reads and writes, against a copy that touches as many.
  template <class F>
  void add(const std::string& name, int64_t bytes, const F& f) {
    if (!asked.choice.begins(name)) return;
    BenchRow row;
    row.name = name;
    row.unit = "GB/s";
    row.roof_name = "copy of as many bytes";
    // The roof before and after: on a shared machine it moves, and the better one counts.
    const double before = copy_roof(stream, bytes, repeats);
    row.seconds = median_seconds(repeats, [&](int) { f(); });
    row.roof = std::max(before, copy_roof(stream, bytes, repeats)) / 1e9;
    row.bytes = static_cast<double>(bytes);
    row.value = row.bytes / row.seconds / 1e9;
    rows.push_back(row);
  }
};

constexpr int64_t kColumns = 4096;

// Norms, activations, softmax, rope and arithmetic of so many rows.
void row_operations(Bench& bench, int64_t named, Format f) {
  const int64_t rows = bench.kept(named);
  Stream& stream = bench.stream;
  const Device cpu = Device::cpu();
  const int64_t count = rows * kColumns, one = count * bits(f) / 8;
  const auto label = [&](const char* what) {
    return concat(what, " ", named, "x", kColumns, " ", name(f));
  };
  const Tensor x = random_tensor({rows, kColumns}, f), y = random_tensor({rows, kColumns}, f);
  const Tensor out = Tensor::zeros({rows, kColumns}, f);
  const Tensor weight = random_tensor({kColumns}, f);
  NormProblem n{rows, kColumns, f, f};
  const NormPlan rms = plan(n, cpu);
  bench.add(label("rms norm"), 2 * one, [&] { run(rms, {x, weight, out, {}}, stream); });
  n.residual = true;
  const NormPlan fused = plan(n, cpu);
  bench.add(label("rms norm + residual"), 4 * one, [&] {
    run(fused, {x, weight, out, y}, stream);
  });
  n.kind = NormKind::layer;
  n.bias = true;
  const NormPlan layer_residual = plan(n, cpu);
  bench.add(label("layer norm + residual"), 4 * one, [&] {
    run(layer_residual, {x, weight, out, y, weight, {}}, stream);
  });
  n.residual = false;
  const NormPlan layer = plan(n, cpu);
  bench.add(label("layer norm"), 2 * one, [&] {
    run(layer, {x, weight, out, {}, weight, {}}, stream);
  });
  for (const auto& [text, function] : {std::pair{"swiglu", GatedActivation::swiglu()},
                                       {"geglu (erf)", GatedActivation::geglu_erf()},
                                       {"geglu (tanh)", GatedActivation::geglu_tanh()},
                                       {"clamped swiglu", GatedActivation::clamped_swiglu()}}) {
    const GatedPlan gate = plan(GatedProblem{rows, kColumns, f, function}, cpu);
    bench.add(label(text), 3 * one, [&] { run(gate, {x, y, out}, stream); });
  }
  for (const Activation kind : {Activation::relu, Activation::silu, Activation::gelu_erf,
                                Activation::gelu_tanh, Activation::tanh, Activation::softplus}) {
    const ActivationPlan act = plan(ActivationProblem{x.shape(), {.kind = kind}, f, f}, cpu);
    bench.add(label(name(kind)), 2 * one, [&] { run(act, {x, out}, stream); });
  }
  const SoftmaxPlan soft = plan(SoftmaxProblem{rows, kColumns, f, f}, cpu);
  bench.add(label("softmax"), 2 * one, [&] { run(soft, {x, out}, stream); });
  for (const Elementwise op : {Elementwise::add, Elementwise::divide, Elementwise::exp}) {
    const bool two = operand_count(op) == 2;
    const ElementwisePlan each = plan(ElementwiseProblem{op, x.shape(), f, f, f, f}, cpu);
    bench.add(label(name(op)), (two ? 3 : 2) * one, [&] {
      run(each, {x, two ? y : Tensor(), {}, out}, stream);
    });
  }
  const PermutePlan turn = plan(PermuteProblem{x.shape(), {1, 0}, f}, cpu);
  const Tensor turned = out.reshape({kColumns, rows});
  bench.add(label("transpose"), 2 * one, [&] { run(turn, {x, turned}, stream); });
  std::vector<int32_t> at(static_cast<size_t>(rows));
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  const Tensor positions = Tensor::from<int32_t>(at, {rows}, Format::i32);
  const RopePlan rotate = plan(RopeProblem{rows, kColumns / 128, 128, f, {}}, cpu);
  const Tensor heads = out.reshape({rows, kColumns / 128, 128});
  bench.add(label("rope"), 2 * one, [&] { run(rotate, {heads, positions}, stream); });
}

// What reads much and writes little, against reading.
void reductions(Bench& bench, int64_t named) {
  const int64_t rows = bench.kept(named);
  Stream& stream = bench.stream;
  const char* roof = "reading as many bytes";
  for (const char* format : {"f32", "bf16", "fp8_row", "mxfp8", "nvfp4"}) {
    Tensor x = random_tensor({rows, kColumns}, Format::bf16);
    const bool plain = std::strcmp(format, "f32") == 0 || std::strcmp(format, "bf16") == 0;
    x = plain ? convert(x, parse_format(format), stream)
              : quantize(x, parse_quantization(format), stream);
    const auto bytes = static_cast<double>(x.bytes());
    const double reading = bench.asked.choice.only_lists() ? 0 : read_roof(stream, x.bytes());
    ReduceProblem p;
    p.shape = x.shape(), p.x = p.y = x.format(), p.x_scaled = p.y_scaled = x.has_scales();
    const auto add = [&](Reduction operation, int axis, double times) {
      p.operation = operation, p.axis = axis;
      p.out = operation == Reduction::argmax ? Format::i64 : Format::f32;
      const Tensor out = Tensor::empty({axis == 0 ? kColumns : rows}, p.out);
      const ReducePlan made = plan(p, Device::cpu());
      bench.against(
          concat(name(operation), " along ", axis, " of ", named, "x", kColumns, " ", format),
          times * bytes, "GB/s", reading, roof, [&] {
            run(made, {x, x, out}, stream);
          });
    };
    add(Reduction::sum, 1, 1);
    if (plain) {
      add(Reduction::sum, 0, 1);
      add(Reduction::max, 1, 1);
      add(Reduction::argmax, 1, 1);
    }
  }
  const Tensor ids = Tensor::zeros({rows * kColumns}, Format::i32);
  for (int64_t i = 0; i < ids.numel(); ++i) {
    ids.data<int32_t>()[i] = static_cast<int32_t>(i * 2654435761 % 256);
  }
  const double reading = bench.asked.choice.only_lists() ? 0 : read_roof(stream, ids.bytes());
  bench.against(concat("histogram of ", named * kColumns, " i32, 256 bins"),
                static_cast<double>(ids.bytes()), "GB/s", reading, roof,
                [&] { histogram(ids, 256, stream); });
}

// The two convolutions that a Whisper encoder (tiny) begins with.
void convolutions(Bench& bench, bool quick) {
  const double roof = bench.asked.choice.only_lists() ? 0 : f32_roof(bench.stream);
  for (const Format f : {Format::f32, Format::bf16}) {
    for (const auto& [channels, stride] : {std::pair{int64_t{80}, int64_t{1}}, {384, 2}}) {
      if (quick && f == Format::bf16) continue;
      Conv1dProblem p;
      p.in_channels = channels, p.length = 3000, p.out_channels = 384, p.kernel = 3;
      p.stride = stride, p.padding = 1;
      p.x = p.weight = p.out = f;
      p.bias = true;
      p.activation = {.kind = Activation::gelu_erf};
      const Conv1dPlan made = plan(p, Device::cpu());
      const Tensor x = random_tensor({1, channels, 3000}, f);
      const Tensor w = random_tensor({384, channels, 3}, f), b = random_tensor({384}, f);
      const Tensor out = Tensor::empty({1, 384, conv1d_length(p)}, f);
      const double work =
          2.0 * 3 * static_cast<double>(channels * 384) * static_cast<double>(conv1d_length(p));
      bench.against(
          concat("conv1d ", channels, "x3000 to 384, k 3, stride ", stride, ", gelu, ", name(f)),
          work, "GFLOP/s", roof, "f32 multiply-adds", [&] {
            run(made, {x, w, out, b}, bench.stream);
          });
    }
  }
}

}  // namespace

std::vector<BenchRow> bench_ops(const CpuBench& asked) {
  const bool quick = asked.quick;
  Stream& stream = asked.stream;
  Bench bench{asked, stream, quick ? 5 : 15};
  // 1 row: in the first-level cache; 512 rows of bf16: 4 MiB, beyond the second level; 8192: DRAM.
  for (const int64_t rows : {int64_t{1}, int64_t{512}, int64_t{8192}}) {
    if (quick && rows > 512) continue;
    row_operations(bench, rows, Format::bf16);
    if (rows == 8192) row_operations(bench, rows, Format::f32);
  }
  const int64_t long_rows = quick ? 64 : 1024;
  const Tensor logits = random_tensor({bench.kept(long_rows), 32000}, Format::f32);
  bench.add(concat("softmax ", long_rows, "x32000 f32"), 2 * logits.bytes(),
            [&, made = plan(SoftmaxProblem{long_rows, 32000}, Device::cpu())] {
              run(made, {logits, logits}, stream);
            });
  reductions(bench, quick ? 512 : 8192);
  convolutions(bench, quick);
  return bench.rows;
}

}  // namespace halftone
