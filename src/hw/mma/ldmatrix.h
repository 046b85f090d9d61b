// ldmatrix, stmatrix: 8 x 8 matrices of 16-bit elements between shared memory and fragments, one,
// two or four at a time. Lane L passes the address of row L % 8 of matrix L / 8, 16 bytes, aligned
// to 16 (with fewer than four matrices the upper lanes' addresses are not used).
#pragma once
#include <cstdint>

#include "hw/address.h"
#if !defined(__CUDACC__)
#include "sim/mma/mma_sync.h"
#endif

namespace halftone::hw {

HT_DEVICE void ldmatrix(uint32_t (&matrices)[1], SharedAddress row, Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(matrices[0])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(1, false, matrices, row.value, site);
#endif
}

HT_DEVICE void ldmatrix(uint32_t (&matrices)[2], SharedAddress row, Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(2, false, matrices, row.value, site);
#endif
}

HT_DEVICE void ldmatrix(uint32_t (&matrices)[4], SharedAddress row, Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(4, false, matrices, row.value, site);
#endif
}

// Each matrix transposed.
HT_DEVICE void ldmatrix_trans(uint32_t (&matrices)[1], SharedAddress row,
                              Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(matrices[0])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(1, true, matrices, row.value, site);
#endif
}

HT_DEVICE void ldmatrix_trans(uint32_t (&matrices)[2], SharedAddress row,
                              Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(matrices[0]), "=r"(matrices[1])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(2, true, matrices, row.value, site);
#endif
}

HT_DEVICE void ldmatrix_trans(uint32_t (&matrices)[4], SharedAddress row,
                              Site site = Site::current()) {
#if HT_GPU
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(row.value)
               : "memory");
#elif !defined(__CUDACC__)
  sim::ldmatrix(4, true, matrices, row.value, site);
#endif
}

}  // namespace halftone::hw
