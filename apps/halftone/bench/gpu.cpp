#include "bench/gpu.h"

#include <algorithm>

#include "base/message.h"
#include "bench/gpu_data.h"
#include "halftone/matmul.h"
#include "ops/roofs/roofs.h"

namespace halftone {

std::span<const GpuBenchFamily> gpu_bench_families() {
  static constexpr GpuBenchFamily kFamilies[] = {
    {"attention", "prefill", "Attention, prefill", bench_gpu_prefill},
    {"attention", "decode", "Attention, decode", bench_gpu_decode},
    {"gemv", "products", "Matrix-vector products", bench_gpu_gemv},
    {"matmul", "products", "Matrix products", bench_gpu_matmul},
    {"moe", "experts", "Mixture of experts", bench_gpu_moe},
    {"norm", "operations", "Norms", bench_gpu_norm},
    {"activation", "operations", "Activations", bench_gpu_activation},
    {"quantize", "operations", "Quantisation", bench_gpu_quantize},
    {"ops", "operations", "Softmax, rope, embedding, transposes, reductions", bench_gpu_ops},
#if HALFTONE_HAS_ENGINE
    {"generate", "generate", "Decoding with random weights", bench_gpu_generate},
#endif
  };
  return kFamilies;
}

GpuTimingOptions GpuBench::timing() const {
  GpuTimingOptions options;
  if (quick) options = {.rest = 0.1, .bursts = 3, .warm_up = 0.05, .sustained = 0.05};
  options.sensors = sensors;
  return options;
}

int GpuBench::copies(int64_t bytes) const {
  const int64_t least = 4 * properties(stream.device()).l2_bytes;
  return static_cast<int>(std::max<int64_t>(2, least / std::max<int64_t>(bytes, 1) + 1));
}

GpuRoofs measure_gpu_roofs(Stream& stream, bool quick) {
  const GpuBench b{stream, quick};
  const GpuTimingOptions timing = b.timing();
  GpuRoofs roofs;
  const Tensor from = normal_on_device({int64_t{512} << 20}, 1, stream);  // 1 GB
  roofs.read = static_cast<double>(from.bytes()) /
               time_on_gpu(
                   stream, [&](int) { read_memory(from, stream); }, timing)
                   .burst;
  const Tensor to = Tensor::empty(from.shape(), from.format(), from.device());
  roofs.copy = 2.0 * static_cast<double>(from.bytes()) /
               time_on_gpu(
                   stream, [&](int) { copy_memory(from, to, stream); }, timing)
                   .burst;
  constexpr int64_t kSize = 8192;
  MatmulProblem p;
  p.m = p.n = p.k = kSize;
  const MatmulPlan made = plan(p, stream.device());
  const MatmulTensors t{normal_on_device({kSize, kSize}, 1, stream),
                        normal_on_device({kSize, kSize}, 2, stream),
                        Tensor::empty({kSize, kSize}, Format::bf16, stream.device()),
                        {},
                        {}};
  roofs.product = 2.0 * kSize * kSize * kSize /
                  time_on_gpu(
                      stream, [&](int) { run(made, t, stream); }, timing)
                      .burst;
  return roofs;
}

void set_bandwidth(const GpuTiming& time, double roof, const char* roof_name, BenchRow* row) {
  row->seconds = time.burst;
  row->value = row->bytes / time.burst * 1e-12;
  row->sustained = row->bytes / time.sustained * 1e-12;
  row->clock_ghz = time.state.clock_ghz, row->watts = time.state.watts;
  row->unit = "TB/s";
  row->roof = roof * 1e-12;
  row->roof_name = roof_name;
}

void set_flops(const GpuTiming& time, const GpuRoofs& roofs, BenchRow* row) {
  row->seconds = time.burst;
  row->value = row->flops / time.burst * 1e-12;
  row->sustained = row->flops / time.sustained * 1e-12;
  row->clock_ghz = time.state.clock_ghz, row->watts = time.state.watts;
  row->unit = "TFLOP/s";
  row->roof = roofs.product * 1e-12;
  row->roof_name = "our bf16 product of 8192^3";
}

void set_either(const GpuTiming& time, const GpuRoofs& roofs, BenchRow* row) {
  if (row->bytes / roofs.read > row->flops / roofs.product) {
    return set_bandwidth(time, roofs.read, "memory read", row);
  }
  set_flops(time, roofs, row);
}

}  // namespace halftone
