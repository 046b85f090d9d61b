#pragma once
#include <cstdint>

namespace halftone::test {

// Counts are multiples of 16, the longest vector.
struct VecFunctions {
  int lanes;
  void (*exp)(const float*, float*, int64_t count);
  void (*narrow_bf16)(const float*, uint16_t*, int64_t count);
  void (*narrow_f16)(const float*, uint16_t*, int64_t count);
  void (*widen_bf16)(const uint16_t*, float*, int64_t count);
  void (*widen_f16)(const uint16_t*, float*, int64_t count);
  float (*reduce_add)(const float*);
  float (*reduce_max)(const float*);
  void (*max)(const float*, const float*, float*, int64_t count);
  void (*min)(const float*, const float*, float*, int64_t count);
  void (*fma)(const float*, const float*, const float*, float*, int64_t count);
  void (*copy_partial_f32)(const void* from, void* to, int count);
  void (*copy_partial_bf16)(const void* from, void* to, int count);
  void (*copy_partial_f16)(const void* from, void* to, int count);
};

}  // namespace halftone::test

namespace halftone::cpu_baseline {
test::VecFunctions vec_functions();
}
namespace halftone::cpu_avx2 {
test::VecFunctions vec_functions();
}
namespace halftone::cpu_avx512 {
test::VecFunctions vec_functions();
}
namespace halftone::cpu_avx512_bf16 {
test::VecFunctions vec_functions();
}
