// Products of quantised activations, and the expert layer of a mixture of experts.
#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <utility>

#include "base/message.h"
#include "bench/families.h"
#include "halftone/matmul.h"
#include "halftone/moe.h"
#include "measure/roofs.h"

namespace halftone {

namespace {

constexpr int64_t kSize = 4096;

Tensor random_normal(const Shape& shape, Format format, uint64_t seed) {
  Tensor x = Tensor::empty(shape, Format::f32);
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(engine);
  return convert(x, format);
}

// The roof before and after the work: whichever is higher, should a neighbour have come or gone.
template <class Roof, class Work>
double around(const Roof& roof, const Work& work) {
  const double before = roof();
  work();
  return std::max(before, roof());
}

// What the kernel of a plan is bound by when it computes.
struct Arithmetic {
  double (*roof)(Stream&);
  const char *name, *unit;
};
Arithmetic arithmetic_of(const std::string& plan) {
  if (plan.find("_int8") != std::string::npos) return {int8_roof, "int8 dot product", "GOP/s"};
  if (plan.find("_dot") != std::string::npos) return {bf16_roof, "bf16 dot product", "GFLOP/s"};
  return {f32_roof, "f32 multiply-add", "GFLOP/s"};
}

std::string product_name(const char* weights, const char* rounding, int64_t m) {
  return concat("matmul ", m, "x", kSize, "x", kSize, " ", weights, " weights x ", rounding);
}

// x is bf16 rounded on the way; the rounding is part of the time.
BenchRow product(const char* weights, const char* rounding, int64_t m, int repeats,
                 Stream& stream) {
  const Tensor f32 = random_normal({kSize, kSize}, Format::f32, 1);
  const Tensor w = quantize(f32, parse_quantization(weights), stream);
  const Tensor x = random_normal({m, kSize}, Format::bf16, 2);
  const Tensor out = Tensor::empty({m, kSize}, Format::bf16);
  MatmulProblem p;
  p.m = m, p.n = p.k = kSize;
  p.weight = w.format(), p.scaled = true, p.scaling = w.scaling();
  p.quantize_x = parse_quantization(rounding);
  const MatmulPlan made = plan(p, Device::cpu());
  const Arithmetic bound = arithmetic_of(describe(made));
  BenchRow row;
  row.name = product_name(weights, rounding, m);
  row.roof = 1e-9 * around([&] { return bound.roof(stream); },
                           [&] {
                             row.seconds = median_seconds(repeats, [&](int) {
                               run(made, {x, w, out, {}, {}}, stream);
                             });
                           });
  row.roof_name = bound.name;
  row.flops = 2.0 * static_cast<double>(m * kSize * kSize);
  row.bytes = static_cast<double>(w.bytes() + x.bytes() + out.bytes());
  row.value = row.flops / row.seconds * 1e-9;
  row.unit = bound.unit;
  return row;
}

// The layer of a model of 30 G parameters of which 3 are active.
constexpr int64_t kExperts = 128, kHidden = 2048, kIntermediate = 768;
constexpr int kTopK = 8;

// Codes and scales drawn without a detour through floats, none of them a NaN.
Tensor random_codes(const Shape& shape, const QuantizeOptions& options, uint64_t seed) {
  const Tensor t = Tensor::empty(shape, options.format);
  std::mt19937_64 engine(seed);
  const int64_t bytes = packed_bytes(options.format, t.numel());
  auto* p = t.data<uint8_t>();
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = engine() & 0xbfbfbfbfbfbfbfbfu;
    std::memcpy(p + i, &word, 8);
  }
  const Scaling& s = options.scaling;
  const auto blocks = [](int64_t n, int64_t block) { return (n + block - 1) / block; };
  const Tensor scales = Tensor::empty(
      {shape[0], blocks(shape[1], s.block_rows), blocks(shape[2], s.block_cols)}, s.format);
  for (int64_t i = 0; i < scales.numel(); ++i) {
    if (s.format == Format::f32) {
      scales.data<float>()[i] = 0x1p-6f;
    } else {
      scales.data<uint8_t>()[i] = s.format == Format::ue8m0 ? 121 : 0x08;
    }
  }
  return t.quantized(s, scales);
}

std::vector<BenchRow> layer(const char* weights, const char* rounding, std::vector<int64_t> sweep,
                            const CpuBench& asked) {
  const auto row_name = [&](int64_t tokens) {
    return concat("moe ", kExperts, " experts top ", kTopK, ", ", kHidden, "x", kIntermediate, ", ",
                  tokens, " tokens, ", weights, " weights x ",
                  *rounding != '\0' ? rounding : "bf16");
  };
  std::erase_if(sweep, [&](int64_t tokens) { return !asked.choice.asks_for(row_name(tokens)); });
  if (sweep.empty() || asked.choice.stop.stop_requested()) return {};
  if (asked.choice.only_lists()) {
    for (const int64_t tokens : sweep) static_cast<void>(asked.choice.begins(row_name(tokens)));
    return {};
  }
  Stream& stream = asked.stream;
  const QuantizeOptions format = parse_quantization(weights);
  MoeProblem p;
  p.hidden = kHidden, p.intermediate = kIntermediate, p.experts = kExperts, p.top_k = kTopK;
  p.weight = format.format, p.scaled = true, p.scaling = format.scaling;
  if (*rounding != '\0') p.quantize_x = parse_quantization(rounding);
  ExpertTensors tensors;
  tensors.gate_up = random_codes({kExperts, 2 * kIntermediate, kHidden}, format, 1);
  tensors.all_down = random_codes({kExperts, kHidden, kIntermediate}, format, 2);
  const double expert_bytes =
      static_cast<double>(tensors.gate_up.bytes() + tensors.all_down.bytes()) / kExperts;
  const MoeWeights bound = bind_experts(p, std::move(tensors));
  std::vector<BenchRow> rows;
  for (const int64_t tokens : sweep) {
    if (!asked.choice.begins(row_name(tokens))) break;
    p.tokens = tokens;
    const MoePlan made = plan(p, Device::cpu());
    const Tensor x = random_normal({tokens, kHidden}, Format::bf16, 3);
    const Tensor out = Tensor::empty(x.shape(), x.format());
    // Few tokens meet other experts in every call, so that their weights come from memory.
    std::vector<Routing> routings;
    double used = 0;
    for (uint64_t i = 0; i < 8; ++i) {
      RoutingOptions options;
      options.top_k = kTopK;
      routings.push_back(
          route(random_normal({tokens, kExperts}, Format::f32, 10 + i), options, stream));
      const auto* e = routings.back().experts.data<int32_t>();
      used += static_cast<double>(std::set<int32_t>(e, e + tokens * kTopK).size()) / 8;
    }
    BenchRow row;
    row.name = row_name(tokens);
    const int repeats = tokens > 64 ? 5 : 24;
    row.flops = 6.0 * static_cast<double>(tokens * kTopK * kHidden * kIntermediate);
    row.bytes = used * expert_bytes + static_cast<double>(x.bytes() + out.bytes());
    const Arithmetic bound_by = arithmetic_of(describe(made));
    double read = 0;
    const double compute =
        around([&] { return bound_by.roof(stream); },
               [&] {
                 read = around([&] { return read_roof(stream, int64_t{320} << 20); },
                               [&] {
                                 row.seconds = median_seconds(repeats, [&](int i) {
                                   run(made,
                                       {x,
                                        routings[static_cast<size_t>(i) % 8],
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        out,
                                        &bound,
                                        {}},
                                       stream);
                                 });
                               });
               });
    // The larger of the two times that the layer cannot be faster than.
    const bool memory = row.bytes / read > row.flops / compute;
    row.value = (memory ? row.bytes : row.flops) / row.seconds * 1e-9;
    row.unit = memory ? "GB/s" : bound_by.unit;
    row.roof = (memory ? read : compute) * 1e-9;
    row.roof_name = memory ? "memory read" : bound_by.name;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<BenchRow> bench_quantised_products(const CpuBench& asked) {
  const bool quick = asked.quick;
  std::vector<BenchRow> rows;
  const auto add = [&](const char* weights, const char* rounding, int64_t m, int repeats) {
    if (!asked.choice.begins(product_name(weights, rounding, m))) return;
    rows.push_back(product(weights, rounding, m, repeats, asked.stream));
  };
  for (const auto& [weights, rounding] : {std::pair{"fp8", "fp8_1x128"},
                                          {"fp8_row", "fp8_row"},
                                          {"int8", "int8"},
                                          {"mxfp8", "mxfp8"},
                                          {"nvfp4", "nvfp4"},
                                          {"mxfp4", "mxfp8"}}) {
    add(weights, rounding, 512, quick ? 5 : 11);
  }
  if (quick) return rows;
  for (const int64_t m : {1, 16, 64}) {
    add("fp8", "fp8_1x128", m, 21);
    add("int8", "int8", m, 21);
  }
  return rows;
}

std::vector<BenchRow> bench_moe(const CpuBench& asked) {
  if (asked.quick) return layer("nvfp4", "", {1, 16, 256}, asked);
  std::vector<BenchRow> rows = layer("fp8", "", {1, 4, 16, 64, 256, 1024}, asked);
  for (const auto& [weights, rounding] :
       {std::pair{"nvfp4", ""}, {"mxfp4", ""}, {"fp8", "fp8_1x128"}, {"nvfp4", "nvfp4"}}) {
    for (BenchRow& row : layer(weights, rounding, {1, 16, 256}, asked)) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace halftone
