#include "pipe/tensor_map.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "halftone/error.h"

namespace halftone::pipe {
namespace {

alignas(128) uint8_t memory[4096];

TensorBox good() {
  return matrix_box(hw::Type::bf16, memory, 1000, 512, 1024, 128, 64, tile::Swizzle::b128);
}

std::string refusal(const std::function<void(TensorBox&)>& change) {
  TensorBox box = good();
  change(box);
  try {
    validate(box);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "";
}

TEST(TensorBox, DescribesAMatrix) {
  TensorBox b = good();
  EXPECT_EQ(b.rank, 2u);
  EXPECT_EQ(b.extent[0], 512u);
  EXPECT_EQ(b.extent[1], 1000u);
  EXPECT_EQ(b.stride[0], 1024u);
  EXPECT_EQ(b.box_bytes(), 128u * 64 * 2);
  EXPECT_EQ(b.shared_bytes(), b.box_bytes());
  EXPECT_NO_THROW(validate(b));
  b.box[0] = 16;  // 32 bytes in lines of 128
  EXPECT_EQ(b.box_bytes(), 128u * 16 * 2);
  EXPECT_EQ(b.shared_bytes(), 128u * 128);
}

TEST(TensorBox, IsThePanelOfAnOperand) {
  const tile::SharedTile k_major{.mn = 128, .k = 128};
  TensorBox b = panel_box(hw::Type::bf16, memory, 1000, 512, 1024, k_major);
  EXPECT_EQ(b, good());
  EXPECT_EQ(b.box_bytes() * k_major.panels(), k_major.bytes());
  const tile::SharedTile mn_major{.major = tile::Major::mn, .element_bits = 8, .mn = 256, .k = 32};
  b = panel_box(hw::Type::e4m3, memory, 1000, 512, 512, mn_major);
  EXPECT_EQ(b.box[0], 128u);
  EXPECT_EQ(b.box[1], 32u);
  EXPECT_EQ(b.box_bytes() * mn_major.panels(), mn_major.bytes());
  const tile::SharedTile fp4{.element_bits = 4, .mn = 128, .k = 256};
  b = panel_box(hw::Type::e2m1, memory, 1000, 512, 256, fp4);
  EXPECT_EQ(b.box[0], 256u);
  EXPECT_EQ(b.box_bytes(), fp4.bytes());
  EXPECT_THROW(panel_box(hw::Type::e4m3, memory, 10, 512, 512, k_major), Error);
  EXPECT_THROW(panel_box(hw::Type::bf16, memory, 10, 512, 512, {.mn = 12, .k = 64}), Error);
}

TEST(TensorBox, NamesWhatIsWrong) {
  const auto has = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  has(refusal([](TensorBox& b) { b.rank = 6; }), "rank is 6");
  has(refusal([](TensorBox& b) { b.address = memory + 8; }), "aligned to 16");
  has(refusal([](TensorBox& b) { b.address = nullptr; }), "null");
  has(refusal([](TensorBox& b) { b.extent[1] = 0; }), "extent[1] is 0");
  has(refusal([](TensorBox& b) { b.extent[0] = (uint64_t{1} << 32) + 1; }), "extent[0]");
  has(refusal([](TensorBox& b) { b.stride[0] = 1000; }), "stride[0] is 1000");
  has(refusal([](TensorBox& b) { b.stride[0] = uint64_t{1} << 40; }), "below 2^40");
  has(refusal([](TensorBox& b) { b.box[1] = 257; }), "box[1] is 257");
  has(refusal([](TensorBox& b) { b.box[0] = 60; }), "box[0] is 60, 120 bytes");
  has(refusal([](TensorBox& b) { b.box[0] = 128; }), "must fit the swizzle's 128 bytes");
  has(refusal([](TensorBox& b) { b.swizzle = tile::Swizzle::b64; }), "must fit");
  has(refusal([](TensorBox& b) { b.type = hw::Type::f16x2; }), "no element of a tensor");
  has(refusal([](TensorBox& b) { b.type = hw::Type::e4m3, b.fill_with_nan = true; }), "NaN");
  has(refusal([](TensorBox& b) { b.type = hw::Type::e2m1, b.extent[0] = 511; }), "pairs");
  has(refusal([](TensorBox& b) { b.type = hw::Type::e2m3, b.address = memory + 16; }), "32");
  has(refusal([](TensorBox& b) { b.type = hw::Type::e2m3; }), "128 wide");
  EXPECT_EQ(refusal([](TensorBox& b) { b.fill_with_nan = true; }), "");
}

}  // namespace
}  // namespace halftone::pipe
