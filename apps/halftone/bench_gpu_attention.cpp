// Attention on a GPU, prefill.
#include "base/message.h"
#include "bench_gpu.h"
#include "bench_gpu_data.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

AttentionProblem prefill_problem(const PrefillShape& s, const AttentionMode& mode) {
  AttentionProblem p;
  p.batch = s.batch, p.query_length = p.key_length = s.length;
  p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.head_dim;
  p.mode = mode, p.q = p.k = mode.qk, p.v = mode.pv;
  p.out = mode.pv == Format::f16 ? Format::f16 : Format::bf16;
  p.causal = s.causal;
  return p;
}

}  // namespace

std::string prefill_name(const PrefillShape& s, const AttentionMode& mode, int64_t scale_tokens) {
  const std::string heads =
      s.heads == s.kv_heads ? concat(s.heads) : concat(s.heads, "/", s.kv_heads);
  return concat("prefill ", s.batch, " x ", s.length, ", ", heads, " heads of ", s.head_dim,
                s.causal ? ", causal " : ", full ", to_string(mode),
                scale_tokens == 0  ? ", one scale"
                : scale_tokens > 1 ? ", blocks"
                                   : "");
}

BenchRow bench_prefill(const PrefillShape& s, const AttentionMode& mode, Stream& stream,
                       const GpuTimingOptions& options, int64_t scale_tokens) {
  const Device& device = stream.device();
  const AttentionProblem p = prefill_problem(s, mode);
  const AttentionPlan made = plan(p, device);

  // Made on the GPU: its scales are not searched as attention_operand's are, which a time does not
  // see.
  const auto operand = [&](int64_t heads, Format format, uint64_t seed) {
    const Tensor x = normal_on_device({s.batch, s.length, heads, s.head_dim}, seed, stream);
    if (is_plain_float(format)) return in_format(x, name(format), stream);
    if (is_block(format)) return quantize(x, QuantizeOptions(format), stream);
    return attention_operand(x, format, stream, scale_tokens);
  };
  AttentionTensors sets[2];
  for (uint64_t i = 0; i < 2; ++i) {
    sets[i].q = operand(s.heads, p.q, 3 * i);
    sets[i].k = operand(s.kv_heads, p.k, 3 * i + 1);
    sets[i].v = operand(s.kv_heads, p.v, 3 * i + 2);
    sets[i].out = Tensor::empty({s.batch, s.length, s.heads, s.head_dim}, p.out, device);
  }
  const GpuTiming time = time_on_gpu(
      stream, [&](int i) { run(made, sets[i % 2], stream); }, options);

  BenchRow row;
  row.name = prefill_name(s, mode, scale_tokens);
  row.seconds = time.burst;
  const double pairs = static_cast<double>(s.length) * static_cast<double>(s.length);
  row.flops =
      4.0 * static_cast<double>(s.batch * s.heads * s.head_dim) * pairs * (s.causal ? 0.5 : 1.0);
  row.bytes = static_cast<double>(sets[0].q.bytes() + sets[0].k.bytes() + sets[0].v.bytes() +
                                  sets[0].out.bytes());
  row.value = row.flops / row.seconds * 1e-12;
  row.sustained = row.flops / time.sustained * 1e-12;
  row.unit = "TFLOP/s";
  return row;
}

std::vector<BenchRow> bench_gpu_prefill(const GpuBench& b) {
  constexpr int64_t kTokens = 16384, kChannels = 2048;
  std::vector<PrefillShape> shapes;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const int64_t batch : {32, 8, 2, 1}) {
      if (b.few_sizes() && batch != 8) continue;
      for (const bool causal : {false, true}) {
        const int64_t heads = kChannels / head_dim;
        shapes.push_back({batch, kTokens / batch, heads, heads, head_dim, causal});
      }
    }
  }
  shapes.push_back({1, 8192, 32, 8, 128, true});
  shapes.push_back({4, 2048, 32, 8, 128, true});

  std::vector<BenchRow> rows;
  for (const AttentionMode& mode : attention_modes()) {
    for (const PrefillShape& s : shapes) {
      // The modes of few bits are for long rows of usual heads; there the table stays readable.
      const bool plain = mode.qk == Format::bf16 || mode.qk == Format::f16;
      if (!plain && (b.few_sizes() || s.batch > 2 || s.heads != s.kv_heads)) continue;
      if (mode.qk == Format::f16 && (s.head_dim != 128 || s.batch != 1)) continue;
      if (!can_run(prefill_problem(s, mode), b.stream.device()).ok) continue;
      for (const int64_t scale_tokens : {1, 0, 128}) {
        // A scale for all, as other libraries have them, and blocks, beside one a row.
        if (scale_tokens != 1 && (mode.pv != Format::fp8_e4m3 || mode.qk != mode.pv)) continue;
        if (!b.wants(prefill_name(s, mode, scale_tokens))) continue;
        rows.push_back(bench_prefill(s, mode, b.stream, b.timing(), scale_tokens));
      }
    }
  }
  return rows;
}

}  // namespace halftone
