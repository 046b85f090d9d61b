#include "halftone/tensor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "halftone/dlpack.h"
#include "support/compare.h"

namespace halftone {
namespace {

TEST(Tensor, ShapesStridesAndViews) {
  const Tensor t = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_TRUE(t.contiguous());
  EXPECT_EQ(t.at({1, 2}), 6);
  const Tensor column = t.slice(1, 1, 2);
  EXPECT_FALSE(column.contiguous());
  EXPECT_EQ(column.at({1, 0}), 5);
  const Tensor turned = t.transpose(0, 1);
  EXPECT_EQ(turned.shape(), (Shape{3, 2}));
  EXPECT_EQ(turned.at({2, 0}), 3);
  const Tensor copy = turned.contiguous_copy();
  EXPECT_TRUE(copy.contiguous());
  EXPECT_EQ(copy.at({2, 1}), 6);
  EXPECT_EQ(t.reshape({6}).at({3}), 4);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_TRUE(Tensor::empty({0, 3}, Format::bf16).defined());
}

TEST(Tensor, PackedFormats) {
  const Tensor t = Tensor::zeros({3, 6}, Format::nvfp4);
  EXPECT_EQ(t.bytes(), 9);
  EXPECT_EQ(static_cast<char*>(t.slice(0, 1, 2).data()) - static_cast<char*>(t.data()), 3);
}

TEST(Tensor, QuantizedPartsFollowSlices) {
  const Tensor codes = Tensor::zeros({256, 256}, Format::fp8_e4m3);
  const Tensor scales = Tensor::from({1, 2, 3, 4}, {2, 2});
  const Tensor q = codes.quantized({Format::f32, 128, 128}, scales);
  const Tensor lower = q.slice(0, 128, 256);
  EXPECT_EQ(lower.scales().shape(), (Shape{1, 2}));
  EXPECT_EQ(lower.scales().at({0, 1}), 4);
  test::expect_error([&] { q.slice(0, 64, 128); }, {"128", "[64, 128)"});
  test::expect_error([&] { codes.quantized({Format::f32, 1, 128}, scales); }, {"[2, 2]", "256"});
  test::expect_error([&] { codes.scales(); }, {"fp8_e4m3", "without scales"});
}

TEST(Tensor, WrongArgumentsAreNamed) {
  const Tensor t = Tensor::zeros({2, 3}, Format::f32);
  test::expect_error([&] { t.reshape({5}); }, {"[2, 3]", "[5]"});
  test::expect_error([&] { t.slice(2, 0, 1); }, {"dimension 2", "rank 2"});
  test::expect_error([&] { t.slice(1, 2, 5); }, {"[2, 5)", "extent 3"});
  test::expect_error([&] { t.at({0}); }, {"[2, 3]"});
  test::expect_error([&] { t.at({0, 3}); }, {"index 3"});
  test::expect_error([] { Tensor::empty({-1}, Format::f32); }, {"[-1]", "negative"});
  test::expect_error(
      [] {
        Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}, Format::f32);
      },
      {"2^63"});
  test::expect_error([] { Tensor::view(nullptr, {2}, Format::f32); }, {"null"});
  test::expect_error([] { element_count(Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}); }, {"9 dimensions"});
}

TEST(Tensor, SharedStorageLivesAsLongAsItsViews) {
  bool freed = false;
  float data[4] = {1, 2, 3, 4};
  {
    Tensor view;
    {
      std::shared_ptr<const void> owner(data, [&](const void*) { freed = true; });
      view = Tensor::share(owner, data, {2, 2}, {2, 1}, Format::f32).slice(0, 1, 2);
    }
    EXPECT_FALSE(freed);
    EXPECT_EQ(view.at({0, 1}), 4);
  }
  EXPECT_TRUE(freed);
}

#if !defined(HALFTONE_SANITIZED)
// What was written is still there: the pages did not go back to the system, which hands out zeros.
TEST(Tensor, LargeBlocksAreUsedAgain) {
  const Shape shape{40 << 20};  // beyond what the C library keeps
  std::memset(Tensor::empty(shape, Format::u8).data(), 0x5a, 40 << 20);
  const Tensor again = Tensor::empty(shape, Format::u8);
  EXPECT_EQ(again.data<uint8_t>()[20 << 20], 0x5a);
  EXPECT_NE(Tensor::empty(shape, Format::u8).data(), again.data());
}
#endif

TEST(Dlpack, RoundTripKeepsStridesAndFreesOnce) {
  const Tensor t = test::random_tensor({4, 6}, Format::bf16, 1).transpose(0, 1);
  DLManagedTensor* managed = t.to_dlpack();
  EXPECT_EQ(managed->dl_tensor.dtype.code, 4);
  const Tensor back = Tensor::from_dlpack(managed);
  EXPECT_EQ(back.data(), t.data());
  EXPECT_EQ(back.shape(), t.shape());
  EXPECT_EQ(back.strides(), t.strides());
  EXPECT_EQ(back.format(), Format::bf16);

  static bool deleted;
  deleted = false;
  int32_t values[2] = {7, 8};
  int64_t shape[1] = {2};
  DLManagedTensor foreign{{values, {1, 0}, 1, {0, 32, 1}, shape, nullptr, 0},
                          nullptr,
                          [](DLManagedTensor*) { deleted = true; }};
  {
    const Tensor borrowed = Tensor::from_dlpack(&foreign);
    EXPECT_EQ(borrowed.data<int32_t>()[1], 8);
  }
  EXPECT_TRUE(deleted);
  foreign.dl_tensor.dtype = {3, 64, 1};
  test::expect_error([&] { Tensor::from_dlpack(&foreign); }, {"code 3", "64 bits"});
  foreign.dl_tensor.device = {4, 0};
  test::expect_error([&] { Tensor::from_dlpack(&foreign); }, {"device type 4"});
}

}  // namespace
}  // namespace halftone
