// Products on a GPU: of one row and a few, by the bytes of the weights; of many; of groups.
#include <algorithm>
#include <string_view>

#include "base/message.h"
#include "bench/gpu.h"
#include "bench/gpu_data.h"
#include "halftone/grouped_matmul.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

// What a product is of. `x`: bf16, or the format that x is given in, as peers take it; `rounded`:
// x is given in bf16 and rounded to that format on the way, which the time includes.
struct Product {
  int64_t m, n, k;
  const char *weights, *x = "bf16";
  bool rounded = false;
  bool tf32 = false;  // by cuBLASLt
  MatmulLibrary library = MatmulLibrary::halftone;

  // Weights and x both in E4M3 in blocks, which cuBLASLt takes as well.
  bool in_blocks() const {
    return std::string_view(weights) == "fp8" && std::string_view(x) == "fp8_1x128";
  }
};
std::string name_of(const Product& s) {
  return concat("matmul ", s.m, " x ", s.n, " x ", s.k, ", ", s.weights, " weights x ",
                s.rounded ? "bf16 to " : "", s.x, s.tf32 ? " as TF32" : "",
                s.library == MatmulLibrary::automatic ? ", whichever library" : "");
}

Format out_format(const Tensor& x) {
  return is_plain_float(x.format()) ? x.format() : Format::bf16;
}

MatmulProblem problem_of(const Product& s, const Tensor& x, const Tensor& weight) {
  MatmulProblem p;
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.x = x.format(), p.out = out_format(x);
  p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  p.weight = weight.format();
  p.scaled = weight.has_scales();
  if (p.scaled) p.scaling = weight.scaling();
  p.static_weights = true;  // as a model's
  p.tf32 = s.tf32, p.library = s.tf32 ? MatmulLibrary::cublaslt : s.library;
  if (s.rounded) p.quantize_x = parse_quantization(s.x);
  return p;
}

// The product with each of the weights in turn.
GpuTiming measure(const Product& s, const std::vector<Tensor>& weights, const GpuBench& b,
                  BenchRow* row) {
  const Tensor normal = normal_on_device({s.m, s.k}, 2, b.stream);
  const Tensor x = s.rounded ? normal : in_format(normal, s.x, b.stream);
  const Tensor out = Tensor::empty({s.m, s.n}, out_format(x), b.stream.device());
  const MatmulPlan made = plan(problem_of(s, x, weights[0]), b.stream.device());
  row->bytes = static_cast<double>(weights[0].bytes() + x.bytes() + out.bytes());
  row->flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n * s.k);
  return time_in_graph(
      b.stream, static_cast<int>(weights.size()),
      [&](int i, Stream& stream) {
        run(made, {x, weights[static_cast<size_t>(i)], out, {}, {}}, stream);
      },
      b.timing());
}

std::vector<Tensor> copies_of(const Tensor& normal, const char* format, const GpuBench& b) {
  std::vector<Tensor> all = {in_format(normal, format, b.stream)};
  const auto count = static_cast<size_t>(b.copies(all[0].bytes()));
  while (all.size() < count) all.push_back(in_format(normal, format, b.stream));
  b.stream.synchronize();
  return all;
}

// The speed of cuBLASLt in the same run, where it takes both operands as they are.
void add_peer(Product s, const std::vector<Tensor>& weights, const GpuBench& b, BenchRow* row) {
  if (s.tf32 || s.library == MatmulLibrary::automatic) return;
  if (std::string_view(s.weights) != s.x && !s.in_blocks()) return;
  s.library = MatmulLibrary::cublaslt;
  BenchRow peer;
  try {
    row->peer = row->value * row->seconds / measure(s, weights, b, &peer).burst;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return;
  }
  row->peer_name = "cuBLASLt";
}

// `rows` of x for each of `groups` matrices of E4M3 in blocks of 128x128; x is given in E4M3, or
// rounded to it on the way, which the time includes.
struct Grouped {
  int64_t groups, rows, n, k;
  bool masked, rounded;
};
std::string name_of(const Grouped& s) {
  return concat("grouped matmul ", s.groups, " x ", s.rows, " x ", s.n, " x ", s.k,
                s.masked ? ", masked" : ", contiguous", ", fp8 weights x ",
                s.rounded ? "bf16 to " : "", "fp8_1x128");
}
BenchRow measure(const Grouped& s, const GpuBench& b) {
  const Device& device = b.stream.device();
  const std::vector<Tensor> weights =
      copies_of(normal_on_device({s.groups, s.n, s.k}, 1, b.stream), "fp8", b);
  GroupedProblem p;
  p.groups = s.groups, p.rows = s.groups * s.rows, p.n = s.n, p.k = s.k, p.masked = s.masked;
  p.weight = weights[0].format(), p.scaled = true, p.scaling = weights[0].scaling();
  Tensor counts = Tensor::empty({s.groups}, Format::i32);
  std::fill_n(counts.data<int32_t>(), s.groups, static_cast<int32_t>(s.rows));
  counts = counts.to(device);
  const Tensor normal = normal_on_device({p.rows, s.k}, 2, b.stream);
  const Tensor x = s.rounded ? normal : in_format(normal, "fp8_1x128", b.stream);
  p.x = x.format(), p.x_scaled = x.has_scales();
  if (p.x_scaled) p.x_scaling = x.scaling();
  if (s.rounded) p.quantize_x = parse_quantization("fp8_1x128");
  const Tensor out = Tensor::empty({p.rows, s.n}, Format::bf16, device);
  const GroupedPlan made = plan(p, device);
  BenchRow row;
  row.name = name_of(s);
  row.flops = 2.0 * static_cast<double>(p.rows) * static_cast<double>(s.n * s.k);
  row.bytes = static_cast<double>(weights[0].bytes() + x.bytes() + out.bytes());
  const GpuTiming time = time_in_graph(
      b.stream, static_cast<int>(weights.size()),
      [&](int i, Stream& stream) {
        run(made, {x, counts, weights[static_cast<size_t>(i)], out}, stream);
      },
      b.timing());
  set_either(time, b.roofs, &row);
  return row;
}

}  // namespace

