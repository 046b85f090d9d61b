#include "bench/families.h"

#include <algorithm>
#include <functional>
#include <random>

#include "base/message.h"
#include "halftone/attention.h"
#include "halftone/quantize.h"
#include "halftone/sparse_attention.h"
#include "measure/roofs.h"

namespace halftone {

namespace {

Tensor random_normal(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape, Format::f32);
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(engine);
  return x;
}

Tensor in_format(const Tensor& x, Format format, Stream& stream) {
  if (is_plain_float(format)) return convert(x, format, stream);
  QuantizeOptions options(format);
  if (!is_block(format)) options.scaling = {Format::f32, 1, 0};  // one scale a token and head
  return quantize(x, options, stream);
}

struct Shapes {
  int64_t queries, keys, heads, kv_heads, head_dim;
  bool causal;
};

AttentionProblem make_problem(const Shapes& s, AttentionMode mode, Format q) {
  AttentionProblem p;
  p.batch = 1, p.query_length = s.queries, p.key_length = s.keys;
  p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.head_dim;
  p.mode = mode, p.q = q, p.k = mode.qk, p.v = mode.pv, p.out = Format::f32;
  p.causal = s.causal;
  return p;
}

// Of products of bf16 operands, the faster of the two ways to form them.
void add_roof(bool bf16, Stream& stream, BenchRow* row) {
  const double f32 = f32_roof(stream), dot = bf16 ? bf16_roof(stream) : 0;
  row->roof = std::max(f32, dot) * 1e-9;
  row->roof_name = dot > f32 ? "bf16 dot product" : "f32 multiply-add";
}

using Rule = std::function<void(AttentionProblem*, AttentionTensors*)>;

// The rows that were asked for, measured in turn.
struct Bench {
  const CpuBench& asked;
  std::vector<BenchRow> rows = {};
  int repeats() const { return asked.quick ? 3 : 9; }

  void prefill(const std::string& shape, const Shapes&, AttentionMode, const Rule& = {});
  void rules(const Shapes&);
  void decode(const Shapes&, Format cache);
  void sparse(LatentFormat, int64_t batch, int64_t heads);
};

void Bench::prefill(const std::string& shape, const Shapes& s, AttentionMode mode,
                    const Rule& rule) {
  BenchRow row;
  row.name = shape + " " + to_string(mode);
  if (!asked.choice.begins(row.name)) return;
  Stream& stream = asked.stream;
  AttentionTensors t;
  t.q = in_format(random_normal({1, s.queries, s.heads, s.head_dim}, 1), mode.qk, stream);
  t.k = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 2), mode.qk, stream);
  t.v = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 3), mode.pv, stream);
  t.out = Tensor::empty({1, s.queries, s.heads, s.head_dim}, Format::f32);
  AttentionProblem problem = make_problem(s, mode, t.q.format());
  if (rule) rule(&problem, &t);
  const AttentionPlan p = plan(problem, stream.device());
  row.seconds = median_seconds(repeats(), [&](int) { run(p, t, stream); });
  const double pairs = static_cast<double>(s.queries * s.keys) * (s.causal ? 0.5 : 1.0);
  row.flops = 4.0 * pairs * static_cast<double>(s.heads * s.head_dim);
  row.bytes = static_cast<double>(t.q.bytes() + t.k.bytes() + t.v.bytes() + t.out.bytes());
  row.value = row.flops / row.seconds * 1e-9;
  row.unit = "GFLOP/s";
  add_roof(mode.qk != Format::f32 && mode.qk != Format::f16, stream, &row);
  rows.push_back(row);
}

void Bench::decode(const Shapes& s, Format cache) {
  BenchRow row;
  row.name = concat("decode ", s.heads, "/", s.kv_heads, " heads of ", s.head_dim, ", cache ",
                    s.keys, " ", name(cache));
  if (!asked.choice.begins(row.name)) return;
  Stream& stream = asked.stream;
  AttentionMode mode{cache, is_plain_float(cache) ? cache : Format::bf16};
  AttentionProblem problem = make_problem(s, mode, Format::f32);
  problem.v = cache;
  const AttentionPlan p = plan(problem, stream.device());
  // Caches in turn, more in all than the processor keeps.
  const Tensor k = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 2), cache, stream);
  const int64_t total = beyond_caches(int64_t{192} << 20);
  const int64_t copies = std::max<int64_t>(2, total / (2 * k.bytes()));
  std::vector<AttentionTensors> turns(static_cast<size_t>(copies));
  const Tensor q = random_normal({1, s.queries, s.heads, s.head_dim}, 1);
  const Tensor out = Tensor::empty({1, s.queries, s.heads, s.head_dim}, Format::f32);
  const auto copy = [](const Tensor& x) {
    const Tensor data = x.contiguous_copy();
    if (!x.has_scales()) return data;
    return data.quantized(x.scaling(), x.scales().contiguous_copy(), x.tensor_scale());
  };
  for (AttentionTensors& t : turns) t.q = q, t.out = out, t.k = copy(k), t.v = copy(k);
  row.seconds = median_seconds(repeats() * static_cast<int>(copies), [&](int i) {
    run(p, turns[static_cast<size_t>(i) % turns.size()], stream);
  });
  row.flops = 4.0 * static_cast<double>(s.queries * s.keys * s.heads * s.head_dim);
  row.bytes = static_cast<double>(2 * k.bytes());
  row.value = row.bytes / row.seconds * 1e-9;
  row.unit = "GB/s";
  row.roof = read_roof(stream, total) * 1e-9;
  row.roof_name = "memory read";
  rows.push_back(row);
}

