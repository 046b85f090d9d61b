#include "bench_attention.h"

#include <algorithm>
#include <random>

#include "base/message.h"
#include "halftone/attention.h"
#include "halftone/quantize.h"
#include "roofs.h"

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

BenchRow prefill(const std::string& name, const Shapes& s, AttentionMode mode, int repeats,
                 Stream& stream) {
  AttentionTensors t;
  t.q = in_format(random_normal({1, s.queries, s.heads, s.head_dim}, 1), mode.qk, stream);
  t.k = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 2), mode.qk, stream);
  t.v = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 3), mode.pv, stream);
  t.out = Tensor::empty({1, s.queries, s.heads, s.head_dim}, Format::f32);
  const AttentionPlan p = plan(make_problem(s, mode, t.q.format()), stream.device());
  BenchRow row;
  row.name = name + " " + to_string(mode);
  row.seconds = median_seconds(repeats, [&](int) { run(p, t, stream); });
  const double pairs = static_cast<double>(s.queries * s.keys) * (s.causal ? 0.5 : 1.0);
  row.value = 4.0 * pairs * static_cast<double>(s.heads * s.head_dim) / row.seconds * 1e-9;
  row.unit = "GFLOP/s";
  const bool f32 = mode.qk == Format::f32 || mode.qk == Format::f16;
  row.roof = (f32 ? f32_roof(stream) : bf16_roof(stream)) * 1e-9;
  row.roof_name = f32 ? "f32 multiply-add" : "bf16 dot product";
  return row;
}

BenchRow decode(const Shapes& s, Format cache, int repeats, Stream& stream) {
  AttentionMode mode{cache, is_plain_float(cache) ? cache : Format::bf16};
  AttentionProblem problem = make_problem(s, mode, Format::f32);
  problem.v = cache;
  const AttentionPlan p = plan(problem, stream.device());
  // Caches in turn, 192 MB in all: several times what the processor keeps.
  const Tensor k = in_format(random_normal({1, s.keys, s.kv_heads, s.head_dim}, 2), cache, stream);
  constexpr int64_t kTotal = int64_t{192} << 20;
  const int64_t copies = std::max<int64_t>(2, kTotal / (2 * k.bytes()));
  std::vector<AttentionTensors> turns(static_cast<size_t>(copies));
  const Tensor q = random_normal({1, s.queries, s.heads, s.head_dim}, 1);
  const Tensor out = Tensor::empty({1, s.queries, s.heads, s.head_dim}, Format::f32);
  const auto copy = [](const Tensor& x) {
    const Tensor data = x.contiguous_copy();
    if (!x.has_scales()) return data;
    return data.quantized(x.scaling(), x.scales().contiguous_copy(), x.tensor_scale());
  };
  for (AttentionTensors& t : turns) t.q = q, t.out = out, t.k = copy(k), t.v = copy(k);
  BenchRow row;
  row.name = concat("decode ", s.heads, "/", s.kv_heads, " heads of ", s.head_dim, ", cache ",
                    s.keys, " ", name(cache));
  row.seconds = median_seconds(repeats * static_cast<int>(copies), [&](int i) {
    run(p, turns[static_cast<size_t>(i) % turns.size()], stream);
  });
  row.value = static_cast<double>(2 * k.bytes()) / row.seconds * 1e-9;
  row.unit = "GB/s";
  row.roof = read_roof(stream, kTotal) * 1e-9;
  row.roof_name = "memory read";
  return row;
}

}  // namespace

std::vector<BenchRow> bench_attention(Stream& stream, bool quick) {
  const int repeats = quick ? 3 : 9;
  std::vector<BenchRow> rows;
  const Shapes model{2048, 2048, 32, 8, 128, true};
  for (const AttentionMode& mode : attention_modes()) {
    const bool main_mode =
        mode.qk == Format::bf16 || mode == AttentionMode{Format::nvfp4, Format::fp8_e4m3};
    if (quick && !main_mode) continue;
    rows.push_back(prefill("prefill 32/8 heads of 128, 2048 causal", model, mode, repeats, stream));
    if (mode.qk == Format::bf16) {  // measured on the processor the targets name
      rows.back().peer = 230, rows.back().peer_name = "ik_llama.cpp (2 cores of Zen 5)";
    }
  }
  rows.push_back(prefill("prefill 6 heads of 64, 1500 full", {1500, 1500, 6, 6, 64, false},
                         {Format::bf16, Format::bf16}, repeats, stream));
  rows.back().peer = 137, rows.back().peer_name = "ggml (2 cores of Zen 5)";
  for (const Format cache : {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3,
                             Format::nvfp4, Format::mxfp8, Format::mxfp4, Format::int8}) {
    if (quick && cache != Format::bf16 && cache != Format::nvfp4) continue;
    rows.push_back(decode({1, 8192, 32, 8, 128, true}, cache, repeats, stream));
    if (cache == Format::bf16) rows.back().peer = 43, rows.back().peer_name = "ik_llama.cpp";
    if (cache == Format::f16) rows.back().peer = 54, rows.back().peer_name = "ik_llama.cpp";
  }
  return rows;
}

}  // namespace halftone
