#include "support_matrix.h"

#include <fmt/format.h>

#include <algorithm>
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
  Operation rows{
      "attention (prefill, decode, causal, window, chunk, mask, softcap, sinks, GQA, varlen, "
      "paged, "
      "LSE)",
      {}};
  for (const AttentionMode& mode : attention_modes()) {
    AttentionProblem p;
    p.batch = 1, p.heads = 8, p.kv_heads = 2, p.query_length = p.key_length = 100;
    p.head_dim = 64;
    p.q = p.k = mode.qk;
    p.v = mode.pv;
    p.out = is_plain_float(mode.qk) ? mode.qk : Format::bf16;
    p.mode = mode;
    p.causal = p.lse = p.sinks = true;
    p.mask = Format::bf16, p.softcap = 30, p.attention_chunk_size = 64;
    AttentionProblem decode = p;
    if (!is_plain_float(mode.qk)) decode.q = Format::bf16;  // queries stay in 16 bits
    decode.query_length = 1;
    decode.variable_length = true;
    decode.mask = Format::u8;
    decode.page_size = 64;
    decode.window_left = 32;
    rows.formats.emplace_back(to_string(mode), all<AttentionProblem>({p, decode}));
  }
  return rows;
}

// What works on plain floats, in each of them.
std::vector<Operation> plain_rows() {
  Operation norm{"RMS norm and layer norm, with residual, QK norm", {}},
      rope{"RoPE (both styles, every scaling)", {}},
      act{"activations, gated (SwiGLU, GeGLU, clamped)", {}}, soft{"softmax", {}},
      each{"elementwise", {}}, conv{"conv1d", {}}, nms{"NMS", {}};
  for (const Format f : {Format::f32, Format::f16, Format::bf16}) {
    NormProblem rms{8, 256, f, f}, layer = rms;
    layer.kind = NormKind::layer;
    layer.bias = layer.residual = true;
    norm.formats.emplace_back(name(f), all<NormProblem>({rms, layer}));
    RopeProblem half{8, 4, 64, f, {}}, pairs = half;
    pairs.options.style = RopeStyle::interleaved;
    pairs.options.llama3 = Llama3Scaling{};
    rope.formats.emplace_back(name(f), all<RopeProblem>({half, pairs}));
    std::vector<ActivationProblem> kinds;
    std::vector<GatedProblem> gates;
    for (int i = 0; i < kActivationCount; ++i) {
      const ActivationFunction function{.kind = static_cast<Activation>(i)};
      kinds.push_back({{8, 256}, function, f, f});
      gates.push_back({8, 256, f, {function, 7, 1}, true});
    }
    act.formats.emplace_back(name(f), [kinds, gates](const Device& device) {
      const Support one = all(kinds)(device);
      return one ? all(gates)(device) : one;
    });
    soft.formats.emplace_back(name(f), all<SoftmaxProblem>({{8, 256, f, f}, {8, 32000, f, f}}));
    std::vector<ElementwiseProblem> operations;
    for (int i = 0; i < kElementwiseCount; ++i) {
      operations.push_back({static_cast<Elementwise>(i), {8, 256}, f, f, f, f});
    }
    each.formats.emplace_back(name(f), all(operations));
    Conv1dProblem c;
    c.in_channels = c.out_channels = 8, c.length = 100, c.kernel = 3, c.stride = 2, c.groups = 2;
    c.x = c.weight = c.out = f;
    conv.formats.emplace_back(name(f), all<Conv1dProblem>({c}));
    nms.formats.emplace_back(name(f), all<NmsProblem>({{100, f}}));
  }
  return {norm, rope, act, soft, each, conv, nms};
}

// What reads every format, and what only moves elements.
std::vector<Operation> counting_rows() {
  Operation reduce{"reductions, dot", {}}, counts{"histogram", {}}, turn{"transpose, permute", {}};
  std::vector<Weight> formats = weights();
  for (const Format f : {Format::i32, Format::i64, Format::u8}) {
    formats.push_back({name(f), f, {}, false});
  }
  for (const Weight& w : formats) {
    std::vector<ReduceProblem> problems;
    for (int i = 0; i < kReductionCount; ++i) {
      ReduceProblem p{static_cast<Reduction>(i), {256, 256}, i % 2, w.format, w.format};
      p.x_scaled = p.y_scaled = w.scaled;
      const bool index = p.operation == Reduction::argmax || p.operation == Reduction::argmin;
      p.out = index ? Format::i64 : Format::f32;
      problems.push_back(p);
    }
    reduce.formats.emplace_back(w.name, all(problems));
    counts.formats.emplace_back(w.name,
                                all<HistogramProblem>({{{256}, w.format, w.scaled, 10, false}}));
  }
  for (const Format f : {Format::f32, Format::f16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2,
                         Format::int8, Format::i32, Format::i64, Format::u8}) {
    turn.formats.emplace_back(name(f), all<PermuteProblem>({{{8, 256}, {1, 0}, f}}));
  }
  return {reduce, counts, turn};
}

