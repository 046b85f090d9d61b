// Q, K and V of attention on sm_80 and later: rows in any format to shared memory tiles of what
// mma.sync takes.
//
// Elements are moved in units of 16, which share at most one block scale. A format that the MMA
// takes goes straight into its tile by cp.async; other formats go by cp.async into a buffer of the
// thread's own, and the same thread dequantises them into the tile once they are there. Every
// dequantisation is exact in BF16, except the rounding of a Q in FP32 or FP16.
#pragma once
#include <bit>
#include <type_traits>

#include "halftone/dtype.h"
#include "hw/convert/convert.h"
#include "hw/copy/cp_async.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "pipe/codes.h"

namespace halftone::attention_sm80 {

// Scales: one for all, one FP32 a row, or one encoded value a group of elements.
enum class Scales : uint8_t { none, tensor, row, block };

struct Operand {
  const uint8_t* data;
  int64_t batch_bytes, row_bytes, head_bytes;  // of a page instead of a batch where it is paged
  const uint8_t* scales;
  int64_t scale_batch_bytes, scale_row_bytes, scale_head_bytes;
  const float* tensor_scale;  // FP32 second-level scale of block formats, or null
  Format format;
  Scales scaling;
  uint8_t copy_bytes;   // 16, 8 or 4: what every row is aligned to; less: 0, no cp.async
  uint8_t scale_shift;  // 2^this rows share a scale of `Scales::row`
};

HT_HOST_DEVICE uint32_t element_bits(Format f) { return static_cast<uint32_t>(bits_of(f)); }

// A row of an operand: of a batch or a page.
struct RowIndex {
  int64_t outer, row;
};
HT_DEVICE const uint8_t* data_of(const Operand& x, const RowIndex& at, uint32_t head) {
  return x.data + at.outer * x.batch_bytes + at.row * x.row_bytes + head * x.head_bytes;
}
HT_DEVICE const uint8_t* scales_of(const Operand& x, const RowIndex& at, uint32_t head) {
  return x.scales + at.outer * x.scale_batch_bytes + (at.row >> x.scale_shift) * x.scale_row_bytes +
         head * x.scale_head_bytes;
}
// The per-tensor scale of the operand.
HT_DEVICE float factor_of(const Operand& x, int64_t batch, hw::Site site = hw::Site::current()) {
  if (x.scaling == Scales::tensor) {
    const uint8_t* at = x.scales + batch * x.scale_batch_bytes;
    return hw::load_global(reinterpret_cast<const float*>(at), site);
  }
  return x.tensor_scale != nullptr ? hw::load_global(x.tensor_scale, site) : 1;
}

inline constexpr uint32_t kUnit = 16;  // elements: the group of NVFP4, half of that of MX formats
HT_HOST_DEVICE uint32_t unit_bytes(Format f) { return kUnit * element_bits(f) / 8; }
// Of a piece of a unit in shared memory, and of a copy of it: 12 bytes are three words.
HT_HOST_DEVICE uint32_t slot_bytes(Format f) { return unit_bytes(f) <= 8 ? 8 : 16; }
HT_DEVICE uint32_t piece_bytes(const Operand& x) {
  const uint32_t unit = unit_bytes(x.format), most = unit == 12 ? 4 : unit;
  return x.copy_bytes < most ? x.copy_bytes : most;
}

// The encoded scale of a unit; 0 where there is none.
HT_DEVICE uint32_t encoded_scale(const Operand& x, const uint8_t* row, uint32_t unit,
                                 hw::Site site = hw::Site::current()) {
  if (x.scaling != Scales::block) return 0;
  const bool whole = scale_group_of(x.format) == static_cast<int>(kUnit);
  return hw::load_global(row + (whole ? unit : unit / 2), site);
}

// Dequantises a unit to FP32. `kWords`: what the widest format of the caller takes.
template <uint32_t kWords>
HT_DEVICE void decode_unit(Format format, const uint32_t (&raw)[kWords], uint32_t scale,
                           float (&x)[kUnit]) {
  if (format == Format::f32) {
    if constexpr (kWords >= 16) {
      HT_UNROLL
      for (uint32_t i = 0; i < kUnit; ++i) x[i] = std::bit_cast<float>(raw[i]);
    }
  } else if (format == Format::f16 || format == Format::bf16) {
    if constexpr (kWords >= 8) {
      HT_UNROLL
      for (uint32_t i = 0; i < kUnit; ++i) {
        const auto half = static_cast<uint16_t>(raw[i / 2] >> i % 2 * 16);
        x[i] = format == Format::f16 ? hw::cvt_f32_f16(half) : hw::cvt_f32_bf16(half);
      }
    }
  } else if (element_bits(format) == 8) {
    HT_UNROLL
    for (uint32_t i = 0; i < kUnit; ++i) {
      const uint32_t code = raw[i / 4] >> i % 4 * 8 & 0xff;
      x[i] = pipe::decode_code(format == Format::int8 ? Format::int8 : Format::fp8_e4m3, code);
    }
  } else if (element_bits(format) == 6) {
    HT_UNROLL
    for (uint32_t i = 0; i < kUnit; ++i) {
      const uint32_t word = i * 6 / 32, low = i * 6 % 32;
      uint32_t code = raw[word] >> low;
      if (low > 26) code |= raw[word + 1] << (32 - low);
      x[i] = pipe::decode_code(format, code & 63);
    }
  } else {
    HT_UNROLL
    for (uint32_t i = 0; i < kUnit; ++i)
      x[i] = pipe::decode_as<Element::e2m1>(raw[i / 8] >> i % 8 * 4 & 15, 0);
  }
  if (!has_group_scales(format)) return;
  const float factor = scale_format_of(format) == Format::fp8_e4m3
                           ? pipe::decode_code(Format::fp8_e4m3, scale)
                           : decode_ue8m0(static_cast<uint8_t>(scale));
  HT_UNROLL
  for (uint32_t i = 0; i < kUnit; ++i) x[i] = hw::mul(x[i], factor);
}

// `bytes` of a unit by plain loads; zeros beyond.
template <uint32_t kWords>
HT_DEVICE void load_unit(const uint8_t* from, uint32_t bytes, bool words, uint32_t (&raw)[kWords],
                         hw::Site site = hw::Site::current()) {
  HT_UNROLL
  for (uint32_t i = 0; i < kWords; ++i) {
    raw[i] = 0;
    if (words && 4 * i + 4 <= bytes) {
      raw[i] = hw::load_global(reinterpret_cast<const uint32_t*>(from + 4 * i), site);
    } else {
      for (uint32_t b = 0; b < 4 && 4 * i + b < bytes; ++b) {
        raw[i] |= uint32_t{hw::load_global(from + 4 * i + b, site)} << 8 * b;
      }
    }
  }
}

// What an MMA takes: BF16, FP16, or FP32 as TF32 pairs (`kType` tf32).
template <hw::Type kType>
inline constexpr uint32_t kElementBytes = kType == hw::Type::tf32 ? 4 : 2;
template <hw::Type kType>
inline constexpr Format kStored = kType == hw::Type::bf16  ? Format::bf16
                                  : kType == hw::Type::f16 ? Format::f16
                                                           : Format::f32;
template <hw::Type kType>
HT_DEVICE uint32_t round_pair(float low, float high) {
  if constexpr (kType == hw::Type::bf16) return hw::cvt_bf16x2(low, high);
  return hw::cvt_f16x2(low, high);
}

// A tile of rows in shared memory, swizzled so that any 8 rows are free of bank conflicts: 16-byte
// chunks are permuted within each 128 bytes by the row. `low` is a chunk of the 128 bytes number
// `high`: separate, so that a loop counter becomes a constant offset.
template <uint32_t kRowBytes>
HT_DEVICE hw::SharedAddress chunk_at(hw::SharedAddress tile, uint32_t row, uint32_t low,
                                     uint32_t high = 0) {
  static_assert(kRowBytes % 128 == 0, "rows begin at the first bank");
  return tile + (row * kRowBytes + (low ^ row % 8) * 16) + high * 128;
}

// Stores a unit into a row of a tile. Eight threads, four units of two rows, store to all banks at
// a time: of FP32, whose units are half of all banks, every other two threads store in another
// order.
template <hw::Type kType, uint32_t kRowBytes>
HT_DEVICE void store_unit(hw::SharedAddress tile, uint32_t row, uint32_t unit,
                          const float (&x)[kUnit], hw::Site site = hw::Site::current()) {
  constexpr uint32_t kChunks = kUnit * kElementBytes<kType> / 16;
  HT_UNROLL
  for (uint32_t c = 0; c < kChunks; ++c) {
    hw::Words4 words;
    uint32_t chunk = c;
    if constexpr (kType == hw::Type::tf32) {
      chunk ^= unit & 2;
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        words.at[i] = std::bit_cast<uint32_t>((unit & 2) != 0 ? x[4 * (c ^ 2) + i] : x[4 * c + i]);
      }
    } else {
      HT_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        words.at[i] = round_pair<kType>(x[8 * c + 2 * i], x[8 * c + 2 * i + 1]);
      }
    }
    hw::store_shared(chunk_at<kRowBytes>(tile, row, unit * kChunks + chunk), words, site);
  }
}

