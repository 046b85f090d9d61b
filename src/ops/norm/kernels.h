// Norm kernels: one per CPU ISA level, and those of GPUs.
#pragma once
#include <cstdint>

#include "base/levels.h"
#include "base/rows.h"
#include "halftone/dtype.h"

namespace halftone {

class Stream;
struct NormPlan;
struct NormTensors;
struct QuantizeArgs;

struct NormArgs {
  Rows x, out;
  Rows residual, sum;         // residual.base null: none; sum receives x + residual
  const void *weight, *bias;  // [columns]; null: 1 and 0
  int64_t columns;
  Format format, weight_format;
  float eps;
  float weight_offset;
  bool layer;     // layer norm: subtract the mean
  bool streamed;  // larger than the caches: results by streaming stores
};
using NormFunction = void (*)(const NormArgs&, int64_t begin, int64_t end);
using NormGpuFunction = void (*)(const NormArgs&, int64_t rows, Stream&);
void norm_gpu(const NormArgs&, int64_t rows, Stream&);
// Fused norm and quantisation; false, and nothing is done, where no kernel does both.
bool norm_quantize_gpu(const NormArgs&, int64_t rows, const QuantizeArgs&, Stream&);
// The arguments of a run, checked; `out` may be undefined.
NormArgs norm_args(const NormPlan&, const NormTensors&);
HALFTONE_DECLARE_LEVELS(void norm_rows(const NormArgs&, int64_t begin, int64_t end))

}  // namespace halftone
