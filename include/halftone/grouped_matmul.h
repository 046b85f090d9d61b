// Grouped GEMM: rows of x in groups, each with a weight of its own, for callers that route and
// permute tokens to experts themselves. How many rows a group has is on the device; the host does
// not see it. Numerics: docs/numerics.md, "MoE".
#pragma once
#include <memory>
#include <optional>

#include "halftone/error.h"
#include "halftone/operand_alignment.h"
#include "halftone/quantize.h"
#include "halftone/stream.h"
#include "halftone/tensor.h"

namespace halftone {

struct GroupedProblem {
  int64_t groups = 0, n = 0, k = 0;
  int64_t rows = 0;  // of x and out, in all
  // Contiguous layout: the rows of a group follow those of the group before. Masked layout: every
  // group has room for rows / groups rows, and its own are the first of them.
  bool masked = false;
  Format x = Format::bf16;  // as of matmul
  bool x_scaled = false;    // x is given with scales: as of matmul
  Scaling x_scaling;
  Format weight = Format::bf16;  // as of matmul
  Scaling scaling;               // any block, any layout; on CPUs linear
  bool scaled = false;
  Format out = Format::bf16;                  // f32, f16, bf16
  std::optional<QuantizeOptions> quantize_x;  // as of moe
  // As of matmul: otherwise the kernel of GPUs depends on the average rows of a group, rows /
  // groups.
  bool batch_invariant = false;
  OperandAlignment alignment = {};  // as of matmul
};

struct GroupedTensors {
  Tensor x;       // [rows, k], rows any stride apart
  Tensor counts;  // i32 [groups]: rows of each group
  Tensor weight;  // [groups, n, k]
  Tensor out;     // [rows, n], rows any stride apart
};

OperandAlignment alignment_of(const GroupedTensors&);

struct GroupedKernel;
struct GroupedPlan {
  GroupedProblem problem;
  Device device;
  std::shared_ptr<const GroupedKernel> kernel;
  int64_t workspace_bytes = 0;
  std::shared_ptr<void> workspace;  // used by one run at a time
};
std::string describe(const GroupedPlan&);

Support can_run(const GroupedProblem&, const Device&);
GroupedPlan plan(const GroupedProblem&, const Device&);
// out[r] = x[r] weight[g]^T for the rows r of every group g; rows of no group stay as they are. A
// row's result does not depend on the others. A count below 0 or beyond the room of its group, or
// counts of more than all rows, are errors: on a GPU of the next Stream::synchronize, and
// the group, or all of them, has no rows.
void run(const GroupedPlan&, const GroupedTensors&, Stream&);
// Rows of no group are zeros. The result is bf16 for quantised x, else of the format of x.
Tensor grouped_matmul(const Tensor& x, const Tensor& counts, const Tensor& weight,
                      bool masked = false, Stream& = Stream::default_stream());

}  // namespace halftone
