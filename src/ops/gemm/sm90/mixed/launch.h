// Tiled GEMMs on sm_90a (mixed-input and FP8), host side: which problems they take, and their
// launch.
#pragma once
#include <span>
#include <string>

#include "ops/gemm/problem.h"
#include "ops/gemm/sm80/launch.h"
#include "ops/gemm/sm90/mixed/choice.h"
#include "pipe/tensor_map.h"

namespace halftone::gemm {

// Matrices of one layout, each so many steps of 2^shift bytes behind the first: one tensor map has
// them all.
struct Sm90Matrices {
  const uint8_t* first = nullptr;
  uint32_t shift = 4;
  int64_t last = 0;             // steps to the last
  bool aligned = false;         // all meet the alignment of TMA
  uint32_t scales_aligned = 1;  // all start at a multiple of so many bytes, 16 at most
  bool scales_of_runs = false;  // groups of 32 rows of a tile share a scale
  // The same for the scales of the first rows; null: they are not all 16-byte aligned.
  const uint8_t* first_scale = nullptr;
  uint32_t scale_shift = 4;
  int64_t last_scale = 0;
};
Sm90Matrices sm90_matrices(const GpuLayout&, const GpuSource*, size_t count);

// Empty, or the rule that a problem breaks; other kernels take it then.
std::string refuse_sm90(const GemmProblem&, const GpuWeight&, const GpuX&);
// Tile and splits of a problem that is not refused, on so many SMs.
Sm90Choice choose_sm90(const GemmProblem&, const GpuWeight&, const GpuX&, int multiprocessors);
std::string to_string(const Sm90Choice&);
// The alignment of TMA, 16 bytes.
OperandNeeds needs_sm90(const GemmProblem&, const GpuWeight&, const GpuX&);
// The TMA box of W: `rows` rows of 128 bytes; of [K, N], panels of 64 rows.
pipe::TensorBox weight_box_sm90(const GpuLayout&, const GemmProblem&, const Sm90Matrices&,
                                uint32_t rows);
// Whether x is passed as quantised E4M3 values.
bool takes_codes_sm90(const GemmProblem&, const GpuWeight&, const GpuX&);
// `max_chunks`: an upper bound; the list is in the GEMM's params.
void launch_sm90(const GemmProblem&, const GpuWeight&, const Sm90Choice&, const GpuGemm&,
                 const Sm90Matrices&, uint32_t max_chunks, Stream&);
// Horizontally fused GEMMs by the same x (can_fuse_sm90) in one launch; the n of the problem counts
// the rows of all. Returns false, and launches nothing, where separate launches are faster.
bool launch_fused_sm90(const GemmProblem&, const GpuWeight&, const GpuX&, std::span<const GpuGemm>,
                       Stream&);

}  // namespace halftone::gemm