// Activations and outputs in few bits, with every weight that has a format of its own.
std::vector<Operation> quantised_rows() {
  Operation in{"product and MoE with activations rounded to", {}},
      out{"product with output quantised to", {}};
  for (const char* text :
       {"fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int8_g128"}) {
    const QuantizeOptions few = parse_quantization(text);
    std::vector<MatmulProblem> given, written;
    std::vector<MoeProblem> layers;
    for (const Weight& w : weights()) {
      MatmulProblem p;
      p.m = 8, p.n = p.k = 256;
      p.weight = w.format, p.scaling = w.scaling, p.scaled = w.scaled;
      MatmulProblem y = p;
      y.out = few.format, y.quantize_out = few;
      written.push_back(y);
      p.quantize_x = few;
      given.push_back(p);
      MoeProblem layer;
      layer.tokens = 8, layer.hidden = layer.intermediate = 256, layer.experts = 8, layer.top_k = 2;
      layer.weight = w.format, layer.scaling = w.scaling, layer.scaled = w.scaled;
      layer.quantize_x = few;
      layers.push_back(layer);
    }
    in.formats.emplace_back(text, [given, layers](const Device& device) {
      const Support one = all(given)(device);
      return one ? all(layers)(device) : one;
    });
    out.formats.emplace_back(text, all(written));
  }
  return {in, out};
}

Operation sparse_attention_rows() {
  Operation rows{"attention over listed tokens (MLA, DeepSeek V3.2 and V4)", {}};
  for (const LatentFormat format :
       {LatentFormat::bf16, LatentFormat::fp8, LatentFormat::fp8_656, LatentFormat::fp8_584}) {
    SparseAttentionProblem p;
    p.batch = 1, p.heads = 128, p.indices = 128;
    p.cache = {format, 64, format == LatentFormat::fp8_584 ? 512 : 576};
    p.extra = p.cache, p.extra_indices = 512;
    p.sinks = p.lse = true;
    rows.formats.emplace_back(name(format), all<SparseAttentionProblem>({p}));
  }
  return rows;
}

std::vector<Operation> operations() {
  std::vector<Operation> table{attention_rows(), sparse_attention_rows()};
  Operation product{"matrix product", {}}, experts{"expert product (MoE)", {}},
      grouped{"grouped product", {}}, lookup{"embedding", {}},
      quantised{"quantize, dequantize", {}};
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
    std::vector<GroupedProblem> groups;
    for (const bool masked : {false, true}) {
      GroupedProblem g;
      g.groups = 4, g.rows = 64, g.n = g.k = 256, g.masked = masked;
      g.weight = w.format, g.scaling = w.scaling, g.scaled = w.scaled;
      groups.push_back(g);
    }
    grouped.formats.emplace_back(w.name, all(groups));
    EmbeddingProblem e;
    e.tokens = 8, e.vocabulary = e.columns = 256;
    e.table = w.format, e.scaling = w.scaling, e.scaled = w.scaled;
    lookup.formats.emplace_back(w.name, all<EmbeddingProblem>({e}));
    quantised.formats.emplace_back(w.name, [name = w.name, w](const Device&) {
      return w.scaled ? can_quantize({256, 256}, parse_quantization(name)) : Support{};
    });
  }
  table.push_back(product);
  table.push_back(experts);
  table.push_back(grouped);
  table.push_back(lookup);
  table.push_back(quantised);

  for (Operation& row : quantised_rows()) table.push_back(std::move(row));
  for (Operation& row : plain_rows()) table.push_back(std::move(row));
  for (Operation& row : counting_rows()) table.push_back(std::move(row));

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

namespace {

// "NVIDIA H200, sm_90a, 132 multiprocessors at 1.98 GHz, ..."
std::string limits(const DeviceProperties& p) {
  std::string text = fmt::format("{}, {}, {} multiprocessors at {:.2f} GHz", p.name, name(p.arch),
                                 p.sm_count, p.clock_ghz);
  if (p.l2_bytes > 0) {
    text += fmt::format(", {} of memory, {} of L2", bytes(static_cast<double>(p.memory_bytes)),
                        bytes(static_cast<double>(p.l2_bytes)));
  }
  text += fmt::format(", {} KiB of shared memory a block", p.shared_per_block / 1024);
  if (p.cluster_size > 1) text += fmt::format(", clusters of {} blocks", p.cluster_size);
  return text;
}

}  // namespace

std::vector<DeviceState> devices() {
  std::vector<DeviceState> all{{"cpu", true, cpu_name(), Device::cpu()}};
  const auto add = [&](const std::string& text) {
    try {
      const Device device = Device::parse(text);
      const DeviceProperties& p = properties(device);
      const std::string driver =
          device.kind() == Device::Kind::cuda ? ", driver for " + p.driver : std::string();
      all.push_back({text, true, limits(p) + driver, device});
    } catch (const Error& error) {
      all.push_back({text, false, error.what(), {}});
    }
  };
  const int count = cuda_device_count();
  for (int i = 0; i < std::max(count, 1); ++i) add(fmt::format("cuda:{}", i));
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a}) {
    add(fmt::format("sim:{}", name(arch)));
  }
  return all;
}

std::string support_matrix() {
  const std::vector<Operation> table_of_operations = operations();
  // A GPU runs the kernels of the simulated GPU of its architecture, so the table is the same on
  // every machine. Devices that no operation has kernels for yet have no column.
  const auto runs_something = [&](const Device& device) {
    for (const Operation& operation : table_of_operations) {
      for (const auto& [format, check] : operation.formats) {
        if (check(device)) return true;
      }
    }
    return false;
  };
  std::vector<std::string> header{"operation", "formats"};
  std::vector<Device> available;
  for (const DeviceState& state : devices()) {
    const Device& device = state.device;
    if (!state.available || device.kind() == Device::Kind::cuda || !runs_something(device))
      continue;
    header.emplace_back(device.is_cpu() ? state.name : name(device.arch()));
    available.push_back(state.device);
  }
  // Operations with the same formats and answers share rows; so do formats with the same answers.
  using Groups = std::vector<std::pair<std::vector<std::string>, std::string>>;
  std::vector<std::pair<std::string, Groups>> rows;
  for (const Operation& operation : table_of_operations) {
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
