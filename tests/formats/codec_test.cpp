// The scalar codecs against the model: every code, and for the encoders every representable value,
// every midpoint, one ulp on either side of both, and the special values.
#include "formats/codec.h"

#include <limits>

#include "formats/codec_model.h"
#include "support/compare.h"

namespace halftone {
namespace {

using test::CodeTable;
using test::NearestCode;

template <class Encode>
void check_encoder(const CodeTable& table, Encode encode) {
  NearestCode nearest(table);
  const auto check = [&](float x) {
    for (float y : {x, -x}) {
      ASSERT_EQ(encode(y), test::model_encode(table, nearest, y)) << y;
    }
  };
  const auto check_around = [&](double exact) {
    const float x = static_cast<float>(exact);
    check(x);
    check(std::nextafter(x, 0.0f));
    check(std::nextafter(x, INFINITY));
  };
  const std::vector<double>& value = table.value;
  for (size_t i = 0; i < value.size(); ++i) {
    check_around(value[i]);
    if (i + 1 < value.size()) check_around((value[i] + value[i + 1]) / 2);
  }
  const double step = value.back() - value[value.size() - 2];
  check_around(value.back() + step / 2);
  check_around(value.back() + step);
  for (float x : {0.0f, 1e-45f, 1.17549421e-38f, 1.17549435e-38f, 3.4e38f, 3.40282347e38f,
                  static_cast<float>(INFINITY)}) {
    check(x);
  }
  check_around(value[1] / 2);
  EXPECT_EQ(encode(std::numeric_limits<float>::quiet_NaN()) & ~(1u << table.sign_bit), table.nan);
}

template <class Decode>
void check_decoder(const CodeTable& table, Decode decode) {
  for (size_t i = 0; i < table.value.size(); ++i) {
    const float positive = decode(static_cast<uint32_t>(i));
    const float negative = decode(static_cast<uint32_t>(i) | 1u << table.sign_bit);
    ASSERT_EQ(positive, table.value[i]) << i;
    ASSERT_EQ(negative, -table.value[i]) << i;
    ASSERT_FALSE(std::signbit(positive)) << i;
    ASSERT_TRUE(std::signbit(negative)) << i;
  }
  for (size_t i = table.value.size(); i < (size_t{1} << table.sign_bit); ++i) {
    const float special = decode(static_cast<uint32_t>(i));
    if (table.infinity || table.value.size() == 0x7c) {
      ASSERT_EQ(std::isinf(special), i == table.value.size()) << i;
      if (i == table.value.size()) continue;
    }
    ASSERT_TRUE(std::isnan(special)) << i;
  }
}

TEST(Codec, E4m3) {
  check_encoder(test::e4m3_table(), [](float x) -> uint32_t { return encode_e4m3(x); });
  check_decoder(test::e4m3_table(), [](uint32_t c) { return decode_e4m3(uint8_t(c)); });
  EXPECT_EQ(encode_e4m3(-NAN), 0x7f);  // the sign of a NaN is dropped
  EXPECT_EQ(encode_e4m3(464.0f), 0x7e);
  EXPECT_EQ(encode_e4m3(-INFINITY), 0xfe);
}

TEST(Codec, E5m2) {
  check_encoder(test::e5m2_table(), [](float x) -> uint32_t { return encode_e5m2(x); });
  check_decoder(test::e5m2_table(), [](uint32_t c) { return decode_e5m2(uint8_t(c)); });
  EXPECT_EQ(encode_e5m2(-NAN), 0x7f);
  EXPECT_EQ(encode_e5m2(INFINITY), 0x7b);
}

TEST(Codec, E2m1) {
  check_encoder(test::e2m1_table(), [](float x) -> uint32_t { return encode_e2m1(x); });
  check_decoder(test::e2m1_table(), [](uint32_t c) { return decode_e2m1(uint8_t(c)); });
  // The ties of the format's table, by hand.
  const float ties[][2] = {{0.25f, 0}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                           {2.5f, 2},  {3.5f, 4},  {5.0f, 4},  {7.0f, 6}};
  for (const auto& [x, expected] : ties) EXPECT_EQ(decode_e2m1(encode_e2m1(x)), expected) << x;
  EXPECT_EQ(encode_e2m1(-0.0f), 8);
  EXPECT_EQ(encode_e2m1(NAN), 7);
  EXPECT_EQ(encode_e2m1(-NAN), 7);
  EXPECT_EQ(encode_e2m1(-INFINITY), 15);
}

TEST(Codec, SixBits) {
  const auto check = [](const CodeTable& table, Format format, float largest) {
    check_encoder(table, [&](float x) -> uint32_t { return encode_element(format, x, 0); });
    check_decoder(table, [&](uint32_t c) { return decode_element(format, uint8_t(c), 0); });
    EXPECT_EQ(table.value.back(), largest);
    EXPECT_EQ(largest_element(format), largest);
    EXPECT_EQ(encode_element(format, -NAN, 0), 0x1f);
    EXPECT_EQ(encode_element(format, -INFINITY, 0), 0x3f);
    EXPECT_EQ(encode_element(format, -0.0f, 0), 0x20);
  };
  check(test::e2m3_table(), Format::mxfp6, 7.5f);
  check(test::e3m2_table(), Format::mxfp6_e3m2, 28.0f);
}

// Little-endian: element i has bits 6 i .. 6 i + 5 of the row.
TEST(Codec, FourCodesOfSixBitsFillThreeBytes) {
  const uint8_t row[6] = {0x81, 0x30, 0xfc, 0x04, 0x61, 0x0c};
  const uint8_t codes[8] = {1, 2, 3, 63, 4, 4, 6, 3};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(code_at(Format::mxfp6, row, i), codes[i]) << i;
  EXPECT_EQ(code_offset(Format::mxfp6, 8), 6);
}

TEST(Codec, F16) {
  check_encoder(test::f16_table(), [](float x) -> uint32_t { return encode_f16(x); });
  check_decoder(test::f16_table(), [](uint32_t c) { return decode_f16(uint16_t(c)); });
}

TEST(Codec, Bf16) {
  check_encoder(test::bf16_table(), [](float x) -> uint32_t { return encode_bf16(x); });
  check_decoder(test::bf16_table(), [](uint32_t c) { return decode_bf16(uint16_t(c)); });
}

TEST(Codec, Ue8m0) {
  for (int code = 0; code < 255; ++code) {
    const float x = decode_ue8m0(static_cast<uint8_t>(code));
    ASSERT_EQ(x, std::ldexp(1.0, code - 127));
    ASSERT_EQ(reciprocal_ue8m0(static_cast<uint8_t>(code)), std::ldexp(1.0, 127 - code));
    for (float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, INFINITY), x * 1.5f}) {
      for (float z : {y, -y}) {
        ASSERT_EQ(encode_ue8m0_up(z), test::model_ue8m0(z, false)) << z;
        ASSERT_EQ(encode_ue8m0_down(z), test::model_ue8m0(z, true)) << z;
      }
    }
  }
  EXPECT_TRUE(std::isnan(decode_ue8m0(255)));
  EXPECT_TRUE(std::isnan(reciprocal_ue8m0(255)));
  for (float x :
       {0.0f, -0.0f, 1e-45f, 0x1p-127f, std::nextafter(0x1p-127f, 1.0f), 3.4e38f,
        static_cast<float>(INFINITY), static_cast<float>(-INFINITY), static_cast<float>(NAN)}) {
    EXPECT_EQ(encode_ue8m0_up(x), test::model_ue8m0(x, false)) << x;
    EXPECT_EQ(encode_ue8m0_down(x), test::model_ue8m0(x, true)) << x;
  }
}

