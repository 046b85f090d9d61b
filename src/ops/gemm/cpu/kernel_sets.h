// The kernel sets that the ISA-level sources define, for the tables of the families.
#pragma once
#include <string>

#include "ops/gemm/cpu/kernels.h"

namespace halftone {

namespace cpu_baseline {
extern const gemm::Kernels f32_kernels;
extern const gemm::Kernels int8_kernels;
}  // namespace cpu_baseline
#if defined(__x86_64__)
namespace cpu_avx2 {
extern const gemm::Kernels f32_kernels;
extern const gemm::Kernels int8_kernels;
}  // namespace cpu_avx2
namespace cpu_avx512 {
extern const gemm::Kernels f32_kernels;
extern const gemm::Kernels int8_kernels;
}  // namespace cpu_avx512
namespace cpu_avx512_bf16 {
extern const gemm::Kernels f32_kernels;
extern const gemm::Kernels int8_kernels;
extern const gemm::Kernels bf16_kernels;
}  // namespace cpu_avx512_bf16
#endif

namespace gemm {
// Empty, or why the bf16 dot kernels do not take these operands.
std::string refuse_bf16(Format x, Format weight, bool scaled, const Scaling&);
// Empty, or why the int8 kernels do not take a weight [.., k].
std::string refuse_int8(Format weight, bool scaled, const Scaling&, int64_t k);
}  // namespace gemm

}  // namespace halftone
