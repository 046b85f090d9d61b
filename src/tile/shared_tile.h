// A matrix operand in shared memory, as wgmma and tcgen05.mma read it and tensor copies write it.
//
// The operand is mn x k elements (rows of A, columns of B, times the sum's index). It is cut into
// panels as wide as the swizzle's span along its contiguous dimension; a panel is all lines of the
// other dimension, one after the other, and panels follow one another. That is what one tensor
// copy per panel writes, and one descriptor covers any number of lines:
//   K-major : offset = k_bytes / span * (mn_extent * span) + mn * span + k_bytes % span
//   MN-major: offset = mn_bytes / span * (k_extent * span) + k * span + mn_bytes % span
// Without a swizzle the span is the 16 bytes of a core-matrix row and the same formulas hold.
#pragma once
#include "tile/swizzle.h"

namespace halftone::tile {

enum class Major : uint8_t { k, mn };  // the dimension whose neighbours are neighbours in memory

// Lines that a descriptor's stride steps over: the 8 rows of a core matrix, 4 where pieces of 32
// bytes move.
HT_HOST_DEVICE uint32_t group_lines(Swizzle s) { return s == Swizzle::b128_atom32 ? 4 : 8; }

struct SharedTile {
  Major major = Major::k;
  Swizzle swizzle = Swizzle::b128;
  uint32_t element_bits = 16;
  uint32_t mn = 0, k = 0;  // extents in elements

  HT_HOST_DEVICE uint32_t span() const { return tile::span(swizzle); }
  HT_HOST_DEVICE uint32_t alignment() const { return pattern_bytes(swizzle); }
  HT_HOST_DEVICE uint32_t contiguous() const { return major == Major::k ? k : mn; }
  HT_HOST_DEVICE uint32_t lines() const { return major == Major::k ? mn : k; }
  // Elements of one line of a panel: the inner extent of a tensor copy's box.
  HT_HOST_DEVICE uint32_t panel_elements() const { return span() * 8 / element_bits; }
  HT_HOST_DEVICE uint32_t panel_bytes() const { return lines() * span(); }
  HT_HOST_DEVICE uint32_t panels() const {
    return (contiguous() + panel_elements() - 1) / panel_elements();
  }
  HT_HOST_DEVICE uint32_t bytes() const { return panels() * panel_bytes(); }

  // The broken rule, or null: what makes the tile readable through one descriptor.
  HT_HOST_DEVICE const char* broken_rule() const {
    if (element_bits != 4 && element_bits != 8 && element_bits != 16 && element_bits != 32)
      return "elements have 4, 8, 16 or 32 bits";
    if (element_bits == 4 && major == Major::mn) return "4-bit operands are K-major";
    if (swizzle == Swizzle::b128_atom32 && (major == Major::k || element_bits != 32))
      return "the swizzle of 32-byte atoms is for 32-bit MN-major operands";
    if (swizzle == Swizzle::b128_atom64) return "no matrix instruction reads 64-byte atoms";
    if (contiguous() == 0 || contiguous() % panel_elements() != 0)
      return "the contiguous extent is a multiple of the swizzle's span";
    if (lines() == 0 || lines() % group_lines(swizzle) != 0)
      return "the other extent is a multiple of 8 (4 with 32-byte atoms)";
    return nullptr;
  }
  HT_HOST_DEVICE bool valid() const { return broken_rule() == nullptr; }

  // Byte offset of element (mn, k) before the swizzle; of its pair, for 4-bit elements.
  HT_HOST_DEVICE uint32_t offset(uint32_t mn_index, uint32_t k_index) const {
    const uint32_t along = (major == Major::k ? k_index : mn_index) * element_bits / 8;
    const uint32_t line = major == Major::k ? mn_index : k_index;
    return along / span() * panel_bytes() + line * span() + along % span();
  }
  // Its shared address, in a tile that starts at `base` (aligned to alignment()).
  HT_HOST_DEVICE uint32_t address(uint32_t base, uint32_t mn_index, uint32_t k_index) const {
    return swizzled(swizzle, base + offset(mn_index, k_index));
  }

  // The two strides of a descriptor, in bytes. A group is group_lines() lines.
  //   K-major : leading = chunk to chunk along K (unswizzled only), stride = group to group along
  //   MN MN-major: leading = panel to panel along MN, stride = group to group along K; unswizzled
  //   the
  //             two change places.
  HT_HOST_DEVICE uint32_t leading_bytes() const {
    if (major == Major::k) return swizzle == Swizzle::none ? panel_bytes() : 16;
    return swizzle == Swizzle::none ? group_bytes() : panel_bytes();
  }
  HT_HOST_DEVICE uint32_t stride_bytes() const {
    if (major == Major::mn && swizzle == Swizzle::none) return panel_bytes();
    return group_bytes();
  }
  HT_HOST_DEVICE uint32_t group_bytes() const { return group_lines(swizzle) * span(); }

  // How far an instruction that starts at (mn_index, k_index) moves the start address of the
  // descriptor. mn_index is a multiple of 8, and for MN-major of a panel; k_index one of the K of
  // an instruction (32 bytes). The swizzle does not enter: the hardware applies it afterwards.
  HT_HOST_DEVICE uint32_t advance(uint32_t mn_index, uint32_t k_index) const {
    return offset(mn_index, k_index);
  }
  bool operator==(const SharedTile&) const = default;
};

// The general rule of the hardware: byte offset, before the swizzle, of element (mn, k) of an
// operand that a descriptor with these strides describes. SharedTile's formula is the case of its
// own strides.
HT_HOST_DEVICE uint32_t operand_offset(Major major, Swizzle swizzle, uint32_t element_bits,
                                       uint32_t leading, uint32_t stride, uint32_t mn, uint32_t k) {
  const uint32_t width = span(swizzle);
  if (major == Major::k) {
    const uint32_t along = k * element_bits / 8;
    if (swizzle == Swizzle::none) {
      return mn % 8 * 16 + mn / 8 * stride + along % 16 + along / 16 * leading;
    }
    return mn % 8 * width + mn / 8 * stride + along;
  }
  const uint32_t along = mn * element_bits / 8;
  if (swizzle == Swizzle::none) {
    return along % 16 + along / 16 * stride + k % 8 * 16 + k / 8 * leading;
  }
  const uint32_t lines = group_lines(swizzle);
  return along % width + along / width * leading + k % lines * width + k / lines * stride;
}

}  // namespace halftone::tile
