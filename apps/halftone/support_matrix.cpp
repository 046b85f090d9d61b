#include "support_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/message.h"
#include "console.h"
#include "halftone/halftone.h"

namespace halftone::app {

namespace {

// What a cell says of a device: "no", "yes", or its limits.
using Check = std::function<std::string(const Device&)>;
struct Operation {
  std::string name;
  std::vector<std::pair<std::string, Check>> formats;
};

template <class Problem>
bool runs(const std::vector<Problem>& problems, const Device& device) {
  return std::all_of(problems.begin(), problems.end(),
                     [&](const Problem& p) { return can_run(p, device).ok; });
}
// Several problems at once: supported when all are.
template <class Problem>
Check all(std::vector<Problem> problems) {
  return [problems](const Device& device) { return runs(problems, device) ? "yes" : "no"; };
}

// Sizes of models, not the least that a kernel takes.
constexpr int64_t kHidden = 4096, kVocabulary = 128256, kManyRows = 4096;
constexpr int64_t kHeads[] = {64, 80, 96, 128, 192, 256, 512, 1024};
constexpr int64_t kLongCache = 65536;

// "heads <= 256 but 80": the largest of kHeads that is taken, and the smaller ones that are not (of
// block formats those that are no whole blocks), or "no".
template <class Takes>
std::string head_limit(const Takes& takes) {
  int64_t most = 0;
  std::vector<int64_t> refused, between;
  for (const int64_t head : kHeads) {
    if (takes(head)) {
      most = head, between = refused;
    } else {
      refused.push_back(head);
    }
  }
  if (most == 0) return "no";
  return fmt::format("heads <= {}{}", most,
                     between.empty() ? "" : fmt::format(" but {}", fmt::join(between, ", ")));
}

// No chip of the others has run anything yet.
bool ran_on_a_chip(Arch arch) { return arch == Arch::sm_90a; }

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

AttentionProblem attention_of(const AttentionMode& mode, int64_t head, int64_t queries,
                              int64_t keys) {
  AttentionProblem p;
  p.batch = 1, p.heads = 8, p.kv_heads = 2, p.query_length = queries, p.key_length = keys;
  p.head_dim = head;
  p.q = p.k = mode.qk, p.v = mode.pv, p.mode = mode;
  // Queries of a token or a few stay in 16 bits.
  if (queries < 64 && !is_plain_float(mode.qk)) p.q = Format::bf16;
  p.out = is_plain_float(mode.qk) ? mode.qk : Format::bf16;
  p.causal = p.lse = true;
  return p;
}

// Every rule at once, of a prefill, of some rows and of decode, over a long cache.
bool takes_every_rule(const AttentionMode& mode, int64_t head, const Device& device) {
  std::vector<AttentionProblem> problems;
  for (const int64_t queries : {int64_t{1}, int64_t{8}, kManyRows}) {
    AttentionProblem p = attention_of(mode, head, queries, kLongCache);
    p.sinks = true, p.softcap = 30;
    p.mask = Format::bf16, p.attention_chunk_size = 8192;
    problems.push_back(p);
    p.variable_length = true;
    p.mask = Format::u8, p.attention_chunk_size = 0;
    p.page_size = 64, p.window_left = 4096;
    problems.push_back(p);
  }
  return runs(problems, device);
}

std::string kernel_of(const AttentionProblem& problem, const Device& device) {
  const std::string text = describe(plan(problem, device));
  return text.substr(0, text.find(':'));
}

// "heads <= 256; decode 64, 128; wgmma from 64 queries; dequantised": what the kernel of every GPU
// leaves to others, and in what numbers the products are.
std::string attention_cell(const AttentionMode& mode, const Device& device) {
  std::string text = head_limit([&](int64_t head) { return takes_every_rule(mode, head, device); });
  if (text == "no") return text;
  constexpr int64_t kKeys = 4096;  // plans have memory of their own
  const bool gpu = !device.is_cpu();
  const auto kernel = [&](int64_t head, int64_t queries) {
    const AttentionProblem p = attention_of(mode, head, queries, kKeys);
    return can_run(p, device) ? kernel_of(p, device) : std::string();
  };
  if (gpu) {
    std::vector<int64_t> decode;
    for (const int64_t head : kHeads) {
      if (kernel(head, 1).starts_with("attention_decode")) decode.push_back(head);
    }
    if (!decode.empty()) text += fmt::format("; decode {}", fmt::join(decode, ", "));
    for (const int64_t queries : {2, 8, 64, 4096}) {
      if (!kernel(128, queries).starts_with("attention_sm90")) continue;
      text += fmt::format("; wgmma from {} queries", queries);
      break;
    }
  }
  if (is_plain_float(mode.qk)) return text;
  return text + (kernel(128, kManyRows) == "attention_sm90_fp8" ? "; native" : "; dequantised");
}

Operation attention_rows() {
  Operation rows{"attention (causal, window, chunk, mask, softcap, sinks, GQA, varlen, paged, LSE)",
                 {}};
  for (const AttentionMode& mode : attention_modes()) {
    rows.formats.emplace_back(
        to_string(mode), [mode](const Device& device) { return attention_cell(mode, device); });
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
    NormProblem rms{kManyRows, kHidden, f, f}, layer = rms;
    layer.kind = NormKind::layer;
    layer.bias = layer.residual = true;
    norm.formats.emplace_back(name(f), all<NormProblem>({rms, layer}));
    RopeProblem half{kManyRows, 32, 128, f, {}}, pairs = half;
    pairs.options.style = RopeStyle::interleaved;
    pairs.options.llama3 = Llama3Scaling{};
    rope.formats.emplace_back(name(f), all<RopeProblem>({half, pairs}));
    std::vector<ActivationProblem> kinds;
    std::vector<GatedProblem> gates;
    for (int i = 0; i < kActivationCount; ++i) {
      const ActivationFunction function{.kind = static_cast<Activation>(i)};
      kinds.push_back({{kManyRows, 14336}, function, f, f});
      gates.push_back({kManyRows, 14336, f, {function, 7, 1}, true});
    }
    act.formats.emplace_back(name(f), [kinds, gates](const Device& device) {
      return runs(kinds, device) && runs(gates, device) ? "yes" : "no";
    });
    soft.formats.emplace_back(
        name(f), all<SoftmaxProblem>({{kManyRows, kHidden, f, f}, {8, kVocabulary, f, f}}));
    std::vector<ElementwiseProblem> operations;
    for (int i = 0; i < kElementwiseCount; ++i) {
      operations.push_back({static_cast<Elementwise>(i), {kManyRows, kHidden}, f, f, f, f});
    }
    each.formats.emplace_back(name(f), all(operations));
    Conv1dProblem c;
    c.in_channels = c.out_channels = 384, c.length = 3000, c.kernel = 3, c.stride = 2, c.groups = 2;
    c.x = c.weight = c.out = f;
    conv.formats.emplace_back(name(f), all<Conv1dProblem>({c}));
    nms.formats.emplace_back(name(f), all<NmsProblem>({{1000, f}}));
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
      ReduceProblem p{static_cast<Reduction>(i), {kManyRows, kHidden}, i % 2, w.format, w.format};
      p.x_scaled = p.y_scaled = w.scaled;
      const bool index = p.operation == Reduction::argmax || p.operation == Reduction::argmin;
      p.out = index ? Format::i64 : Format::f32;
      problems.push_back(p);
    }
    reduce.formats.emplace_back(w.name, all(problems));
    counts.formats.emplace_back(
        w.name, all<HistogramProblem>({{{kManyRows * kHidden}, w.format, w.scaled, 10, false}}));
  }
  for (const Format f : {Format::f32, Format::f16, Format::bf16, Format::fp8_e4m3, Format::fp8_e5m2,
                         Format::int8, Format::i32, Format::i64, Format::u8}) {
    turn.formats.emplace_back(name(f), all<PermuteProblem>({{{kManyRows, kHidden}, {1, 0}, f}}));
  }
  return {reduce, counts, turn};
}

MatmulProblem gemm_of(const Weight& w, int64_t m, int64_t n, int64_t k) {
  MatmulProblem p;
  p.m = m, p.n = n, p.k = k;
  p.weight = w.format, p.scaling = w.scaling, p.scaled = w.scaled;
  return p;
}
MoeProblem experts_of(const Weight& w, int64_t tokens) {
  MoeProblem p;
  p.tokens = tokens, p.hidden = kHidden, p.intermediate = 1536, p.experts = 64, p.top_k = 8;
  p.weight = w.format, p.scaling = w.scaling, p.scaled = w.scaled;
  return p;
}
constexpr int64_t kRowCounts[] = {1, 8, 64, kManyRows};

// Whether x meets the weight in its own numbers, by the kernel's own word.
bool is_native(const MatmulProblem& p, const Device& device) {
  const std::string text = describe(plan(p, device));
  const std::string kernel = text.substr(0, text.find(':'));
  return text.find(" in FP8") != std::string::npos || kernel.find("_int8") != std::string::npos;
}

// Activations and outputs in few bits, with every weight that has a format of its own.
std::vector<Operation> quantised_rows() {
  Operation in{"GEMM and experts, activations quantised to", {}},
      out{"GEMM, output quantised to", {}};
  for (const char* text :
       {"fp8_row", "fp8_1x128", "fp8_e5m2_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int8_g128"}) {
    const QuantizeOptions few = parse_quantization(text);
    std::vector<MatmulProblem> given, written, small;
    std::vector<MoeProblem> layers;
    for (const Weight& w : weights()) {
      for (const int64_t m : kRowCounts) {
        MatmulProblem p = gemm_of(w, m, kHidden, kHidden);
        MatmulProblem y = p;
        y.out = few.format, y.quantize_out = few;
        written.push_back(y);
        p.quantize_x = few;
        given.push_back(p);
        MoeProblem layer = experts_of(w, m);
        layer.quantize_x = few;
        layers.push_back(layer);
      }
      if (!w.scaled) continue;
      small.push_back(gemm_of(w, 64, 256, 512));  // a plan has memory of its own
      small.back().quantize_x = few;
    }
    in.formats.emplace_back(text, [=](const Device& device) -> std::string {
      if (!runs(given, device) || !runs(layers, device)) return "no";
      const auto native = std::count_if(
          small.begin(), small.end(), [&](const MatmulProblem& p) { return is_native(p, device); });
      return native == 0 ? "dequantised" : "native in part";
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

// There and back on the device itself: no function says beforehand whether it can be.
std::string quantise_cell(const Weight& w, const Device& device) {
  try {
    Stream stream(device);
    const Tensor x = Tensor::zeros({128, 256}, Format::bf16).to(device);
    const Tensor codes =
        w.scaled ? quantize(x, parse_quantization(w.name), stream) : convert(x, w.format, stream);
    if (w.scaled) dequantize(codes, Format::bf16, stream);
    stream.synchronize();
    return "yes";
  } catch (const Error&) {
    return "no";
  }
}

std::vector<Operation> operations() {
  std::vector<Operation> table{attention_rows(), sparse_attention_rows()};
  Operation gemm{"GEMM", {}}, experts{"experts (MoE)", {}}, grouped{"grouped GEMM", {}},
      lookup{"embedding", {}}, quantised{"quantize, dequantize, convert", {}};
  for (const Weight& w : weights()) {
    // Weights in few bits meet plain activations: kernels dequantise them on the way.
    const auto dequantised = [w](const Check& check) {
      return [=](const Device& device) -> std::string {
        const std::string answer = check(device);
        return answer == "yes" && w.scaled ? "dequantised" : answer;
      };
    };
    std::vector<MatmulProblem> gemms;
    std::vector<MoeProblem> layers;
    std::vector<GroupedProblem> groups;
    for (const int64_t m : kRowCounts) {
      for (const Format x : {Format::f32, Format::bf16, Format::f16}) {
        MatmulProblem p = gemm_of(w, m, kHidden, kHidden);
        p.x = p.out = x;
        gemms.push_back(p);
      }
      layers.push_back(experts_of(w, m));
      for (const bool masked : {false, true}) {
        GroupedProblem g;
        g.groups = 8, g.rows = 8 * m, g.n = g.k = kHidden, g.masked = masked;
        g.weight = w.format, g.scaling = w.scaling, g.scaled = w.scaled;
        groups.push_back(g);
      }
    }
    gemm.formats.emplace_back(w.name, dequantised(all(gemms)));
    experts.formats.emplace_back(w.name, dequantised(all(layers)));
    grouped.formats.emplace_back(w.name, dequantised(all(groups)));
    EmbeddingProblem e;
    e.tokens = kManyRows, e.vocabulary = kVocabulary, e.columns = kHidden;
    e.table = w.format, e.scaling = w.scaling, e.scaled = w.scaled;
    lookup.formats.emplace_back(w.name, all<EmbeddingProblem>({e}));
    quantised.formats.emplace_back(w.name,
                                   [w](const Device& device) { return quantise_cell(w, device); });
  }
  table.push_back(gemm);
  table.push_back(experts);
  table.push_back(grouped);
  table.push_back(lookup);
  table.push_back(quantised);

  for (Operation& row : quantised_rows()) table.push_back(std::move(row));
  for (Operation& row : plain_rows()) table.push_back(std::move(row));
  for (Operation& row : counting_rows()) table.push_back(std::move(row));

  Operation cache{"KV cache", {}};
  for (const Format f : {Format::f32, Format::f16, Format::bf16, Format::fp8_e4m3, Format::nvfp4}) {
    cache.formats.emplace_back(name(f), [f](const Device& device) {
      return head_limit([&](int64_t head) {
        KvCacheOptions o;
        o.format = f, o.layers = 1, o.kv_heads = 8, o.head_dim = head, o.max_length = kLongCache;
        return can_run(o, device).ok;
      });
    });
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

namespace {

// Of the formats that every operation on weights has, a name for all and for those with scales.
std::string short_list(const std::vector<std::string>& formats) {
  std::vector<std::string> every, scaled;
  for (const Weight& w : weights()) {
    every.push_back(w.name);
    if (w.scaled) scaled.push_back(w.name);
  }
  if (formats == every) return "every format of weights";
  if (formats == scaled) return "every quantised format";
  if (formats.size() > every.size() && std::equal(every.begin(), every.end(), formats.begin())) {
    return fmt::format(
        "every format of weights, {}",
        fmt::join(formats.begin() + static_cast<int64_t>(every.size()), formats.end(), ", "));
  }
  return fmt::format("{}", fmt::join(formats, ", "));
}

std::string legend() {
  std::vector<std::string> scaled;
  for (const Weight& w : weights()) {
    if (w.scaled) scaled.push_back(w.name);
  }
  return fmt::format(
      "† simulated alone: no chip of this architecture has run a kernel of Halftone yet. Every "
      "cell "
      "was asked for up to {} rows, {} columns, caches of {} keys and heads of {}. **heads <= N**: "
      "the largest of these that is taken. **decode**: one query token has a split-KV kernel for "
      "heads of these sizes, other sizes and masks the kernel of every GPU. **wgmma from N "
      "queries**: "
      "with fewer, the kernel of every GPU. **native**: operands enter the tensor cores, or the "
      "dot "
      "products of a CPU, as they are stored, in part: by weights of the same kind; "
      "**dequantised**: "
      "in registers, to bf16 or f32. Quantised formats of weights: {}.\n",
      kManyRows, kHidden, kLongCache, fmt::join(kHeads, ", "), fmt::join(scaled, ", "));
}

}  // namespace

std::string support_matrix() {
  // A GPU runs the kernels of the simulated GPU of its architecture, so the table is the same on
  // every machine.
  std::vector<std::string> header{"operation", "formats"};
  std::vector<Device> available;
  for (const DeviceState& state : devices()) {
    const Device& device = state.device;
    if (!state.available || device.kind() == Device::Kind::cuda) continue;
    header.emplace_back(device.is_cpu()                ? state.name
                        : ran_on_a_chip(device.arch()) ? name(device.arch())
                                                       : fmt::format("{} †", name(device.arch())));
    available.push_back(state.device);
  }
  // Operations with the same formats and answers share rows; so do formats with the same answers.
  using Groups = std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>;
  std::vector<std::pair<std::string, Groups>> rows;
  for (const Operation& operation : operations()) {
    Groups groups;
    for (const auto& [format, check] : operation.formats) {
      std::vector<std::string> answers;
      for (const Device& device : available) answers.push_back(check(device));
      const auto same = std::find_if(groups.begin(), groups.end(),
                                     [&](const auto& group) { return group.first == answers; });
      if (same != groups.end()) {
        same->second.push_back(format);
      } else {
        groups.emplace_back(answers, std::vector{format});
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
      std::vector<std::string> row{operation, short_list(formats)};
      row.insert(row.end(), answers.begin(), answers.end());
      table.add(row);
    }
  }
  return table.markdown() + "\n" + legend();
}

}  // namespace halftone::app
