// Blocks of several rows: a band of them at once gives what each block gives by itself.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>

#include "formats/kernels.h"
#include "formats/row_quantizer.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::random_tensor;

constexpr Format kPlain[] = {Format::f32, Format::f16, Format::bf16};

// A quarter of the rows hold outliers, and some blocks a NaN or an infinity.
Tensor data(Shape shape, Format format, bool finite) {
  Tensor x = random_tensor(shape, Format::f32, 70);
  float* values = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (i % 97 == 0) values[i] *= 50;
    if (i % 89 == 0) values[i] *= 1e-6f;
    if (!finite && i % 40009 == 7) values[i] = i % 2 == 0 ? NAN : -INFINITY;
  }
  return format == Format::f32 ? x : convert(x, format);
}

QuantizeOptions blocks_of(Format format, Format scale, int64_t rows, int64_t columns) {
  QuantizeOptions options(format);
  options.scaling = {scale, rows, columns};
  return options;
}

TEST(Bands, EqualBlocksQuantisedByThemselves) {
  test::at_every_level([] {
    for (Format source : kPlain) {
      for (bool finite : {true, false}) {
        // A row of padding on either side: rows that do not follow each other in memory.
        const Tensor x = data({2, 150, 1300}, source, finite).slice(2, 3, 1203);
        for (const QuantizeOptions& options : {blocks_of(Format::fp8_e4m3, Format::f32, 128, 128),
                                               blocks_of(Format::fp8_e5m2, Format::ue8m0, 64, 32),
                                               blocks_of(Format::int8, Format::bf16, 40, 75)}) {
          SCOPED_TRACE(to_string(options) + " from " + name(source));
          const int64_t rows = options.scaling.block_rows, columns = options.scaling.block_cols;
          const Tensor q = quantize(x, options);
          const Tensor codes = dequantize(q, Format::f32);
          for (int64_t m = 0; m < 2; ++m) {
            for (int64_t i = 0; i < 150; i += rows) {
              for (int64_t j = 0; j < 1200; j += columns) {
                const auto block_of = [&](const Tensor& t) {
                  return t.slice(0, m, m + 1)
                      .slice(1, i, std::min<int64_t>(i + rows, 150))
                      .slice(2, j, std::min<int64_t>(j + columns, 1200));
                };
                const Tensor alone = dequantize(quantize(block_of(x), options), Format::f32);
                const Tensor together = block_of(codes).contiguous_copy();
                if (std::isnan(alone.data<float>()[0])) {
                  ASSERT_TRUE(std::isnan(together.data<float>()[0])) << m << " " << i << " " << j;
                } else {
                  ASSERT_EQ(test::to_floats(alone), test::to_floats(together))
                      << m << " " << i << " " << j;
                }
              }
            }
          }
        }
      }
    }
  });
}

TEST(Bands, TheSameBitsForAnyNumberOfThreads) {
  const Tensor x = data({700, 2100}, Format::bf16, false);
  const QuantizeOptions options = parse_quantization("fp8");
  Stream one(Device::cpu(), 1);
  const Tensor expected = quantize(x, options, one);
  for (int threads : {2, 3, 5}) {
    Stream many(Device::cpu(), threads);
    const Tensor q = quantize(x, options, many);
    ASSERT_EQ(std::memcmp(q.data<uint8_t>(), expected.data<uint8_t>(), size_t{700 * 2100}), 0);
    ASSERT_EQ(std::memcmp(q.scales().data<float>(), expected.scales().data<float>(),
                          static_cast<size_t>(q.scales().bytes())),
              0);
  }
}

TEST(Bands, EqualScalar) {
  Recipe recipe;
  for (Format source : kPlain) {
    for (Format format : {Format::fp8_e4m3, Format::fp8_e5m2, Format::int8}) {
      for (Format scale : {Format::f32, Format::f16}) {
        recipe.format = format;
        recipe.scale_format = scale;
        for (auto [rows, columns, group] : {std::tuple{30, 2500, 128}, {3, 77, 0}, {1, 130, 7}}) {
          recipe.group = group;
          const int64_t height = rows, width = columns, gap = 3;
          const Tensor x = data({height, width + gap}, source, false);
          const auto quantized = [&](const FormatKernels& kernels) {
            std::vector<uint8_t> codes(static_cast<size_t>(height * (width + gap)), 0xa5);
            std::vector<uint8_t> scales(static_cast<size_t>(4 * width), 0xa5);
            const Band band{x.data<char>(),
                            (width + gap) * plain_bytes(source),
                            height,
                            width,
                            512,
                            codes.data(),
                            width + gap,
                            scales.data()};
            const bool fits = kernels.quantize_band(recipe, source, band);
            return std::tuple(fits, codes, scales);
          };
          for (int i = 0; i <= static_cast<int>(detected_cpu_level()); ++i) {
            const auto level = static_cast<CpuLevel>(i);
            ASSERT_EQ(quantized(format_kernels(level)), quantized(scalar_format_kernels()))
                << name(level) << " " << name(source) << " to " << name(format);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace halftone
