// Operations bound by memory, on a GPU: seconds a call and the share of a copy's bandwidth. Calls
// are captured in a graph, so that launching them is the GPU's own work, and take buffers in turn
// that lie beyond its second-level cache.
#include <algorithm>
#include <string>

#include "base/message.h"
#include "bench/gpu.h"
#include "bench/gpu_data.h"
#include "formats/gpu/kernels.h"
#include "halftone/halftone.h"
#include "ops/sampling/draw.h"

namespace halftone {

namespace {

// `count` tensors of a shape in one piece of memory.
std::vector<Tensor> sets_of(const Tensor& all, int64_t count) {
  std::vector<Tensor> sets;
  const int64_t rows = all.size(0) / count;
  for (int64_t i = 0; i < count; ++i) sets.push_back(all.slice(0, i * rows, (i + 1) * rows));
  return sets;
}

struct OpsBench {
  const GpuBench& bench;
  std::vector<BenchRow> rows = {};

  const Device& device() const { return bench.stream.device(); }
  Tensor empty(const Shape& shape, Format format) const {
    return Tensor::empty(shape, format, device());
  }
  Tensor random(const Shape& shape, Format format) const {
    const Tensor x = normal_on_device(shape, 1, bench.stream);
    return format == Format::bf16 ? x : convert(x, format, bench.stream);
  }
  int sets_for(int64_t bytes) const { return std::min(bench.copies(bytes), 4096); }