// What each rule of the scores costs beside the plain row.
void Bench::rules(const Shapes& s) {
  const auto add = [&](const char* name, const Rule& rule) {
    prefill(concat("prefill 32/8 heads of 128, 2048 causal, ", name), s,
            {Format::bf16, Format::bf16}, rule);
  };
  add("sinks", [](AttentionProblem* p, AttentionTensors* t) {
    p->sinks = true, t->sinks = Tensor::zeros({p->heads}, Format::f32);
  });
  add("softcap", [](AttentionProblem* p, AttentionTensors*) { p->softcap = 30; });
  add("boolean mask", [](AttentionProblem* p, AttentionTensors* t) {
    p->mask = Format::u8;
    t->mask = Tensor::empty({1, 1, p->query_length, p->key_length}, Format::u8);
    for (int64_t i = 0; i < t->mask.numel(); ++i) t->mask.data<uint8_t>()[i] = i % 3 != 0;
  });
  add("bf16 mask", [](AttentionProblem* p, AttentionTensors* t) {
    p->mask = Format::bf16;
    t->mask = Tensor::zeros({1, 1, p->query_length, p->key_length}, Format::bf16);
  });
}

// One step of latent attention over 2048 listed tokens of a cache of 32 Ki (queries of a batch each
// with a list of its own), or V4's window of 128 beside 512 compressed tokens.
void Bench::sparse(LatentFormat format, int64_t batch, int64_t heads) {
  const bool v4 = format == LatentFormat::fp8_584;
  SparseAttentionProblem p;
  p.batch = batch, p.heads = heads, p.out = Format::bf16, p.sinks = v4;
  p.cache = {format, 64, v4 ? 512 : 576};
  p.indices = v4 ? 128 : 2048;
  if (v4) p.extra = p.cache, p.extra_indices = 512;
  BenchRow row;
  row.name = concat("sparse ", name(format), ", ", heads, " heads of ", p.cache.dim, "/512, batch ",
                    batch, ", ", p.indices, v4 ? " + 512" : "", " tokens");
  if (!asked.choice.begins(row.name)) return;
  Stream& stream = asked.stream;
  constexpr int64_t kTokens = 32 * 1024;
  std::mt19937_64 engine(5);
  const auto indices = [&](int64_t entries) {
    const Tensor list = Tensor::empty({batch, 1, entries}, Format::i32);
    for (int64_t i = 0; i < list.numel(); ++i) {
      list.data<int32_t>()[i] = static_cast<int32_t>(engine() % kTokens);
    }
    return list;
  };
  const auto cache = [&] {
    const Tensor rows = random_normal({kTokens, p.cache.dim}, 1);
    const Tensor slots = Tensor::empty({kTokens}, Format::i32);
    for (int64_t i = 0; i < kTokens; ++i) slots.data<int32_t>()[i] = static_cast<int32_t>(i);
    const Tensor filled = latent_cache(p.cache, kTokens / p.cache.page_size);
    latent_write(p.cache, filled, rows, slots, stream);
    return filled;
  };
  SparseAttentionTensors t;
  t.q = convert(random_normal({batch, 1, heads, p.cache.dim}, 2), Format::bf16, stream);
  t.cache = cache(), t.indices = indices(p.indices);
  if (v4) t.extra_cache = cache(), t.extra_indices = indices(p.extra_indices);
  t.sinks = random_normal({heads}, 3);
  t.out = Tensor::empty({batch, 1, heads, p.value_dim}, Format::bf16);
  const SparseAttentionPlan made = plan(p, stream.device());
  row.seconds = median_seconds(repeats(), [&](int) { run(made, t, stream); });
  const double pairs = static_cast<double>(batch * heads * (p.indices + p.extra_indices));
  row.flops = 2.0 * pairs * static_cast<double>(p.cache.dim + p.value_dim);
  row.value = row.flops / row.seconds * 1e-9;
  row.unit = "GFLOP/s";
  add_roof(true, stream, &row);
  rows.push_back(row);
}

}  // namespace

std::vector<BenchRow> bench_attention(const CpuBench& asked) {
  Bench bench{asked};
  const bool quick = asked.quick;
  const Shapes model{2048, 2048, 32, 8, 128, true};
  for (const AttentionMode& mode : attention_modes()) {
    const bool main_mode =
        mode.qk == Format::bf16 || mode == AttentionMode{Format::nvfp4, Format::fp8_e4m3};
    if (quick && !main_mode) continue;
    bench.prefill("prefill 32/8 heads of 128, 2048 causal", model, mode);
  }
  bench.prefill("prefill 6 heads of 64, 1500 full", {1500, 1500, 6, 6, 64, false},
                {Format::bf16, Format::bf16});
  if (!quick) bench.rules(model);
  for (const Format cache : {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3,
                             Format::nvfp4, Format::mxfp8, Format::mxfp4, Format::int8}) {
    if (quick && cache != Format::bf16 && cache != Format::nvfp4) continue;
    bench.decode({1, 8192, 32, 8, 128, true}, cache);
  }
  for (const Format cache : {Format::bf16, Format::fp8_e4m3}) {
    if (!quick) bench.decode({1, 65536, 32, 8, 128, true}, cache);
  }
  bench.sparse(LatentFormat::fp8_656, 4, 128);
  if (!quick) {
    bench.sparse(LatentFormat::bf16, 4, 128);
    bench.sparse(LatentFormat::fp8_656, 4, 16);
    bench.sparse(LatentFormat::fp8_656, 1, 128);
    bench.sparse(LatentFormat::fp8_584, 4, 128);
    bench.sparse(LatentFormat::fp8_584, 4, 64);
  }
  return bench.rows;
}

}  // namespace halftone
