// Valid files with random damage: each reader answers with a result or an Error, never otherwise.
#include <gtest/gtest.h>

#include <random>

#include "engine_files/file_readers.h"

namespace halftone {
namespace {

// One to four changes of the kinds that break parsers: flipped and replaced bytes, cut ends,
// stretches removed, repeated or inserted, numbers at the edges.
std::string damaged(std::string bytes, std::mt19937& random) {
  static const std::vector<std::string> edges = {
      "0",  "-1", "1e999", "18446744073709551616", "9223372036854775807", "null",
      "[]", "{}", "\"\"",  "\xff\xff\xff\xff",     std::string(8, '\0'),  "\"\\ud800\"",
      ","};
  for (size_t n = 1 + random() % 4; n > 0 && !bytes.empty(); --n) {
    const size_t at = random() % bytes.size();
    const size_t length = 1 + random() % std::min<size_t>(bytes.size() - at, 40);
    switch (random() % 7) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 5:
        bytes.replace(at, std::min<size_t>(length, 4), edges[random() % edges.size()]);
        break;
      default: {  // a number becomes another
        const size_t digit = bytes.find_first_of("0123456789", at);
        if (digit != std::string::npos) bytes[digit] = static_cast<char>('0' + random() % 10);
      }
    }
  }
  return bytes;
}

TEST(Mutation, ReadersNeverFailOtherwiseThanByError) {
  for (const test::FileReader& reader : test::file_readers()) {
    SCOPED_TRACE(reader.name);
    {
      const test::TempDirectory directory;
      ASSERT_NO_THROW(reader.read(directory, reader.valid));
    }
    std::mt19937 random(1);
    int refused = 0;
    constexpr int kRounds = 700;
    const test::TempDirectory directory;
    for (int round = 0; round < kRounds; ++round) {
      const std::string bytes = damaged(reader.valid, random);
      try {
        reader.read(directory, bytes);
      } catch (const Error& error) {
        ++refused;
        EXPECT_FALSE(std::string(error.what()).empty());
      } catch (const std::exception& other) {
        ADD_FAILURE() << "round " << round << ": " << other.what();
      }
    }
    // The damage does reach the readers, and some of it is harmless.
    EXPECT_GT(refused, kRounds / 10);
    EXPECT_LT(refused, kRounds);
  }
}

}  // namespace
}  // namespace halftone
