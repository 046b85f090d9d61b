// Attention on a GPU, prefill.
#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "base/message.h"
#include "bench/gpu.h"
#include "bench/gpu_data.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

int64_t page_size(const PrefillShape& s) {
  return s.rule == "pages of 16" ? 16 : s.rule == "pages of 64" ? 64 : 0;
}

AttentionProblem prefill_problem(const PrefillShape& s, const AttentionMode& mode) {
  AttentionProblem p;
  p.batch = s.batch, p.query_length = p.key_length = s.length;
  p.heads = s.heads, p.kv_heads = s.kv_heads, p.head_dim = s.head_dim;
  p.mode = mode, p.q = p.k = mode.qk, p.v = mode.pv;
  p.out = mode.pv == Format::f16 ? Format::f16 : Format::bf16;
  p.causal = s.causal;
  if (s.rule == "window 1024") p.window_left = 1023;
  if (s.rule == "softcap") p.softcap = 30;
  if (s.rule == "mask") p.mask = Format::bf16;
  if (page_size(s) > 0) p.page_size = page_size(s);
  p.variable_length = s.rule == "lengths" || s.rule == "packed";
  return p;
}

// Pages in no order, lengths that are all the whole one.
void set_rule(const PrefillShape& s, Stream& stream, AttentionTensors* t) {
  const Device& device = stream.device();
  const auto integers = [&](std::vector<int32_t> values, const Shape& shape) {
    return Tensor::from<int32_t>(values, shape, Format::i32).to(device);
  };
  const int64_t tokens = s.batch * s.length, page = page_size(s);
  if (s.rule == "mask") {
    t->mask = in_format(normal_on_device({1, 1, s.length, s.length}, 7, stream), "bf16", stream);
  } else if (page > 0) {
    for (Tensor* x : {&t->k, &t->v}) {
      *x = x->reshape({tokens / page, page, s.kv_heads, s.head_dim});
    }
    std::vector<int32_t> pages(static_cast<size_t>(tokens / page));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
    t->page_table = integers(pages, {s.batch, s.length / page});
  } else if (s.rule == "lengths") {
    t->seqused_k =
        integers(std::vector<int32_t>(static_cast<size_t>(s.batch), static_cast<int32_t>(s.length)),
                 {s.batch});
  } else if (s.rule == "packed") {
    for (Tensor* x : {&t->q, &t->k, &t->v, &t->out}) {
      *x = x->reshape({tokens, x->size(2), s.head_dim});
    }
    std::vector<int32_t> ends;
    for (int64_t i = 0; i <= s.batch; ++i) ends.push_back(static_cast<int32_t>(i * s.length));
    t->cu_seqlens_q = t->cu_seqlens_k = integers(ends, {s.batch + 1});
  }
}

// Of the queries of a sequence and the keys that they see.
double visible_pairs(const PrefillShape& s) {
  const auto length = static_cast<double>(s.length);
  if (s.rule == "window 1024") return 1024 * (length - 512);  // but for half a diagonal
  return length * length * (s.causal ? 0.5 : 1.0);
}

// The rule of rows whose time has the quantisers in it.
constexpr const char* kFromBf16 = "from bf16";

}  // namespace

