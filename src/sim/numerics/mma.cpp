#include "sim/numerics/mma.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "formats/codec.h"
#include "halftone/error.h"
#include "sim/numerics/mma_decode.h"
#include "sim/numerics/mma_kernels.h"

namespace halftone {

namespace cpu_baseline {
extern const sim::MmaKernels kMmaKernels;
}
#if defined(__x86_64__)
namespace cpu_avx2 {
extern const sim::MmaKernels kMmaKernels;
}
namespace cpu_avx512 {
extern const sim::MmaKernels kMmaKernels;
}
#endif

namespace sim {

const MmaKernels& mma_kernels(CpuLevel level) {
  switch (level) {
#if defined(__x86_64__)
    case CpuLevel::avx2:
      return cpu_avx2::kMmaKernels;
    case CpuLevel::avx512:
    case CpuLevel::avx512_bf16:  // nothing here uses what it adds
      return cpu_avx512::kMmaKernels;
#endif
    default:
      return cpu_baseline::kMmaKernels;
  }
}

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float to_float(const MmaNumber& x) {
  float magnitude = std::ldexp(static_cast<float>(x.significand), x.exponent - x.fraction);
  if (x.kind == MmaNumber::Kind::infinite) magnitude = std::numeric_limits<float>::infinity();
  if (x.kind == MmaNumber::Kind::nan) magnitude = kNan;
  return x.negative ? -magnitude : magnitude;
}

// Values of the codes of a byte.
const float* byte_table(MmaElement type) {
  using Tables = std::array<std::array<float, 256>, 11>;
  static const Tables tables = [] {
    Tables all{};
    for (size_t t = static_cast<size_t>(MmaElement::e4m3); t < all.size(); ++t) {
      const auto element = static_cast<MmaElement>(t);
      for (uint32_t code = 0; code < 256; ++code) {
        if (element == MmaElement::s8) {
          all[t][code] = static_cast<int8_t>(code);
        } else if (element == MmaElement::u8) {
          all[t][code] = static_cast<float>(code);
        } else {
          all[t][code] = to_float(mma_number(mma_format(element), mma_code(element, code)));
        }
      }
    }
    return all;
  }();
  return tables[static_cast<size_t>(type)].data();
}

// Room that lives as long as the thread: an instruction is far shorter than an allocation is dear.
struct Scratch {
  std::vector<float> a_values, b_values, row_values, sums;
  std::vector<int32_t> a_exponents, b_exponents, row_exponents, integers;
  std::vector<int32_t> a_scales, b_scales;
  std::vector<uint8_t> a_special, b_special;
};
Scratch& scratch() {
  static thread_local Scratch room;
  return room;
}

// Where column k goes when the f16 expansion takes the low halves of the registers first.
int expansion_place(int k) {
  const int in_block = k % 32, half = (in_block % 4) / 2;
  return k - in_block + half * 16 + in_block / 4 * 2 + in_block % 2;
}

class Product {
 public:
  Product(const MmaRule& rule, const MmaTile& tile, CpuLevel level)
      : rule_(rule), tile_(tile), kernels_(mma_kernels(level)), room_(scratch()) {
    rows_ = (tile.m + kMmaRowMultiple - 1) / kMmaRowMultiple * kMmaRowMultiple;
  }

  void exact() {
    if (rule_.sum == MmaRule::Sum::integer) return integers();
    if (rule_.sum == MmaRule::Sum::grouped) return groups();
    decode(true);
    load_c();
    switch (rule_.sum) {
      case MmaRule::Sum::f16_expansion:
        expansion();
        break;
      default:
        scaled_blocks([&](const MmaVectors& x) { kernels_.fused(rule_, x); });
    }
    mend_specials();
    store_d();
  }

  void fast() {
    if (rule_.sum == MmaRule::Sum::integer) return integers();
    if (rule_.sum == MmaRule::Sum::grouped) return groups();  // few roundings: nothing is faster
    decode(false);
    apply_scales();
    load_c();
    kernels_.multiply_add(vectors(0, tile_.k));
    store_d();
  }

 private:
  template <class T>
  static T* sized(std::vector<T>& v, int64_t n) {
    if (static_cast<int64_t>(v.size()) < n) v.resize(static_cast<size_t>(n));
    return v.data();
  }

