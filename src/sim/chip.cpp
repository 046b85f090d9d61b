#include "sim/chip.h"

namespace halftone::sim {

namespace {

constexpr uint32_t kKilobyte = 1024;

// Limits: CUDA C++ Programming Guide 13.0, table of compute capabilities. Rates: the product's data
// sheet, as multiply-adds a clock and SM = TFLOPS / (2 x SMs x boost clock), dense.
// L2: 5120 bytes a clock is the A100 white paper's figure; nothing is published for later chips, so
// the same is assumed for the data-centre ones, and no bound is given (0) for the others.
constexpr Chip kChips[] = {
    {.arch = Arch::sm_80,
     .name = "A100 SXM 80 GB",
     .shared_per_block = 163 * kKilobyte,
     .shared_per_sm = 164 * kKilobyte,
     .shared_reserved = kKilobyte,
     .registers_per_sm = 65536,
     .registers_per_thread = 255,
     .threads_per_block = 1024,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .cluster_size = 1,
     .cluster_size_nonportable = 1,
     .tensor_memory_columns = 0,
     .sm_count = 108,
     .rates = {.clock_ghz = 1.41,
               .f16 = 1024,
               .fp8 = 0,
               .fp4 = 0,
               .int8 = 2048,
               .tf32 = 512,
               .mufu = 16,
               .shared_bytes = 128,
               .l2_bytes_per_second = 5120 * 1.41e9,
               .hbm_bytes_per_second = 2.039e12},
     .source = "NVIDIA A100 white paper: 312 TFLOPS BF16 at 1.41 GHz, 2039 GB/s"},
    {.arch = Arch::sm_89,
     .name = "L40S",
     .shared_per_block = 99 * kKilobyte,
     .shared_per_sm = 100 * kKilobyte,
     .shared_reserved = kKilobyte,
     .registers_per_sm = 65536,
     .registers_per_thread = 255,
     .threads_per_block = 1024,
     .threads_per_sm = 1536,
     .blocks_per_sm = 24,
     .cluster_size = 1,
     .cluster_size_nonportable = 1,
     .tensor_memory_columns = 0,
     .sm_count = 142,
     .rates = {.clock_ghz = 2.52,
               .f16 = 512,
               .fp8 = 1024,
               .fp4 = 0,
               .int8 = 1024,
               .tf32 = 256,
               .mufu = 16,
               .shared_bytes = 128,
               .l2_bytes_per_second = 0,
               .hbm_bytes_per_second = 0.864e12},
     .source = "NVIDIA L40S data sheet: 362 TFLOPS BF16 at 2.52 GHz, 864 GB/s"},
    {.arch = Arch::sm_90a,
     .name = "H200 SXM",
     .shared_per_block = 227 * kKilobyte,
     .shared_per_sm = 228 * kKilobyte,
     .shared_reserved = kKilobyte,
     .registers_per_sm = 65536,
     .registers_per_thread = 255,
     .threads_per_block = 1024,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .cluster_size = 8,
     .cluster_size_nonportable = 16,
     .tensor_memory_columns = 0,
     .sm_count = 132,
     .rates = {.clock_ghz = 1.83,
               .f16 = 2048,
               .fp8 = 4096,
               .fp4 = 0,
               .int8 = 4096,
               .tf32 = 1024,
               .mufu = 16,
               .shared_bytes = 128,
               .l2_bytes_per_second = 5120 * 1.83e9,
               .hbm_bytes_per_second = 4.8e12},
     .source = "NVIDIA H200 data sheet: 989 TFLOPS BF16, which is 1.83 GHz, 4.8 TB/s"},
    {.arch = Arch::sm_100a,
     .name = "B200",
     .shared_per_block = 227 * kKilobyte,
     .shared_per_sm = 228 * kKilobyte,
     .shared_reserved = kKilobyte,
     .registers_per_sm = 65536,
     .registers_per_thread = 255,
     .threads_per_block = 1024,
     .threads_per_sm = 2048,
     .blocks_per_sm = 32,
     .cluster_size = 8,
     .cluster_size_nonportable = 16,
     .tensor_memory_columns = 512,
     .sm_count = 148,
     .rates = {.clock_ghz = 1.85,
               .f16 = 4096,
               .fp8 = 8192,
               .fp4 = 16384,
               .int8 = 8192,
               .tf32 = 2048,
               .mufu = 16,
               .shared_bytes = 128,
               .l2_bytes_per_second = 5120 * 1.85e9,
               .hbm_bytes_per_second = 8.0e12},
     .source = "NVIDIA HGX B200 data sheet: 2250 TFLOPS BF16 a chip, which is 1.85 GHz, 8 TB/s"},
    {.arch = Arch::sm_120a,
     .name = "RTX PRO 6000 Blackwell",
     .shared_per_block = 99 * kKilobyte,
     .shared_per_sm = 100 * kKilobyte,
     .shared_reserved = kKilobyte,
     .registers_per_sm = 65536,
     .registers_per_thread = 255,
     .threads_per_block = 1024,
     .threads_per_sm = 1536,
     .blocks_per_sm = 24,
     .cluster_size = 8,
     .cluster_size_nonportable = 8,
     .tensor_memory_columns = 0,
     .sm_count = 188,
     .rates = {.clock_ghz = 2.617,
               .f16 = 512,
               .fp8 = 1024,
               .fp4 = 2048,
               .int8 = 1024,
               .tf32 = 256,
               .mufu = 16,
               .shared_bytes = 128,
               .l2_bytes_per_second = 0,
               .hbm_bytes_per_second = 1.792e12},
     .source = "NVIDIA RTX Blackwell PRO white paper: 504 TFLOPS BF16 at 2.617 GHz, 1792 GB/s"},
};

}  // namespace

const Chip& chip(Arch arch) {
  for (const Chip& one : kChips) {
    if (one.arch == arch) return one;
  }
  return kChips[0];
}

uint32_t tensor_rate(const Chip& chip, std::string_view kind) {
  const std::string_view format = kind.substr(kind.rfind('.') + 1);
  const auto& rates = chip.rates;
  for (const std::string_view one : {"bf16", "f16"}) {
    if (format == one) return rates.f16;
  }
  for (const std::string_view one :
       {"e4m3", "e5m2", "f8f6f4", "mxf8f6f4", "e2m3", "e3m2", "e2m1", "fp8"}) {
    if (format == one) return rates.fp8;
  }
  for (const std::string_view one : {"mxf4", "mxf4nvf4", "nvf4", "fp4"}) {
    if (format == one) return rates.fp4;
  }
  for (const std::string_view one : {"s8", "u8", "i8", "int8"}) {
    if (format == one) return rates.int8;
  }
  return format == "tf32" ? rates.tf32 : 0;
}

}  // namespace halftone::sim
