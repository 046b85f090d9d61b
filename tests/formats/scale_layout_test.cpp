// Scale layouts: offsets worked out by hand, sizes, padding, round trips.
#include "formats/scale_layout.h"

#include <cstring>
#include <utility>

#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

constexpr ScaleLayout kLayouts[] = {ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                    ScaleLayout::tiled_8x4, ScaleLayout::packed};

TEST(ScaleLayout, GoldenOffsets) {
  struct Case {
    ScaleLayout layout;
    int64_t row, group, offset;
  };
  // 300 rows of 10 groups: 3 tiles of four groups across.
  const Case cases[] = {
      {ScaleLayout::tiled_128x4, 0, 0, 0},
      {ScaleLayout::tiled_128x4, 0, 3, 3},
      {ScaleLayout::tiled_128x4, 1, 0, 16},  // rows 0 to 31 lie 16 bytes apart,
      {ScaleLayout::tiled_128x4, 32, 0, 4},  // rows 32 to 63 between them
      {ScaleLayout::tiled_128x4, 127, 3, 511},
      {ScaleLayout::tiled_128x4, 0, 4, 512},     // the next tile in K
      {ScaleLayout::tiled_128x4, 128, 0, 1536},  // past the three tiles of the first 128 rows
      {ScaleLayout::tiled_128x4, 299, 9, 2 * 1536 + 2 * 512 + 11 * 16 + 1 * 4 + 1},
      {ScaleLayout::tiled_8x4, 0, 0, 0},
      {ScaleLayout::tiled_8x4, 1, 2, 6},
      {ScaleLayout::tiled_8x4, 7, 3, 31},
      {ScaleLayout::tiled_8x4, 0, 4, 32},
      {ScaleLayout::tiled_8x4, 8, 0, 96},
      {ScaleLayout::tiled_8x4, 299, 9, 37 * 96 + 64 + 3 * 4 + 1},
      {ScaleLayout::packed, 0, 3, 3},
      {ScaleLayout::packed, 1, 0, 4},
      {ScaleLayout::packed, 0, 4, 1200},  // 300 rows of words before
      {ScaleLayout::packed, 299, 9, 2 * 1200 + 299 * 4 + 1},
      {ScaleLayout::linear, 299, 9, 2999},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(scale_offset(c.layout, 300, 10, c.row, c.group), c.offset)
        << name(c.layout) << " " << c.row << ", " << c.group;
  }
  // Rows of words are padded to four.
  EXPECT_EQ(scale_offset(ScaleLayout::packed, 5, 8, 0, 4), 32);
}

TEST(ScaleLayout, Sizes) {
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::linear, 300, 10), 3000);
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::tiled_128x4, 300, 10), 384 * 12);
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::tiled_8x4, 300, 10), 304 * 12);
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::packed, 301, 10), 304 * 12);
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::tiled_128x4, 1, 1), 512);
  EXPECT_EQ(scale_layout_bytes(ScaleLayout::tiled_128x4, 0, 5), 0);
}

TEST(ScaleLayout, EveryPairRoundTrips) {
  for (const auto& [rows, groups] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {8, 4}, {128, 4}, {300, 10}, {129, 5}, {31, 3}, {0, 4}}) {
    Tensor linear = Tensor::empty({rows, groups}, Format::ue8m0);
    for (int64_t i = 0; i < linear.numel(); ++i) {
      linear.data<uint8_t>()[i] = static_cast<uint8_t>(i % 251 + 1);  // never the padding's 0
    }
    for (ScaleLayout from : kLayouts) {
      const Tensor a = convert_scale_layout(linear, rows, groups, ScaleLayout::linear, from);
      EXPECT_EQ(a.numel(), scale_layout_bytes(from, rows, groups));
      int64_t padding = 0;
      for (int64_t i = 0; i < a.numel(); ++i) padding += a.data<uint8_t>()[i] == 0;
      EXPECT_EQ(padding, a.numel() - rows * groups);
      for (ScaleLayout to : kLayouts) {
        const Tensor b = convert_scale_layout(a, rows, groups, from, to);
        const Tensor back = convert_scale_layout(b, rows, groups, to, ScaleLayout::linear);
        ASSERT_EQ(back.shape(), linear.shape());
        ASSERT_EQ(0, std::memcmp(back.data(), linear.data(), size_t(linear.numel())))
            << name(from) << " to " << name(to) << ", " << rows << " x " << groups;
      }
    }
  }
}

TEST(ScaleLayout, TiledTensorsDequantiseTheSame) {
  for (const char* name : {"mxfp8", "mxfp4", "nvfp4"}) {
    for (const Shape& shape : {Shape{64}, Shape{37, 96}, Shape{3, 130, 160}}) {
      const Tensor x = test::random_tensor(shape, Format::f32, 21);
      QuantizeOptions options = parse_quantization(name);
      const std::vector<float> expected = test::to_floats(dequantize(quantize(x, options)));
      for (ScaleLayout layout : kLayouts) {
        options.scaling.layout = layout;
        const Tensor q = quantize(x, options);
        EXPECT_EQ(q.scaling().layout, layout);
        EXPECT_EQ(test::to_floats(dequantize(q)), expected) << name << halftone::name(layout);
      }
    }
  }
}

TEST(ScaleLayout, RefusesWrongSizes) {
  const Tensor scales = Tensor::zeros({2, 4}, Format::u8);
  test::expect_error(
      [&] { convert_scale_layout(scales, 2, 5, ScaleLayout::linear, ScaleLayout::packed); },
      {"8 codes", "10"});
  test::expect_error(
      [&] { convert_scale_layout(scales, 2, 4, ScaleLayout::tiled_8x4, ScaleLayout::linear); },
      {"32"});
  test::expect_error(
      [] {
        convert_scale_layout(Tensor::zeros({2, 4}, Format::f32), 2, 4, ScaleLayout::linear,
                             ScaleLayout::packed);
      },
      {"f32", "one-byte"});
  test::expect_error([] { scale_layout_bytes(ScaleLayout::linear, -1, 4); }, {"-1", "negative"});
  test::expect_error(
      [] { scale_layout_bytes(ScaleLayout::tiled_128x4, int64_t{1} << 39, int64_t{1} << 39); },
      {"too many"});
}

}  // namespace
}  // namespace halftone