  // Whether to measure a row now; its data is made after that.
  bool begins(const std::string& name) const { return bench.choice.begins(name); }
  // Of a row that begins: calls f(0) to f(sets - 1), each of which reads and writes `bytes`.
  void add(const std::string& name, int64_t bytes, int sets,
           const std::function<void(int, Stream&)>& f) {
    GpuTimingOptions options = bench.timing();
    options.rest = std::min(options.rest, 0.1);  // memory does not heat the chip
    options.warm_up = options.sustained = std::min(options.sustained, 0.1);
    BenchRow row;
    row.name = name;
    row.bytes = static_cast<double>(bytes);
    set_bandwidth(time_in_graph(bench.stream, sets, f, options), bench.roofs.copy, "copy", &row);
    rows.push_back(row);
  }
};

std::string of_rows(const char* what, int64_t rows, int64_t columns, Format format) {
  return concat(what, ", ", rows, rows == 1 ? " row of " : " rows of ", columns, " ", name(format));
}

void norms(OpsBench& bench, int64_t rows, int64_t columns, NormKind kind, bool residual, Format f) {
  const char* what = kind == NormKind::layer ? "layer norm"
                     : residual              ? "rms norm with residual"
                                             : "rms norm";
  const std::string name = of_rows(what, rows, columns, f);
  if (!bench.begins(name)) return;
  NormProblem p;
  p.rows = rows, p.columns = columns, p.x = p.weight = f;
  p.residual = residual, p.kind = kind, p.bias = kind == NormKind::layer;
  const NormPlan made = plan(p, bench.device());
  const int64_t bytes = rows * columns * bits(f) / 8 * (residual ? 4 : 2);
  const int sets = bench.sets_for(bytes);
  const auto all = [&] { return sets_of(bench.random({sets * rows, columns}, f), sets); };
  const std::vector<Tensor> x = all(), out = all();
  const std::vector<Tensor> sums = residual ? all() : std::vector<Tensor>(x.size());
  const Tensor weight = bench.random({columns}, f), bias = p.bias ? weight : Tensor();
  bench.add(name, bytes, sets, [&](int i, Stream& stream) {
    const auto k = static_cast<size_t>(i);
    run(made, {x[k], weight, out[k], sums[k], bias, {}}, stream);
  });
}

void gates(OpsBench& bench, int64_t rows, int64_t columns, GatedActivation function,
           const char* what, Format f) {
  const std::string name = of_rows(what, rows, columns, f);
  if (!bench.begins(name)) return;
  const GatedPlan made = plan(GatedProblem{rows, columns, f, function}, bench.device());
  const int64_t bytes = 3 * rows * columns * bits(f) / 8;
  const int sets = bench.sets_for(bytes);
  const auto all = [&] { return sets_of(bench.random({sets * rows, columns}, f), sets); };
  const std::vector<Tensor> gate = all(), up = all(), out = all();
  bench.add(name, bytes, sets, [&](int i, Stream& stream) {
    const auto k = static_cast<size_t>(i);
    run(made, {gate[k], up[k], out[k]}, stream);
  });
}

void activations(OpsBench& bench, int64_t rows, int64_t columns, Activation kind, Format f) {
  const std::string name = of_rows(halftone::name(kind), rows, columns, f);
  if (!bench.begins(name)) return;
  const ActivationPlan made =
      plan(ActivationProblem{{rows, columns}, {.kind = kind}, f, f}, bench.device());
  const int64_t bytes = 2 * rows * columns * bits(f) / 8;
  const int sets = bench.sets_for(bytes);
  const std::vector<Tensor> x = sets_of(bench.random({sets * rows, columns}, f), sets),
                            out = sets_of(bench.empty({sets * rows, columns}, f), sets);
  bench.add(name, bytes, sets, [&](int i, Stream& stream) {
    run(made, {x[static_cast<size_t>(i)], out[static_cast<size_t>(i)]}, stream);
  });
}

void additions(OpsBench& bench, int64_t rows, int64_t columns, Format f) {
  const std::string name = of_rows("add", rows, columns, f);
  if (!bench.begins(name)) return;
  const ElementwisePlan made =
      plan(ElementwiseProblem{Elementwise::add, {rows, columns}, f, f, f, f}, bench.device());
  const int64_t bytes = 3 * rows * columns * bits(f) / 8;
  const Tensor a = bench.random({2 * rows, columns}, f), b = bench.random({2 * rows, columns}, f);
  const Tensor out = bench.empty({2 * rows, columns}, f);
  bench.add(name, bytes, 2, [&](int i, Stream& stream) {
    const auto half = [&](const Tensor& x) { return x.slice(0, i * rows, (i + 1) * rows); };
    run(made, {half(a), half(b), {}, half(out)}, stream);
  });
}

void softmaxes(OpsBench& bench, int64_t rows, int64_t columns, Format f) {
  const std::string name = of_rows("softmax", rows, columns, f);
  if (!bench.begins(name)) return;
  const SoftmaxPlan made = plan(SoftmaxProblem{rows, columns, f, f}, bench.device());
  const int64_t bytes = 2 * rows * columns * bits(f) / 8;
  const int sets = bench.sets_for(bytes);
  const std::vector<Tensor> x = sets_of(bench.random({sets * rows, columns}, f), sets),
                            out = sets_of(bench.empty({sets * rows, columns}, f), sets);
  bench.add(name, bytes, sets, [&](int i, Stream& stream) {
    run(made, {x[static_cast<size_t>(i)], out[static_cast<size_t>(i)]}, stream);
  });
}

// In place: heads of 128.
void ropes(OpsBench& bench, int64_t tokens, int64_t heads) {
  const std::string name = concat("rope, ", tokens, tokens == 1 ? " token of " : " tokens of ",
                                  heads, " heads of 128 bf16");
  if (!bench.begins(name)) return;
  const RopePlan made = plan(RopeProblem{tokens, heads, 128, Format::bf16, {}}, bench.device());
  std::vector<int32_t> at(static_cast<size_t>(tokens));
  for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
  const Tensor positions = Tensor::from<int32_t>(at, {tokens}, Format::i32).to(bench.device());
  const int64_t bytes = 2 * tokens * heads * 128 * 2;
  const int sets = bench.sets_for(bytes / 2);
  const std::vector<Tensor> x =
      sets_of(bench.random({sets * tokens, heads, 128}, Format::bf16), sets);
  bench.add(name, bytes, sets, [&](int i, Stream& stream) {
    run(made, {x[static_cast<size_t>(i)], positions}, stream);
  });
}

void embeddings(OpsBench& bench, const char* format) {
  constexpr int64_t kTokens = 16384, kVocabulary = 65536, kColumns = 4096;
  const std::string name =
      concat("embedding, ", kTokens, " tokens of ", kColumns, " from ", format);
  if (!bench.begins(name)) return;
  Tensor table = bench.random({kVocabulary, kColumns}, Format::bf16);
  EmbeddingProblem p{kTokens, kVocabulary, kColumns, Format::bf16};
  if (std::string(format) != "bf16") {
    table = quantize(table, parse_quantization(format), bench.bench.stream);
    p.table = table.format(), p.scaling = table.scaling(), p.scaled = true;
  }
  const EmbeddingPlan made = plan(p, bench.device());
  std::vector<int32_t> at(static_cast<size_t>(kTokens));
  uint32_t state = 1;
  for (int32_t& id : at) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>(state >> 16);
  }
  const Tensor ids = Tensor::from<int32_t>(at, {kTokens}, Format::i32).to(bench.device());
  const Tensor out = bench.empty({kTokens, kColumns}, Format::bf16);
  bench.add(name, out.bytes() + table.bytes() * kTokens / kVocabulary, 2, [&](int, Stream& stream) {
    run(made, {ids, table, out}, stream);
  });
}

void transposes(OpsBench& bench, int64_t side, Format f) {
  const std::string name = concat("transpose, ", side, " x ", side, " ", halftone::name(f));
  if (!bench.begins(name)) return;
  const PermutePlan made = plan(PermuteProblem{{side, side}, {1, 0}, f}, bench.device());
  const Tensor x = Tensor::zeros({2 * side, side}, f, bench.device());
  const Tensor out = bench.empty({2 * side, side}, f);
  bench.add(name, x.bytes(), 2, [&](int i, Stream& stream) {
    run(made, {x.slice(0, i * side, (i + 1) * side), out.slice(0, i * side, (i + 1) * side)},
        stream);
  });
}

void reductions(OpsBench& bench, Reduction operation, int axis, Format f) {
  constexpr int64_t kRows = 16384, kColumns = 8192;
  const std::string row =
      concat(name(operation), " along ", axis, " of ", kRows, " x ", kColumns, " ", name(f));
  if (!bench.begins(row)) return;
  ReduceProblem p;
  p.shape = {kRows, kColumns}, p.x = p.y = f, p.operation = operation, p.axis = axis;
  p.out = operation == Reduction::argmax ? Format::i64 : Format::f32;
  const ReducePlan made = plan(p, bench.device());
  const Tensor x = bench.random(p.shape, f), y = bench.random(p.shape, f);
  const Tensor out = bench.empty({axis == 0 ? kColumns : kRows}, p.out);
  bench.add(row, x.bytes() + out.bytes(), 2, [&](int i, Stream& stream) {
    run(made, {i == 0 ? x : y, i == 0 ? x : y, out}, stream);
  });
}

void draws(OpsBench& bench, int64_t rows, const DrawRow& options, const char* filters) {
  constexpr int64_t kVocabulary = 128256;  // of Llama 3
  const std::string name = concat("token of ", kVocabulary, " logits f32, ", filters, ", ", rows,
                                  rows == 1 ? " row" : " rows");
  if (!bench.begins(name)) return;
  const Tensor logits = bench.random({rows, kVocabulary}, Format::f32);
  TokenDraw draw(rows, kVocabulary, bench.device());
  draw.set(std::vector<DrawRow>(static_cast<size_t>(rows), options), {}, bench.bench.stream);
  bench.add(name, logits.bytes(), 1, [&](int, Stream& stream) { draw.run(logits, stream); });
}

// Rows of 8192 elements, 8192 at a time of twice as many; made for the first row that wants them.
struct Source {
  Format format;
  Tensor made = {};
  static constexpr int64_t kRows = 8192, kColumns = 8192;
  const Tensor& tensor(const OpsBench& bench) {
    if (!made.defined()) made = bench.random({2 * kRows, kColumns}, format);
    return made;
  }
};

// Each byte counts once: where the largest element of all is looked for first, the second reading
// is time and no work.
void quantisations(OpsBench& bench, Source& source, const QuantizeOptions& options) {
  constexpr int64_t kRows = Source::kRows, kColumns = Source::kColumns;
  const std::string format =
      concat(to_string(options), options.tensor_scale ? " with a given tensor scale" : "");
  const auto empty = [&] { return empty_quantized({kRows, kColumns}, options, bench.device()); };
  const auto half = [&](int i) {
    return source.tensor(bench).slice(0, i * kRows, (i + 1) * kRows);
  };
  const std::string there =
      concat("to ", format, " from ", kRows, " x ", kColumns, " ", name(source.format));
  if (bench.begins(there)) {
    Tensor out[2] = {empty(), empty()};
    bench.add(there, half(0).bytes() + out[0].bytes(), 2,
              [&](int i, Stream& stream) { quantize_into(half(i), options, out[i], stream); });
  }
  const std::string back = concat("from ", format, " to ", kRows, " x ", kColumns, " bf16");
  if (source.format != Format::bf16 || !bench.begins(back)) return;
  Tensor codes[2] = {empty(), empty()};
  for (Tensor& q : codes) quantize_into(half(0), options, q, bench.bench.stream);
  Tensor values = bench.empty({kRows, kColumns}, Format::bf16);
  bench.add(back, codes[0].bytes() + values.bytes(), 2,
            [&](int i, Stream& stream) { dequantize_into(codes[i], values, stream); });
}

// Norms and gates whose result becomes codes in the same kernel.
void fused_quantisations(OpsBench& bench, int64_t rows, const QuantizeOptions& options) {
  constexpr int64_t kHidden = 4096, kInner = 14336;  // of Llama-3-8B
  const auto codes = [&](int64_t columns) {
    return empty_quantized({rows, columns}, options, bench.device());
  };
  const std::string to = concat(" to ", to_string(options));
  const auto add = [&](const char* what, int64_t columns, int64_t operands, const auto& run) {
    const std::string name = of_rows(what, rows, columns, Format::bf16) + to;
    if (!bench.begins(name)) return;
    const int64_t bytes = operands * rows * columns * 2 + codes(columns).bytes();
    const int sets = bench.sets_for(bytes);
    const auto random = [&] {
      return sets_of(bench.random({sets * rows, columns}, Format::bf16), sets);
    };
    const std::vector<Tensor> x = random(), up = operands > 1 ? random() : x;
    std::vector<Tensor> out;
    for (int i = 0; i < sets; ++i) out.push_back(codes(columns));
    bench.add(name, bytes, sets, [&](int i, Stream& stream) {
      const auto k = static_cast<size_t>(i);
      run(x[k], up[k], out[k], stream);
    });
  };
  const Tensor weight = bench.random({kHidden}, Format::bf16);
  add("rms norm", kHidden, 1, [&](const Tensor& x, const Tensor&, Tensor& out, Stream& stream) {
    norm_quantize_into({}, {x, weight, {}, {}}, options, out, stream);
  });
  add("swiglu", kInner, 2, [&](const Tensor& x, const Tensor& up, Tensor& out, Stream& stream) {
    gated_quantize_into(x, up, {}, options, out, stream);
  });
}

}  // namespace

