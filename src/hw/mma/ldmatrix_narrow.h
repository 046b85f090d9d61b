// ldmatrix and stmatrix of 8-, 6- and 4-bit elements (sm_100a, sm_120a). Lane L passes the address
// of row L % rows of matrix L / rows, 16 bytes, aligned to 16; lanes beyond the last row are not
// used.
#pragma once
#include "hw/address.h"
#if !defined(__CUDACC__)
#include "sim/mma/mma_sync_narrow.h"
#include "sim/sim.h"
#endif

namespace halftone::hw {

// How 16 elements lie in the 16 bytes of a row: a byte each; 12 bytes of FP6 and 4 of padding; 8
// bytes of FP4 and 8 of padding. The instruction spreads them into bytes (low bits).
enum class RowFormat : uint8_t { b8, b6x16_p32, b4x16_p64 };
HT_HOST_DEVICE int row_format_bits(RowFormat f) {
  return f == RowFormat::b8 ? 8 : f == RowFormat::b6x16_p32 ? 6 : 4;
}
template <RowFormat>
struct RowFormatName;
template <>
struct RowFormatName<RowFormat::b8> {
  static constexpr char text[] = "b8";
};
template <>
struct RowFormatName<RowFormat::b6x16_p32> {
  static constexpr char text[] = "b8x16.b6x16_p32";
};
template <>
struct RowFormatName<RowFormat::b4x16_p64> {
  static constexpr char text[] = "b8x16.b4x16_p64";
};

// One, two or four matrices of 8 rows of 16 elements; a register each.
template <RowFormat format, int count, class Target = ThisTarget>
HT_DEVICE void ldmatrix_m8n16(uint32_t (&matrices)[count], SharedAddress row,
                              Site site = Site::current()) {
  static_assert(Target::has(Feature::ldmatrix_narrow), "ldmatrix.m8n16 exists from sm_100a on");
  static_assert((count == 1 || count == 2 || count == 4) && format != RowFormat::b8);
#if HT_GPU
  if constexpr (count == 1) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x1.shared.%2 {%0}, [%1];"
                 : "=r"(matrices[0])
                 : "r"(row.value), "C"(RowFormatName<format>::text)
                 : "memory");
  } else if constexpr (count == 2) {
    asm volatile("ldmatrix.sync.aligned.m8n16.x2.shared.%3 {%0, %1}, [%2];"
                 : "=r"(matrices[0]), "=r"(matrices[1])
                 : "r"(row.value), "C"(RowFormatName<format>::text)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n16.x4.shared.%5 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(row.value), "C"(RowFormatName<format>::text)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::ldmatrix_narrow, "ldmatrix.m8n16", site);
  sim::ldmatrix_m8n16(row_format_bits(format), count, matrices, row.value, site);
#endif
}

// One or two matrices of 16 rows of 16 elements, transposed; two registers each.
template <RowFormat format, int registers, class Target = ThisTarget>
HT_DEVICE void ldmatrix_m16n16_trans(uint32_t (&matrices)[registers], SharedAddress row,
                                     Site site = Site::current()) {
  static_assert(Target::has(Feature::ldmatrix_narrow), "ldmatrix.m16n16 exists from sm_100a on");
  static_assert(registers == 2 || registers == 4);
#if HT_GPU
  if constexpr (registers == 2) {
    asm volatile("ldmatrix.sync.aligned.m16n16.x1.trans.shared.%3 {%0, %1}, [%2];"
                 : "=r"(matrices[0]), "=r"(matrices[1])
                 : "r"(row.value), "C"(RowFormatName<format>::text)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m16n16.x2.trans.shared.%5 {%0, %1, %2, %3}, [%4];"
                 : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
                 : "r"(row.value), "C"(RowFormatName<format>::text)
                 : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::ldmatrix_narrow, "ldmatrix.m16n16", site);
  sim::ldmatrix_m16n16_trans(row_format_bits(format), registers / 2, matrices, row.value, site);
#endif
}

// One, two or four matrices of 16 rows of 8 elements, stored transposed: 8 rows of 16 bytes each.
template <int count, class Target = ThisTarget>
HT_DEVICE void stmatrix_m16n8_trans(SharedAddress row, const uint32_t (&matrices)[count],
                                    Site site = Site::current()) {
  static_assert(Target::has(Feature::ldmatrix_narrow), "stmatrix.m16n8 exists from sm_100a on");
  static_assert(count == 1 || count == 2 || count == 4);
#if HT_GPU
  if constexpr (count == 1) {
    asm volatile("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%0], {%1};" ::"r"(row.value),
                 "r"(matrices[0])
                 : "memory");
  } else if constexpr (count == 2) {
    asm volatile("stmatrix.sync.aligned.m16n8.x2.trans.shared.b8 [%0], {%1, %2};" ::"r"(row.value),
                 "r"(matrices[0]), "r"(matrices[1])
                 : "memory");
  } else {
    asm volatile(
        "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%0], {%1, %2, %3, %4};" ::"r"(row.value),
        "r"(matrices[0]), "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
        : "memory");
  }
#elif !defined(__CUDACC__)
  sim::require(Feature::ldmatrix_narrow, "stmatrix.m16n8", site);
  sim::stmatrix_m16n8_trans(count, matrices, row.value, site);
#endif
}

}  // namespace halftone::hw
