// Feature: tcgen05
#include "hw/mma/tcgen05_mma.h"

#include "hw/mma/tcgen05_mma_ws.h"
#include "instantiate.h"

namespace halftone::hw {

struct Product {
  TensorAddress d, a_in_tensor, a_scales, b_scales;
  Tcgen05Descriptor a, b;
  uint32_t instruction;
  bool accumulate;
};

template <CtaGroup kGroup, Tcgen05Kind kKind, Collector kCollector, class A>
__device__ void plain(const Product& p, A a) {
  tcgen05_mma<kKind, kGroup, kCollector>(p.d, a, p.b, p.instruction, p.accumulate);
}
template <CtaGroup kGroup, Tcgen05Kind kKind, class A>
__device__ void of_kind(const Product& p, A a) {
  plain<kGroup, kKind, Collector::none>(p, a);
  plain<kGroup, kKind, Collector::fill>(p, a);
  plain<kGroup, kKind, Collector::use>(p, a);
  plain<kGroup, kKind, Collector::lastuse>(p, a);
  plain<kGroup, kKind, Collector::discard>(p, a);
  const DisabledLanes<kGroup> lanes{{p.instruction}};
  tcgen05_mma_masked<kKind, kGroup>(p.d, a, p.b, p.instruction, lanes, p.accumulate);
  if constexpr (kKind == Tcgen05Kind::f16 || kKind == Tcgen05Kind::tf32) {
    tcgen05_mma_scale_d<kKind, kGroup, 0>(p.d, a, p.b, p.instruction, p.accumulate);
    tcgen05_mma_scale_d<kKind, kGroup, 15>(p.d, a, p.b, p.instruction, p.accumulate);
  }
}
template <CtaGroup kGroup, Tcgen05Kind kKind, ScaleBlock kBlock, class A>
__device__ void scaled(const Product& p, A a) {
  tcgen05_mma_block_scale<kKind, kBlock, kGroup>(p.d, a, p.b, p.instruction, p.a_scales, p.b_scales,
                                                 p.accumulate);
  tcgen05_mma_block_scale<kKind, kBlock, kGroup, Collector::fill>(
      p.d, a, p.b, p.instruction, p.a_scales, p.b_scales, p.accumulate);
}
template <CtaGroup kGroup, class A>
__device__ void every_kind(const Product& p, A a) {
  of_kind<kGroup, Tcgen05Kind::f16>(p, a);
  of_kind<kGroup, Tcgen05Kind::tf32>(p, a);
  of_kind<kGroup, Tcgen05Kind::f8f6f4>(p, a);
  of_kind<kGroup, Tcgen05Kind::i8>(p, a);
  scaled<kGroup, Tcgen05Kind::mxf8f6f4, ScaleBlock::block32>(p, a);
  scaled<kGroup, Tcgen05Kind::mxf4, ScaleBlock::block32>(p, a);
  scaled<kGroup, Tcgen05Kind::mxf4nvf4, ScaleBlock::block16>(p, a);
  scaled<kGroup, Tcgen05Kind::mxf4nvf4, ScaleBlock::block32>(p, a);
}

template <CtaGroup kGroup>
__global__ void products(Product p) {
  every_kind<kGroup>(p, p.a);
  every_kind<kGroup>(p, p.a_in_tensor);
}
template __global__ void products<CtaGroup::one>(Product);
template __global__ void products<CtaGroup::two>(Product);

template <Tcgen05Kind kKind, int kBuffer, Collector kCollector, class A>
__device__ void stationary(const Product& p, A a) {
  tcgen05_mma_ws<kKind, kBuffer, kCollector>(p.d, a, p.b, p.instruction, p.accumulate);
  tcgen05_mma_ws_zero_columns<kKind, kBuffer, kCollector>(p.d, a, p.b, p.instruction, p.accumulate,
                                                          uint64_t{p.instruction});
}
template <class A>
__device__ void every_buffer(const Product& p, A a) {
  stationary<Tcgen05Kind::f16, 0, Collector::none>(p, a);
  stationary<Tcgen05Kind::tf32, 1, Collector::fill>(p, a);
  stationary<Tcgen05Kind::f8f6f4, 2, Collector::use>(p, a);
  stationary<Tcgen05Kind::i8, 3, Collector::lastuse>(p, a);
  stationary<Tcgen05Kind::f16, 3, Collector::discard>(p, a);
}
__global__ void stationary_products(Product p) {
  every_buffer(p, p.a);
  every_buffer(p, p.a_in_tensor);
}

}  // namespace halftone::hw
