// Integer instructions on registers: bytes, bits, dot products of bytes.
#pragma once
#include <bit>
#include <cstdint>

#include "hw/target.h"

namespace halftone::hw {

// Four bytes out of the eight of {low, high}: nibble i of the selector names the byte (0..7) for
// byte i of the result; the nibble's top bit asks for that byte's sign, spread over the byte.
HT_DEVICE uint32_t prmt(uint32_t low, uint32_t high, uint32_t selector, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
#elif !defined(__CUDACC__)
  const uint64_t bytes = uint64_t{high} << 32 | low;
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t nibble = selector >> 4 * i & 15;
    uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (nibble & 7)) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * i;
  }
#endif
  return result;
}

// Any function of three bits, for all 32: bit (4a + 2b + c) of the table is its value at a, b, c.
// Written as that function of kLop3A, kLop3B, kLop3C: lop3<(kLop3A & kLop3B) ^ kLop3C>(a, b, c).
inline constexpr uint8_t kLop3A = 0xF0, kLop3B = 0xCC, kLop3C = 0xAA;
template <uint8_t kTable>
HT_DEVICE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("lop3.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(a), "r"(b), "r"(c), "n"(kTable));
#elif !defined(__CUDACC__)
  for (uint32_t i = 0; i < 8; i++) {
    if (kTable >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
#endif
  return result;
}

// The upper word of {high, low} << bits; distances above 31 count modulo 32.
HT_DEVICE uint32_t shf_left_wrap(uint32_t low, uint32_t high, uint32_t bits,
                                 Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
#elif !defined(__CUDACC__)
  result = static_cast<uint32_t>((uint64_t{high} << 32 | low) << (bits & 31) >> 32);
#endif
  return result;
}

// The lower word of {high, low} >> bits; distances above 31 count modulo 32.
HT_DEVICE uint32_t shf_right_wrap(uint32_t low, uint32_t high, uint32_t bits,
                                  Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
#elif !defined(__CUDACC__)
  result = static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (bits & 31));
#endif
  return result;
}

// Distances above 32 count as 32.
HT_DEVICE uint32_t shf_left_clamp(uint32_t low, uint32_t high, uint32_t bits,
                                  Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
#elif !defined(__CUDACC__)
  const uint32_t distance = bits < 32 ? bits : 32;
  result = static_cast<uint32_t>((uint64_t{high} << 32 | low) << distance >> 32);
#endif
  return result;
}

HT_DEVICE uint32_t shf_right_clamp(uint32_t low, uint32_t high, uint32_t bits,
                                   Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(bits));
#elif !defined(__CUDACC__)
  const uint32_t distance = bits < 32 ? bits : 32;
  result = static_cast<uint32_t>((uint64_t{high} << 32 | low) >> distance);
#endif
  return result;
}

// `length` bits from `start` on; both count modulo 256, bits above the word are 0.
HT_DEVICE uint32_t bfe(uint32_t value, uint32_t start, uint32_t length, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(value), "r"(start), "r"(length));
#elif !defined(__CUDACC__)
  const uint32_t from = start & 255, count = length & 255;
  const uint64_t shifted = from < 32 ? uint64_t{value} >> from : 0;
  result = static_cast<uint32_t>(count < 32 ? shifted & ((uint64_t{1} << count) - 1) : shifted);
#endif
  return result;
}

// The same with sign: the field's top bit (bit 31 where it leaves the word) fills the result.
HT_DEVICE int32_t bfe(int32_t value, uint32_t start, uint32_t length, Site = Site::current()) {
  int32_t result = 0;
#if HT_GPU
  asm("bfe.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(value), "r"(start), "r"(length));
#elif !defined(__CUDACC__)
  const uint32_t from = start & 255, count = length & 255;
  if (count != 0) {
    const uint32_t last = from + count - 1 < 31 ? from + count - 1 : 31;
    const int32_t sign = value >> last & 1 ? -1 : 0;
    for (uint32_t i = 0; i < 32; i++) {
      const uint32_t bit =
          i < count && from + i < 32 ? static_cast<uint32_t>(value) >> (from + i) & 1 : sign & 1;
      result = static_cast<int32_t>(static_cast<uint32_t>(result) | bit << i);
    }
  }
#endif
  return result;
}

// `into` with its `length` bits from `start` on replaced by the low ones of `value`.
HT_DEVICE uint32_t bfi(uint32_t value, uint32_t into, uint32_t start, uint32_t length,
                       Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("bfi.b32 %0, %1, %2, %3, %4;"
      : "=r"(result)
      : "r"(value), "r"(into), "r"(start), "r"(length));
#elif !defined(__CUDACC__)
  const uint32_t from = start & 255, count = length & 255;
  result = into;
  for (uint32_t i = 0; i < count && from + i < 32; i++) {
    result = (result & ~(1u << (from + i))) | (value >> i & 1) << (from + i);
  }
#endif
  return result;
}

HT_DEVICE uint32_t popc(uint32_t value, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("popc.b32 %0, %1;" : "=r"(result) : "r"(value));
#elif !defined(__CUDACC__)
  result = static_cast<uint32_t>(std::popcount(value));
#endif
  return result;
}

// Leading zeros; 32 for 0.
HT_DEVICE uint32_t clz(uint32_t value, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("clz.b32 %0, %1;" : "=r"(result) : "r"(value));
#elif !defined(__CUDACC__)
  result = static_cast<uint32_t>(std::countl_zero(value));
#endif
  return result;
}

HT_DEVICE uint32_t brev(uint32_t value, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("brev.b32 %0, %1;" : "=r"(result) : "r"(value));
#elif !defined(__CUDACC__)
  for (uint32_t i = 0; i < 32; i++) result |= (value >> i & 1) << (31 - i);
#endif
  return result;
}

// The highest set bit; all ones for 0.
HT_DEVICE uint32_t bfind(uint32_t value, Site = Site::current()) {
  uint32_t result = 0;
#if HT_GPU
  asm("bfind.u32 %0, %1;" : "=r"(result) : "r"(value));
#elif !defined(__CUDACC__)
  result = value == 0 ? 0xffffffff : 31 - static_cast<uint32_t>(std::countl_zero(value));
#endif
  return result;
}

// c plus the dot product of four bytes with four bytes, signed; wraps around.
HT_DEVICE int32_t dp4a(uint32_t a, uint32_t b, int32_t c, Site = Site::current()) {
  int32_t result = 0;
#if HT_GPU
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
#elif !defined(__CUDACC__)
  uint32_t sum = static_cast<uint32_t>(c);
  for (uint32_t i = 0; i < 4; i++) {
    sum += static_cast<uint32_t>(int32_t{static_cast<int8_t>(a >> 8 * i & 0xff)} *
                                 int32_t{static_cast<int8_t>(b >> 8 * i & 0xff)});
  }
  result = static_cast<int32_t>(sum);
#endif
  return result;
}

// Unsigned bytes of a, signed ones of b.
HT_DEVICE int32_t dp4a_u8_s8(uint32_t a, uint32_t b, int32_t c, Site = Site::current()) {
  int32_t result = 0;
#if HT_GPU
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
#elif !defined(__CUDACC__)
  uint32_t sum = static_cast<uint32_t>(c);
  for (uint32_t i = 0; i < 4; i++) {
    sum += static_cast<uint32_t>(static_cast<int32_t>(a >> 8 * i & 0xff) *
                                 int32_t{static_cast<int8_t>(b >> 8 * i & 0xff)});
  }
  result = static_cast<int32_t>(sum);
#endif
  return result;
}

}  // namespace halftone::hw