std::string prefill_name(const PrefillShape& s, const AttentionMode& mode, int64_t scale_tokens) {
  const std::string heads =
      s.heads == s.kv_heads ? concat(s.heads) : concat(s.heads, "/", s.kv_heads);
  return concat("prefill ", s.batch, " x ", s.length, ", ", heads, " heads of ", s.head_dim,
                s.causal ? ", causal " : ", full ", to_string(mode), s.rule.empty() ? "" : ", ",
                s.rule,
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
  AttentionTensors sets[2];
  std::vector<std::function<void()>> quantisers[2];
  const auto operand = [&](int64_t heads, Format format, uint64_t set, uint64_t which) {
    const Tensor x =
        normal_on_device({s.batch, s.length, heads, s.head_dim}, 3 * set + which, stream);
    if (is_plain_float(format)) return in_format(x, name(format), stream);
    const bool values = which == 2;
    const Tensor codes = is_block(format) ? quantize(x, QuantizeOptions(format), stream)
                         : values         ? attention_values(x, format, stream, scale_tokens)
                                          : attention_operand(x, format, stream, scale_tokens);
    if (s.rule == kFromBf16) {
      quantisers[set].push_back(quantise_again(x, codes, scale_tokens, values, stream));
    }
    return codes;
  };
  for (uint64_t i = 0; i < 2; ++i) {
    sets[i].q = operand(s.heads, p.q, i, 0);
    sets[i].k = operand(s.kv_heads, p.k, i, 1);
    sets[i].v = operand(s.kv_heads, p.v, i, 2);
    sets[i].out = Tensor::empty({s.batch, s.length, s.heads, s.head_dim}, p.out, device);
    set_rule(s, stream, &sets[i]);
  }
  const GpuTiming time = time_on_gpu(
      stream,
      [&](int i) {
        for (const auto& quantise : quantisers[i % 2]) quantise();
        run(made, sets[i % 2], stream);
      },
      options);

  BenchRow row;
  row.name = prefill_name(s, mode, scale_tokens);
  row.seconds = time.burst;
  row.flops = 4.0 * static_cast<double>(s.batch * s.heads * s.head_dim) * visible_pairs(s);
  row.bytes = static_cast<double>(sets[0].q.bytes() + sets[0].k.bytes() + sets[0].v.bytes() +
                                  sets[0].out.bytes());
  row.value = row.flops / row.seconds * 1e-12;
  row.sustained = row.flops / time.sustained * 1e-12;
  row.clock_ghz = time.state.clock_ghz, row.watts = time.state.watts;
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
  for (const int64_t head_dim : {96, 192}) {  // of fewer models: in 16 bits alone
    for (const int64_t batch : {8, 1}) {
      const int64_t heads = kChannels / head_dim;
      for (const bool causal : {false, true}) {
        shapes.push_back({batch, kTokens / batch, heads, heads, head_dim, causal});
      }
    }
  }
  shapes.push_back({1, 8192, 32, 8, 128, true});
  shapes.push_back({4, 2048, 32, 8, 128, true});
  for (const char* rule :
       {"window 1024", "softcap", "mask", "pages of 16", "pages of 64", "lengths", "packed"}) {
    shapes.push_back({8, 2048, 16, 16, 128, true, rule});
  }
  for (const bool causal : {false, true}) {
    shapes.push_back({1, kTokens, 16, 16, 128, causal, kFromBf16});
  }

  std::vector<BenchRow> rows;
  for (const AttentionMode& mode : attention_modes()) {
    for (const PrefillShape& s : shapes) {
      // The modes of few bits are for long rows of usual heads; there the table stays readable.
      const bool plain = mode.qk == Format::bf16 || mode.qk == Format::f16;
      if (s.rule == kFromBf16 ? is_plain_float(mode.qk)
                              : !s.rule.empty() && to_string(mode) != "bf16+bf16") {
        continue;
      }
      if (!plain && (b.few_sizes() || s.batch > 2 || s.heads != s.kv_heads)) continue;
      if (!plain && (s.head_dim == 96 || s.head_dim == 192)) continue;
      if (mode.qk == Format::f16 && (s.head_dim != 128 || s.batch != 1)) continue;
      if (!can_run(prefill_problem(s, mode), b.stream.device()).ok) continue;
      const bool by_rows =
          mode.pv == Format::fp8_e4m3 || mode.qk == Format::fp8_e4m3 || mode.qk == Format::int8;
      for (const int64_t scale_tokens : {1, 0, 128}) {
        // A scale for all, as other libraries have them, and blocks, beside one a row.
        if (scale_tokens != 1 && !by_rows) continue;
        if (!b.choice.begins(prefill_name(s, mode, scale_tokens))) continue;
        rows.push_back(bench_prefill(s, mode, b.stream, b.timing(), scale_tokens));
      }
    }
  }
  return rows;
}

}  // namespace halftone
