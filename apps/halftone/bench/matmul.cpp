#include "bench/families.h"

#include <algorithm>
#include <random>
#include <span>

#include "base/message.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"
#include "measure/onednn_peer.h"
#include "measure/roofs.h"

namespace halftone {

namespace {

constexpr int64_t kSize = 4096;
// More than any cache of the processors this is meant for, so that each copy of a weight comes from
// memory when its turn is there again.
constexpr int64_t kRotation = int64_t{320} << 20;

struct Case {
  const char* weights;  // a name of quantization_names(), or f32, f16, bf16
  Format x;
};

constexpr Case kProducts[] = {
    {"f32", Format::f32},        {"bf16", Format::bf16},  {"fp8", Format::bf16},
    {"fp8_row", Format::bf16},   {"mxfp8", Format::bf16}, {"int8", Format::bf16},
    {"int8", Format::int8},      {"nvfp4", Format::bf16}, {"mxfp4", Format::bf16},
    {"int4_g128", Format::bf16}, {"f16", Format::f16},    {"bf16", Format::f32},
    {"fp8", Format::f32},        {"nvfp4", Format::f32},  {"int4_g128", Format::f32},
};
constexpr int kQuickProducts = 10;

constexpr Case kGemvs[] = {
    {"bf16", Format::bf16},     {"fp8", Format::bf16},   {"int8", Format::bf16},
    {"nvfp4", Format::bf16},    {"mxfp4", Format::bf16}, {"int4_g128", Format::bf16},
    {"bf16", Format::f32},      {"fp8", Format::f32},    {"nvfp4", Format::f32},
    {"int4_g128", Format::f32}, {"f32", Format::f32},    {"f16", Format::f32},
    {"mxfp8", Format::f32},     {"int8", Format::f32},   {"mxfp4", Format::f32},
    {"int4", Format::f32},
};
constexpr int kQuickGemvs = 10;

Tensor random_normal(const Shape& shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape, Format::f32);
  std::mt19937 engine(static_cast<uint32_t>(seed));
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = normal(engine);
  return x;
}

Tensor in_format(const Tensor& f32, const std::string& name, Stream& stream) {
  if (name == "f32") return f32;
  if (name == "f16" || name == "bf16") return convert(f32, parse_format(name), stream);
  return quantize(f32, parse_quantization(name), stream);
}

Tensor copy_of(const Tensor& w) {
  const Tensor data = w.contiguous_copy();
  if (!w.has_scales()) return data;
  const Tensor zeros = w.scaling().asymmetric ? w.zero_points().contiguous_copy() : Tensor();
  return data.quantized(w.scaling(), w.scales().contiguous_copy(), w.tensor_scale(), zeros);
}

MatmulPlan plan_for(const Tensor& x, const Tensor& weight) {
  MatmulProblem p;
  p.m = x.size(0), p.n = weight.size(0), p.k = weight.size(1);
  p.x = x.format();
  p.out = is_plain_float(x.format()) ? x.format() : Format::bf16;
  p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  p.weight = weight.format();
  p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  return plan(p, Device::cpu());
}

bool uses_dot(const MatmulPlan& p) { return describe(p).find("_dot") != std::string::npos; }

// The roof before and after the work: whichever is higher, should a neighbour have come or gone.
template <class Roof, class Work>
double around(const Roof& roof, const Work& work) {
  const double before = roof();
  work();
  return std::max(before, roof());
}

// oneDNN's product of the same operands, in the same run; nothing without it.
void add_peer(const Tensor& x, const Tensor& w, int repeats, int copies, double work,
              Stream& stream, BenchRow* row) {
  const OneDnnPeer peer(x, w, copies, stream.threads());
  if (!peer) return;
  row->peer = work / median_seconds(repeats, [&](int i) { peer.run(i); }) * 1e-9;
  row->peer_name = "oneDNN";
}

std::string product_name(const Case& c, int64_t m) {
  return concat("matmul ", m, "x", kSize, "x", kSize, " ", c.weights, " weights x ", name(c.x));
}

BenchRow product(const Case& c, const Tensor& f32, int64_t m, int repeats, Stream& stream) {
  const Tensor w = in_format(f32, c.weights, stream);
  const bool integers = c.x == Format::int8;
  const Tensor x = in_format(random_normal({m, kSize}, 2), name(c.x), stream);
  const Tensor out = Tensor::empty({m, kSize}, integers ? Format::bf16 : c.x);
  const MatmulPlan p = plan_for(x, w);
  BenchRow row;
  row.name = product_name(c, m);
  const bool dot = uses_dot(p);
  const double roof = around(
      [&] { return integers ? int8_roof(stream)
                   : dot    ? bf16_roof(stream)
                            : f32_roof(stream); },
      [&] {
        row.seconds = median_seconds(repeats, [&](int) { run(p, {x, w, out, {}, {}}, stream); });
      });
  row.flops = 2.0 * static_cast<double>(m * kSize * kSize);
  add_peer(x, w, repeats, 1, row.flops, stream, &row);
  row.bytes = static_cast<double>(w.bytes() + x.bytes() + out.bytes());
  row.value = row.flops / row.seconds * 1e-9;
  row.unit = integers ? "GOP/s" : "GFLOP/s";
  row.roof = roof * 1e-9;
  row.roof_name = integers ? "int8 dot product" : dot ? "bf16 dot product" : "f32 multiply-add";
  return row;
}

// What it costs that a row's result does not depend on its batch: a product of many rows could fold
// the scales of blocks into the strip of W that it expands, which a matrix-vector product has no
// room for, so both multiply sums. The same codes with a scale a row need no such step.
constexpr Case kScaledBlocks{"mxfp8", Format::bf16}, kScaledRows{"fp8_row", Format::bf16};
std::string batch_invariance_name() {
  return concat("batch invariance, share of the time of ", product_name(kScaledBlocks, 512));
}
BenchRow batch_invariance(const BenchRow& blocks, const BenchRow& rows) {
  BenchRow row;
  row.name = batch_invariance_name();
  row.seconds = Timing(std::max(0.0, blocks.seconds - rows.seconds));
  row.value = 100 * row.seconds / blocks.seconds;
  row.unit = "%";
  return row;
}

std::string gemv_name(const Case& c) {
  return concat("gemv ", kSize, "x", kSize, " ", c.weights, " weights x ", name(c.x));
}

BenchRow gemv(const Case& c, const Tensor& f32, int turns, Stream& stream) {
  std::vector<Tensor> copies = {in_format(f32, c.weights, stream)};
  const int64_t bytes = copies[0].bytes();
  while (static_cast<int64_t>(copies.size()) * bytes < kRotation)
    copies.push_back(copy_of(copies[0]));
  const Tensor x = convert(random_normal({1, kSize}, 3), c.x, stream);
  const Tensor out = Tensor::empty({1, kSize}, c.x);
  const MatmulPlan p = plan_for(x, copies[0]);
  BenchRow row;
  row.name = gemv_name(c);
  const double roof =
      around([&] { return read_roof(stream, kRotation); },
             [&] {
               const int count = static_cast<int>(copies.size());
               row.seconds = median_seconds(turns * count, [&](int i) {
                 run(p, {x, copies[static_cast<size_t>(i % count)], out, {}, {}}, stream);
               });
             });
  row.flops = 2.0 * static_cast<double>(kSize * kSize);
  row.bytes = static_cast<double>(bytes);
  const int count = static_cast<int>(copies.size());
  add_peer(x, copies[0], turns * count, count, row.bytes, stream, &row);
  row.value = row.bytes / row.seconds * 1e-9;
  row.unit = "GB/s";
  row.roof = roof * 1e-9;
  row.roof_name = "memory read";
  return row;
}

}  // namespace