std::vector<BenchRow> bench_gpu_norm(const GpuBench& on) {
  OpsBench bench{on};
  for (const int64_t rows : {8192, 32, 1}) {
    norms(bench, rows, 4096, NormKind::rms, true, Format::bf16);
    norms(bench, rows, 4096, NormKind::rms, false, Format::bf16);
  }
  norms(bench, 8192, 4096, NormKind::layer, false, Format::bf16);
  norms(bench, 8192, 16384, NormKind::rms, false, Format::bf16);
  norms(bench, 8192, 4096, NormKind::rms, false, Format::f32);
  norms(bench, 8192 * 32, 128, NormKind::rms, false, Format::bf16);  // of queries and keys
  return bench.rows;
}

std::vector<BenchRow> bench_gpu_activation(const GpuBench& on) {
  OpsBench bench{on};
  const GatedActivation swiglu{};
  GatedActivation geglu;
  geglu.function.kind = Activation::gelu_tanh;
  for (const int64_t rows : {8192, 32, 1})
    gates(bench, rows, 14336, swiglu, "swiglu", Format::bf16);
  gates(bench, 8192, 14336, geglu, "geglu", Format::bf16);
  gates(bench, 8192, 14336, swiglu, "swiglu", Format::f32);
  for (const Activation kind : {Activation::silu, Activation::gelu_erf, Activation::tanh}) {
    activations(bench, 8192, 14336, kind, Format::bf16);
  }
  activations(bench, 8192, 14336, Activation::gelu_erf, Format::f32);
  additions(bench, 8192, 14336, Format::bf16);
  return bench.rows;
}

