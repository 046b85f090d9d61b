// Rows of plain floats, eight elements a thread: as f32 in registers, by accesses of 16 bytes where
// the address allows them and element by element where not.
#pragma once
#include "halftone/dtype.h"
#include "hw/convert/convert.h"
#include "hw/memory.h"

namespace halftone::pipe {

// f32, f16 or bf16, as all formats here.
HT_HOST_DEVICE uint32_t bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

HT_DEVICE float load_element(Format f, const char* from, hw::Site site = hw::Site::current()) {
  if (f == Format::f32) return hw::load_global(reinterpret_cast<const float*>(from), site);
  const uint16_t code = hw::load_global(reinterpret_cast<const uint16_t*>(from), site);
  return f == Format::bf16 ? hw::cvt_f32_bf16(code) : hw::cvt_f32_f16(code);
}

HT_DEVICE void store_element(Format f, char* to, float x, hw::Site site = hw::Site::current()) {
  if (f == Format::f32) return hw::store_global(reinterpret_cast<float*>(to), x, site);
  const uint16_t code = f == Format::bf16 ? hw::cvt_bf16(x) : hw::cvt_f16(x);
  hw::store_global(reinterpret_cast<uint16_t*>(to), code, site);
}

// x as it reads after it was stored.
HT_DEVICE float rounded(Format f, float x) {
  if (f == Format::f32) return x;
  return f == Format::bf16 ? hw::cvt_f32_bf16(hw::cvt_bf16(x)) : hw::cvt_f32_f16(hw::cvt_f16(x));
}

HT_DEVICE void widen_pair(Format f, uint32_t pair, float& low, float& high) {
  // Of bf16 where they stand: the upper one needs no shift.
  low = f == Format::bf16 ? std::bit_cast<float>(pair << 16)
                          : hw::cvt_f32_f16(static_cast<uint16_t>(pair & 0xffff));
  high = f == Format::bf16 ? std::bit_cast<float>(pair & 0xffff0000u)
                           : hw::cvt_f32_f16(static_cast<uint16_t>(pair >> 16));
}
HT_DEVICE uint32_t narrow_pair(Format f, float low, float high) {
  return f == Format::bf16 ? hw::cvt_bf16x2(low, high) : hw::cvt_f16x2(low, high);
}

HT_DEVICE bool is_aligned(const void* p, uint32_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// The columns of a thread's eight elements: two quads of neighbours. Where the row has 16 bits an
// element they are side by side, 16 bytes in all; where it has 32, each quad is 16 bytes, and the
// threads' first quads stand together, as do their second ones, so that a warp's access is one
// stretch of memory.
struct Quads {
  int64_t first, second;
  HT_DEVICE int64_t column(uint32_t i) const { return i < 4 ? first + i : second + (i - 4); }
};
// Of thread `rank` of `threads` at their `step`-th eight elements of the row.
HT_DEVICE Quads quads_of(Format f, uint32_t rank, uint32_t threads, uint32_t step) {
  const int64_t begin = int64_t{8} * threads * step;
  if (f == Format::f32) {
    const int64_t first = begin + int64_t{4} * rank;
    return {first, first + int64_t{4} * threads};
  }
  const int64_t first = begin + int64_t{8} * rank;
  return {first, first + 4};
}

// Elements from `columns` on are 0.
HT_DEVICE void load_eight(Format f, const char* row, const Quads& q, int64_t columns, float (&x)[8],
                          hw::Site site = hw::Site::current()) {
  const uint32_t bytes = bytes_of(f);
  const char* at = row + q.first * bytes;
  if (f != Format::f32 && q.second == q.first + 4 && q.second + 4 <= columns &&
      is_aligned(at, 16)) {
    const hw::Words4 words = hw::load_global(reinterpret_cast<const hw::Words4*>(at), site);
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) widen_pair(f, words[i], x[2 * i], x[2 * i + 1]);
    return;
  }
  HT_UNROLL
  for (uint32_t quad = 0; quad < 8; quad += 4) {
    const int64_t first = q.column(quad);
    at = row + first * bytes;
    if (first + 4 > columns || !is_aligned(at, 4 * bytes)) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        x[quad + i] = first + i < columns ? load_element(f, at + i * bytes, site) : 0;
      }
    } else if (f == Format::f32) {
      using Quad = hw::Vector<float, 4>;
      const Quad values = hw::load_global(reinterpret_cast<const Quad*>(at), site);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) x[quad + i] = values[i];
    } else {
      using Quad = hw::Vector<uint32_t, 2>;
      const Quad words = hw::load_global(reinterpret_cast<const Quad*>(at), site);
      widen_pair(f, words[0], x[quad], x[quad + 1]);
      widen_pair(f, words[1], x[quad + 2], x[quad + 3]);
    }
  }
}

// Elements from `columns` on are not written.
HT_DEVICE void store_eight(Format f, char* row, const Quads& q, int64_t columns,
                           const float (&x)[8], hw::Site site = hw::Site::current()) {
  const uint32_t bytes = bytes_of(f);
  char* at = row + q.first * bytes;
  if (f != Format::f32 && q.second == q.first + 4 && q.second + 4 <= columns &&
      is_aligned(at, 16)) {
    hw::Words4 words;
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) words[i] = narrow_pair(f, x[2 * i], x[2 * i + 1]);
    return hw::store_global(reinterpret_cast<hw::Words4*>(at), words, site);
  }
  HT_UNROLL
  for (uint32_t quad = 0; quad < 8; quad += 4) {
    const int64_t first = q.column(quad);
    at = row + first * bytes;
    if (first + 4 > columns || !is_aligned(at, 4 * bytes)) {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        if (first + i < columns) store_element(f, at + i * bytes, x[quad + i], site);
      }
    } else if (f == Format::f32) {
      using Quad = hw::Vector<float, 4>;
      const Quad values{{x[quad], x[quad + 1], x[quad + 2], x[quad + 3]}};
      hw::store_global(reinterpret_cast<Quad*>(at), values, site);
    } else {
      using Quad = hw::Vector<uint32_t, 2>;
      const Quad words{
          {narrow_pair(f, x[quad], x[quad + 1]), narrow_pair(f, x[quad + 2], x[quad + 3])}};
      hw::store_global(reinterpret_cast<Quad*>(at), words, site);
    }
  }
}

}  // namespace halftone::pipe
