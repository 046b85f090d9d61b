// One line for what every family repeats per ISA level: the declarations of its kernels and
// the rows of its table.
#pragma once

#if defined(__x86_64__)
// HALFTONE_DECLARE_LEVELS(void norm_rows(const NormArgs&, int64_t begin, int64_t end));
#define HALFTONE_DECLARE_LEVELS(...) \
  namespace cpu_baseline {           \
  __VA_ARGS__;                       \
  }                                  \
  namespace cpu_avx2 {               \
  __VA_ARGS__;                       \
  }                                  \
  namespace cpu_avx512 {             \
  __VA_ARGS__;                       \
  }                                  \
  namespace cpu_avx512_bf16 {        \
  __VA_ARGS__;                       \
  }
// Rows of a table, best first: constexpr NormKernel kKernels[] = {HALFTONE_LEVEL_ROWS("rms_norm",
// accepts, norm_rows)};
#define HALFTONE_LEVEL_ROWS(stem, accepts, function)                                          \
  {{stem "_avx512_bf16", Device::Kind::cpu, CpuLevel::avx512_bf16, accepts,                   \
    cpu_avx512_bf16::function}},                                                              \
      {{stem "_avx512", Device::Kind::cpu, CpuLevel::avx512, accepts, cpu_avx512::function}}, \
      {{stem "_avx2", Device::Kind::cpu, CpuLevel::avx2, accepts, cpu_avx2::function}},       \
      {{stem "_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts,                     \
        cpu_baseline::function}},
#else
#define HALFTONE_DECLARE_LEVELS(...) \
  namespace cpu_baseline {           \
  __VA_ARGS__;                       \
  }
#define HALFTONE_LEVEL_ROWS(stem, accepts, function) \
  {{stem "_baseline", Device::Kind::cpu, CpuLevel::baseline, accepts, cpu_baseline::function}},
#endif
