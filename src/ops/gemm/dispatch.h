// The choice of a kernel for every GEMM: dense, grouped and of experts, on CPUs and GPUs.
//
// One table names the kernels, best first; `dispatch` takes the first that neither the device nor
// the problem rules out. It is a pure function: how operands lie is part of the problem, and
// whether cuBLASLt is there is part of the device, so that what is planned is what runs. How many
// rows each expert has is known on the device alone: the choice depends on their average, tokens *
// top_k / experts, and the chunks of rows that the device then makes are of one size.
//
// tests/matmul/dispatch_golden.txt holds what it chooses.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "base/kernel_table.h"
#include "ops/gemm/cpu/kernels.h"
#include "ops/gemm/problem.h"
#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/mixed/choice.h"

namespace halftone::gemm {

enum class GemmKernel : uint8_t {
  cpu,
  gemv_sm90,
  gemm_sm90_small_m,  // of weights in 4 and 8 bits
  gemm_cublaslt,
  gemv_sm90_grouped,
  gemm_sm90_small_m_grouped,
  gemm_sm90,  // gemm_sm90_fp8_small_m, gemm_sm90_fp8, gemm_sm90_mixed
  gemv_sm80,
  gemm_sm80,
};

// What a choice depends on beside the problem.
struct GemmDevice {
  Device::Kind kind = Device::Kind::cpu;
  CpuLevel level = CpuLevel::baseline;
  Arch arch = Arch::sm_80;
  int sm_count = 0, shared_per_sm = 0;
  bool cublaslt_available = false;
  std::string cublaslt_missing = "cuBLASLt is not there";  // why it is not available
};
GemmDevice gemm_device(const Device&);

struct GemmChoice {
  const char* name = nullptr;  // null: no kernel takes the problem
  GemmKernel kernel = GemmKernel::cpu;
  const Kernels* cpu = nullptr;
  // On GPUs: how the weight enters, and what the kernel needs of the operands.
  GpuWeight weight;
  OperandNeeds needs;
  bool normalises = false;  // the kernel normalises x itself
  bool transposed = false;  // it takes W as [K, N]
  bool ordered = false;     // rows of x lie in the order of the experts' chunks
  uint32_t chunk_rows = 0;  // rows of x at a time: of a chunk of an expert; of one of few rows
  Sm90Choice sm90;          // of gemm_sm90
  GpuLoop loop = GpuLoop::any;
  std::string tile;    // for people
  KernelTrace trace;   // the kernels in the table's order, "" of the one chosen, else why not
  std::string reason;  // of the last kernel that the device has, where none takes the problem
};
// `explain`: the trace also has the kernels behind the one chosen.
GemmChoice dispatch(const GemmProblem&, const GemmDevice&, bool explain = false);
// One CPU kernel for several GEMMs, as those of a layer of experts.
GemmChoice dispatch_cpu(std::span<const GemmProblem>, const GemmDevice&, bool explain = false);
// name and tile
std::string to_string(const GemmChoice&);

// Throws unless operands, whose alignment is given, lie as the kernel needs them. `field`: of the
// problem that says how they lie.
void check_alignment(const GemmChoice&, GemmProblem, const OperandAlignment&, const char* field);

// E4M3 by E4M3 with f32 scales of 1x128 and of 128x128, which cuBLASLt multiplies on Hopper alone.
bool scaled_by_blocks(const GemmProblem&);
// "" or what cuBLASLt is not asked for.
std::string refuse_cublaslt(const GemmProblem&);

// For alignment_of: the bytes at which every row of a tensor begins, or its storage.
int rows_alignment(const Tensor&);
int storage_alignment(const Tensor&);
// Of matrices that are one operand: the halves of a gate, experts.
void set_weight_alignment(std::span<const Tensor> matrices, OperandAlignment*);

}  // namespace halftone::gemm
