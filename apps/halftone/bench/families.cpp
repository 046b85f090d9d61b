#include "bench/families.h"

namespace halftone {

std::span<const BenchFamily> bench_families() {
  static constexpr BenchFamily kFamilies[] = {
      {"matmul", "Matrix products", bench_matmul},
      {"gemv", "Matrix-vector products", bench_gemv},
      {"w8a8", "Products of quantised activations", bench_quantised_products},
      {"moe", "Mixture of experts", bench_moe},
      {"attention", "Attention", bench_attention},
      {"ops", "Norms, activations, softmax", bench_ops},
      {"quantize", "Quantisation", bench_quantize},
      {"overhead", "Starting, the engine's overhead, sampling", bench_overhead},
  };
  return kFamilies;
}

}  // namespace halftone