  // One row to values and exponents; true when it holds NaN or infinity.
  bool decode_row(const MmaOperand& x, int64_t row, bool finite, float* values,
                  int32_t* exponents) const {
    const bool expands = rule_.sum == MmaRule::Sum::f16_expansion;
    const MmaFormat format = mma_format(expands ? MmaElement::f16 : x.type);
    const int min_exponent = 1 - format.bias, k = tile_.k;
    bool special = false;
    switch (code_bytes(x.type)) {
      case 4:
        special = kernels_.decode32(static_cast<const uint32_t*>(x.codes) + row * x.row_stride, k,
                                    min_exponent, finite, values, exponents);
        break;
      case 2:
        special = kernels_.decode16(x.type == MmaElement::bf16,
                                    static_cast<const uint16_t*>(x.codes) + row * x.row_stride, k,
                                    min_exponent, finite, values, exponents);
        break;
      default:
        special = kernels_.decode8(byte_table(x.type),
                                   static_cast<const uint8_t*>(x.codes) + row * x.row_stride, k,
                                   min_exponent, finite, values, exponents);
    }
    if (x.negate)
      for (int i = 0; i < k; ++i) values[i] = -values[i];
    return special;
  }

  void decode(bool finite) {
    const int k = tile_.k;
    const bool expands = rule_.sum == MmaRule::Sum::f16_expansion;
    a_values_ = sized(room_.a_values, int64_t{k} * rows_);
    a_exponents_ = sized(room_.a_exponents, int64_t{k} * rows_);
    b_values_ = sized(room_.b_values, int64_t{k} * tile_.n);
    b_exponents_ = sized(room_.b_exponents, int64_t{k} * tile_.n);
    uint8_t* a_special = sized(room_.a_special, tile_.m);
    uint8_t* b_special = sized(room_.b_special, tile_.n);
    float* values = sized(room_.row_values, int64_t{k} * kMmaRowMultiple);
    int32_t* exponents = sized(room_.row_exponents, int64_t{k} * kMmaRowMultiple);
    const auto place = [&](int i) { return expands ? expansion_place(i) : i; };
    for (int first = 0; first < rows_; first += kMmaRowMultiple) {
      for (int r = 0; r < kMmaRowMultiple; ++r) {
        float* row_values = values + r * k;
        int32_t* row_exponents = exponents + r * k;
        if (first + r < tile_.m) {
          a_special[first + r] = decode_row(tile_.a, first + r, finite, row_values, row_exponents);
        } else {
          std::fill(row_values, row_values + k, 0.0f);
          std::fill(row_exponents, row_exponents + k, kMmaZeroExponent);
        }
      }
      for (int i = 0; i < k; ++i) {
        float* to = a_values_ + int64_t{place(i)} * rows_ + first;
        int32_t* to_exponents = a_exponents_ + int64_t{place(i)} * rows_ + first;
        for (int r = 0; r < kMmaRowMultiple; ++r) {
          to[r] = values[r * k + i];
          to_exponents[r] = exponents[r * k + i];
        }
      }
    }
    for (int row = 0; row < tile_.n; ++row) {
      float* to = b_values_ + int64_t{row} * k;
      int32_t* to_exponents = b_exponents_ + int64_t{row} * k;
      if (!expands) {
        b_special[row] = decode_row(tile_.b, row, finite, to, to_exponents);
        continue;
      }
      b_special[row] = decode_row(tile_.b, row, finite, values, exponents);
      for (int i = 0; i < k; ++i) {
        to[place(i)] = values[i];
        to_exponents[place(i)] = exponents[i];
      }
    }
  }

  // Block scales into the values: FP32 has room for them unless they are extreme.
  void apply_scales() {
    const int block = scale_block(rule_.scales);
    if (block == 0) return;
    const auto scale = [&](const MmaOperand& x, int64_t row, int k) {
      return to_float(load_scale(rule_.scales, x.scales[row * x.scale_stride + k / block]));
    };
    for (int k = 0; k < tile_.k; ++k)
      for (int row = 0; row < tile_.m; ++row)
        a_values_[int64_t{k} * rows_ + row] *= scale(tile_.a, row, k);
    for (int row = 0; row < tile_.n; ++row)
      for (int k = 0; k < tile_.k; ++k)
        b_values_[int64_t{row} * tile_.k + k] *= scale(tile_.b, row, k);
  }

  MmaVectors vectors(int begin, int count) const {
    MmaVectors x{};
    x.a_values = a_values_ + int64_t{begin} * rows_;
    x.a_exponents = a_exponents_ + int64_t{begin} * rows_;
    x.b_values = b_values_ + begin;
    x.b_exponents = b_exponents_ + begin;
    x.a_stride = rows_;
    x.b_stride = tile_.k;
    x.rows = rows_;
    x.n = tile_.n;
    x.k = count;
    x.sums = sums_;
    return x;
  }

