// Eight elements of a row as they stand in memory, for kernels that are made for each format: all
// loads of a thread are under way before the first is widened, and what is kept for a second pass
// takes the registers of its bytes.
#pragma once
#include "base/rows.h"
#include "hw/image.h"
#include "pipe/elements.h"

namespace halftone::pipe {

// `any`: format and alignment are looked at while the kernel runs. The others: rows of that format
// that start at multiples of 16 bytes and have a multiple of eight elements.
enum class Access : uint8_t { any, f32, f16, bf16 };

HT_HOST_DEVICE Format format_of(Access access, Format any) {
  switch (access) {
    case Access::f32:
      return Format::f32;
    case Access::f16:
      return Format::f16;
    case Access::bf16:
      return Format::bf16;
    default:
      return any;
  }
}
// Whether rows fit the accesses other than `any`. No rows do.
inline bool are_whole(const Rows& rows, int64_t columns) {
  const auto address = reinterpret_cast<uintptr_t>(rows.base);
  const auto strides = static_cast<uintptr_t>(rows.outer_stride | rows.inner_stride);
  return rows.base == nullptr || ((address | strides) % 16 == 0 && columns % 8 == 0);
}

// Whether element i of an eight is of the row: whole rows end with a quad.
template <Access kAccess>
HT_DEVICE bool is_inside(const Quads& at, uint32_t i, int64_t columns) {
  if constexpr (kAccess != Access::any) return (i < 4 ? at.first : at.second) < columns;
  return at.column(i) < columns;
}

template <Access kAccess>
class Eight {
 public:
  // Elements from `columns` on are 0. Plain loads: those that allocate no line of the L1 copy at
  // 91 % of the rate of these on Hopper, though no line is read twice.
  HT_DEVICE void load(Format any, const char* row, const Quads& q, int64_t columns,
                      hw::Site site = hw::Site::current()) {
    if constexpr (kAccess == Access::any) {
      float x[8];
      load_eight(any, row, q, columns, x, site);
      keep(x);
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        const int64_t first = i == 0 ? q.first : q.second;
        if (first >= columns) continue;
        pieces_[i] =
            hw::load_global(reinterpret_cast<const hw::Words4*>(row + first * kBytes), site);
      }
    }
  }
  HT_DEVICE void store(Format any, char* row, const Quads& q, int64_t columns,
                       hw::Site site = hw::Site::current()) const {
    if constexpr (kAccess == Access::any) {
      float x[8];
      widen(any, x);
      store_eight(any, row, q, columns, x, site);
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < kPieces; ++i) {
        const int64_t first = i == 0 ? q.first : q.second;
        if (first >= columns) continue;
        hw::store_global(reinterpret_cast<hw::Words4*>(row + first * kBytes), pieces_[i], site);
      }
    }
  }

  HT_DEVICE void widen(Format any, float (&x)[8]) const {
    static_cast<void>(any);
    HT_UNROLL
    for (uint32_t i = 0; i < 8; i += 2) {
      if constexpr (kHalf) {
        widen_pair(format_of(kAccess, any), pieces_[0][i / 2], x[i], x[i + 1]);
      } else {
        x[i] = std::bit_cast<float>(pieces_[i / 4][i % 4]);
        x[i + 1] = std::bit_cast<float>(pieces_[i / 4][i % 4 + 1]);
      }
    }
  }
  // x, rounded to the format.
  HT_DEVICE void narrow(Format any, const float (&x)[8]) {
    if constexpr (kHalf) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        pieces_[0][i] = narrow_pair(format_of(kAccess, any), x[2 * i], x[2 * i + 1]);
      }
    } else {
      float y[8];
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) y[i] = rounded(format_of(kAccess, any), x[i]);
      keep(y);
    }
  }

 private:
  static constexpr bool kHalf = kAccess == Access::f16 || kAccess == Access::bf16;
  static constexpr uint32_t kPieces = kHalf ? 1 : 2, kBytes = kHalf ? 2 : 4;

  HT_DEVICE void keep(const float (&x)[8]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i)
      pieces_[i / 4 % kPieces][i % 4] = std::bit_cast<uint32_t>(x[i]);
  }

  hw::Words4 pieces_[kPieces] = {};
};

#if !defined(__CUDACC__)
// The kernel made for a format's whole rows, and for an access.
template <template <Access> class Kernel>
KernelImage image_for_whole(Format f, const char* name, Arch arch = Arch::sm_80) {
  if (f == Format::f32) return hw::image_of<Kernel<Access::f32>>(name, arch);
  if (f == Format::f16) return hw::image_of<Kernel<Access::f16>>(name, arch);
  return hw::image_of<Kernel<Access::bf16>>(name, arch);
}
template <template <Access> class Kernel>
KernelImage image_for(Format f, bool whole, const char* name, Arch arch = Arch::sm_80) {
  if (whole) return image_for_whole<Kernel>(f, name, arch);
  return hw::image_of<Kernel<Access::any>>(name, arch);
}
#endif

}  // namespace halftone::pipe

// In a .cu: the entries of a kernel that is made for each access, or for whole rows alone.
#define HT_GPU_ENTRIES_OF_WHOLE_ROWS(Kernel)        \
  HT_GPU_ENTRY(Kernel<halftone::pipe::Access::f32>) \
  HT_GPU_ENTRY(Kernel<halftone::pipe::Access::f16>) \
  HT_GPU_ENTRY(Kernel<halftone::pipe::Access::bf16>)
#define HT_GPU_ENTRIES_BY_ACCESS(Kernel)            \
  HT_GPU_ENTRY(Kernel<halftone::pipe::Access::any>) \
  HT_GPU_ENTRIES_OF_WHOLE_ROWS(Kernel)
