// One product by tcgen05.mma on the simulated sm_100a: operands laid into shared memory as their
// descriptors say, the product, the cells of tensor memory read back.
#pragma once
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "hw/barrier.h"
#include "hw/cluster.h"
#include "hw/fence.h"
#include "hw/mbarrier.h"
#include "hw/memory.h"
#include "hw/mma/tcgen05_alloc.h"
#include "hw/mma/tcgen05_cp.h"
#include "hw/mma/tcgen05_ld_st.h"
#include "hw/mma/tcgen05_mma.h"
#include "hw/mma/tcgen05_mma_ws.h"
#include "hw/mma/tcgen05_sync.h"
#include "hw/thread.h"
#include "sim/kernels.h"
#include "sim/numerics/convert.h"

namespace halftone::test {

using tile::Major;
using tile::Swizzle;
using tile::Tcgen05Instruction;
using tile::Tcgen05Kind;
using tile::Tcgen05Result;
using tile::Tcgen05Type;

// What one element of a type is worth.
inline double value_of(Tcgen05Type type, uint32_t code) {
  switch (type) {
    case Tcgen05Type::f16:
      return decode_f16(static_cast<uint16_t>(code));
    case Tcgen05Type::bf16:
      return decode_bf16(static_cast<uint16_t>(code));
    case Tcgen05Type::tf32:
      return std::bit_cast<float>(code & 0xffffe000u);
    case Tcgen05Type::e4m3:
      return decode_e4m3(static_cast<uint8_t>(code));
    case Tcgen05Type::e5m2:
      return decode_e5m2(static_cast<uint8_t>(code));
    case Tcgen05Type::e2m3:
      return sim::decode_e2m3(static_cast<uint8_t>(code));
    case Tcgen05Type::e3m2:
      return sim::decode_e3m2(static_cast<uint8_t>(code));
    case Tcgen05Type::e2m1:
      return decode_e2m1(static_cast<uint8_t>(code));
    case Tcgen05Type::u8:
      return static_cast<double>(code);
    case Tcgen05Type::s8:
      return static_cast<int8_t>(code);
  }
  return 0;
}
inline int bits_of(Tcgen05Type type) {
  switch (type) {
    case Tcgen05Type::f16:
    case Tcgen05Type::bf16:
      return 16;
    case Tcgen05Type::tf32:
      return 32;
    case Tcgen05Type::e2m1:
      return 4;
    case Tcgen05Type::e2m3:
    case Tcgen05Type::e3m2:
      return 6;
    default:
      return 8;
  }
}

// One operand: codes [rows, k] and how the part of each block lies in shared memory.
struct Operand {
  Tcgen05Type type;
  int rows, k;
  std::vector<uint32_t> codes;
  uint32_t& at(int row, int column) { return codes[static_cast<size_t>(row * k + column)]; }
  double value(int row, int column) const {
    return value_of(type, codes[static_cast<size_t>(row * k + column)]);
  }
};

// Codes of finite values.
inline uint32_t random_code(Tcgen05Type type, std::mt19937& random) {
  for (;;) {
    auto code = static_cast<uint32_t>(random());
    switch (bits_of(type)) {
      case 16:
        // Exponents within 2^-12 to 2^11, so that sums cancel.
        if (type == Tcgen05Type::bf16) code = (code & 0x807f) | ((115 + code / 65536 % 24) << 7);
        if (type == Tcgen05Type::f16) code = (code & 0x83ff) | ((3 + code / 65536 % 24) << 10);
        break;
      case 32:
        code = (code & 0x807fe000u) | ((115 + code % 24) << 23);
        break;
      case 8:
        code &= 0xff;
        break;
      case 6:
        code &= 0x3f;
        break;
      default:
        code &= 0xf;
    }
    if (std::isfinite(value_of(type, code))) return code;
  }
}

inline Operand random_operand(Tcgen05Type type, int rows, int k, std::mt19937& random) {
  Operand operand{type, rows, k, std::vector<uint32_t>(static_cast<size_t>(rows * k))};
  for (uint32_t& code : operand.codes) code = random_code(type, random);
  return operand;
}

// Elements take 16 bytes in groups: `storage_bits` wide where they are packed, FP4 and FP6 of kinds
// f8f6f4 and mxf8f6f4 16 in 16 bytes.
struct Stored {
  tile::SharedTile tile;
  int element_bits, per_chunk;
};
inline Stored stored(Tcgen05Kind kind, Tcgen05Type type, Major major, Swizzle swizzle, int rows,
                     int k) {
  const int bits = bits_of(type);
  const bool padded = bits < 8 && !tile::is_packed_fp4(kind);
  const int width = padded ? 8 : bits;
  return {{major, swizzle, static_cast<uint32_t>(width), static_cast<uint32_t>(rows),
           static_cast<uint32_t>(k)},
          bits,
          128 / width};
}
// Bytes of shared memory from `base` on: rows `first` .. of the operand.
inline void lay_out(const Stored& s, Operand& operand, int first, uint32_t base,
                    std::vector<uint8_t>& shared) {
  for (uint32_t r = 0; r < s.tile.mn; ++r) {
    for (uint32_t k = 0; k < s.tile.k; ++k) {
      const uint32_t code = operand.at(first + static_cast<int>(r), static_cast<int>(k));
      const uint32_t along = s.tile.major == Major::k ? k : r;
      const auto in_chunk = along % static_cast<uint32_t>(s.per_chunk);
      const uint32_t r0 = s.tile.major == Major::k ? r : r - in_chunk;
      const uint32_t k0 = s.tile.major == Major::k ? k - in_chunk : k;
      uint8_t* chunk = &shared[s.tile.address(base, r0, k0)];
      for (int bit = 0; bit < s.element_bits; ++bit) {
        const auto place =
            in_chunk * static_cast<uint32_t>(s.element_bits) + static_cast<uint32_t>(bit);
        if (code >> bit & 1) chunk[place / 8] |= static_cast<uint8_t>(1 << place % 8);
      }
    }
  }
}

// 128 lanes of `columns` cells of each block.
struct Cells {
  int columns;
  std::vector<uint32_t> values;
  Cells(int blocks, int count)
      : columns(count), values(static_cast<size_t>(blocks * 128 * count), 0) {}
  uint32_t& at(int block, int lane, int column) {
    return values[static_cast<size_t>((block * 128 + lane) * columns + column)];
  }
};

// Places in shared memory; under the schedules that shift its base, they would not hold.
inline constexpr uint32_t kBarrier = 1024, kAddress = 1040, kData = 2048;

// Runs `product(d, base)` by one thread of the first block between putting `shared` (one image a
// block, from kData on) into shared memory with `tensor` (columns from 0 on) into tensor memory,
// and reading `cells.columns` columns back. `issue` must not commit: that happens here.
struct ProductOptions {
  int blocks = 1;
  SimulatorOptions simulator = {};
  // What mutations leave out.
  bool proxy_fence = true, wait = true, before_dealloc = true;
};
using Issue = std::function<void(hw::TensorAddress base)>;
template <hw::CtaGroup group>
SimulatorReport run_product(const ProductOptions& options,
                            const std::vector<std::vector<uint8_t>>& shared, Cells& tensor,
                            Cells& cells, const Issue& issue) {
  const auto blocks = static_cast<uint32_t>(options.blocks);
  const auto body = [&](sim::Thread&) {
    using namespace hw;
    const uint32_t thread = thread_index().x, warp = thread / 32, rank = cluster_rank();
    ASSERT_EQ(shared_memory_base().value, kBarrier);
    const Mbarrier done{{kBarrier}};
    const auto block_sync = [&] {
      if (blocks == 1) return barrier_sync();
      cluster_arrive();
      cluster_wait();
    };
    if (warp == 0) tcgen05_alloc<group>({kAddress}, 512);
    if (thread == 32) {
      mbarrier_init(done, 1);
      fence_mbarrier_init();
    }
    const std::vector<uint8_t>& image = shared[rank];
    for (uint32_t at = kData + thread * 16; at < image.size(); at += 128 * 16) {
      Words4 words;
      std::memcpy(&words, &image[at], 16);
      store_shared({at}, words);
    }
    if (options.proxy_fence) fence_proxy_async();
    block_sync();
    const TensorAddress base{load_shared<uint32_t>({kAddress})};
    const TensorAddress window = base.plus(warp * 32, 0);
    for (int column = 0; column < tensor.columns; column += 8) {
      uint32_t values[8];
      for (int i = 0; i < 8; ++i) {
        values[i] = tensor.at(static_cast<int>(rank), static_cast<int>(thread), column + i);
      }
      tcgen05_st<TensorShape::s32x32b, 8>(window.plus(0, static_cast<uint32_t>(column)), values);
      tcgen05_wait_st();
    }
    tcgen05_fence_before_thread_sync();
    block_sync();
    if (thread == 0 && rank == 0) {
      tcgen05_fence_after_thread_sync();
      issue(base);
      if (group == CtaGroup::one) {
        tcgen05_commit<group>(done);
      } else {
        tcgen05_commit_multicast<group>(done, 3);
      }
    }
    if (options.wait) mbarrier_wait(done, 0);
    tcgen05_fence_after_thread_sync();
    for (int column = 0; column < cells.columns; column += 8) {
      uint32_t values[8];
      tcgen05_ld<TensorShape::s32x32b, 8>(values, window.plus(0, static_cast<uint32_t>(column)));
      tcgen05_wait_ld(values);
      for (int i = 0; i < 8; ++i) {
        cells.at(static_cast<int>(rank), static_cast<int>(thread), column + i) = values[i];
      }
    }
    tcgen05_fence_before_thread_sync();
    if (options.before_dealloc) block_sync();
    if (warp == 0) {
      tcgen05_fence_after_thread_sync();
      tcgen05_relinquish_alloc_permit<group>();
      tcgen05_dealloc<group>(base, 512);
    }
  };
  SimulatorOptions simulator = options.simulator;
  simulator.throws = false;
  Stream stream = simulated(Arch::sm_100a, simulator, 1);
  run(stream, {.grid = {blocks}, .block = {128}, .cluster = {blocks}, .shared_bytes = 200 * 1024},
      body);
  return simulator_report(stream);
}

}  // namespace halftone::test
