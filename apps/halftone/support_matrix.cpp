#include "support_matrix.h"

#include <fmt/format.h>

#include <functional>

#include "base/message.h"
#include "console.h"
#include "halftone/halftone.h"

namespace halftone::app {

namespace {

using Check = std::function<Support(const Device&)>;
struct Operation {
  std::string name;
  std::vector<std::pair<std::string, Check>> formats;
};

// Several problems at once: supported when all are.
template <class Problem>
Check all(std::vector<Problem> problems) {
  return [problems](const Device& device) {
    for (const Problem& problem : problems) {
      if (Support support = can_run(problem, device); !support) return support;
    }
    return Support{};
  };
}

// Formats and scalings of weights: the plain ones, then everything `quantize` makes.
struct Weight {
  std::string name;
  Format format;
  Scaling scaling;
  bool scaled;
};
std::vector<Weight> weights() {
  std::vector<Weight> all;
  for (const Format f : {Format::f32, Format::f16, Format::bf16}) {
    all.push_back({name(f), f, {}, false});
  }
  for (const std::string& text : quantization_names()) {
    const QuantizeOptions options = parse_quantization(text);
    all.push_back({text, options.format, options.scaling, true});
  }
  return all;
}

Operation attention_rows() {
  Operation rows{"attention (prefill, decode, causal, window, GQA, paged, LSE)", {}};
  for (const AttentionMode& mode : attention_modes()) {
    AttentionProblem p;
    p.batch = 1, p.heads = 8, p.kv_heads = 2, p.query_length = p.key_length = 100;
    p.head_dim = 64;
    p.q = p.k = mode.qk;
    p.v = mode.pv;
    p.out = mode.qk == Format::f32 ? Format::f32 : Format::bf16;
    p.mode = mode;
    p.causal = p.lse = true;
    AttentionProblem decode = p;
    if (!is_plain_float(mode.qk)) decode.q = Format::bf16;  // queries stay in 16 bits
    decode.query_length = 1;
    decode.paged = true;
    decode.page_size = 64;
    decode.window_left = 32;
    rows.formats.emplace_back(to_string(mode), all<AttentionProblem>({p, decode}));
  }
  return rows;
}

std::vector<Operation> operations() {
  std::vector<Operation> table{attention_rows()};
  Operation product{"matrix product", {}}, experts{"expert product (MoE)", {}},
      lookup{"embedding", {}}, quantised{"quantize, dequantize", {}};
  for (const Weight& w : weights()) {
    std::vector<MatmulProblem> products;
    for (const Format x : {Format::f32, Format::bf16, Format::f16}) {
      for (const int64_t m : {1, 64}) {
        MatmulProblem p;
        p.m = m, p.n = p.k = 256;
        p.x = p.out = x;
        p.weight = w.format, p.scaling = w.scaling, p.scaled = w.scaled;
        products.push_back(p);
      }
    }
    product.formats.emplace_back(w.name, all(products));
    MoeProblem moe;
    moe.tokens = 8, moe.hidden = moe.intermediate = 256, moe.experts = 8, moe.top_k = 2;
    moe.weight = w.format, moe.scaling = w.scaling, moe.scaled = w.scaled;
    experts.formats.emplace_back(w.name, all<MoeProblem>({moe}));
    EmbeddingProblem e;
    e.tokens = 8, e.vocabulary = e.columns = 256;
    e.table = w.format, e.scaling = w.scaling, e.scaled = w.scaled;
    lookup.formats.emplace_back(w.name, all<EmbeddingProblem>({e}));
    quantised.formats.emplace_back(w.name, [name = w.name, w](const Device& device) {
      if (!device.is_cpu()) return Support{false, "quantize runs on the CPU"};
      return w.scaled ? can_quantize({256, 256}, parse_quantization(name)) : Support{};
    });
  }
  table.push_back(product);
  table.push_back(experts);
  table.push_back(lookup);
  table.push_back(quantised);

  Operation norm{"RMS norm, with residual, QK norm", {}}, rope{"RoPE (both styles, llama3)", {}},
      gated{"SwiGLU", {}}, soft{"softmax", {}};
  for (const Format f : {Format::f32, Format::f16, Format::bf16}) {
    norm.formats.emplace_back(name(f),
                              all<NormProblem>({{8, 256, f, f}, {8, 256, f, f, 1e-5f, true}}));
    RopeProblem half{8, 4, 64, f, {}}, pairs = half;
    pairs.options.style = RopeStyle::interleaved;
    pairs.options.llama3 = Llama3Scaling{};
    rope.formats.emplace_back(name(f), all<RopeProblem>({half, pairs}));
    gated.formats.emplace_back(name(f), all<SwigluProblem>({{8, 256, f}}));
    soft.formats.emplace_back(name(f), all<SoftmaxProblem>({{8, 256, f, f}}));
  }
  for (const Operation& o : {norm, rope, gated, soft}) table.push_back(o);

  Operation cache{"KV cache", {}};
  for (const Format f : {Format::f32, Format::f16, Format::bf16, Format::fp8_e4m3, Format::nvfp4}) {
    KvCacheOptions o;
    o.format = f, o.layers = 1, o.kv_heads = 2, o.head_dim = 64, o.max_length = 128;
    cache.formats.emplace_back(name(f), all<KvCacheOptions>({o}));
  }
  table.push_back(cache);
  return table;
}

}  // namespace

std::vector<DeviceState> devices() {
  std::vector<DeviceState> all{{"cpu", true, cpu_name(), Device::cpu()}};
  for (const char* text : {"cuda:0", "sim:sm_90a"}) {
    try {
      all.push_back({text, true, "", Device::parse(text)});
    } catch (const Error& error) {
      all.push_back({text, false, error.what(), {}});
    }
  }
  return all;
}

std::string support_matrix() {
  std::vector<std::string> header{"operation", "formats"};
  std::vector<Device> available;
  for (const DeviceState& state : devices()) {
    if (!state.available) continue;
    header.push_back(state.name);
    available.push_back(state.device);
  }
  // Operations with the same formats and answers share rows; so do formats with the same answers.
  using Groups = std::vector<std::pair<std::vector<std::string>, std::string>>;
  std::vector<std::pair<std::string, Groups>> rows;
  for (const Operation& operation : operations()) {
    Groups groups;
    for (const auto& [format, check] : operation.formats) {
      std::vector<std::string> answers;
      for (const Device& device : available) answers.emplace_back(check(device) ? "yes" : "no");
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const auto& group) { return group.first == answers; });
      if (same != groups.end()) {
        same->second += ", " + format;
      } else {
        groups.emplace_back(answers, format);
      }
    }
    const auto alike = std::find_if(rows.begin(), rows.end(),
                                    [&](const auto& row) { return row.second == groups; });
    if (alike != rows.end()) {
      alike->first += ", " + operation.name;
    } else {
      rows.emplace_back(operation.name, groups);
    }
  }
  Table table(header);
  for (const auto& [operation, groups] : rows) {
    for (const auto& [answers, formats] : groups) {
      std::vector<std::string> row{operation, formats};
      row.insert(row.end(), answers.begin(), answers.end());
      table.add(row);
    }
  }
  return table.markdown();
}

}  // namespace halftone::app