// The keys of a sequence that a CTA reads.
struct Keys {
  int32_t begin, end;    // keys visible to some row; others count as zeros and are not read
  int64_t batch, first;  // contiguous: the row of key 0
  const int32_t* pages;  // or null
  uint32_t page_size, page_count;

  // False: not to be read.
  HT_DEVICE bool find(int32_t key, RowIndex& at, hw::Site site = hw::Site::current()) const {
    if (key < begin || key >= end) return false;
    at = {batch, first + key};
    if (pages == nullptr) return true;
    const auto j = static_cast<uint32_t>(key);
    const auto page = static_cast<uint32_t>(hw::load_global(pages + j / page_size, site));
    at = {page, j % page_size};
    return page < page_count;
  }
};

HT_HOST_DEVICE uint32_t remaining(uint32_t all, uint32_t done, uint32_t most) {
  return all <= done ? 0 : all - done < most ? all - done : most;
}

// Copies `whole` (16 or 8) bytes, of which `bytes` exist and the others become 0, in pieces of
// `piece`; 0: by plain loads. `aligned` is any address that a copy of nothing may name.
HT_DEVICE void copy_chunk(hw::SharedAddress to, const uint8_t* from, uint32_t bytes, uint32_t piece,
                          const uint8_t* aligned, uint32_t whole = 16,
                          hw::Site site = hw::Site::current()) {
  if (piece == 16) {
    hw::cp_async_zero_fill<16>(to, bytes > 0 ? from : aligned, bytes, site);
  } else if (piece == 8) {
    for (uint32_t at = 0; at < whole; at += 8) {
      const uint32_t exist = remaining(bytes, at, 8);
      hw::cp_async_zero_fill<8>(to + at, exist > 0 ? from + at : aligned, exist, site);
    }
  } else if (piece == 4) {
    for (uint32_t at = 0; at < whole; at += 4) {
      const uint32_t exist = remaining(bytes, at, 4);
      hw::cp_async_zero_fill<4>(to + at, exist > 0 ? from + at : aligned, exist, site);
    }
  } else {
    uint32_t raw[4];
    load_unit(from, bytes, false, raw, site);
    if (whole == 16) {
      hw::store_shared(to, hw::Words4{{raw[0], raw[1], raw[2], raw[3]}}, site);
    } else {
      hw::store_shared(to, hw::Vector<uint32_t, 2>{{raw[0], raw[1]}}, site);
    }
  }
}