std::vector<BenchRow> bench_matmul(const CpuBench& asked) {
  const bool quick = asked.quick;
  Tensor f32;  // made for the first row
  std::vector<BenchRow> rows;
  const auto add = [&](const Case& c, int64_t m, int repeats) {
    if (!asked.choice.begins(product_name(c, m))) return;
    if (!f32.defined()) f32 = random_normal({kSize, kSize}, 1);
    rows.push_back(product(c, f32, m, repeats, asked.stream));
  };
  const std::span products(kProducts);
  for (const Case& c : quick ? products.first(kQuickProducts) : products) {
    add(c, 512, quick ? 5 : 11);
  }
  const auto row_of = [&](const Case& c) {
    return std::find_if(rows.begin(), rows.end(),
                        [&](const BenchRow& row) { return row.name == product_name(c, 512); });
  };
  const auto blocks = row_of(kScaledBlocks), scaled_rows = row_of(kScaledRows);
  if (asked.choice.only_lists()) static_cast<void>(asked.choice.begins(batch_invariance_name()));
  if (asked.choice.asks_for(batch_invariance_name()) && blocks != rows.end() &&
      scaled_rows != rows.end()) {
    rows.push_back(batch_invariance(*blocks, *scaled_rows));
  }
  if (quick) return rows;
  for (int64_t m : {4, 16, 64}) {
    for (const char* weights : {"bf16", "fp8", "nvfp4"}) add({weights, Format::bf16}, m, 21);
  }
  return rows;
}

std::vector<BenchRow> bench_gemv(const CpuBench& asked) {
  const bool quick = asked.quick;
  Tensor f32;  // made for the first row
  std::vector<BenchRow> rows;
  const std::span gemvs(kGemvs);
  for (const Case& c : quick ? gemvs.first(kQuickGemvs) : gemvs) {
    if (!asked.choice.begins(gemv_name(c))) continue;
    if (!f32.defined()) f32 = random_normal({kSize, kSize}, 1);
    rows.push_back(gemv(c, f32, quick ? 2 : 5, asked.stream));
  }
  return rows;
}

}  // namespace halftone