std::vector<BenchRow> bench_gpu_ops(const GpuBench& on) {
  OpsBench bench{on};
  softmaxes(bench, 8192, 4096, Format::bf16);
  softmaxes(bench, 1024, 32000, Format::f32);
  softmaxes(bench, 1, 32000, Format::f32);
  ropes(bench, 8192, 32);
  ropes(bench, 1, 32);
  for (const char* format : {"bf16", "fp8_row", "nvfp4"}) embeddings(bench, format);
  for (const Format f : {Format::u8, Format::bf16, Format::f32}) transposes(bench, 8192, f);
  for (const Format f : {Format::bf16, Format::f32}) {
    for (const int axis : {1, 0}) reductions(bench, Reduction::sum, axis, f);
  }
  reductions(bench, Reduction::argmax, 1, Format::bf16);
  for (const int64_t rows : {1, 32}) {
    draws(bench, rows, {.temperature = 1}, "no filter");
    draws(bench, rows, {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}, "top-k, top-p");
  }
  return bench.rows;
}

std::vector<BenchRow> bench_gpu_quantize(const GpuBench& on) {
  OpsBench bench{on};
  Source x{Format::bf16}, wide{Format::f32};
  for (const char* format : {"fp8", "fp8_tensor", "fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8",
                             "mxfp4", "nvfp4", "int8", "int4", "int4_g128", "int4_g128_asym"}) {
    quantisations(bench, x, parse_quantization(format));
  }
  for (const char* format : {"mxfp8", "nvfp4"}) {
    QuantizeOptions options = parse_quantization(format);
    if (options.format == Format::nvfp4) options.tensor_scale = 1;
    for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                     ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
      options.scaling.layout = layout;
      if (!can_quantize({8192, 8192}, options).ok) continue;
      quantisations(bench, x, options);
    }
  }
  for (const char* format : {"fp8_row", "fp8_1x128", "mxfp8", "nvfp4"}) {
    QuantizeOptions options = parse_quantization(format);
    if (options.format == Format::nvfp4) options.tensor_scale = 1;
    for (const int64_t rows : {8192, 32}) fused_quantisations(bench, rows, options);
  }
  if (on.few_sizes()) return bench.rows;
  for (const char* format : {"mxfp4_adaptive", "nvfp4_adaptive"}) {
    QuantizeOptions options = parse_quantization(format);
    if (options.format == Format::nvfp4) options.tensor_scale = 1;
    quantisations(bench, x, options);
  }
  for (const char* format : {"fp8_1x128", "nvfp4"}) {
    quantisations(bench, wide, parse_quantization(format));
  }
  return bench.rows;
}

}  // namespace halftone
