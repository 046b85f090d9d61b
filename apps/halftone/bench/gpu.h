// The families of `halftone bench --device cuda:N`.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/row.h"
#include "halftone/attention.h"
#include "measure/gpu_timing.h"

namespace halftone {

// What the chip reaches, measured in the same run: bytes/s read, and read plus written, of memory
// past the caches; FLOP/s of our own product of 8192^3 in bf16.
struct GpuRoofs {
  double read = 0, copy = 0, product = 0;
};
GpuRoofs measure_gpu_roofs(Stream&, bool quick);

// What the family `generate` runs, each with each.
struct GenerateBench {
  std::vector<std::string> models = {"llama-3-8b", "qwen3-30b-a3b"};
  std::vector<std::string> weights = {"bf16", "fp8", "nvfp4"};
  std::vector<int64_t> batches = {1, 32};
  std::string activations = "bf16";
  bool batch_invariant = false;
};

// Where a family is measured.
struct GpuBench {
  Stream& stream;
  bool quick = false;
  GpuRoofs roofs = {};
  GenerateBench generate = {};
  BenchChoice choice = {};
  const GpuSensors* sensors = nullptr;  // of the stream's device; null: not asked
  // Quick ones leave sizes out, but none that was asked for.
  bool few_sizes() const { return quick && choice.rows.empty(); }
  GpuTimingOptions timing() const;
  // Copies of `bytes` to use in turn, at least two, so that none is found in the second-level
  // cache.
  int copies(int64_t bytes) const;
};

struct GpuBenchFamily {
  const char* name;
  const char* suite;  // the part of the family that it measures
  const char* title;
  std::vector<BenchRow> (*run)(const GpuBench&);
};
std::span<const GpuBenchFamily> gpu_bench_families();

// The value of a row whose time is set, in TB/s of its bytes beside the roof of reading, or of
// reading and writing; and in TFLOP/s.
void set_bandwidth(const GpuTiming&, double roof, const char* roof_name, BenchRow*);
void set_flops(const GpuTiming&, const GpuRoofs&, BenchRow*);
// In TB/s or TFLOP/s, whichever takes longer: what must be read or what must be multiplied.
void set_either(const GpuTiming&, const GpuRoofs&, BenchRow*);

// 16,384 tokens as 32 x 512 to 1 x 16,384 in heads of 64, 128 and 256, full and causal, every mode
// that the device takes; and grouped heads.
std::vector<BenchRow> bench_gpu_prefill(const GpuBench&);
// One token a sequence over caches of 2,048 to 65,536 keys in bf16, fp8 and nvfp4, also
// batch-invariant.
std::vector<BenchRow> bench_gpu_decode(const GpuBench&);
// One row of activations and a few, weights in every format, three sizes.
std::vector<BenchRow> bench_gpu_gemv(const GpuBench&);
// Products of many rows.
std::vector<BenchRow> bench_gpu_matmul(const GpuBench&);
// Layers of experts for one token to thousands.
std::vector<BenchRow> bench_gpu_moe(const GpuBench&);
// What memory bounds, in TB/s read and written beside a copy's: from thousands of rows to one.
std::vector<BenchRow> bench_gpu_norm(const GpuBench&);
std::vector<BenchRow> bench_gpu_activation(const GpuBench&);
// Every format and layout of scales, there and back.
std::vector<BenchRow> bench_gpu_quantize(const GpuBench&);
std::vector<BenchRow> bench_gpu_ops(const GpuBench&);
// Tokens of whole models with random weights, as many sequences as the batch in step.
std::vector<BenchRow> bench_gpu_generate(const GpuBench&);

// One problem of the prefill suite.
struct PrefillShape {
  int64_t batch, length, heads, kv_heads, head_dim;
  bool causal;
  // Beside the causal mask: "window 1024", "softcap", "mask" (added, bf16), "pages of 16", "pages
  // of 64", "lengths" (read on the GPU), "packed" (cu_seqlens), all of bf16 alone; none when empty.
  // "from bf16": no mask, but the codes of Q, K and V are made of bf16 within the time.
  std::string rule = {};
};
// `scale_tokens`: of operands in fp8 that share a scale: 1, a block of 128, or 0, all.
std::string prefill_name(const PrefillShape&, const AttentionMode&, int64_t scale_tokens);
// A row of it; in TFLOP/s of a burst, causal counted as half. Random data, two sets of it in turn.
BenchRow bench_prefill(const PrefillShape&, const AttentionMode&, Stream&, const GpuTimingOptions&,
                       int64_t scale_tokens = 1);

// One problem of the decode suite, and its row, in TB/s of the cache.
struct DecodeShape {
  int64_t batch, keys;
  std::string cache;  // f16, bf16 or of quantization_names()
  bool batch_invariant = false;
  std::string name() const;
};
BenchRow bench_decode(const DecodeShape&, const GpuBench&);

}  // namespace halftone