std::vector<BenchRow> bench_gpu_gemv(const GpuBench& b) {
  struct Size {
    int64_t n, k;
  };
  constexpr const char* kFormats[] = {"bf16",  "fp8",   "fp8_row",   "mxfp8", "int8",
                                      "nvfp4", "mxfp4", "int4_g128", "f16"};
  std::vector<BenchRow> rows;
  for (const Size& size : {Size{4096, 4096}, {14336, 4096}, {4096, 14336}, {28672, 8192}}) {
    Tensor normal;  // made for the first row
    for (const std::string format : kFormats) {
      if (format == "f16" && size.n != 4096) continue;  // as many bytes as bf16
      std::vector<Tensor> weights;
      for (const int64_t m : {1, 4, 8, 16}) {
        if (m > 1 && (b.few_sizes() || size.n != 14336)) continue;
        BenchRow row;
        row.name = concat("gemv ", size.n, " x ", size.k, ", ", format, " weights, ", m,
                          m == 1 ? " row" : " rows");
        if (!b.choice.begins(row.name)) continue;
        if (!normal.defined()) normal = normal_on_device({size.n, size.k}, 1, b.stream);
        if (weights.empty()) weights = copies_of(normal, format.c_str(), b);
        const GpuTiming time = measure({m, size.n, size.k, format.c_str()}, weights, b, &row);
        row.bytes = static_cast<double>(weights[0].bytes());
        set_bandwidth(time, b.roofs.read, "memory read", &row);
        rows.push_back(row);
      }
    }
  }
  return rows;
}

std::vector<BenchRow> bench_gpu_matmul(const GpuBench& b) {
  std::vector<Product> all = {{4096, 4096, 4096, "bf16"}, {8192, 8192, 8192, "bf16"}};
  for (const char* format : {"f16", "f32", "fp8_row", "fp8_tensor"}) {
    all.push_back({4096, 4096, 4096, format, format});
  }
  all.push_back({4096, 4096, 4096, "f32", "f32", false, true});
  for (const bool rounded : {false, true}) {
    all.insert(all.end(), {{4096, 4096, 7168, "fp8", "fp8_1x128", rounded},
                           {4096, 7168, 16384, "fp8", "fp8_1x128", rounded},
                           {4096, 24576, 1536, "fp8", "fp8_1x128", rounded},
                           {8192, 8192, 8192, "fp8", "fp8_1x128", rounded},
                           {64, 2112, 7168, "fp8", "fp8_1x128", rounded},
                           {64, 7168, 2048, "fp8", "fp8_1x128", rounded},
                           {128, 24576, 1536, "fp8", "fp8_1x128", rounded}});
  }
  // What a program gets that does not choose.
  for (size_t i = 0, count = all.size(); i < count; ++i) {
    if (!all[i].in_blocks() || all[i].m <= 256) continue;
    all.push_back(all[i]);
    all.back().library = MatmulLibrary::automatic;
  }
  for (const int64_t m : {32, 64, 128, 256, 1024, 4096}) {
    if (b.few_sizes() && m != 64 && m != 1024) continue;
    for (const char* format : {"bf16", "fp8", "mxfp8", "int8", "nvfp4", "mxfp4", "int4_g128",
                               "fp8_e5m2_row", "int4", "int4_asym", "int8_g32"}) {
      all.push_back({m, 14336, 4096, format});
    }
  }
  std::vector<BenchRow> rows;
  for (const Product& s : all) {
    BenchRow row;
    row.name = name_of(s);
    if (!b.choice.begins(row.name)) continue;
    const Tensor normal = normal_on_device({s.n, s.k}, 1, b.stream);
    const std::vector<Tensor> weights = copies_of(normal, s.weights, b);
    set_either(measure(s, weights, b, &row), b.roofs, &row);
    add_peer(s, weights, b, &row);
    rows.push_back(row);
  }
  for (const bool rounded : {false, true}) {
    for (const Grouped& s : {Grouped{8, 4096, 4096, 7168, false, rounded},
                             {4, 256, 4096, 7168, true, rounded},
                             {8, 16, 4096, 7168, true, rounded}}) {
      if (b.choice.begins(name_of(s))) rows.push_back(measure(s, b));
    }
  }
  return rows;
}

}  // namespace halftone