TEST(Codec, NanPayloadsSurviveAsTheInstructionsKeepThem) {
  EXPECT_EQ(encode_bf16(__builtin_bit_cast(float, 0x7f800001u)), 0x7fc0);
  EXPECT_EQ(encode_bf16(__builtin_bit_cast(float, 0xff812345u)), 0xffc1);
  EXPECT_EQ(encode_f16(__builtin_bit_cast(float, 0x7f812345u)), 0x7e09);
  const auto bits = [](float x) { return __builtin_bit_cast(uint32_t, x); };
  EXPECT_EQ(bits(decode_f16(0x7c01)), 0x7fc02000u);
  EXPECT_EQ(bits(decode_f16(0xfe00)), 0xffc00000u);
}

// A model that cannot fail proves nothing: three small changes to the codec must be seen.
TEST(Codec, TheModelSeesWrongRounding) {
  const CodeTable table = test::e4m3_table();
  NearestCode nearest(table);
  const auto differs = [&](auto encode) {
    int count = 0;
    for (size_t i = 0; i + 1 < table.value.size(); ++i) {
      const auto middle = static_cast<float>((table.value[i] + table.value[i + 1]) / 2);
      for (float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
        count += encode(x) != test::model_encode(table, nearest, x);
      }
    }
    return count;
  };
  EXPECT_EQ(differs([](float x) { return encode_e4m3(x); }), 0);
  // Ties away from zero.
  EXPECT_GT(differs([](float x) { return encode_e4m3(std::nextafter(x, 1e9f)); }), 60);
  // Through BF16 first, which rounds twice.
  EXPECT_GT(differs([](float x) { return encode_e4m3(decode_bf16(encode_bf16(x))); }), 60);
  // Subnormals flushed.
  EXPECT_GT(differs([](float x) { return x < 0x1p-6f ? uint8_t{0} : encode_e4m3(x); }), 7);
}

}  // namespace
}  // namespace halftone
