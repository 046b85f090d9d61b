// Rows of any format as f32 on GPUs: codes times their scales, and numbers as they stand.
#pragma once
#include "formats/gpu/rows.h"
#include "formats/scale_layout.h"
#include "pipe/access.h"
#include "pipe/codes.h"

namespace halftone {

// A row of codes and its scales, whatever their blocks, eight neighbours at a time.
class CodeRow {
 public:
  // `row` is counted over the matrices; its codes begin at `base`. to_odd: of two roundings the
  // first, before one to 16 bits, is to odd, so that the two round as one.
  HT_DEVICE CodeRow(const ScaledCodes& codes, const char* base, int64_t row, bool to_odd = false)
      : codes_(codes), base_(base), to_odd_(to_odd) {
    matrix_ = codes.matrices == 1 ? 0 : row / codes.rows;
    row_ = row - matrix_ * codes.rows;
    band_ = codes.block_rows > 0 ? row_ / codes.block_rows : 0;
    zero_ = codes.format == Format::int4 ? 8 : 0;
    factor_ = codes.tensor_scale != nullptr ? hw::load_global(codes.tensor_scale) : 1;
  }

  // Elements first .. first + 7 (`first` a multiple of 4, ascending from call to call); those from
  // the row's end on are 0.
  HT_DEVICE void load(int64_t first, float (&x)[8], hw::Site site = hw::Site::current()) {
    const int64_t columns = codes_.columns;
    const auto codes = pipe::load_codes(codes_.format, base_, first, columns, site);
    HT_UNROLL
    for (uint32_t i = 0; i < 8; ++i) {
      x[i] = 0;
      if (first + i >= columns) continue;
      find_scale(first + i, site);
      const float value =
          pipe::decode_code(codes_.format, codes[i / 4] >> 8 * (i % 4) & 0xff, zero_);
      // With a tensor scale the element times its scale has few bits and is exact.
      x[i] = codes_.tensor_scale != nullptr ? product(value * scale_, factor_)
                                            : product(value, scale_);
    }
  }

 private:
  HT_DEVICE float product(float a, float b) const {
    const float p = a * b, error = hw::fma(a, b, -p);
    const uint32_t bits = std::bit_cast<uint32_t>(p);
    if (!to_odd_ || error == 0 || error != error || (bits & 1) != 0) return p;
    return std::bit_cast<float>((error > 0) == (p > 0) ? bits | 1 : bits - 1);
  }
  HT_DEVICE void find_scale(int64_t column, hw::Site site) {
    if (column < group_end_) return;
    const int64_t block = codes_.block_columns;
    const int64_t group = block > 0 ? column / block : 0;
    group_end_ = block > 0 ? (group + 1) * block : codes_.columns;
    if (codes_.scales != nullptr && codes_.layout != ScaleLayout::linear) {
      const int64_t wide = codes_.block_columns > 0 ? codes_.block_columns : codes_.columns;
      const int64_t groups = (codes_.columns + wide - 1) / wide;
      scale_ =
          pipe::load_scale(codes_.scale_format, codes_.scales + matrix_ * codes_.scale_matrix,
                           scale_offset(codes_.layout, codes_.rows, groups, row_, group), site);
    } else if (codes_.scales != nullptr) {
      scale_ = pipe::load_scale(
          codes_.scale_format, codes_.scales,
          matrix_ * codes_.scale_matrix + band_ * codes_.scale_row + group * codes_.scale_column,
          site);
    }
    if (codes_.zeros != nullptr) {
      zero_ = hw::load_global(codes_.zeros + matrix_ * codes_.zero_matrix +
                                  band_ * codes_.zero_row + group * codes_.zero_column,
                              site);
    }
  }