// K or V of a CTA: one tile in shared memory and the next in flight.
template <hw::Type kType, uint32_t kDim, uint32_t kKeys, uint32_t kThreads>
struct Loader {
  static constexpr uint32_t kRowBytes = kDim * kElementBytes<kType>;
  static constexpr uint32_t kTileBytes = kKeys * kRowBytes;
  static constexpr uint32_t kUnits = kDim / kUnit, kChunks = kRowBytes / 16;
  static_assert(kUnits % 4 == 0 && kChunks % 8 == 0, "threads take 4 units or 8 chunks of a row");
  static constexpr uint32_t kThreadUnits = kKeys * kUnits / kThreads;
  static_assert(kThreadUnits <= 4, "the scale codes of a thread's units share a register");
  // The widest format that is dequantised: 8 bits into 16, 16 bits into FP32.
  static constexpr uint32_t kPlanes = kElementBytes<kType> / 2;
  static constexpr uint32_t kPlaneBytes = kKeys * kUnits * 16;
  static constexpr uint32_t kRawBytes = kPlanes * kPlaneBytes;
  static constexpr uint32_t kScaleBytes = 2 * kKeys * 4;  // per-row scales, in use and next

  const Operand& x;
  hw::SharedAddress tile, raw, scales;
  uint32_t dim, head;           // elements of a row
  uint32_t encoded_scales = 0;  // encoded block scales in flight, a byte a unit

