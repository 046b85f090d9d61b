#include "bench_matmul.h"

#include <algorithm>
#include <random>

#include "base/message.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"
#include "roofs.h"

namespace halftone {

namespace {

constexpr int64_t kSize = 4096;
// More than any cache of the processors this is meant for, so that each copy of a weight comes from
// memory when its turn is there again.
constexpr int64_t kRotation = int64_t{320} << 20;

struct Case {
  const char* weights;  // a name of quantization_names(), or f32, f16, bf16
  Format x;
  double peer;  // GFLOP/s of a product, share of the bandwidth of a GEMV; 0: none
  const char* peer_name;
};

// Peers of two Zen 5 cores; where nobody has the format, the yardstick is our own bf16 product.
constexpr Case kProducts[] = {
    {"f32", Format::f32, 537, "oneDNN, targets"},
    {"bf16", Format::bf16, 1066, "oneDNN, targets"},
    {"fp8", Format::bf16, 0, "own bf16"},
    {"fp8_row", Format::bf16, 0, "own bf16"},
    {"mxfp8", Format::bf16, 0, "own bf16"},
    {"int8", Format::bf16, 0, "own bf16"},
    {"nvfp4", Format::bf16, 103, "ggml, targets"},
    {"mxfp4", Format::bf16, 1031, "ik_llama.cpp, targets"},
    {"int4_g128", Format::bf16, 940, "oneDNN, targets"},
    {"f16", Format::f16, 494, "ik_llama.cpp, targets"},
    {"bf16", Format::f32, 0, ""},
    {"fp8", Format::f32, 0, ""},
    {"nvfp4", Format::f32, 0, ""},
    {"int4_g128", Format::f32, 0, ""},
};
constexpr int kQuickProducts = 9;

constexpr Case kGemvs[] = {
    {"bf16", Format::bf16, 1.0, "oneDNN, targets"},
    {"fp8", Format::bf16, 0, ""},
    {"int8", Format::bf16, 0, ""},
    {"nvfp4", Format::bf16, 0.31, "ggml, targets"},
    {"mxfp4", Format::bf16, 0.52, "ggml, targets"},
    {"int4_g128", Format::bf16, 0.65, "ggml, targets"},
    {"bf16", Format::f32, 1.0, "oneDNN, targets"},
    {"fp8", Format::f32, 0, ""},
    {"nvfp4", Format::f32, 0.31, "ggml, targets"},
    {"int4_g128", Format::f32, 0.65, "ggml, targets"},
    {"f32", Format::f32, 0, ""},
    {"f16", Format::f32, 0, ""},
    {"mxfp8", Format::f32, 0, ""},
    {"int8", Format::f32, 0, ""},
    {"mxfp4", Format::f32, 0.52, "ggml, targets"},
    {"int4", Format::f32, 0.65, "ggml, targets"},
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
  p.x = p.out = x.format();
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

BenchRow product(const Case& c, const Tensor& f32, int64_t m, int repeats, Stream& stream) {
  const Tensor w = in_format(f32, c.weights, stream);
  const Tensor x = convert(random_normal({m, kSize}, 2), c.x, stream);
  const Tensor out = Tensor::empty({m, kSize}, c.x);
  const MatmulPlan p = plan_for(x, w);
  BenchRow row;
  row.name = concat("matmul ", m, "x", kSize, "x", kSize, " ", c.weights, " weights x ", name(c.x));
  const bool dot = uses_dot(p);
  const double roof = around(
      [&] { return dot ? bf16_roof(stream) : f32_roof(stream); },
      [&] {
        row.seconds = median_seconds(repeats, [&](int) { run(p, {x, w, out, {}, {}}, stream); });
      });
  row.value = 2.0 * static_cast<double>(m * kSize * kSize) / row.seconds * 1e-9;
  row.unit = "GFLOP/s";
  row.roof = roof * 1e-9;
  row.roof_name = dot ? "bf16 dot product" : "f32 multiply-add";
  row.peer = c.peer;
  row.peer_name = c.peer_name;
  return row;
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
  row.name = concat("gemv ", kSize, "x", kSize, " ", c.weights, " weights x ", name(c.x));
  const double roof =
      around([&] { return read_roof(stream, kRotation); },
             [&] {
               const int count = static_cast<int>(copies.size());
               row.seconds = median_seconds(turns * count, [&](int i) {
                 run(p, {x, copies[static_cast<size_t>(i % count)], out, {}, {}}, stream);
               });
             });
  row.value = static_cast<double>(bytes) / row.seconds * 1e-9;
  row.unit = "GB/s";
  row.roof = roof * 1e-9;
  row.roof_name = "memory read";
  row.peer = c.peer * row.roof;
  row.peer_name = c.peer_name;
  return row;
}

}  // namespace

std::vector<BenchRow> bench_matmul(Stream& stream, bool quick) {
  const Tensor f32 = random_normal({kSize, kSize}, 1);
  std::vector<BenchRow> rows;
  double own = 0;
  int left = quick ? kQuickProducts : static_cast<int>(std::size(kProducts));
  for (const Case& c : kProducts) {
    if (left-- == 0) break;
    BenchRow row = product(c, f32, 512, quick ? 5 : 11, stream);
    if (std::string(c.weights) == "bf16" && c.x == Format::bf16) own = row.value;
    if (row.peer == 0 && row.peer_name == "own bf16") row.peer = own;
    rows.push_back(std::move(row));
  }
  if (quick) return rows;
  for (int64_t m : {4, 16, 64}) {
    for (const char* weights : {"bf16", "fp8", "nvfp4"}) {
      rows.push_back(product({weights, Format::bf16, 0, ""}, f32, m, 21, stream));
    }
  }
  return rows;
}

std::vector<BenchRow> bench_gemv(Stream& stream, bool quick) {
  const Tensor f32 = random_normal({kSize, kSize}, 1);
  std::vector<BenchRow> rows;
  int left = quick ? kQuickGemvs : static_cast<int>(std::size(kGemvs));
  for (const Case& c : kGemvs) {
    if (left-- == 0) break;
    rows.push_back(gemv(c, f32, quick ? 2 : 5, stream));
  }
  return rows;
}

}  // namespace halftone
