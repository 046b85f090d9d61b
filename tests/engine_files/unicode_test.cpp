#include "engine/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "halftone/engine.h"

namespace halftone {
namespace {

TEST(Unicode, Utf8OfEveryCodePoint) {
  for (int32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text;
    append_utf8(text, c);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_EQ(step.codepoint, c);
    ASSERT_EQ(step.length, static_cast<int>(text.size()));
    // A cut sequence says so.
    for (size_t n = 1; n < text.size(); ++n) {
      ASSERT_EQ(decode_utf8(std::string_view(text).substr(0, n), 0).codepoint, kCut);
    }
  }
}

TEST(Unicode, InvalidBytesBecomeReplacementCharacters) {
  const std::string r = "\ufffd";
  EXPECT_EQ(valid_utf8("a\x80z"), "a" + r + "z");
  EXPECT_EQ(valid_utf8("\xc0\xaf"), r + r);                  // overlong
  EXPECT_EQ(valid_utf8("\xed\xa0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(valid_utf8("\xf0\x9f\x98"), r);                  // one cut sequence, one character
  EXPECT_EQ(valid_utf8("\xe2\x82z\xff"), r + "z" + r);
}

// However the bytes are cut, the stream gives what the whole gives.
TEST(Unicode, StreamEqualsTheWholeForAnyCut) {
  std::mt19937 random(11);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      switch (random() % 4) {
        case 0:
          text += static_cast<char>(random());
          break;
        case 1:
          text += "\U0001f600";
          break;
        case 2:
          text += "\u20ac\u00e9";
          break;
        default:
          text += 'x';
      }
    }
    Utf8Stream stream;
    std::string joined;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 3;
      const std::string complete = stream.push(std::string_view(text).substr(at, n));
      ASSERT_EQ(valid_utf8(complete), complete);
      joined += complete;
      at += n;
    }
    joined += stream.flush();
    ASSERT_EQ(joined, valid_utf8(text));
    ASSERT_EQ(stream.flush(), "");
  }
}

TEST(Unicode, ClassesAndNormalForms) {
  EXPECT_EQ(char_class('a'), CharClass::letter);
  EXPECT_EQ(char_class(0x4e2d), CharClass::letter);
  EXPECT_EQ(char_class(0x0301), CharClass::other);   // a mark is no letter
  EXPECT_EQ(char_class(0x2167), CharClass::number);  // Roman eight
  EXPECT_EQ(char_class(0x85), CharClass::space);
  EXPECT_EQ(char_class(0x3000), CharClass::space);
  EXPECT_EQ(char_class(0x200b), CharClass::other);  // zero width is no white space
  EXPECT_EQ(char_class('\r'), CharClass::newline);
  EXPECT_EQ(char_class(kInvalid), CharClass::other);

  EXPECT_EQ(normalize("e\u0301", NormalForm::nfc), "\u00e9");
  EXPECT_EQ(normalize("\u00e9", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize("\u1100\u1161\u11a8", NormalForm::nfc), "\uac01");
  EXPECT_EQ(normalize("\u212b", NormalForm::nfc), "\u00c5");
  EXPECT_EQ(normalize("\ufb01", NormalForm::nfc), "\ufb01");
  EXPECT_EQ(normalize("\ufb01", NormalForm::nfkc), "fi");
  EXPECT_EQ(normalize("\u0915\u093c", NormalForm::nfc), "\u0915\u093c");  // composition exclusion
  EXPECT_EQ(normalize(std::string_view("a\0e\u0301", 5), NormalForm::nfc),
            std::string("a\0\u00e9", 4));
  EXPECT_EQ(normalize("\xff"
                      "e\u0301\x80",
                      NormalForm::nfc),
            "\xff\u00e9\x80");
}

}  // namespace
}  // namespace halftone