  // FP16 MMAs take operands in FP16 alone.
  HT_HOST_DEVICE static bool direct(Format format) {
    return kType == hw::Type::f16 || format == kStored<kType>;
  }
  // Per-row scales of tile n.
  HT_DEVICE hw::SharedAddress row_scales(uint32_t n) const { return scales + n % 2 * kKeys * 4; }

  // Issues the copies of tile n, as one cp.async group.
  HT_DEVICE void start(const Keys& keys, uint32_t n, hw::Site site = hw::Site::current()) {
    const uint32_t thread = hw::thread_index().x;
    const auto first = static_cast<int32_t>(n * kKeys);
    const uint32_t bytes = dim * element_bits(x.format) / 8;
    RowIndex at{0, 0};
    if (direct(x.format)) {
      HT_ROLLED
      for (uint32_t row = thread / 8; row < kKeys; row += kThreads / 8) {
        const bool read = keys.find(first + static_cast<int32_t>(row), at, site);
        const uint8_t* from = data_of(x, at, head);
        HT_UNROLL
        for (uint32_t i = 0; i < kChunks; i += 8) {
          const uint32_t chunk = i + thread % 8;
          copy_chunk(chunk_at<kRowBytes>(tile, row, chunk), from + chunk * 16,
                     remaining(read ? bytes : 0, chunk * 16, 16), x.copy_bytes, x.data, 16, site);
        }
      }
    } else {
      const uint32_t unit = unit_bytes(x.format);
      encoded_scales = 0;
      HT_ROLLED
      for (uint32_t i = 0; i < kThreadUnits; ++i) {
        const bool read = keys.find(first + static_cast<int32_t>(row_of(i)), at, site);
        const uint8_t* from = data_of(x, at, head) + unit_of(i) * unit;
        const uint32_t exist = remaining(read ? bytes : 0, unit_of(i) * unit, unit);
        if (read && exist > 0) {
          encoded_scales |= encoded_scale(x, scales_of(x, at, head), unit_of(i), site) << 8 * i;
        }
        for (uint32_t done = 0; done < unit; done += 16) {
          copy_chunk(slot(i, done / 16), from + done, remaining(exist, done, 16), piece_bytes(x),
                     x.data, slot_bytes(x.format), site);
        }
      }
    }
    if (x.scaling == Scales::row && thread < kKeys) {
      const bool read = keys.find(first + static_cast<int32_t>(thread), at, site);
      hw::cp_async_zero_fill<4>(row_scales(n) + thread * 4,
                                read ? scales_of(x, at, head) : x.scales, read ? 4 : 0, site);
    }
    hw::cp_async_commit(site);
  }
  // Waits for the thread's own copies and dequantises them; others see the tile after a barrier.
  HT_DEVICE void complete(hw::Site site = hw::Site::current()) {
    hw::cp_async_wait<0>(site);
    if (direct(x.format)) return;
    HT_ROLLED
    for (uint32_t i = 0; i < kThreadUnits; ++i) {
      uint32_t words[4 * kPlanes];
      HT_UNROLL
      for (uint32_t plane = 0; plane < kPlanes; ++plane) {
        hw::Words4 part{};
        if (slot_bytes(x.format) == 8) {
          const auto two = hw::load_shared<hw::Vector<uint32_t, 2>>(slot(i, 0), site);
          part.at[0] = two.at[0], part.at[1] = two.at[1];
        } else if (16 * plane < unit_bytes(x.format)) {
          part = hw::load_shared<hw::Words4>(slot(i, plane), site);
        }
        HT_UNROLL
        for (uint32_t w = 0; w < 4; ++w) words[4 * plane + w] = part.at[w];
      }
      float values[kUnit];
      decode_unit(x.format, words, encoded_scales >> 8 * i & 0xff, values);
      store_unit<kType, kRowBytes>(tile, row_of(i), unit_of(i), values, site);
    }
  }

 private:
  // Four threads take 4 units of a row, so that 8 of them store to all banks.
  HT_DEVICE static uint32_t row_of(uint32_t i) {
    return hw::thread_index().x / 4 + kThreads / 4 * (i / (kUnits / 4));
  }
  HT_DEVICE static uint32_t unit_of(uint32_t i) {
    return hw::thread_index().x % 4 + i % (kUnits / 4) * 4;
  }
  HT_DEVICE hw::SharedAddress slot(uint32_t i, uint32_t plane) const {
    return raw +
           (plane * kPlaneBytes + (i * kThreads + hw::thread_index().x) * slot_bytes(x.format));
  }
};

}  // namespace halftone::attention_sm80
