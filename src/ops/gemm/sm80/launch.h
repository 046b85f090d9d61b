// GEMMs on GPUs, host side: the layout of a weight, how x is prepared, which instance is launched.
#pragma once
#include <string>

#include "halftone/stream.h"
#include "halftone/tensor.h"
#include "ops/gemm/problem.h"
#include "ops/gemm/sm80/activations.cuh"
#include "ops/gemm/sm80/params.h"

namespace halftone::gemm {

// A matrix as the kernels read it: one of a tensor [matrices, rows, columns].
GpuLayout gpu_layout(const Tensor&, const char* name);
GpuSource gpu_source(const Tensor&, int64_t matrix = 0);

// How the values of a weight and its scales enter the MMA.
struct GpuWeight {
  GpuCode code = GpuCode::bf16;
  bool scaled = false, dequantise = false, pairs = false;  // see GpuGemm
};
GpuWeight gpu_weight(const XSpec& x, Format weight, bool scaled, const Scaling&);

// Empty, or the rule that x breaks; other kernels take it then.
std::string refuse_gpu_x(const XSpec&);

// How x enters the GEMM: as given, or as BF16 terms prepared by a kernel in front, with the scales
// that multiply the accumulator.
class GpuX {
 public:
  GpuX() = default;
  GpuX(const XSpec&, const GpuWeight&, int64_t k);
  bool direct() const { return direct_; }
  uint32_t terms() const { return params_.terms; }
  // Elements of K that share a scale of x on the accumulator; 0: none do, or the whole row.
  int64_t scale_group() const { return params_.entry == GpuEntry::code ? group_ : 0; }
  // Allocates room for `m` rows; none if x enters as given, unless it is to be copied.
  void allocate(int64_t m, const Device&, bool copied = false);
  int64_t bytes() const;
  // Whether x is E4M3 values with scales on the accumulator: FP8 kernels take them as they are.
  bool has_codes() const { return codes_ == Format::fp8_e4m3 && params_.entry == GpuEntry::code; }
  // Prepares the m rows of x and sets the GEMM's operand. With `order`, row i is row order[i] of x
  // (a gather); allocate() then needs `copied`.
  void enter(const Tensor& x, int64_t m, GpuGemm*, Stream&, bool as_codes = false,
             const int32_t* order = nullptr) const;

 private:
  // Values and FP32 scales by the kernels of quantize(), at the speed of a copy.
  void enter_quantised(const Tensor& x, int64_t m, GpuGemm*, Stream&) const;

  GpuRowsParams params_;
  Format codes_ = Format::f32;
  bool direct_ = true, plain_scales_ = false, one_scale_ = false;  // FP32, linear
  int64_t k_ = 0, group_ = 0;
  Tensor rows_, scales_, row_scales_;
};

// 16-byte aligned and without zero points.
bool is_plain(const GpuSource&);
// The fields of a GpuGemm that follow from the weight's format and k.
void set_weight(const GpuWeight&, const GpuLayout&, GpuGemm*);
// Up to so many columns of x go to the GEMV, which reads W once for all of them.
inline constexpr int64_t kGemvMaxColumns = 16;
inline bool fits_gemv(int64_t columns) { return columns <= kGemvMaxColumns; }
// The GEMM of rows [first, first + count) of x.
GpuGemm rows_of(GpuGemm, int64_t first, int64_t count);
// The loop over K of gemv_sm80, which the operands' alignment decides, and so the order of its
// sums.
GpuLoop loop_of_gemv(const GemmProblem&, const GpuWeight&, const GpuX&);
OperandNeeds needs_gemv(const GemmProblem&, const GpuWeight&, const GpuX&);
// Whether it runs as persistent CTAs: the same bits.
bool gemv_is_persistent(const GemmProblem&, const GpuWeight&, const GpuX&, int multiprocessors,
                        int shared_per_sm);
// Few rows of x. `chunks`: CTAs along the rows of x where these are in M-chunks; else 0. Persistent
// CTAs are as many as `multiprocessors` SMs take; 0: those of the device.
void launch_gemv(const GpuWeight&, GpuGemm, GpuLoop, uint32_t chunks, Stream&,
                 uint32_t multiprocessors = 0);
// Many rows of x.
void launch_gemm(const GpuWeight&, GpuGemm, uint32_t chunks, Stream&);
// Rows of an M-chunk, where `average` rows per expert are expected.
uint32_t rows_of_chunk(uint32_t terms, bool many, int64_t average);

}  // namespace halftone::gemm
