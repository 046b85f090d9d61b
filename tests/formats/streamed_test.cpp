// Quantising into memory of the caller, and results written past the caches.
#include <cstring>

#include "formats/kernels.h"
#include "formats/quantize_rows.h"
#include "formats/row_quantizer.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::random_tensor;

bool same_bytes(const Tensor& a, const Tensor& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    return x.numel() == y.numel() &&
           std::memcmp(x.data(), y.data(), static_cast<size_t>(x.numel() * bits(x.format()) / 8)) ==
               0;
  };
  return same(a, b) && same(a.scales(), b.scales()) &&
         (!a.scaling().asymmetric || same(a.zero_points(), b.zero_points()));
}

// One row of codes and scales with and without streaming.
std::vector<uint8_t> row_bytes(const Recipe& recipe, const Tensor& x, int64_t misalignment) {
  const int64_t n = x.numel();
  std::vector<uint8_t> all(static_cast<size_t>(n + 128 + n * 5), 0xee);
  uint8_t* codes = all.data();
  while (!starts_line(codes)) ++codes;
  codes += misalignment;
  uint8_t *scales = codes + n + 8, *zeros = scales + n * 4;
  format_kernels().quantize_row(recipe, x.format(), x.data(), n, codes, scales,
                                recipe.asymmetric ? zeros : nullptr);
  stream_fence();
  std::vector<uint8_t> result(codes, codes + n + 8 + n * 5 - 64);
  return result;
}

TEST(Streamed, RowsHaveTheSameBitsAndTouchNothingElse) {
  test::at_every_level([] {
    for (const std::string& name : quantization_names()) {
      const QuantizeOptions options = parse_quantization(name);
      if (options.scaling.block_rows != 1) continue;
      for (Format format : {Format::f32, Format::bf16, Format::f16}) {
        const Tensor x = random_tensor({2560}, format, 7);
        Recipe recipe = make_recipe(options);
        for (int64_t misalignment : {0, 32}) {
          recipe.streamed = false;
          const std::vector<uint8_t> plain = row_bytes(recipe, x, misalignment);
          recipe.streamed = true;
          EXPECT_EQ(row_bytes(recipe, x, misalignment), plain)
              << name << " from " << halftone::name(format) << " at " << misalignment;
        }
      }
    }
  });
}

// Large enough to be streamed, against slices that are not.
TEST(Streamed, LargeTensorsEqualTheirParts) {
  constexpr int64_t kColumns = 1024, kAll = 12288, kPart = 512;
  const Tensor x = random_tensor({kAll, kColumns}, Format::bf16, 8);
  ASSERT_GE(x.bytes(), kStreamFrom);
  for (const char* name : {"fp8_row", "mxfp8", "mxfp4", "int4_g128"}) {
    const QuantizeOptions options = parse_quantization(name);
    const Tensor q = quantize(x, options);
    const Tensor y = dequantize(q, Format::bf16);
    for (const int64_t begin : {int64_t{0}, kAll - kPart}) {
      const Tensor part = quantize(x.slice(0, begin, begin + kPart), options);
      const int64_t row = kColumns * bits(options.format) / 8;
      EXPECT_EQ(
          std::memcmp(q.data<char>() + begin * row, part.data(), static_cast<size_t>(kPart * row)),
          0)
          << name;
      const Tensor z = dequantize(part, Format::bf16);
      EXPECT_EQ(std::memcmp(y.data<char>() + begin * kColumns * 2, z.data(),
                            static_cast<size_t>(z.bytes())),
                0)
          << name;
    }
  }
}

TEST(QuantizeInto, WritesWhatQuantizeReturns) {
  for (const std::string& name : quantization_names()) {
    for (const ScaleLayout layout : {ScaleLayout::linear, ScaleLayout::tiled_128x4,
                                     ScaleLayout::tiled_8x4, ScaleLayout::packed}) {
      QuantizeOptions options = parse_quantization(name);
      options.scaling.layout = layout;
      const Shape shape{2, 37, 192};
      if (!can_quantize(shape, options).ok) continue;
      const Tensor x = random_tensor(shape, Format::bf16, 9);
      const Tensor expected = quantize(x, options);
      Tensor out = empty_quantized(shape, options);
      std::memset(out.scales().data(), 0x55, static_cast<size_t>(out.scales().bytes()));
      quantize_into(x, options, out);
      EXPECT_TRUE(same_bytes(out, expected)) << name << " " << halftone::name(layout);
      if (layout == ScaleLayout::linear || options.scaling.block_rows != 1) continue;
      // Scales placed directly are those that a conversion of linear ones gives.
      options.scaling.layout = ScaleLayout::linear;
      const Tensor linear = quantize(x, options);
      const int64_t groups = linear.scales().size(-1);
      const Tensor first = Tensor::copy_of(linear.scales().data(), static_cast<size_t>(37 * groups),
                                           {37, groups}, Format::u8);
      const Tensor tiled = convert_scale_layout(first, 37, groups, ScaleLayout::linear, layout);
      EXPECT_EQ(std::memcmp(out.scales().data(), tiled.data(), static_cast<size_t>(tiled.bytes())),
                0)
          << name << " " << halftone::name(layout);
    }
  }
}

TEST(QuantizeInto, RefusesWhatDoesNotFit) {
  const Tensor x = random_tensor({4, 64}, Format::f32, 1);
  Tensor other = empty_quantized({4, 128}, QuantizeOptions(Format::mxfp8));
  test::expect_error([&] { quantize_into(x, QuantizeOptions(Format::mxfp8), other); },
                     {"quantize_into", "[4, 64]", "empty_quantized"});
  Tensor nothing;
  test::expect_error([&] { quantize_into(x, QuantizeOptions(Format::mxfp8), nothing); },
                     {"quantize_into", "empty_quantized"});
  const Tensor q = quantize(x, QuantizeOptions(Format::mxfp8));
  Tensor narrow = Tensor::empty({4, 32}, Format::f32);
  test::expect_error([&] { dequantize_into(q, narrow); }, {"[4, 32]", "[4, 64]"});
  Tensor codes = Tensor::empty({4, 64}, Format::int8);
  test::expect_error([&] { dequantize_into(q, codes); }, {"out is int8"});
}

}  // namespace
}  // namespace halftone
