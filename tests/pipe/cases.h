// Runs the test kernels on a stream's device and checks every element they write.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "halftone/stream.h"
#include "halftone/tensor.h"
#include "pipe/images.h"
#include "pipe/kernels.h"
#include "pipe/tensor_map.h"

namespace halftone::test {

inline void double_tiles(Stream& stream, uint32_t blocks, uint32_t rows, uint32_t columns) {
  Tensor in = Tensor::empty({rows, columns}, Format::i32);
  for (int64_t i = 0; i < in.numel(); ++i) in.data<int32_t>()[i] = static_cast<int32_t>(i * 7 + 1);
  const Tensor there = in.to(stream.device());
  const Tensor out = Tensor::zeros({rows, columns}, Format::i32, stream.device());
  DoubleTiles::Params p{};
  p.map = pipe::make_tensor_map(
      pipe::matrix_box(hw::Type::s32, there.data<int32_t>(), rows, columns, columns * 4,
                       DoubleTiles::kRows, DoubleTiles::kColumns, tile::Swizzle::b128),
      stream.device());
  p.out = reinterpret_cast<uint32_t*>(out.data<int32_t>());
  p.rows = rows, p.columns = columns;
  launch(kDoubleTiles,
         {.grid = {blocks},
          .block = {DoubleTiles::kThreads},
          .cluster = {},
          .shared_bytes = DoubleTiles::kSharedBytes},
         p, stream);
  stream.synchronize();
  const Tensor back = out.to(Device::cpu());
  for (int64_t i = 0; i < in.numel(); ++i)
    ASSERT_EQ(back.data<int32_t>()[i], 2 * in.data<int32_t>()[i]) << i;
}

inline void store_ring(Stream& stream, uint32_t steps) {
  const Tensor sums = Tensor::zeros({32}, Format::i32, stream.device());
  const StoreRing::Params p{reinterpret_cast<uint32_t*>(sums.data<int32_t>()), steps};
  launch(kStoreRing,
         {.grid = {1},
          .block = {StoreRing::kThreads},
          .cluster = {},
          .shared_bytes = StoreRing::kSharedBytes},
         p, stream);
  stream.synchronize();
  const Tensor back = sums.to(Device::cpu());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    uint32_t expected = 0;
    for (uint32_t i = 0; i < steps; ++i) expected += i * 32 + (lane + i) % 32;
    ASSERT_EQ(back.data<int32_t>()[lane], static_cast<int32_t>(expected)) << lane;
  }
}

// rows and columns smaller than the tiles: what lies outside must stay as it was.
inline void write_sums(Stream& stream, uint32_t rows, uint32_t columns) {
  const Tensor copied = Tensor::zeros({rows + 1, columns}, Format::bf16, stream.device());
  const Tensor direct = Tensor::zeros({rows + 1, columns}, Format::bf16, stream.device());
  WriteSums::Params p{};
  p.map = pipe::make_tensor_map(
      pipe::matrix_box(hw::Type::bf16, copied.data<uint16_t>(), rows, columns, columns * 2,
                       WriteSums::Store::kRows, WriteSums::Store::kColumns,
                       WriteSums::Store::kSwizzle),
      stream.device());
  p.direct = direct.data<uint16_t>();
  p.rows = rows, p.columns = columns;
  launch(kWriteSums,
         {.grid = {1},
          .block = {WriteSums::kThreads},
          .cluster = {},
          .shared_bytes = WriteSums::kSharedBytes},
         p, stream);
  stream.synchronize();
  const Tensor a = copied.to(Device::cpu()), b = direct.to(Device::cpu());
  for (uint32_t row = 0; row <= rows; ++row) {
    for (uint32_t col = 0; col < columns; ++col) {
      const bool written = row < rows && row < 64 && col < 256;
      // Sums below 512: bf16 has 8 significant bits, so round to a multiple of 2 from 256 on.
      const auto exact = static_cast<float>(row + col);
      const uint32_t bits = std::bit_cast<uint32_t>(exact);
      const auto expected = static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
      ASSERT_EQ(a.data<uint16_t>()[row * columns + col], written ? expected : 0)
          << row << "," << col;
      ASSERT_EQ(b.data<uint16_t>()[row * columns + col], written ? expected : 0)
          << row << "," << col;
    }
  }
}

}  // namespace halftone::test
