// The functions of simd/vec.h over arrays, once per ISA level.
#include "simd/vec.h"

#include "simd/vec_level.h"

namespace halftone::HALFTONE_LEVEL {

namespace {

using test::VecFunctions;

void exp_all(const float* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_raw(y + i, exp(load_raw<f32v>(x + i)));
}
void narrow_bf16_all(const float* x, uint16_t* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_raw(y + i, narrow_bf16(load_raw<f32v>(x + i)));
}
void narrow_f16_all(const float* x, uint16_t* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_raw(y + i, narrow_f16(load_raw<f32v>(x + i)));
}
void widen_bf16_all(const uint16_t* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_raw(y + i, widen_bf16(load_raw<u16v>(x + i)));
}
void widen_f16_all(const uint16_t* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_raw(y + i, widen_f16(load_raw<u16v>(x + i)));
}
float reduce_add_first(const float* x) { return reduce_add(load_raw<f32v>(x)); }
float reduce_max_first(const float* x) { return reduce_max(load_raw<f32v>(x)); }
void max_all(const float* a, const float* b, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_raw(y + i, max(load_raw<f32v>(a + i), load_raw<f32v>(b + i)));
  }
}
void min_all(const float* a, const float* b, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_raw(y + i, min(load_raw<f32v>(a + i), load_raw<f32v>(b + i)));
  }
}
void fma_all(const float* a, const float* b, const float* c, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    store_raw(y + i, fma(load_raw<f32v>(a + i), load_raw<f32v>(b + i), load_raw<f32v>(c + i)));
  }
}
template <Format F>
void copy_partial(const void* from, void* to, int count) {
  store_partial<F>(to, 0, load_partial<F>(from, 0, count), count);
}

}  // namespace

VecFunctions vec_functions() {
  return {kLanes,
          exp_all,
          narrow_bf16_all,
          narrow_f16_all,
          widen_bf16_all,
          widen_f16_all,
          reduce_add_first,
          reduce_max_first,
          max_all,
          min_all,
          fma_all,
          copy_partial<Format::f32>,
          copy_partial<Format::bf16>,
          copy_partial<Format::f16>};
}

}  // namespace halftone::HALFTONE_LEVEL
