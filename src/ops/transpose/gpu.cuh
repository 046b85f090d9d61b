// Permuted copies and transposition for every GPU. Where the source is contiguous along another
// dimension than the result, tiles are transposed in shared memory, so that both sides are read and
// written contiguously.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/bits.h"
#include "hw/memory.h"
#include "hw/thread.h"
#include "ops/transpose/kernels.h"

namespace halftone {

struct PermuteParams {
  PermuteArgs args;
  uint32_t tiles_down, tiles_across;
};

// Where a CTA's tile begins on both sides.
struct PermuteTile {
  const char* x;
  char* out;
  int64_t row, column;

  HT_DEVICE static PermuteTile of_block(const PermuteParams& p, uint32_t rows, uint32_t columns) {
    const PermuteArgs& args = p.args;
    uint32_t index = hw::block_index().x;
    PermuteTile tile{};
    tile.column = int64_t{index % p.tiles_across} * columns;
    index /= p.tiles_across;
    tile.row = int64_t{index % p.tiles_down} * rows;
    index /= p.tiles_down;
    tile.x = args.x + tile.row * args.x_row + tile.column * args.x_column;
    tile.out = args.out + tile.row * args.out_row + tile.column * args.element;
    for (int d = args.outer - 1; d >= 0; --d) {
      const auto extent = static_cast<uint32_t>(args.extent[d]);
      tile.x += index % extent * args.x_stride[d];
      tile.out += index % extent * args.out_stride[d];
      index /= extent;
    }
    return tile;
  }
};

// Element by element, four a thread in flight: whatever the addresses.
struct PermuteGpu {
  using Params = PermuteParams;
  static constexpr uint32_t kThreads = 256, kMinBlocks = 1, kReads = 4;
  // Sides of a tile: whole sectors of 32 bytes for every element size.
  HT_HOST_DEVICE static uint32_t side(int element) { return element <= 2 ? 64 : 32; }
  // Bytes from line to line in shared memory: an odd number of words, so that a column of elements
  // hits all banks (8-byte elements, whose warp takes two wavefronts: two words more).
  HT_HOST_DEVICE static uint32_t pitch(int element) {
    return side(element) * static_cast<uint32_t>(element) + (element == 8 ? 8 : 4);
  }
  static uint32_t shared_bytes(const PermuteArgs& args) {
    return args.transposed ? side(args.element) * pitch(args.element) : 0;
  }

  HT_DEVICE static void run(const Params& p) {
    switch (p.args.element) {
      case 1:
        return tile<uint8_t>(p);
      case 2:
        return tile<uint16_t>(p);
      case 4:
        return tile<uint32_t>(p);
      case 8:
        return tile<uint64_t>(p);
      default:
        return tile<hw::Words4>(p);
    }
  }

  template <class T>
  HT_DEVICE static void tile(const Params& p) {
    const PermuteArgs& args = p.args;
    constexpr uint32_t kSide = side(sizeof(T)), kPitch = pitch(sizeof(T));
    const PermuteTile at = PermuteTile::of_block(p, kSide, kSide);
    const int64_t rows = args.rows - at.row, columns = args.columns - at.column;
    const hw::SharedAddress shared = hw::shared_memory_base();
    // Neighbouring threads step along what is contiguous in the source.
    for (uint32_t first = hw::thread_index().x; first < kSide * kSide; first += kReads * kThreads) {
      T value[kReads] = {};
      HT_UNROLL
      for (uint32_t k = 0; k < kReads; ++k) {
        const uint32_t i = first + k * kThreads, along = i % kSide, across = i / kSide;
        const uint32_t r = args.transposed ? along : across, c = args.transposed ? across : along;
        if (r >= rows || c >= columns) continue;
        value[k] =
            hw::load_global(reinterpret_cast<const T*>(at.x + r * args.x_row + c * args.x_column));
      }
      HT_UNROLL
      for (uint32_t k = 0; k < kReads; ++k) {
        const uint32_t i = first + k * kThreads, along = i % kSide, across = i / kSide;
        const uint32_t r = args.transposed ? along : across, c = args.transposed ? across : along;
        if (r >= rows || c >= columns) continue;
        if (sizeof(T) < 16 && args.transposed) {
          hw::store_shared(shared + (across * kPitch + along * uint32_t{sizeof(T)}), value[k]);
        } else {
          hw::store_global(reinterpret_cast<T*>(at.out + r * args.out_row) + c, value[k]);
        }
      }
    }
    if (sizeof(T) == 16 || !args.transposed) return;
    hw::barrier_sync();
    for (uint32_t i = hw::thread_index().x; i < kSide * kSide; i += kThreads) {
      const uint32_t c = i % kSide, r = i / kSide;
      if (r >= rows || c >= columns) continue;
      const T value = hw::load_shared<T>(shared + (c * kPitch + r * uint32_t{sizeof(T)}));
      hw::store_global(reinterpret_cast<T*>(at.out + r * args.out_row) + c, value);
    }
  }
};

// Transposed matrices whose lines on both sides are whole 16-byte pieces. A thread reads pieces of
// as many lines as a word has elements, transposes these words in registers, and stores them down a
// column of the tile, 128 bytes wide on both sides. Word w of its row r lies at w ^ 4 piece(r):
// eight pieces of four columns then write all banks, and so do eight that read a row.
template <class T>
struct TransposeGpu {
  using Params = PermuteParams;
  static constexpr uint32_t kElement = sizeof(T);
  // 64 bytes and more a thread in flight.
  static constexpr uint32_t kThreads = kElement < 4 ? 128 : 64, kMinBlocks = 1024 / kThreads;
  static constexpr uint32_t kPiece = 16 / kElement, kSide = 128 / kElement;
  static constexpr uint32_t kLines = kElement < 4 ? 4 / kElement : 1;  // whose elements share words
  static constexpr uint32_t kWords = kElement < 4 ? 1 : kElement / 4;  // of a line's element
  static constexpr uint32_t kSharedBytes = 128 * kSide;
  // Groups of lines a thread reads, and pieces it writes.
  static constexpr uint32_t kGroups = kSide / kLines * 8 / kThreads;
  static constexpr uint32_t kWrites = kSide * 8 / kThreads;
  static_assert(kGroups >= 1 && kWrites >= 1, "every thread has work");