  template <class Run>
  void scaled_blocks(Run run) {
    const int block = scale_block(rule_.scales);
    if (block == 0) return run(vectors(0, tile_.k));
    int32_t* a_scales = sized(room_.a_scales, rows_);
    int32_t* b_scales = sized(room_.b_scales, tile_.n);
    for (int begin = 0; begin < tile_.k; begin += block) {
      const auto gather = [&](const MmaOperand& x, int rows, int32_t* to, uint8_t* special) {
        for (int row = 0; row < rows; ++row) {
          const uint8_t code = x.scales[row * x.scale_stride + begin / block];
          to[row] = code - 127;
          special[row] |= code == 255;
        }
      };
      gather(tile_.a, tile_.m, a_scales, room_.a_special.data());
      gather(tile_.b, tile_.n, b_scales, room_.b_special.data());
      for (int row = tile_.m; row < rows_; ++row) a_scales[row] = 0;
      MmaVectors x = vectors(begin, tile_.k - begin < block ? tile_.k - begin : block);
      x.a_scales = a_scales;
      x.b_scales = b_scales;
      run(x);
    }
  }

  void expansion() {
    const int64_t count = int64_t{tile_.n} * rows_;
    expansion_c_.assign(sums_, sums_ + count);
    for (int begin = 0; begin < tile_.k; begin += 32) {
      std::fill(sums_, sums_ + count, 0.0f);
      kernels_.fused(rule_, vectors(begin, tile_.k - begin < 32 ? tile_.k - begin : 32));
      for (int64_t i = 0; i < count; ++i) {
        const float d = expansion_c_[static_cast<size_t>(i)] + sums_[i];
        expansion_c_[static_cast<size_t>(i)] = d == d ? d : std::bit_cast<float>(0x7fffffffu);
      }
    }
    std::copy(expansion_c_.begin(), expansion_c_.end(), sums_);
  }

  uint32_t c_bits(int row, int column) const {
    if (tile_.c == nullptr) return 0;
    const int64_t at = row * tile_.row_stride + column * tile_.column_stride;
    return rule_.output == MmaRule::Output::f16 ? static_cast<const uint16_t*>(tile_.c)[at]
                                                : static_cast<const uint32_t*>(tile_.c)[at];
  }

  // Rows and columns that hold NaN or infinity: few, and their sums were made without them.
  void mend_specials() {
    bool columns = false;
    for (int column = 0; column < tile_.n; ++column) columns |= room_.b_special[column] != 0;
    for (int row = 0; row < tile_.m; ++row) {
      if (room_.a_special[row] == 0 && !columns) continue;
      for (int column = 0; column < tile_.n; ++column) {
        if (room_.a_special[row] == 0 && room_.b_special[column] == 0) continue;
        const uint32_t d = mma_reference_output(rule_, tile_, row, column, c_bits(row, column));
        sums_[int64_t{column} * rows_ + row] = rule_.output == MmaRule::Output::f16
                                                   ? decode_f16(static_cast<uint16_t>(d))
                                                   : std::bit_cast<float>(d);
      }
    }
  }

  void load_c() {
    sums_ = sized(room_.sums, int64_t{tile_.n} * rows_);
    for (int column = 0; column < tile_.n; ++column) {
      float* to = sums_ + int64_t{column} * rows_;
      const int64_t at = column * tile_.column_stride;
      if (tile_.c == nullptr) {
        std::fill(to, to + rows_, 0.0f);
      } else if (rule_.output == MmaRule::Output::f16) {
        const auto* c = static_cast<const uint16_t*>(tile_.c) + at;
        for (int row = 0; row < tile_.m; ++row) to[row] = decode_f16(c[row * tile_.row_stride]);
      } else {
        const auto* c = static_cast<const float*>(tile_.c) + at;
        for (int row = 0; row < tile_.m; ++row) to[row] = c[row * tile_.row_stride];
      }
      for (int row = tile_.m; row < rows_; ++row) to[row] = 0.0f;
    }
  }

  void store_d() const {
    for (int column = 0; column < tile_.n; ++column) {
      const float* from = sums_ + int64_t{column} * rows_;
      const int64_t at = column * tile_.column_stride;
      if (rule_.output == MmaRule::Output::f16) {
        auto* d = static_cast<uint16_t*>(tile_.d) + at;
        for (int row = 0; row < tile_.m; ++row) {
          const float x = from[row];
          d[row * tile_.row_stride] = x == x ? encode_f16(x) : 0x7fff;
        }
      } else {
        auto* d = static_cast<float*>(tile_.d) + at;
        for (int row = 0; row < tile_.m; ++row) d[row * tile_.row_stride] = from[row];
      }
    }
  }

