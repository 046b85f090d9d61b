// Feature: wgmma
#include "hw/mma/wgmma.h"

#include <utility>

#include "instantiate.h"

namespace halftone::hw {

using tile::Major;

template <class D, uint32_t kCount>
__device__ void begin(Operands& o, D (&d)[kCount]) {
  hold_registers(d);
  hold_registers(o.r4);
  wgmma_fence();
}
template <class D, uint32_t kCount>
__device__ void finish(const Operands& o, D (&d)[kCount]) {
  wgmma_commit();
  wgmma_wait<0>();
  hold_registers(d);
  use(o, d);
}

template <Type kType, class D, uint32_t kCount>
__device__ void both_a(Operands& o, WgmmaDescriptor a, WgmmaDescriptor b, D (&d)[kCount]) {
  begin(o, d);
  wgmma<kType>(d, a, b, o.flag);
  wgmma<kType>(d, o.r4, b, o.flag);
  finish(o, d);
}
template <uint32_t kN>
__global__ void every_n(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  float d[kN / 2] = {};
  both_a<Type::bf16>(o, a, b, d);
}
template <uint32_t kN>
__global__ void every_n_half(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  uint32_t d[kN / 4] = {};
  both_a<Type::f16>(o, a, b, d);
}
template <uint32_t kN>
__global__ void every_n_integer(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  if constexpr (wgmma_shape<int32_t>(kN)) {
    int32_t d[kN / 2] = {};
    both_a<Type::s8>(o, a, b, d);
  }
}

template <Type kA, Type kB, class D>
__device__ void of_types(Operands& o, WgmmaDescriptor a, WgmmaDescriptor b, D (&d)[32]) {
  wgmma<kA, kB>(d, a, b, o.flag);
  wgmma<kA, kB>(d, o.r4, b, o.flag);
}
template <Type kType, class D>
__device__ void of_majors(Operands& o, WgmmaDescriptor a, WgmmaDescriptor b, D (&d)[32]) {
  wgmma<kType, kType, Major::k, Major::k>(d, a, b, o.flag);
  wgmma<kType, kType, Major::k, Major::mn>(d, a, b, o.flag);
  wgmma<kType, kType, Major::mn, Major::k>(d, a, b, o.flag);
  wgmma<kType, kType, Major::mn, Major::mn>(d, a, b, o.flag);
  wgmma<kType, kType, Major::k>(d, o.r4, b, o.flag);
  wgmma<kType, kType, Major::mn>(d, o.r4, b, o.flag);
}

__global__ void every_type(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  float d[32] = {};
  begin(o, d);
  of_majors<Type::bf16>(o, a, b, d);
  of_majors<Type::f16>(o, a, b, d);
  of_types<Type::tf32, Type::tf32>(o, a, b, d);
  of_types<Type::e4m3, Type::e4m3>(o, a, b, d);
  of_types<Type::e4m3, Type::e5m2>(o, a, b, d);
  of_types<Type::e5m2, Type::e4m3>(o, a, b, d);
  of_types<Type::e5m2, Type::e5m2>(o, a, b, d);
  wgmma_commit();
  wgmma_wait<1>();
  finish(o, d);
}
__global__ void every_type_half(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  uint32_t d[32] = {};
  begin(o, d);
  of_majors<Type::f16>(o, a, b, d);
  of_types<Type::e4m3, Type::e4m3>(o, a, b, d);
  of_types<Type::e5m2, Type::e5m2>(o, a, b, d);
  finish(o, d);
}
__global__ void every_type_integer(Operands o, WgmmaDescriptor a, WgmmaDescriptor b) {
  int32_t d[32] = {};
  begin(o, d);
  of_types<Type::s8, Type::s8>(o, a, b, d);
  of_types<Type::s8, Type::u8>(o, a, b, d);
  of_types<Type::u8, Type::s8>(o, a, b, d);
  of_types<Type::u8, Type::u8>(o, a, b, d);
  finish(o, d);
}

template <uint32_t... kEighths>
void every_shape(std::integer_sequence<uint32_t, kEighths...>) {
  const void* kernels[] = {reinterpret_cast<const void*>(&every_n<8 * kEighths + 8>)...,
                           reinterpret_cast<const void*>(&every_n_half<8 * kEighths + 8>)...,
                           reinterpret_cast<const void*>(&every_n_integer<8 * kEighths + 8>)...};
  static_cast<void>(kernels);
}
template void every_shape(std::make_integer_sequence<uint32_t, 32>);

}  // namespace halftone::hw
