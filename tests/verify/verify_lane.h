// Kernels of verify.h around instructions that work on registers: one function of three words per
// lane, the same on every device bit for bit. Lanes of a warp meet in the collective ones.
#pragma once
#include "hw/bits.h"
#include "hw/convert/convert.h"
#include "hw/convert/convert_integer.h"
#include "hw/math.h"
#include "hw/memory.h"
#include "hw/pair.h"
#include "hw/thread.h"
#include "hw/vote.h"
#include "hw/warp.h"
#include "verify.h"

namespace halftone::verify {

HT_HOST_DEVICE float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
HT_HOST_DEVICE uint32_t as_bits(float value) { return std::bit_cast<uint32_t>(value); }

// d[i] = function(a[i], b[i], c[i]), blocks of 128.
template <class Function>
struct Lanewise {
  using Params = verify::Params;
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  HT_DEVICE static void run(const Params& p) {
    const uint32_t i = hw::block_index().x * kThreads + hw::thread_index().x;
    const uint32_t x = hw::load_global(p.a + i), y = hw::load_global(p.b + i);
    const uint32_t z = hw::load_global(p.c + i);
    hw::store_global(p.d + i, Function::of(x, y, z));
  }
};

using hw::IntegerRounding;
using hw::Reduction;
using hw::Rounding;
using hw::Type;

// A lane mask that holds the lane, made of a word that all lanes share.
HT_DEVICE uint32_t group_of(uint32_t word) {
  const uint32_t shared = hw::shuffle(word, 0), lane = hw::lane_index();
  return (shared >> lane & 1) != 0 ? shared : ~shared;
}

// X(name, expression of x, y, z)
#define HT_VERIFY_LANE(X)                                                                     \
  X(add_rn, as_bits(hw::add(as_float(x), as_float(y))))                                       \
  X(add_rz, as_bits(hw::add<Rounding::rz>(as_float(x), as_float(y))))                         \
  X(add_rm, as_bits(hw::add<Rounding::rm>(as_float(x), as_float(y))))                         \
  X(add_rp, as_bits(hw::add<Rounding::rp>(as_float(x), as_float(y))))                         \
  X(mul_rn, as_bits(hw::mul(as_float(x), as_float(y))))                                       \
  X(mul_rz, as_bits(hw::mul<Rounding::rz>(as_float(x), as_float(y))))                         \
  X(mul_rm, as_bits(hw::mul<Rounding::rm>(as_float(x), as_float(y))))                         \
  X(mul_rp, as_bits(hw::mul<Rounding::rp>(as_float(x), as_float(y))))                         \
  X(fma_rn, as_bits(hw::fma(as_float(x), as_float(y), as_float(z))))                          \
  X(fma_rz, as_bits(hw::fma<Rounding::rz>(as_float(x), as_float(y), as_float(z))))            \
  X(fma_rm, as_bits(hw::fma<Rounding::rm>(as_float(x), as_float(y), as_float(z))))            \
  X(fma_rp, as_bits(hw::fma<Rounding::rp>(as_float(x), as_float(y), as_float(z))))            \
  X(min_f32, as_bits(hw::min(as_float(x), as_float(y))))                                      \
  X(max_f32, as_bits(hw::max(as_float(x), as_float(y))))                                      \
  X(min_nan_f32, as_bits(hw::min_nan(as_float(x), as_float(y))))                              \
  X(max_nan_f32, as_bits(hw::max_nan(as_float(x), as_float(y))))                              \
  X(add_f16x2, hw::add_pair<Type::f16x2>(x, y))                                               \
  X(sub_f16x2, hw::sub_pair<Type::f16x2>(x, y))                                               \
  X(mul_f16x2, hw::mul_pair<Type::f16x2>(x, y))                                               \
  X(fma_f16x2, hw::fma_pair<Type::f16x2>(x, y, z))                                            \
  X(fma_relu_f16x2, hw::fma_relu_pair<Type::f16x2>(x, y, z))                                  \
  X(min_f16x2, hw::min_pair<Type::f16x2>(x, y))                                               \
  X(max_f16x2, hw::max_pair<Type::f16x2>(x, y))                                               \
  X(add_bf16x2, hw::add_pair<Type::bf16x2>(x, y))                                             \
  X(sub_bf16x2, hw::sub_pair<Type::bf16x2>(x, y))                                             \
  X(mul_bf16x2, hw::mul_pair<Type::bf16x2>(x, y))                                             \
  X(fma_bf16x2, hw::fma_pair<Type::bf16x2>(x, y, z))                                          \
  X(fma_relu_bf16x2, hw::fma_relu_pair<Type::bf16x2>(x, y, z))                                \
  X(min_bf16x2, hw::min_pair<Type::bf16x2>(x, y))                                             \
  X(max_bf16x2, hw::max_pair<Type::bf16x2>(x, y))                                             \
  X(cvt_f32_s32, as_bits(hw::cvt_f32(static_cast<int32_t>(x))))                               \
  X(cvt_f32_u32, as_bits(hw::cvt_f32(x)))                                                     \
  X(cvt_pack_s8,                                                                              \
    hw::cvt_pack_s8(static_cast<int32_t>(x) >> (z & 31), static_cast<int32_t>(y) >> 24, z))   \
  X(cvt_f32_f16, as_bits(hw::cvt_f32_f16(static_cast<uint16_t>(x))))                          \
  X(cvt_f32_bf16, as_bits(hw::cvt_f32_bf16(static_cast<uint16_t>(x))))                        \
  X(cvt_f16x2_e4m3x2, hw::cvt_f16x2_fp8x2<Type::e4m3>(static_cast<uint16_t>(x)))              \
  X(cvt_f16x2_e5m2x2, hw::cvt_f16x2_fp8x2<Type::e5m2>(static_cast<uint16_t>(x)))              \
  X(cvt_relu_f16x2_e5m2x2, (hw::cvt_f16x2_fp8x2<Type::e5m2, true>(static_cast<uint16_t>(x)))) \
  X(cvt_e4m3x2_f16x2, hw::cvt_fp8x2_f16x2<Type::e4m3>(x))                                     \
  X(cvt_e5m2x2_f16x2, hw::cvt_fp8x2_f16x2<Type::e5m2>(x))                                     \
  X(cvt_relu_e4m3x2_f16x2, (hw::cvt_fp8x2_f16x2<Type::e4m3, true>(x)))                        \
  X(prmt, hw::prmt(x, y, z & 0xffff))                                                         \
  X(lop3, hw::lop3<(hw::kLop3A & hw::kLop3B) ^ hw::kLop3C>(x, y, z))                          \
  X(lop3_e8, hw::lop3<0xe8>(x, y, z))                                                         \
  X(shf_left_wrap, hw::shf_left_wrap(x, y, z))                                                \
  X(shf_right_wrap, hw::shf_right_wrap(x, y, z))                                              \
  X(shf_left_clamp, hw::shf_left_clamp(x, y, z & 63))                                         \
  X(shf_right_clamp, hw::shf_right_clamp(x, y, z & 63))                                       \
  X(bfe_u32, hw::bfe(x, y & 63, z & 63))                                                      \
  X(bfe_s32, static_cast<uint32_t>(hw::bfe(static_cast<int32_t>(x), y & 63, z & 63)))         \
  X(bfi, hw::bfi(x, y, z & 63, z >> 8 & 63))                                                  \
  X(popc, hw::popc(x))                                                                        \
  X(clz, hw::clz(x >> (y & 31)))                                                              \
  X(brev, hw::brev(x))                                                                        \
  X(bfind, hw::bfind(x >> (y & 31)))                                                          \
  X(dp4a, static_cast<uint32_t>(hw::dp4a(x, y, static_cast<int32_t>(z))))                     \
  X(dp4a_u8_s8, static_cast<uint32_t>(hw::dp4a_u8_s8(x, y, static_cast<int32_t>(z))))         \
  X(shuffle, hw::shuffle(x, y & 31))                                                          \
  X(shuffle_width8, hw::shuffle(x, y & 31, 8))                                                \
  X(shuffle_xor, hw::shuffle_xor(x, hw::shuffle(y, 3) & 31))                                  \
  X(shuffle_xor_width4, hw::shuffle_xor(x, hw::shuffle(y, 3) & 31, 4))                        \
  X(shuffle_up, hw::shuffle_up(x, hw::shuffle(y, 5) & 31))                                    \
  X(shuffle_down_width16, hw::shuffle_down(x, hw::shuffle(y, 5) & 31, 16))                    \
  X(vote_ballot, hw::vote_ballot((x & 3) == 0))                                               \
  X(vote_ballot_group, hw::vote_ballot((x & 1) == 0, group_of(y | 1)))                        \
  X(vote_any, uint32_t{hw::vote_any((x & 63) == 0)})                                          \
  X(vote_all, uint32_t{hw::vote_all((x & 63) != 0)})                                          \
  X(vote_uniform, uint32_t{hw::vote_uniform((x & 63) != 0)})                                  \
  X(match_any, hw::match_any(x & 7))                                                          \
  X(match_all, hw::match_all((x & 63) == 0))                                                  \
  X(redux_add_u32, hw::redux<Reduction::add>(x))                                              \
  X(redux_add_s32, static_cast<uint32_t>(hw::redux<Reduction::add>(static_cast<int32_t>(x)))) \
  X(redux_min_u32, hw::redux<Reduction::min>(x))                                              \
  X(redux_min_s32, static_cast<uint32_t>(hw::redux<Reduction::min>(static_cast<int32_t>(x)))) \
  X(redux_max_u32, hw::redux<Reduction::max>(x))                                              \
  X(redux_max_s32, static_cast<uint32_t>(hw::redux<Reduction::max>(static_cast<int32_t>(x)))) \
  X(redux_and, hw::redux<Reduction::and_>(x | y | z))                                         \
  X(redux_or, hw::redux<Reduction::or_>(x & y & z & 0x10101010))                              \
  X(redux_xor, hw::redux<Reduction::xor_>(x))

#define HT_STRUCT(name, ...)                                            \
  struct name {                                                         \
    HT_DEVICE static uint32_t of(uint32_t x, uint32_t y, uint32_t z) {  \
      static_cast<void>(x), static_cast<void>(y), static_cast<void>(z); \
      return __VA_ARGS__;                                               \
    }                                                                   \
  };
namespace lane {
HT_VERIFY_LANE(HT_STRUCT)
}  // namespace lane
#undef HT_STRUCT

extern const Entries kLaneEntries;

}  // namespace halftone::verify