  HT_DEVICE static uint32_t place(uint32_t row, uint32_t word) {
    return row * 128 + (word ^ 4 * (row / kPiece)) * 4;
  }

  HT_DEVICE static void run(const Params& p) {
    const PermuteArgs& args = p.args;
    const PermuteTile at = PermuteTile::of_block(p, kSide, kSide);
    const int64_t rows = args.rows - at.row, columns = args.columns - at.column;
    const hw::SharedAddress shared = hw::shared_memory_base();
    const uint32_t thread = hw::thread_index().x, piece = thread % 8, group = thread / 8;
    hw::Words4 lines[kGroups][kLines];
    HT_UNROLL
    for (uint32_t g = 0; g < kGroups; ++g) {
      HT_UNROLL
      for (uint32_t line = 0; line < kLines; ++line) {
        const uint32_t column = (group + g * (kThreads / 8)) * kLines + line;
        lines[g][line] = {};
        if (column >= columns || piece * kPiece >= rows) continue;
        lines[g][line] = hw::load_global(
            reinterpret_cast<const hw::Words4*>(at.x + column * args.x_column) + piece);
      }
    }
    HT_UNROLL
    for (uint32_t g = 0; g < kGroups; ++g) {
      const uint32_t word = (group + g * (kThreads / 8)) * kWords;
      HT_UNROLL
      for (uint32_t i = 0; i < kPiece; ++i) {
        const hw::SharedAddress to = shared + place(piece * kPiece + i, word);
        if constexpr (kWords == 2) {
          const hw::Vector<uint32_t, 2> pair{{lines[g][0][2 * i], lines[g][0][2 * i + 1]}};
          hw::store_shared(to, pair);
        } else {
          hw::store_shared(to, elements(lines[g], i));
        }
      }
    }
    hw::barrier_sync();
    HT_UNROLL
    for (uint32_t i = 0; i < kWrites; ++i) {
      const uint32_t row = group + i * (kThreads / 8);
      if (row >= rows || piece * kPiece >= columns) continue;
      const auto words = hw::load_shared<hw::Words4>(shared + place(row, piece * 4));
      hw::store_global(reinterpret_cast<hw::Words4*>(at.out + row * args.out_row) + piece, words);
    }
  }

  // Element i of each line, in one word.
  HT_DEVICE static uint32_t elements(const hw::Words4 (&lines)[kLines], uint32_t i) {
    if constexpr (kElement == 1) {
      const uint32_t byte = i % 4, low = byte | (byte + 4) << 4;
      const uint32_t first = hw::prmt(lines[0][i / 4], lines[1][i / 4], low);
      const uint32_t second = hw::prmt(lines[2][i / 4], lines[3][i / 4], low);
      return hw::prmt(first, second, 0x5410);
    } else if constexpr (kElement == 2) {
      return hw::prmt(lines[0][i / 2], lines[1][i / 2], i % 2 == 0 ? 0x5410 : 0x7632);
    } else {
      return lines[0][i];
    }
  }
};

}  // namespace halftone
