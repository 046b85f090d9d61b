// Every ISA level gives the bits of the scalar kernels.
#include "formats/kernels.h"

#include <cstring>

#include "formats/quantize_rows.h"
#include "formats/row_quantizer.h"
#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

constexpr Format kPlain[] = {Format::f32, Format::f16, Format::bf16};
std::vector<CpuLevel> levels() {
  std::vector<CpuLevel> all;
  for (int i = 0; i <= static_cast<int>(detected_cpu_level()); ++i) {
    all.push_back(static_cast<CpuLevel>(i));
  }
  return all;
}

// Random bit patterns of a format, among them NaNs, infinities and subnormals; or with `tame`,
// numbers near 1.
std::vector<uint8_t> nasty_bits(int64_t count, Format format, uint64_t seed, bool tame) {
  std::mt19937_64 engine(seed);
  std::vector<uint8_t> bytes(static_cast<size_t>(count * plain_bytes(format)));
  for (int64_t i = 0; i < count; ++i) {
    auto bits = static_cast<uint32_t>(engine());
    if (format == Format::f32) {
      if (tame) bits = (bits & 0x83ffffffu) + 0x3c000000u;
      std::memcpy(&bytes[static_cast<size_t>(i) * 4], &bits, 4);
    } else {
      auto half = static_cast<uint16_t>(bits);
      if (tame && format == Format::bf16) half = static_cast<uint16_t>((half & 0x83ff) + 0x3c00);
      if (tame && format == Format::f16) half = static_cast<uint16_t>((half & 0x8fff) + 0x3000);
      std::memcpy(&bytes[static_cast<size_t>(i) * 2], &half, 2);
    }
  }
  return bytes;
}

// Bytes with a guard behind them, to see writes past the end.
struct Guarded {
  explicit Guarded(size_t size) : bytes(size + 64, 0xa5), size(size) {}
  uint8_t* data() { return bytes.data(); }
  bool operator==(const Guarded& other) const { return bytes == other.bytes; }
  std::vector<uint8_t> bytes;
  size_t size;
};

TEST(FormatKernels, EncodeEqualsScalarAtEveryLength) {
  for (CpuLevel level : levels()) {
    SCOPED_TRACE(name(level));
    const FormatKernels& kernels = format_kernels(level);
    for (Format source : kPlain) {
      for (Format target : kElementFormats) {
        SCOPED_TRACE(std::string(name(source)) + " to " + name(target));
        for (int64_t n : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 1000, 4097}) {
          const std::vector<uint8_t> x =
              nasty_bits(n, source, 10 + static_cast<uint64_t>(n), n % 2);
          for (float multiplier : {1.0f, 0.37f, 1e30f}) {
            Guarded expected(static_cast<size_t>(n)), got(static_cast<size_t>(n));
            const int zero = n % 3 == 0 ? 3 : 8;
            scalar_format_kernels().encode(source, target, x.data(), n, multiplier, zero,
                                           expected.data());
            kernels.encode(source, target, x.data(), n, multiplier, zero, got.data());
            ASSERT_EQ(expected, got) << n << " times " << multiplier;
          }
          const uint32_t amax = scalar_format_kernels().amax(source, x.data(), n);
          if (amax <= kInfinityBits) {
            ASSERT_EQ(kernels.amax(source, x.data(), n), amax) << n;
          } else {
            ASSERT_GT(kernels.amax(source, x.data(), n), kInfinityBits) << n;
          }
        }
      }
    }
  }
}

TEST(FormatKernels, SquaredErrorEqualsScalar) {
  for (CpuLevel level : levels()) {
    SCOPED_TRACE(name(level));
    for (Format source : kPlain) {
      for (Format target : kElementFormats) {
        for (int64_t n : {1, 15, 16, 33, 100}) {
          const std::vector<uint8_t> x = nasty_bits(n, source, 20 + static_cast<uint64_t>(n), true);
          const auto error = [&](const FormatKernels& k) {
            return k.squared_error(source, target, x.data(), n, 2.5f, 7, 0.4f, 0.999f);
          };
          ASSERT_EQ(error(format_kernels(level)), error(scalar_format_kernels()))
              << name(source) << " to " << name(target) << ", " << n;
        }
      }
    }
  }
}

