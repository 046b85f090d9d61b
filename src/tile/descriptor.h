// Shared-memory descriptors of wgmma and tcgen05.mma: where an operand starts, its two strides, its
// swizzle. Opaque 64-bit values on the GPU; the simulator decodes them again.
#pragma once
#include "tile/shared_tile.h"

namespace halftone::tile {

// What a descriptor says, in bytes.
struct OperandFields {
  uint32_t start = 0;    // shared address, a multiple of 16, below 2^18
  uint32_t leading = 0;  // see SharedTile::leading_bytes
  uint32_t stride = 0;
  // Lines of 128 bytes from the last pattern boundary to the start of the pattern. Must be 0 when
  // data lies where the absolute address swizzles it, which is where tensor copies put it (measured
  // on an H200); so a pattern starts on its boundary, and valid() refuses anything else.
  uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::none;

  HT_HOST_DEVICE bool valid() const {
    return start % 16 == 0 && start < 1u << 18 && leading % 16 == 0 && leading < 1u << 18 &&
           stride % 16 == 0 && stride < 1u << 18 && base_offset == 0;
  }
  // The start of the lines an instruction reads: inside a line for all but the first step along K.
  HT_HOST_DEVICE bool line_aligned() const {
    return (start & ~(span(swizzle) - 1)) % pattern_bytes(swizzle) == 0;
  }
  bool operator==(const OperandFields&) const = default;
};

namespace detail {
HT_HOST_DEVICE uint64_t field16(uint32_t bytes) { return (bytes & 0x3FFFF) >> 4; }
HT_HOST_DEVICE uint64_t common_bits(const OperandFields& f) {
  return field16(f.start) | field16(f.leading) << 16 | field16(f.stride) << 32 |
         uint64_t{f.base_offset & 7} << 49;
}
HT_HOST_DEVICE OperandFields common_fields(uint64_t bits) {
  OperandFields f;
  f.start = static_cast<uint32_t>(bits & 0x3FFF) << 4;
  f.leading = static_cast<uint32_t>(bits >> 16 & 0x3FFF) << 4;
  f.stride = static_cast<uint32_t>(bits >> 32 & 0x3FFF) << 4;
  f.base_offset = static_cast<uint32_t>(bits >> 49 & 7);
  return f;
}
HT_HOST_DEVICE OperandFields fields_of(const SharedTile& t, uint32_t base) {
  OperandFields f;
  f.start = base;
  f.leading = t.leading_bytes();
  f.stride = t.stride_bytes();
  f.swizzle = t.swizzle;
  return f;
}
}  // namespace detail

// wgmma: [13:0] start/16, [29:16] leading/16, [45:32] stride/16, [51:49] base offset,
// [63:62] swizzle 0 none, 1 128, 2 64, 3 32.
struct WgmmaDescriptor {
  uint64_t bits = 0;

  HT_HOST_DEVICE static bool has(Swizzle s) { return s <= Swizzle::b128; }
  HT_HOST_DEVICE static WgmmaDescriptor encode(const OperandFields& f) {
    const uint64_t mode = f.swizzle == Swizzle::none ? 0 : 4 - static_cast<uint64_t>(f.swizzle);
    return {detail::common_bits(f) | mode << 62};
  }
  // The operand `t` whose tile starts at `base`.
  HT_HOST_DEVICE static WgmmaDescriptor of(const SharedTile& t, uint32_t base) {
    return encode(detail::fields_of(t, base));
  }
  HT_HOST_DEVICE OperandFields decode() const {
    OperandFields f = detail::common_fields(bits);
    const uint64_t mode = bits >> 62;
    f.swizzle = mode == 0 ? Swizzle::none : static_cast<Swizzle>(4 - mode);
    return f;
  }
  // The same operand, read from `bytes` further on (SharedTile::advance). One addition: the start
  // stays below 2^18, so nothing carries out of its field.
  HT_HOST_DEVICE WgmmaDescriptor advanced(uint32_t bytes) const { return {bits + (bytes >> 4)}; }
  bool operator==(const WgmmaDescriptor&) const = default;
};

// tcgen05: the same fields up to bit 51, [48:46] = 1, [52] how leading is meant (0 relative),
// [63:61] swizzle 0 none, 1 128 with 32-byte atoms, 2 128, 4 64, 6 32.
struct Tcgen05Descriptor {
  uint64_t bits = 0;

  HT_HOST_DEVICE static bool has(Swizzle s) { return s <= Swizzle::b128_atom32; }
  HT_HOST_DEVICE static Tcgen05Descriptor encode(const OperandFields& f) {
    const uint64_t mode = f.swizzle == Swizzle::b32           ? 6
                          : f.swizzle == Swizzle::b64         ? 4
                          : f.swizzle == Swizzle::b128        ? 2
                          : f.swizzle == Swizzle::b128_atom32 ? 1
                                                              : 0;
    return {detail::common_bits(f) | uint64_t{1} << 46 | mode << 61};
  }
  HT_HOST_DEVICE static Tcgen05Descriptor of(const SharedTile& t, uint32_t base) {
    return encode(detail::fields_of(t, base));
  }
  // Modes 3, 5 and 7, a version other than 1 and absolute leading addresses are not operands.
  HT_HOST_DEVICE bool valid() const {
    const uint64_t mode = bits >> 61;
    return (mode == 1 || mode % 2 == 0) && (bits >> 46 & 7) == 1 && (bits >> 52 & 0x1FF) == 0;
  }
  HT_HOST_DEVICE OperandFields decode() const {
    OperandFields f = detail::common_fields(bits);
    const uint64_t mode = bits >> 61;
    f.swizzle = mode == 6   ? Swizzle::b32
                : mode == 4 ? Swizzle::b64
                : mode == 2 ? Swizzle::b128
                : mode == 1 ? Swizzle::b128_atom32
                            : Swizzle::none;
    return f;
  }
  HT_HOST_DEVICE Tcgen05Descriptor advanced(uint32_t bytes) const { return {bits + (bytes >> 4)}; }
  bool operator==(const Tcgen05Descriptor&) const = default;
};

}  // namespace halftone::tile
