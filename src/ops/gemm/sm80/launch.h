// Products on a GPU, host side: what a matrix is to the kernels, how x enters, which instance.
#pragma once
#include <string>

#include "halftone/stream.h"
#include "halftone/tensor.h"
#include "ops/gemm/cpu/activations.h"
#include "ops/gemm/sm80/activations.cuh"
#include "ops/gemm/sm80/params.h"

namespace halftone::gemm {

// A matrix as the kernels read it. Of a tensor [matrices, rows, columns], one.
GpuLayout gpu_layout(const Tensor&, const char* name);
GpuSource gpu_source(const Tensor&, int64_t matrix = 0);

// How the codes of a weight enter, and its scales.
struct GpuWeight {
  GpuCode code = GpuCode::bf16;
  bool scaled = false, dequantise = false, pairs = false;  // see GpuGemm
};
GpuWeight gpu_weight(const XSpec& x, Format weight, bool scaled, const Scaling&);

// Empty, or the rule that an x breaks which other kernels take.
std::string refuse_gpu_x(const XSpec&);

// How rows of x enter: as they lie, or as bf16 terms made by a kernel before, with the scales that
// multiply sums.
class GpuX {
 public:
  GpuX() = default;
  GpuX(const XSpec&, const GpuWeight&, int64_t k);
  bool direct() const { return direct_; }
  uint32_t terms() const { return params_.terms; }
  // Elements of K that share a scale which multiplies sums; 0: none do, or the whole row.
  int64_t scale_group() const { return params_.entry == GpuEntry::code ? group_ : 0; }
  // Room for `m` rows; none if they enter as they lie, unless they are to be copied.
  void allocate(int64_t m, const Device&, bool copied = false);
  int64_t bytes() const;
  // Whether rows are E4M3 codes, with scales that multiply sums: they may enter as codes.
  bool has_codes() const { return codes_ == Format::fp8_e4m3 && params_.entry == GpuEntry::code; }
  // Makes the m rows of x, and says in the product where they are. Of `order`, if it is given, row
  // i is row order[i] of x, allocated as `copied`.
  void enter(const Tensor& x, int64_t m, GpuGemm*, Stream&, bool as_codes = false,
             const int32_t* order = nullptr) const;

 private:
  // Codes and f32 scales by the kernels of quantize(), at the speed of copies.
  void enter_quantised(const Tensor& x, int64_t m, GpuGemm*, Stream&) const;

  GpuRowsParams params_;
  Format codes_ = Format::f32;
  bool direct_ = true, plain_scales_ = false, one_scale_ = false;  // f32, linear
  int64_t k_ = 0, group_ = 0;
  Tensor rows_, scales_, row_scales_;
};

// On 16 bytes and without zero points.
bool is_plain(const GpuSource&);
// The fields of a product that follow from the weight's format and k.
void set_weight(const GpuWeight&, const GpuLayout&, GpuGemm*);
// Whether few rows of x go to the kernel that reads W once for all its columns.
inline constexpr int64_t kGemvMaxColumns = 16;
inline bool fits_gemv(int64_t columns) { return columns <= kGemvMaxColumns; }
// The product of rows [first, first + count) of x.
GpuGemm rows_of(GpuGemm, int64_t first, int64_t count);
// `parts`: blocks along the rows of x, where these are cut by a list of parts; else 0. Blocks that
// stay are as many as `multiprocessors` take; 0: those of the device.
void launch_gemm(const GpuWeight&, GpuGemm, bool many, uint32_t chunks, Stream&,
                 uint32_t multiprocessors = 0);
// Rows of a part, where parts of `average` rows are expected.
uint32_t rows_of_chunk(uint32_t terms, bool many, int64_t average);

}  // namespace halftone::gemm