std::vector<QuantizeOptions> row_options() {
  std::vector<QuantizeOptions> all;
  for (const std::string& name : quantization_names()) {
    for (const char* suffix : {"", "_adaptive"}) {
      QuantizeOptions options = parse_quantization(name + suffix);
      if (options.scaling.block_rows != 1) continue;
      all.push_back(options);
      if (is_block(options.format)) continue;
      for (Format scale : kPlain) {
        options.scaling.format = scale;
        all.push_back(options);
      }
    }
  }
  for (int64_t group : {2, 6, 24, 48}) {  // not a whole number of vectors
    QuantizeOptions options(Format::int4);
    options.scaling.block_cols = group;
    all.push_back(options);
    options = QuantizeOptions(Format::fp8_e5m2);
    options.scaling = {Format::ue8m0, 1, group};
    all.push_back(options);
  }
  return all;
}

TEST(FormatKernels, QuantizeRowEqualsScalar) {
  for (CpuLevel level : levels()) {
    const FormatKernels& kernels = format_kernels(level);
    for (const QuantizeOptions& options : row_options()) {
      SCOPED_TRACE(std::string(name(level)) + " " + to_string(options));
      Recipe recipe = make_recipe(options);
      if (options.format == Format::nvfp4) set_tensor_scale(0.0123f, &recipe);
      for (Format source : kPlain) {
        for (int64_t n : {32, 64, 96, 544, 1056, 2944, 4128}) {  // 2944: also 7 groups of 128
          for (bool tame : {true, false}) {
            const std::vector<uint8_t> x =
                nasty_bits(n, source, 30 + static_cast<uint64_t>(n), tame);
            const auto bytes = static_cast<size_t>(n);
            Guarded codes[2] = {Guarded(bytes), Guarded(bytes)};
            Guarded scales[2] = {Guarded(4 * bytes), Guarded(4 * bytes)};
            Guarded zeros[2] = {Guarded(bytes), Guarded(bytes)};
            bool fits[2];
            const FormatKernels* both[2] = {&scalar_format_kernels(), &kernels};
            for (int i = 0; i < 2; ++i) {
              fits[i] = both[i]->quantize_row(recipe, source, x.data(), n, codes[i].data(),
                                              scales[i].data(), zeros[i].data());
            }
            ASSERT_EQ(fits[0], fits[1]) << n;
            ASSERT_EQ(scales[0], scales[1]) << n << " from " << name(source);
            ASSERT_EQ(codes[0], codes[1]) << n << " from " << name(source);
            ASSERT_EQ(zeros[0], zeros[1]) << n;
          }
        }
      }
    }
  }
}

// Which of two NaNs a product keeps is the compiler's choice: all become one.
void merge_nans(Format format, Guarded& row) {
  for (size_t i = 0; i + 4 <= row.size; i += format == Format::f32 ? 4 : 2) {
    uint32_t word;
    std::memcpy(&word, row.data() + i, 4);
    const auto half = static_cast<uint16_t>(word);
    const float value = format == Format::f32   ? bits_float(word)
                        : format == Format::f16 ? decode_f16(half)
                                                : decode_bf16(half);
    if (std::isnan(value)) std::memset(row.data() + i, 0xff, format == Format::f32 ? 4 : 2);
  }
}

TEST(FormatKernels, DequantizeRowEqualsScalar) {
  std::mt19937_64 engine(40);
  for (CpuLevel level : levels()) {
    const FormatKernels& kernels = format_kernels(level);
    for (Format format : kElementFormats) {
      SCOPED_TRACE(std::string(name(level)) + " " + name(format));
      for (int64_t n : {1, 2, 15, 16, 33, 256, 1001}) {
        for (int64_t group : {n, int64_t{16}, int64_t{32}, int64_t{5}}) {
          std::vector<uint8_t> codes(static_cast<size_t>(n));
          for (uint8_t& code : codes) code = static_cast<uint8_t>(engine());
          const size_t groups = static_cast<size_t>((n + group - 1) / group);
          std::vector<float> scales(groups);
          std::vector<uint8_t> zeros(groups);
          for (size_t g = 0; g < groups; ++g) {
            // Few bits, as the first product must be exact when there is a factor.
            scales[g] = std::ldexp(static_cast<float>(engine() % 16 + 1), int(engine() % 40) - 20);
            zeros[g] = static_cast<uint8_t>(engine() % 16);
          }
          if (n == 33) scales[0] = NAN;
          for (float factor : {0.0123456789f, 3e-38f, 1.0f}) {
            // Without a factor scales of all bits, one so small that products are subnormal.
            if (factor == 1) {
              for (float& scale : scales) scale *= 1.2345678f;
              scales[groups / 2] = 0x1p-127f;
            }
            for (Format out : kPlain) {
              const RowScales row{scales.data(),
                                  format == Format::int4 && n % 2 ? zeros.data() : nullptr, group,
                                  factor};
              Guarded expected(static_cast<size_t>(n) * 4), got(static_cast<size_t>(n) * 4);
              scalar_format_kernels().dequantize_row(format, codes.data(), n, row, out,
                                                     expected.data());
              kernels.dequantize_row(format, codes.data(), n, row, out, got.data());
              merge_nans(out, expected);
              merge_nans(out, got);
              ASSERT_EQ(expected, got) << n << " in groups of " << group << " to " << name(out);
            }
          }
        }
      }
    }
  }
}

