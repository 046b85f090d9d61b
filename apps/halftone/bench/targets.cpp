#include "bench/targets.h"

#include <algorithm>

#include "base/message.h"

namespace halftone {

namespace {

using Of = BenchTarget::Of;

constexpr const char* kBf16Product = "matmul 512x4096x4096 bf16 weights x bf16";

constexpr BenchTarget kTargets[] = {
    // Packed products: parity with the library that packs; low-bit weights: the bf16 product's
    // rate.
    {"matmul 512x4096x4096 f32 weights x f32", Of::peer, 0.95},
    {"matmul 512x4096x4096 bf16 weights x bf16", Of::peer, 0.95},
    {"matmul 512x4096x4096 int8 weights x int8*", Of::peer, 0.95},
    {"matmul 512x4096x4096 * weights x bf16", Of::row, 0.85, kBf16Product},
    // One row of activations: bytes.
    {"gemv 4096x4096 bf16 weights*", Of::roof, 0.95},
    {"gemv 4096x4096 fp8* weights*", Of::roof, 0.90},
    {"gemv 4096x4096 int8* weights*", Of::roof, 0.90},
    {"gemv 4096x4096 nvfp4* weights*", Of::roof, 0.80},
    {"gemv 4096x4096 mxfp4* weights*", Of::roof, 0.80},
    {"gemv 4096x4096 int4* weights*", Of::roof, 0.80},
    // Attention.
    {"prefill 32/8 heads of 128, 2048 causal bf16+bf16", Of::value, 600},
    {"prefill 32/8 heads of 128, 2048 causal f32*", Of::roof, 0.85},
    {"prefill 32/8 heads of 128, 2048 causal f16*", Of::roof, 0.85},
    {"prefill 32/8 heads of 128, 2048 causal *", Of::value, 500},
    {"prefill 6 heads of 64, 1500 full*", Of::value, 450},
    {"decode 32/8 heads of 128, cache 8192*", Of::roof, 0.85},
    // Attention on a GPU, beside the vendor's kernel (bench/compare/attention_torch.py).
    {"prefill * x *, * heads of 256, * bf16+bf16", Of::peer, 1.03},
    {"prefill * x *, * bf16+bf16", Of::peer, 1.05},
    // Products on a GPU. Of one row: TB/s of the weights.
    {"gemv 4096 x 4096, bf16 weights, 1 row", Of::value, 3.6},
    {"gemv 14336 x 4096, bf16 weights, 1 row", Of::value, 4.3},
    {"gemv 28672 x 8192, bf16 weights, 1 row", Of::value, 4.5},
    {"gemv 4096 x 4096, *4* weights, 1 row", Of::value, 2.2},
    {"gemv 14336 x 4096, *4* weights, 1 row", Of::value, 3.5},
    {"gemv 28672 x 8192, *4* weights, 1 row", Of::value, 4.2},
    {"gemv 4096 x 4096, * weights, 1 row", Of::value, 3.0},
    {"gemv 14336 x 4096, * weights, 1 row", Of::value, 4.0},
    {"gemv 28672 x 8192, * weights, 1 row", Of::value, 4.4},
    {"matmul * x 4096 x 4096, bf16 weights x bf16", Of::peer, 1.0},
    {"matmul * x 8192 x 8192, bf16 weights x bf16", Of::peer, 1.0},
    {"matmul 1024 x 14336 x 4096, * weights x bf16", Of::row, 0.90,
     "matmul 1024 x 14336 x 4096, bf16 weights x bf16"},
    {"matmul 4096 x 14336 x 4096, * weights x bf16", Of::row, 0.90,
     "matmul 4096 x 14336 x 4096, bf16 weights x bf16"},
    {"matmul * x 14336 x 4096, * weights x bf16", Of::roof, 0.85},
    {"moe * token*, * weights", Of::roof, 0.85},
    // Everything bound by memory, beyond the second-level cache.
    {"quantize * to nvfp4_adaptive", Of::roof, 0},
    {"quantize *", Of::roof, 0.85},
    {"dequantize *", Of::roof, 0.85},
    {"convert *", Of::roof, 0.85},
    {"rms norm* 512x4096*", Of::roof, 0.85},
    {"rms norm* 8192x4096*", Of::roof, 0.85},
    {"conv1d *", Of::roof, 0.85},
    {"histogram *", Of::roof, 0},
    {"* of 8192x4096*", Of::roof, 0.85},
    {"* 8192x4096 f32", Of::roof, 0.85},
    {"softmax 1024x32000*", Of::roof, 0.85},
    {"* 512x4096 bf16", Of::roof, 0.85},
    {"* 8192x4096 bf16", Of::roof, 0.85},
    {"engine overhead*", Of::seconds, 20e-6},
    {"start *", Of::seconds, 30e-3},
};

// The processor, the libraries' versions and the conditions are those of kPublishedSource.
constexpr Published kPublished[] = {
    {"matmul 512x4096x4096 f32 weights x f32", "AOCL-DLP", 539, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "oneDNN 2.6.3", 537, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "OpenBLAS 0.3.21 (SkylakeX)", 474, "GFLOP/s"},
    {"matmul 512x4096x4096 f32 weights x f32", "ggml", 159, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "AOCL-DLP", 1102, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "ik_llama.cpp, repacked", 1067, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "oneDNN 2.6.3", 1066, "GFLOP/s"},
    {"matmul 512x4096x4096 bf16 weights x bf16", "ggml", 251, "GFLOP/s"},
    {"matmul 512x4096x4096 f16 weights x f16", "ik_llama.cpp", 494, "GFLOP/s"},
    {"matmul 512x4096x4096 f16 weights x f16", "ggml", 167, "GFLOP/s"},
    {"matmul 512x4096x4096 int8* weights x int8*", "AOCL-DLP", 2190, "GOP/s"},
    {"matmul 512x4096x4096 int8* weights x int8*", "oneDNN 2.6.3", 2134, "GOP/s"},
    {"matmul 512x4096x4096 int8 weights x bf16", "oneDNN 3.14-dev", 949, "GFLOP/s"},
    {"matmul 512x4096x4096 nvfp4 weights x bf16", "ggml", 103.5, "GFLOP/s"},
    {"matmul 512x4096x4096 mxfp4 weights x bf16", "ik_llama.cpp", 1031, "GFLOP/s"},
    {"matmul 512x4096x4096 mxfp4 weights x bf16", "ggml, repacked", 640, "GFLOP/s"},
    {"matmul 512x4096x4096 int4_g128 weights x bf16", "oneDNN 3.14-dev", 940, "GFLOP/s"},
    {"gemv 4096x4096 bf16 weights*", "ggml", 90, "GB/s"},
    {"gemv 4096x4096 bf16 weights*", "oneDNN 2.6.3 (partly L3)", 120, "GB/s"},
    {"gemv 4096x4096 f32 weights*", "ggml", 91, "GB/s"},
    {"gemv 4096x4096 f16 weights*", "ggml", 83, "GB/s"},
    {"gemv 4096x4096 int8 weights*", "ik_llama.cpp q8_0", 91, "GB/s"},
    {"gemv 4096x4096 int8 weights*", "ggml q8_0", 64, "GB/s"},
    {"gemv 4096x4096 nvfp4 weights*", "ggml", 27.7, "GB/s"},
    {"gemv 4096x4096 mxfp4 weights*", "ggml, repacked", 47.5, "GB/s"},
    {"gemv 4096x4096 mxfp4 weights*", "ik_llama.cpp", 15.7, "GB/s"},
    {"gemv 4096x4096 int4* weights*", "ggml q4_0, repacked", 59, "GB/s"},
    {"prefill 32/8 heads of 128, 2048 causal bf16+bf16", "ik_llama.cpp", 230, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal bf16+bf16", "ggml", 38, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal f16+f16", "ik_llama.cpp", 192, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal f16+f16", "ggml", 152, "GFLOP/s"},
    {"prefill 32/8 heads of 128, 2048 causal int8+bf16", "ik_llama.cpp q8_0", 304, "GFLOP/s"},
    {"prefill 6 heads of 64, 1500 full*", "ggml", 137, "GFLOP/s"},
    {"prefill 6 heads of 64, 1500 full*", "ik_llama.cpp", 47, "GFLOP/s"},
    {"decode 32/8 heads of 128, cache 8192 f16", "ik_llama.cpp", 54, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 f16", "ggml", 15.8, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 bf16", "ik_llama.cpp", 43, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 bf16", "ggml", 10.9, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 int8", "ik_llama.cpp q8_0", 50, "GB/s"},
    {"decode 32/8 heads of 128, cache 8192 int8", "ggml q8_0", 4.7, "GB/s"},
};

// `pattern` with "*" for any characters, also none.
bool fits(const char* pattern, const char* text) {
  if (*pattern == '\0') return *text == '\0';
  if (*pattern != '*') return *pattern == *text && fits(pattern + 1, text + 1);
  return fits(pattern + 1, text) || (*text != '\0' && fits(pattern, text + 1));
}

}  // namespace

const char* const kPublishedSource =
    "Measured in 2026-11 on two cores of an AMD EPYC (Zen 5, 4.5 GHz), Debian 12, by the authors "
    "of "
    "the targets: ggml of llama.cpp of 2026-08, ik_llama.cpp with AVX-512 flags, oneDNN, AOCL-DLP "
    "d92b225, OpenBLAS of Debian. Weights of matrix-vector rows partly in the third-level cache.";

const BenchTarget* target_of(const std::string& row) {
  for (const BenchTarget& target : kTargets) {
    if (fits(target.rows, row.c_str())) return target.bound > 0 ? &target : nullptr;
  }
  return nullptr;
}

std::optional<Judgement> judge(const BenchRow& row, std::span<const BenchRow> all) {
  const BenchTarget* target = target_of(row.name);
  if (target == nullptr) return std::nullopt;
  Judgement j;
  double basis = 1;
  switch (target->of) {
    case Of::roof:
      basis = row.roof;
      j.target = concat(target->bound, " of the roof");
      break;
    case Of::peer:
      basis = row.peer;
      j.target = concat(target->bound, " of ", row.peer_name);
      break;
    case Of::row: {
      const auto other = std::find_if(all.begin(), all.end(),
                                      [&](const BenchRow& r) { return r.name == target->other; });
      basis = other == all.end() ? 0 : other->value;
      j.target = concat(target->bound, " of ", target->other);
      break;
    }
    case Of::value:
      j.target = concat(target->bound, " ", row.unit);
      break;
    case Of::seconds:
      j.reached = row.seconds;
      j.met = j.reached <= target->bound;
      j.target = target->bound < 1e-3 ? concat("at most ", target->bound * 1e6, " us")
                                      : concat("at most ", target->bound * 1e3, " ms");
      return j;
  }
  if (!(basis > 0)) return std::nullopt;
  j.reached = row.value / basis;
  j.met = j.reached >= target->bound;
  return j;
}

std::vector<Published> published_for(const std::string& row) {
  std::vector<Published> found;
  for (const Published& p : kPublished) {
    if (fits(p.row, row.c_str())) found.push_back(p);
  }
  return found;
}

}  // namespace halftone