  void integers() {
    const int k = tile_.k;
    int32_t* a = sized(room_.a_exponents, int64_t{k} * rows_);
    int32_t* b = sized(room_.b_exponents, int64_t{k} * tile_.n);
    int32_t* sums = sized(room_.integers, int64_t{tile_.n} * rows_);
    const auto load = [](const MmaOperand& x, int64_t at) {
      const uint8_t code = static_cast<const uint8_t*>(x.codes)[at];
      const int value = x.type == MmaElement::s8 ? static_cast<int8_t>(code) : code;
      return x.negate ? -value : value;
    };
    for (int i = 0; i < k; ++i)
      for (int row = 0; row < rows_; ++row)
        a[int64_t{i} * rows_ + row] =
            row < tile_.m ? load(tile_.a, row * tile_.a.row_stride + i) : 0;
    for (int row = 0; row < tile_.n; ++row)
      for (int i = 0; i < k; ++i)
        b[int64_t{row} * k + i] = load(tile_.b, row * tile_.b.row_stride + i);
    kernels_.integer({a, b, rows_, k, rows_, tile_.n, k, sums});
    for (int row = 0; row < tile_.m; ++row) {
      for (int column = 0; column < tile_.n; ++column) {
        const int64_t at = row * tile_.row_stride + column * tile_.column_stride;
        int64_t sum = sums[int64_t{column} * rows_ + row];
        if (tile_.c != nullptr) sum += static_cast<const int32_t*>(tile_.c)[at];
        if (tile_.saturate) {
          if (sum > INT32_MAX) sum = INT32_MAX;
          if (sum < INT32_MIN) sum = INT32_MIN;
        }
        static_cast<int32_t*>(tile_.d)[at] = static_cast<int32_t>(sum);
      }
    }
  }

  void groups() {
    const int k = tile_.k, count = k / 16, block = scale_block(rule_.scales);
    int32_t* a = sized(room_.a_exponents, int64_t{k} * rows_);
    int32_t* b = sized(room_.b_exponents, int64_t{k} * tile_.n);
    int32_t* a_scales = sized(room_.a_scales, int64_t{2} * count * rows_);
    int32_t* b_scales = sized(room_.b_scales, int64_t{2} * count * tile_.n);
    uint8_t* a_special = sized(room_.a_special, tile_.m);
    uint8_t* b_special = sized(room_.b_special, tile_.n);
    std::fill(a, a + int64_t{k} * rows_, 0);
    std::fill(a_scales, a_scales + int64_t{2} * count * rows_, 0);
    int32_t *a_exponents = a_scales + count * int64_t{rows_},
            *b_exponents = b_scales + count * int64_t{tile_.n};
    const auto gather = [&](const MmaOperand& x, int rows, int32_t* elements, int64_t row_step,
                            int64_t k_step, int32_t* significands, int32_t* exponents,
                            int64_t scale_row_step, int64_t scale_step, uint8_t* special) {
      const float* table = byte_table(x.type);
      const auto* codes = static_cast<const uint8_t*>(x.codes);
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < k; ++i) {
          const float twice = 2 * table[codes[row * x.row_stride + i]];
          elements[row * row_step + i * k_step] = static_cast<int32_t>(x.negate ? -twice : twice);
        }
        special[row] = 0;
        for (int g = 0; g < count; ++g) {
          const MmaNumber scale =
              load_scale(rule_.scales, x.scales[row * x.scale_stride + g * 16 / block]);
          special[row] |= scale.kind != MmaNumber::Kind::finite;
          const int64_t at = row * scale_row_step + g * scale_step;
          significands[at] = static_cast<int32_t>(scale.significand);
          exponents[at] = scale.exponent;
        }
      }
    };
    gather(tile_.a, tile_.m, a, 1, rows_, a_scales, a_exponents, 1, rows_, a_special);
    gather(tile_.b, tile_.n, b, k, 1, b_scales, b_exponents, count, 1, b_special);
    load_c();
    const int fraction = rule_.scales == MmaScales::nvf4 ? 6 : 0;
    kernels_.grouped(rule_, {a, b, a_scales, a_exponents, b_scales, b_exponents, fraction, rows_,
                             rows_, tile_.n, k, sums_});
    mend_specials();
    store_d();
  }

  const MmaRule& rule_;
  const MmaTile& tile_;
  const MmaKernels& kernels_;
  Scratch& room_;
  int rows_;
  float *a_values_ = nullptr, *b_values_ = nullptr, *sums_ = nullptr;
  int32_t *a_exponents_ = nullptr, *b_exponents_ = nullptr;
  std::vector<float> expansion_c_;
};

}  // namespace

void mma_exact(const MmaRule& rule, const MmaTile& tile, CpuLevel level) {
  Product(rule, tile, level).exact();
}
void mma_exact(const MmaRule& rule, const MmaTile& tile) { mma_exact(rule, tile, cpu_level()); }
void mma_fast(const MmaRule& rule, const MmaTile& tile, CpuLevel level) {
  Product(rule, tile, level).fast();
}
void mma_fast(const MmaRule& rule, const MmaTile& tile) { mma_fast(rule, tile, cpu_level()); }

}  // namespace sim
}  // namespace halftone