// 1.125 times the first scale rounds, in f32, to the middle between 0x3f84 and 0x3f85, and is above
// it; the second scale is the middle itself, which goes to the even one. Each needs its own
// rounding, whichever of them comes first.
TEST(FormatKernels, DequantizeRoundsOnceBesideExactScales) {
  const float middle = 1.03515625f, above = middle / 1.125f;
  ASSERT_EQ(1.125f * above, middle);
  ASSERT_GT(1.125 * double{above}, middle);
  constexpr int64_t kGroup = 64;
  std::vector<uint8_t> codes(2 * kGroup);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = i % 2 == 0 ? 0x38 : 0x39;  // 1 and 1.125
  for (const bool swapped : {false, true}) {
    std::vector<float> scales = {above, middle};
    if (swapped) std::swap(scales[0], scales[1]);
    const RowScales row{scales.data(), nullptr, kGroup, 1.0f};
    std::vector<uint16_t> expected(codes.size()), got(codes.size());
    scalar_format_kernels().dequantize_row(Format::fp8_e4m3, codes.data(), 2 * kGroup, row,
                                           Format::bf16, expected.data());
    EXPECT_EQ(expected[swapped ? kGroup + 1 : 1], 0x3f85);
    EXPECT_EQ(expected[swapped ? 0 : kGroup], 0x3f84);
    for (CpuLevel level : levels()) {
      format_kernels(level).dequantize_row(Format::fp8_e4m3, codes.data(), 2 * kGroup, row,
                                           Format::bf16, got.data());
      EXPECT_EQ(expected, got) << name(level);
    }
  }
}

TEST(FormatKernels, DecodeBf16EqualsScalarForEveryCode) {
  std::vector<uint8_t> codes(3 * 256 + 9);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i);
  for (CpuLevel level : levels()) {
    for (Format format : kElementFormats) {
      for (int64_t n : {777, 768, 300, 47, 5, 1}) {
        std::vector<uint16_t> expected(static_cast<size_t>(n) + 8, 1), got = expected;
        scalar_format_kernels().decode_bf16(format, codes.data(), n, expected.data());
        format_kernels(level).decode_bf16(format, codes.data(), n, got.data());
        ASSERT_EQ(expected, got) << name(level) << " " << name(format) << " " << n;
      }
    }
  }
}

TEST(FormatKernels, ConvertEqualsScalar) {
  for (CpuLevel level : levels()) {
    for (Format source : kPlain) {
      for (Format out : kPlain) {
        const int64_t count = source == Format::f32 ? 100001 : 65536;
        std::vector<uint8_t> x = nasty_bits(count, source, 50, false);
        if (source != Format::f32) {  // every code
          for (int i = 0; i < 65536; ++i) {
            const auto code = static_cast<uint16_t>(i);
            std::memcpy(&x[static_cast<size_t>(i) * 2], &code, 2);
          }
        }
        for (int64_t n : {count, int64_t{1}, int64_t{13}, int64_t{31}}) {
          Guarded expected(static_cast<size_t>(n) * 4), got(static_cast<size_t>(n) * 4);
          scalar_format_kernels().convert(source, out, x.data(), n, expected.data());
          format_kernels(level).convert(source, out, x.data(), n, got.data());
          ASSERT_EQ(expected, got) << name(level) << " " << name(source) << " to " << name(out);
        }
      }
    }
  }
}

}  // namespace
}  // namespace halftone
