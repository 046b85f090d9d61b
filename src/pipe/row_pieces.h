// Whole rows (pipe/access.h) as pieces of 16 bytes: the threads of a row take one each in turn, and
// a kernel made for a count of pieces has all of a thread's loads under way before the first is
// used. The place of a piece is one address a row and a distance of 32 bits. A thread's elements
// come in the order of pipe::quads_of, so that sums have the same bits.
#pragma once
#include "base/rows.h"
#include "pipe/access.h"
#include "pipe/row_threads.h"

namespace halftone::pipe {

template <Access kAccess>
struct Piece {
  static_assert(kAccess != Access::any, "pieces are of a known format");
  static constexpr Format kFormat = format_of(kAccess, Format::f32);
  static constexpr uint32_t kBytes = kAccess == Access::f32 ? 4 : 2, kElements = 16 / kBytes;

  hw::Words4 words = {};

  HT_DEVICE static Piece filled(float x) {
    const uint32_t word =
        kAccess == Access::f32 ? std::bit_cast<uint32_t>(x) : narrow_pair(kFormat, x, x);
    return {{{word, word, word, word}}};
  }
  HT_DEVICE void load(const char* from, hw::Site site = hw::Site::current()) {
    words = hw::load_global(reinterpret_cast<const hw::Words4*>(from), site);
  }
  HT_DEVICE void store(char* to, hw::Site site = hw::Site::current()) const {
    hw::store_global(reinterpret_cast<hw::Words4*>(to), words, site);
  }
  HT_DEVICE void widen(float (&x)[kElements]) const {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if constexpr (kAccess == Access::f32) {
        x[i] = std::bit_cast<float>(words[i]);
      } else {
        widen_pair(kFormat, words[i], x[2 * i], x[2 * i + 1]);
      }
    }
  }
  HT_DEVICE void narrow(const float (&x)[kElements]) {
    HT_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if constexpr (kAccess == Access::f32) {
        words[i] = std::bit_cast<uint32_t>(x[i]);
      } else {
        words[i] = narrow_pair(kFormat, x[2 * i], x[2 * i + 1]);
      }
    }
  }
};

// Where the pieces of one thread stand in its row.
struct PiecePlaces {
  uint32_t first, apart, end;  // bytes

  // Of a row of no bytes there are none. A thread's first `skipped` pieces are others'.
  HT_DEVICE PiecePlaces(const RowThreads& threads, uint32_t row_bytes, uint32_t skipped = 0)
      : first(16 * (threads.rank() + skipped * threads.threads())),
        apart(16 * threads.threads()),
        end(row_bytes) {}
  HT_DEVICE uint32_t operator[](uint32_t k) const { return first + k * apart; }
  HT_DEVICE bool has(uint32_t k) const { return (*this)[k] < end; }
};

// Pieces a thread has of a row.
inline uint32_t pieces_of_row(int64_t row_bytes, uint32_t threads) {
  return static_cast<uint32_t>((row_bytes + 16 * threads - 1) / (16 * threads));
}

// Some elements side by side of a vector that starts at a multiple of 16 bytes, as f32.
template <uint32_t kCount>
HT_DEVICE void load_aligned(Format f, const char* base, uint32_t column, float (&x)[kCount],
                            hw::Site site = hw::Site::current()) {
  static_assert(kCount == 4 || kCount == 8);
  if (f == Format::f32) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; i += 4) {
      using Quad = hw::Vector<float, 4>;
      const Quad quad =
          hw::load_global(reinterpret_cast<const Quad*>(base + (column + i) * 4), site);
      HT_UNROLL
      for (uint32_t k = 0; k < 4; ++k) x[i + k] = quad[k];
    }
    return;
  }
  using Words = hw::Vector<uint32_t, kCount / 2>;
  const Words words = hw::load_global(reinterpret_cast<const Words*>(base + column * 2), site);
  HT_UNROLL
  for (uint32_t i = 0; i < kCount / 2; ++i) widen_pair(f, words[i], x[2 * i], x[2 * i + 1]);
}

template <uint32_t kCount>
HT_DEVICE void store_aligned(Format f, char* base, uint32_t column, const float (&x)[kCount],
                             hw::Site site = hw::Site::current()) {
  static_assert(kCount == 4 || kCount == 8);
  if (f == Format::f32) {
    HT_UNROLL
    for (uint32_t i = 0; i < kCount; i += 4) {
      using Quad = hw::Vector<float, 4>;
      const Quad quad{{x[i], x[i + 1], x[i + 2], x[i + 3]}};
      hw::store_global(reinterpret_cast<Quad*>(base + (column + i) * 4), quad, site);
    }
    return;
  }
  using Words = hw::Vector<uint32_t, kCount / 2>;
  Words words;
  HT_UNROLL
  for (uint32_t i = 0; i < kCount / 2; ++i) words[i] = narrow_pair(f, x[2 * i], x[2 * i + 1]);
  hw::store_global(reinterpret_cast<Words*>(base + column * 2), words, site);
}

// Where a row stands; a division of 32 bits where rows have an inner dimension and there are not
// too many of them, none where they have none.
HT_DEVICE char* place_of(const Rows& rows, int64_t row) {
  if (rows.inner == 1) return rows.base + row * rows.outer_stride;
  if ((row | rows.inner) >> 32 != 0) return rows[row];
  const auto index = static_cast<uint32_t>(row), inner = static_cast<uint32_t>(rows.inner);
  const uint32_t outer = index / inner;
  return rows.base + outer * rows.outer_stride + (index - outer * inner) * rows.inner_stride;
}

}  // namespace halftone::pipe
