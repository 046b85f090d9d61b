// Feature: tcgen05
#include "hw/mma/tcgen05_ld_st.h"

#include "instantiate.h"

namespace halftone::hw {

template <TensorShape kShape, int kNum, Halves kHalves>
__global__ void move(Operands o, TensorAddress at) {
  constexpr int kSplit = kShape == TensorShape::s16x32bx2 ? kNum : 0;
  uint32_t r[tile::tensor_shape_registers(kShape, kNum)];
  tcgen05_ld<kShape, kNum, kHalves, kSplit>(r, at);
  tcgen05_wait_ld(r);
  tcgen05_st<kShape, kNum, kHalves, kSplit>(at, r);
  tcgen05_wait_st();
  tcgen05_wait_ld();
  use(o, r);
}

template <TensorShape kShape, int kNum>
void numbers() {
  if constexpr (tile::valid_num(kShape, kNum)) {
    const void* kernels[] = {reinterpret_cast<const void*>(&move<kShape, kNum, Halves::whole>),
                             reinterpret_cast<const void*>(&move<kShape, kNum, Halves::packed>)};
    static_cast<void>(kernels);
    numbers<kShape, 2 * kNum>();
  }
}
template void numbers<TensorShape::s32x32b, 1>();
template void numbers<TensorShape::s16x64b, 1>();
template void numbers<TensorShape::s16x128b, 1>();
template void numbers<TensorShape::s16x256b, 1>();
template void numbers<TensorShape::s16x32bx2, 1>();

}  // namespace halftone::hw
