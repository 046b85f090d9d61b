// Tensor maps from one description, for a GPU and for the simulated one (host code).
//
//   const TensorBox a = pipe::matrix_box(hw::Type::bf16, a_pointer, m, k, k * 2, 128, 64,
//                                        tile::Swizzle::b128);
//   params.a_map = pipe::make_tensor_map(a, stream.device());
#pragma once
#include <array>
#include <cstdint>
#include <mutex>

#include "halftone/device.h"
#include "hw/copy/tensor_map.h"
#include "hw/types.h"
#include "tile/shared_tile.h"

namespace halftone::pipe {

// A tensor in global memory and the box of it that one copy moves. Dimension 0 is the fastest and
// has no gaps.
struct TensorBox {
  hw::Type type = hw::Type::bf16;  // e2m1: two to a byte, both in global and in shared memory
  void* address = nullptr;
  uint32_t rank = 0;
  std::array<uint64_t, 5> extent{};  // elements
  std::array<uint64_t, 4> stride{};  // bytes, of dimensions 1 and up
  std::array<uint32_t, 5> box{};     // elements
  tile::Swizzle swizzle = tile::Swizzle::none;
  bool fill_with_nan = false;  // outside the tensor, else zeros; floating-point types

  // What a load signals at its mbarrier, also where the box leaves the tensor and is filled. Of
  // 6-bit elements the payload without the padding (reported of padded types, not yet measured).
  uint32_t box_bytes() const;
  // What the box takes in shared memory: a line is as wide as the swizzle at least.
  uint32_t shared_bytes() const;
  bool operator==(const TensorBox&) const = default;
};

// A row-major matrix, copied in boxes of box_rows x box_columns.
TensorBox matrix_box(hw::Type, void* address, uint64_t rows, uint64_t columns, uint64_t row_bytes,
                     uint32_t box_rows, uint32_t box_columns, tile::Swizzle);

// A matrix in boxes that are the panels of an operand tile, one copy each: the matrix's rows are
// the tile's lines (MN for a K-major operand, K for an MN-major one).
TensorBox panel_box(hw::Type, void* address, uint64_t rows, uint64_t columns, uint64_t row_bytes,
                    const tile::SharedTile& tile);

// The rules of cuTensorMapEncodeTiled: Error names the value and the rule. Called by the next two.
void validate(const TensorBox&);

// The object that a kernel takes. Error::unsupported for devices without tensor copies.
hw::TensorMap make_tensor_map(const TensorBox&, const Device&);

// Maps made before, so that a plan that runs again on the same buffers encodes nothing. A table of
// fixed size: a full one gives up its oldest entry. May be shared by threads.
class TensorMapCache {
 public:
  static constexpr uint32_t kEntries = 64;
  hw::TensorMap get(const TensorBox&, const Device&);
  uint64_t made() const { return made_; }  // how many were encoded

 private:
  struct Entry {
    TensorBox box;
    Device device;
    hw::TensorMap map;
  };
  std::mutex mutex_;
  std::array<Entry, kEntries> entries_{};
  uint64_t made_ = 0;
};

}  // namespace halftone::pipe
