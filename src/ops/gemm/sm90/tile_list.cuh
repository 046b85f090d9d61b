// The tile scheduler of the grouped GEMMs on sm_90a: persistent CTAs over a list of M-chunks in
// device memory, each with rows of x of one expert.
#pragma once
#include "hw/thread.h"
#include "ops/gemm/sm90/tile.cuh"

namespace halftone::gemm {

// The contiguous range of tiles of a CTA: tile `tile` of chunk `chunk`.
struct Sm90TileRange {
  uint32_t left, chunk, tile, tiles;
  bool new_chunk = true;  // this is the first tile of a chunk in the range

  HT_DEVICE Sm90TileRange(const GpuGemm& p, uint32_t tiles_of_chunk)
      : Sm90TileRange(hw::load_global(p.chunk_count), tiles_of_chunk) {}
  HT_DEVICE Sm90TileRange(uint32_t chunks, uint32_t tiles_of_chunk) : tiles(tiles_of_chunk) {
    const uint64_t all = uint64_t{chunks} * tiles;
    const uint32_t block = hw::block_index().x, blocks = hw::grid_size().x;
    const auto first = static_cast<uint32_t>(all * block / blocks);
    left = static_cast<uint32_t>(all * (block + 1) / blocks) - first;
    chunk = first / tiles, tile = first % tiles;
  }
  HT_DEVICE void next() {
    --left;
    new_chunk = ++tile == tiles;
    if (new_chunk) tile = 0, ++chunk;
  }
};

struct Sm90MChunk {
  MChunk rows;
  GpuSource source[2];  // of the gate, and of its up half

  HT_DEVICE void load(const GpuGemm& p, uint32_t index, hw::Site site = hw::Site::current()) {
    rows = hw::load_global(p.chunks + index, site);
    load_sources(p, site);
  }
  // Without a list: the row's own expert.
  HT_DEVICE void load_unsorted(const GpuGemm& p, uint32_t row,
                               hw::Site site = hw::Site::current()) {
    const auto expert = static_cast<uint32_t>(hw::load_global(p.expert_ids + row, site));
    rows = {static_cast<int32_t>(expert < p.expert_count ? expert : 0), static_cast<int32_t>(row),
            1, 0};
    load_sources(p, site);
  }
  HT_DEVICE void load_sources(const GpuGemm& p, hw::Site site) {
    const GpuSource* at = p.experts + rows.expert * p.expert_step;
    source[0] = load_source(at, site);
    source[1] = load_source(at + (p.epilogue.gate ? 1 : 0), site);
  }
  // Its tile `index` (sm90/tile.cuh).
  HT_DEVICE Sm90Tile tile(const GpuGemm& p, uint32_t index) const {
    const auto first = static_cast<uint32_t>(rows.first);
    const bool gate = p.epilogue.gate;
    return {{source[0], source[1]},
            index * (gate ? kSm90Rows / 2 : kSm90Rows),
            first,
            first + static_cast<uint32_t>(rows.count),
            static_cast<uint32_t>(rows.expert),
            gate};
  }
  // Coordinate of a matrix in the tensor map of all of them.
  HT_DEVICE int32_t matrix(const GpuLayout& weight, uint32_t half, const uint8_t* first,
                           uint32_t shift) const {
    return static_cast<int32_t>((row_address(weight, source[half], 0) - first) >> shift);
  }
  // Only a chunk that is not full shows that nobody will read W again.
  HT_DEVICE hw::CachePolicy weight_policy(const GpuGemm& p) const {
    const bool last = static_cast<uint32_t>(rows.count) < p.chunk_rows || p.chunk_rows == 1;
    return {last ? hw::kEvictFirst.bits : hw::kEvictNormal.bits};
  }
};

}  // namespace halftone::gemm
