// Swizzles of shared-memory addresses: what tensor copies write, and what wgmma and tcgen05 read.
//
// A swizzle permutes the 16-byte chunks of one line of `span` bytes by the number of the line, so
// that the eight rows an ldmatrix or an MMA reads lie in different banks. It is an exclusive or on
// the *absolute* shared address (measured on an H200), never on the offset inside a tile: a tile
// that starts on a multiple of `pattern_bytes` sees no difference.
#pragma once
#include "hw/target.h"

namespace halftone::tile {

enum class Swizzle : uint8_t {
  none,
  b32,          // lines of 32 bytes:  chunk ^= address / 128 & 1
  b64,          // lines of 64 bytes:  chunk ^= address / 128 & 3
  b128,         // lines of 128 bytes: chunk ^= address / 128 & 7
  b128_atom32,  // lines of 128 bytes, moved in pieces of 32: 32-bit operands that are MN-major
  b128_atom64,  // lines of 128 bytes, moved in pieces of 64
};

// Bytes of one line: the width of a tensor copy's box. Without a swizzle, the 16 bytes of a chunk.
HT_HOST_DEVICE uint32_t span(Swizzle s) {
  return s == Swizzle::none ? 16 : s == Swizzle::b32 ? 32 : s == Swizzle::b64 ? 64 : 128;
}

// Bytes after which the pattern repeats: the alignment a tile needs.
HT_HOST_DEVICE uint32_t pattern_bytes(Swizzle s) {
  switch (s) {
    case Swizzle::none:
      return 16;
    case Swizzle::b32:
      return 256;
    case Swizzle::b64:
      return 512;
    case Swizzle::b128:
      return 1024;
    case Swizzle::b128_atom32:
      return 512;
    case Swizzle::b128_atom64:
      return 256;
  }
  return 0;
}

// Bytes that stay together.
HT_HOST_DEVICE uint32_t atom_bytes(Swizzle s) {
  return s == Swizzle::b128_atom32 ? 32 : s == Swizzle::b128_atom64 ? 64 : 16;
}

// The address bits that a swizzle changes.
HT_HOST_DEVICE uint32_t swizzle_mask(Swizzle s) {
  return s == Swizzle::none ? 0 : (span(s) - 1) & ~(atom_bytes(s) - 1);
}

// Where the byte with this unswizzled absolute address lies. Its own inverse.
HT_HOST_DEVICE uint32_t swizzled(Swizzle s, uint32_t address) {
  // Bit 7 counts lines of 128 bytes in every mode; it moves to the lowest bit of an atom.
  const uint32_t shift = s == Swizzle::b128_atom32 ? 2 : s == Swizzle::b128_atom64 ? 1 : 3;
  return address ^ (address >> shift & swizzle_mask(s));
}

// The same for kernels that address a tile by row and 16-byte chunk: the offset from a tile base
// that is aligned to the pattern, of chunk `chunk` in line `row`.
HT_HOST_DEVICE uint32_t chunk_offset(Swizzle s, uint32_t row, uint32_t chunk) {
  return swizzled(s, row * span(s) + chunk * 16);
}

// What `row` contributes alone, so that a loop over chunks costs one exclusive or each:
//   chunk_offset(s, row, chunk) == row * span(s) + ((chunk * 16) ^ row_key(s, row)).
HT_HOST_DEVICE uint32_t row_key(Swizzle s, uint32_t row) {
  return chunk_offset(s, row, 0) - row * span(s);
}

HT_HOST_DEVICE const char* name(Swizzle s) {
  switch (s) {
    case Swizzle::none:
      return "none";
    case Swizzle::b32:
      return "32";
    case Swizzle::b64:
      return "64";
    case Swizzle::b128:
      return "128";
    case Swizzle::b128_atom32:
      return "128-atom32";
    case Swizzle::b128_atom64:
      return "128-atom64";
  }
  return "";
}

}  // namespace halftone::tile
