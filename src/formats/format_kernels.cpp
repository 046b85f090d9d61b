#include "formats/kernels.h"

namespace halftone {

namespace cpu_baseline {
extern const FormatKernels kFormatKernels;
}
#if defined(__x86_64__)
namespace cpu_avx2 {
extern const FormatKernels kFormatKernels;
}
namespace cpu_avx512 {
extern const FormatKernels kFormatKernels;
}
namespace cpu_avx512_bf16 {
extern const FormatKernels kFormatKernels;
}
#endif

const FormatKernels& format_kernels(CpuLevel level) {
  switch (level) {
#if defined(__x86_64__)
    case CpuLevel::avx2:
      return cpu_avx2::kFormatKernels;
    case CpuLevel::avx512:
      return cpu_avx512::kFormatKernels;
    case CpuLevel::avx512_bf16:
      return cpu_avx512_bf16::kFormatKernels;
#endif
    default:
      return cpu_baseline::kFormatKernels;
  }
}

const FormatKernels& format_kernels() { return format_kernels(cpu_level()); }

}  // namespace halftone
