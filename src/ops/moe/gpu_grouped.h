// One product on a GPU whose rows belong to experts: how operands enter, and which kernel runs.
#pragma once
#include <algorithm>

#include "ops/gemm/sm90/gemv/grouped_launch.h"
#include "ops/gemm/sm90/small_m/grouped_launch.h"

namespace halftone::experts {

struct GroupedGemm {
  gemm::GpuWeight weight;
  gemm::GpuX x;
  gemm::Sm90Problem sm90;  // without experts: one weight for all rows
  // The kernels of Hopper for few rows, for dozens and for many, if the copy engine takes the
  // weights.
  bool few = false, dozens = false, hopper = false;
  bool one_small_m = false;  // the kernel for dozens of rows of one weight
  bool many = false;         // of the others, the one for many rows
  uint32_t chunk_rows = 0;   // of an expert there

  GroupedGemm() = default;
  GroupedGemm(const gemm::XSpec&, const gemm::Sm90Problem&, const Device&);

  // What runs once the weights are known.
  struct Choice {
    bool few = false, dozens = false, hopper = false;
    uint32_t chunk_rows = 0, max_chunks = 0;           // at most
    bool ordered() const { return dozens || hopper; }  // rows of x are those of the parts
    bool early() const { return few || dozens; }       // may read the list before its turn
  };
  bool ordered() const { return dozens || hopper; }
  // `x`: as it is given; `copied`: into another order before kernels that want it so.
  Choice choose(const gemm::GpuLayout&, const gemm::Sm90Matrices&, const Tensor& x,
                bool copied = false) const;
  bool as_codes(const Choice& c) const { return c.hopper && takes_codes_sm90(sm90, weight, x); }
  // Every expert with rows has one part that may not be full.
  int64_t max_chunks(uint32_t rows) const { return std::min(sm90.experts, sm90.m) + sm90.m / rows; }
  int64_t max_chunks() const;
  void launch(const gemm::GpuGemm&, const gemm::Sm90Matrices&, const Choice&, Stream&) const;
  std::string describe(const Device&) const;
};

}  // namespace halftone::experts
