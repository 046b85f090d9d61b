#include "engine/tokenizer/splitter.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/tokenizer/unicode.h"
#include "support/compare.h"

namespace halftone {
namespace {

std::vector<std::string> pieces(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> result;
  for (const Pattern::Match& m : pattern.matches(text)) {
    result.emplace_back(text.substr(m.begin, m.end - m.begin));
  }
  return result;
}

// Text of fragments at which the patterns decide, and of any characters.
std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> fragments = {
      "'s", "'S",     "'ll",    "'RE",    "'\u017f", "'x",       " ",      "  ",         "\n",
      "\r", "\t",     "\u00a0", "\u3000", "\u0085",  "\u2028",   "1",      "12",         "2345",
      "!",  "...",    "?!\n",   "a",      "Hello",   " world",   "\u00dc", "e\u0301",    "\u4e2d",
      "_",  "\u0661", "\u00b2", "\u2167", "-",       "\u200b",   "<|",     "\U0001f600", "\u0e33",
      "\"", "\u0915", "\u094d", "#",      "  \n  x", "\n\n  \n", "(",      ") "};
  std::string text;
  for (size_t n = random() % 14; n > 0; --n) {
    if (random() % 5 != 0) {
      text += fragments[random() % fragments.size()];
      continue;
    }
    const auto c = static_cast<int32_t>(random() % (random() % 2 == 0 ? 0x600 : 0x11000));
    // PCRE2 counts U+180E as white space, the Unicode standard and the scanners do not.
    if ((c < 0xd800 || c > 0xdfff) && c != 0x180e) append_utf8(text, c);
  }
  return text;
}

// The scanners against the regular expressions themselves.
TEST(Splitter, ScannersEqualTheirRegularExpressions) {
  std::mt19937 random(7);
  for (const char* regex : {kGpt2Regex, kLlama3Regex, kQwenRegex}) {
    const auto scanner = make_pattern(regex, "test");
    const auto pcre = make_pcre_pattern(regex, "test");
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(random);
      ASSERT_EQ(pieces(*scanner, text), pieces(*pcre, text)) << regex << "\n[" << text << "]";
    }
  }
}

TEST(Splitter, KnownCuts) {
  using Words = std::vector<std::string>;
  const auto gpt2 = make_pattern(kGpt2Regex, "test");
  EXPECT_EQ(pieces(*gpt2, "I'll pay 1234  dollars!?\n\n ok"),
            (Words{"I", "'ll", " pay", " 1234", " ", " dollars", "!?", "\n\n", " ok"}));
  const auto llama3 = make_pattern(kLlama3Regex, "test");
  EXPECT_EQ(pieces(*llama3, "I'LL pay 1234  dollars!?\n\n ok"),
            (Words{"I", "'LL", " pay", " ", "123", "4", " ", " dollars", "!?\n\n", " ok"}));
  const auto qwen = make_pattern(kQwenRegex, "test");
  EXPECT_EQ(pieces(*qwen, "a12 \n b"), (Words{"a", "1", "2", " \n", " b"}));
}

// Bytes that are no UTF-8 never stop a scanner and are never lost.
TEST(Splitter, InvalidBytesStayInThePieces) {
  std::mt19937 random(3);
  for (const char* regex : {kGpt2Regex, kLlama3Regex, kQwenRegex}) {
    const auto pattern = make_pattern(regex, "test");
    const auto pcre = make_pcre_pattern(regex, "test");
    for (int i = 0; i < 2000; ++i) {
      std::string text;
      for (size_t n = random() % 20; n > 0; --n) text += static_cast<char>(random());
      for (const Pattern* p : {pattern.get(), pcre.get()}) {
        const SplitStep step{std::shared_ptr<const Pattern>(std::shared_ptr<void>(), p)};
        std::string joined;
        for (const std::string_view piece : split({text}, step)) joined += piece;
        ASSERT_EQ(joined, text);
      }
    }
  }
}

TEST(Splitter, Behaviors) {
  using Behavior = SplitStep::Behavior;
  const auto cut = [](Behavior behavior, bool invert) {
    SplitStep step;
    step.pattern = make_literal_pattern("-");
    step.behavior = behavior;
    step.invert = invert;
    std::string joined;
    for (const std::string_view piece : split({"the-final--countdown"}, step)) {
      if (!joined.empty()) joined += '|';
      joined += piece;
    }
    return joined;
  };
  EXPECT_EQ(cut(Behavior::isolated, false), "the|-|final|-|-|countdown");
  EXPECT_EQ(cut(Behavior::removed, false), "the|final|countdown");
  EXPECT_EQ(cut(Behavior::removed, true), "-|-|-");
  EXPECT_EQ(cut(Behavior::merged_with_previous, false), "the-|final-|-|countdown");
  EXPECT_EQ(cut(Behavior::merged_with_next, false), "the|-final|-|-countdown");
}

// A pattern from a file can take exponential time; the limit turns that into an error.
TEST(Splitter, BacktrackingIsLimited) {
  const auto pattern = make_pattern("(a+)+$", "file: pattern");
  test::expect_error([&] { pattern->matches(std::string(64, 'a') + "b"); },
                     {"file: pattern", "(a+)+$", "given up"});
  test::expect_error([] { make_pattern("(a", "file: pattern"); },
                     {"file: pattern", "(a", "byte 2"});
  // Long words need many steps and are still cut right; so does a group that needs a deep stack.
  for (const char* regex : {R"([\p{Lu}\p{Lo}]*[\p{Ll}\p{Lo}]+|\p{Lu}+)", "(?:(A)|(b))+"}) {
    const auto long_words = make_pattern(regex, "test");
    EXPECT_EQ(long_words->matches(std::string(100'000, 'A')).size(), 1u) << regex;
  }
  EXPECT_TRUE(make_pattern("x*", "test")->matches("yyy").empty());  // empty matches cut nothing
}

}  // namespace
}  // namespace halftone
