// The families of `halftone bench`: to add rows, write a function like these and add it to the
// table in bench_families.cpp. What a row should reach stands in bench_targets.cpp.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "bench/row.h"
#include "halftone/stream.h"

namespace halftone {

// Where a family is measured.
struct CpuBench {
  Stream& stream;
  bool quick = false;  // fewer sizes and repeats, seconds in all
  BenchChoice choice = {};
};

struct BenchFamily {
  const char* name;
  const char* title;
  std::vector<BenchRow> (*run)(const CpuBench&);  // rows in the order of the report
};
std::span<const BenchFamily> bench_families();

// Products of 4096 x 4096 weights in every format with 512 rows of activations, then with few rows.
std::vector<BenchRow> bench_matmul(const CpuBench&);
// One row of activations, the weights coming from memory: copies of them are used in turn, more
// than the caches hold.
std::vector<BenchRow> bench_gemv(const CpuBench&);
// The products of bench_matmul with activations rounded to few bits on the way.
std::vector<BenchRow> bench_quantised_products(const CpuBench&);
// An expert layer for one token to a thousand, against the bytes of the experts in use or the
// products, whichever takes longer.
std::vector<BenchRow> bench_moe(const CpuBench&);
// Prefill and decode of the shapes of a language model and of an audio encoder, caches rotated past
// the processor's own.
std::vector<BenchRow> bench_attention(const CpuBench&);
// Norms, activations, softmax, rope, arithmetic, transposition, reductions, convolution.
std::vector<BenchRow> bench_ops(const CpuBench&);
// Bytes read and written by quantize, dequantize and convert beyond the caches, each once: where
// the whole tensor's maximum is found first, the second reading is time and no work.
std::vector<BenchRow> bench_quantize(const CpuBench&);
// Starting the command, what the engine adds to the products of a token, and choosing a token.
std::vector<BenchRow> bench_overhead(const CpuBench&);

}  // namespace halftone
