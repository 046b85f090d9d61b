#include "ops/gemm/sm90/mixed/instances.h"

namespace halftone::gemm {

namespace {

template <tile::Major kMajorW>
Sm90Instance instance(const Sm90Choice& c) {
  return c.code == GpuCode::f16 ? sm90_instance<GpuCode::f16, ScaleMode::none, kMajorW>(c.columns)
                                : sm90_instance<GpuCode::bf16, ScaleMode::none, kMajorW>(c.columns);
}

}  // namespace

Sm90Instance sm90_w16(const Sm90Choice& c) {
  return c.transposed ? instance<tile::Major::mn>(c) : instance<tile::Major::k>(c);
}

}  // namespace halftone::gemm