  const ScaledCodes& codes_;
  const char* base_;
  bool to_odd_;
  int64_t matrix_, row_, band_, group_end_ = 0;
  float scale_ = 1, zero_, factor_;
};

HT_DEVICE const char* address_of_row(const NumberRows& rows, int64_t row) {
  if (rows.dimensions == 1) return rows.base + row * rows.stride[0];
  const char* at = rows.base;
  for (int d = rows.dimensions - 1; d >= 0; --d) {
    at += row % rows.extent[d] * rows.stride[d];
    row /= rows.extent[d];
  }
  return at;
}

// A number that stands alone: a float, an integer, or a code without a scale; rounded to f32.
HT_DEVICE float load_number(Format f, const char* at, hw::Site site = hw::Site::current()) {
  switch (f) {
    case Format::f32:
    case Format::f16:
    case Format::bf16:
      return pipe::load_element(f, at, site);
    case Format::i32:
      return static_cast<float>(hw::load_global(reinterpret_cast<const int32_t*>(at), site));
    case Format::i64:
      return static_cast<float>(hw::load_global(reinterpret_cast<const int64_t*>(at), site));
    default:  // u8 is a code without a zero point
      return pipe::decode_code(f, hw::load_global(reinterpret_cast<const uint8_t*>(at), site), 0);
  }
}

HT_HOST_DEVICE bool is_plain(Format f) {
  return f == Format::f32 || f == Format::f16 || f == Format::bf16;
}
// The format that says where a thread's eight lie (pipe::quads_of): codes are read eight neighbours
// at a time.
HT_HOST_DEVICE Format format_of_quads(Format f) { return f == Format::f32 ? f : Format::bf16; }

// Elements of row `row`; those from the row's end on are 0. Quads begin at multiples of 4; those of
// other formats than f32 are neighbours.
HT_DEVICE void load_numbers(const NumberRows& rows, int64_t row, const pipe::Quads& q,
                            float (&x)[8], hw::Site site = hw::Site::current()) {
  const Format f = rows.codes.format;
  const char* base = address_of_row(rows, row);
  const int64_t columns = rows.codes.columns;
  if (is_plain(f) && rows.step == pipe::bytes_of(f)) {
    return pipe::load_eight(f, base, q, columns, x, site);
  }
  const bool is_index = f == Format::i32 || f == Format::i64;
  if (rows.step == 0 || (!is_plain(f) && !is_index && rows.step == 1)) {
    return CodeRow(rows.codes, base, row).load(q.first, x, site);
  }
  const auto* words = reinterpret_cast<const int32_t*>(base) + q.first;
  if (f == Format::i32 && rows.step == 4 && q.first + 8 <= columns && pipe::is_aligned(words, 16)) {
    HT_UNROLL
    for (uint32_t quad = 0; quad < 8; quad += 4) {
      using Quad = hw::Vector<int32_t, 4>;
      const Quad values = hw::load_global(reinterpret_cast<const Quad*>(words + quad), site);
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) x[quad + i] = static_cast<float>(values[i]);
    }
    return;
  }
  HT_UNROLL
  for (uint32_t i = 0; i < 8; ++i) {
    const int64_t column = q.column(i);
    x[i] = column < columns ? load_number(f, base + column * rows.step, site) : 0;
  }
}

// Eight numbers on their way. Accesses other than `any`: rows of that format in pieces of 16 bytes
// (are_whole) at even distances, widened when all loads of the thread are under way.
template <pipe::Access kAccess>
class EightNumbers {
 public:
  HT_DEVICE void load(const NumberRows& rows, int64_t row, const pipe::Quads& q, int64_t end,
                      hw::Site site = hw::Site::current()) {
    if constexpr (kAccess == pipe::Access::any) {
      load_numbers(rows, row, q, x_, site);
    } else {
      eight_.load(rows.codes.format, rows.base + row * rows.stride[0], q, end, site);
    }
  }
  // As they stand, where they have 16 bits.
  HT_DEVICE hw::Words4 pairs() const {
    static_assert(kAccess == pipe::Access::f16 || kAccess == pipe::Access::bf16);
    return std::bit_cast<hw::Words4>(eight_);
  }
  HT_DEVICE void widen(float (&x)[8]) const {
    if constexpr (kAccess == pipe::Access::any) {
      HT_UNROLL
      for (uint32_t i = 0; i < 8; ++i) x[i] = x_[i];
    } else {
      eight_.widen(Format::f32, x);
    }
  }

 private:
  static constexpr bool kAny = kAccess == pipe::Access::any;
  float x_[kAny ? 8 : 1] = {};
  pipe::Eight<kAny ? pipe::Access::f32 : kAccess> eight_;
};

// Whether the accesses other than `any` read these rows.
inline bool are_whole(const NumberRows& rows) {
  const Rows plain{const_cast<char*>(rows.base), 1, rows.stride[0], 0};
  return is_plain(rows.codes.format) && rows.dimensions <= 1 &&
         rows.step == pipe::bytes_of(rows.codes.format) &&
         pipe::are_whole(plain, rows.codes.columns);
}

}  // namespace halftone
