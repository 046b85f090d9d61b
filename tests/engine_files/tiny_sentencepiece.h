// Makes small SentencePiece models for tests.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace halftone::test {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
inline std::string integer_field(int number, uint64_t value) {
  return varint(static_cast<uint64_t>(number) << 3) + varint(value);
}
inline std::string bytes_field(int number, const std::string& bytes) {
  return varint(static_cast<uint64_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string float_field(int number, float value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return varint(static_cast<uint64_t>(number) << 3 | 5) + bytes;
}

struct TinySentencePiece {
  enum class Type : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };
  struct Piece {
    std::string text;
    float score;
    Type type;
  };
  std::vector<Piece> pieces;
  int kind = 1;  // 1 Unigram, 2 BPE
  bool byte_fallback = false;
  std::string trainer, normalizer;  // further fields

  void add_byte_pieces() {
    byte_fallback = true;
    constexpr char kDigits[] = "0123456789ABCDEF";
    for (int b = 0; b < 256; ++b) {
      pieces.push_back(
          {std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">", 0, Type::byte});
    }
  }
  std::string bytes() const {
    std::string result;
    for (const Piece& p : pieces) {
      result += bytes_field(1, bytes_field(1, p.text) + float_field(2, p.score) +
                                   integer_field(3, static_cast<uint64_t>(p.type)));
    }
    result += bytes_field(2, integer_field(3, static_cast<uint64_t>(kind)) +
                                 integer_field(35, byte_fallback ? 1 : 0) + trainer);
    return result + bytes_field(3, normalizer);
  }
};

inline std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += i + j > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * j) & 63];
    }
  }
  return text;
}

// A map of "A" to "a".
inline std::string tiny_charsmap() {
  // Unit 0 leads to 'A' (65) by its offset 1, which leads to its leaf at offset 1 ^ 65 ^ 64.
  std::string units(4 * 66, '\0');
  const auto set = [&](size_t i, uint32_t value) { std::memcpy(units.data() + 4 * i, &value, 4); };
  set(0, 1u << 10);
  set(64, 'A' | 1u << 8 | 1u << 10);
  set(65, 0x80000000u);
  const uint32_t size = static_cast<uint32_t>(units.size());
  std::string blob(4, '\0');
  std::memcpy(blob.data(), &size, 4);
  blob += units;
  blob += std::string("a\0", 2);
  return blob;
}

// A model of every kind of piece, with a map of "A" to "a".
inline std::string sentencepiece_bytes(int kind) {
  using Type = TinySentencePiece::Type;
  TinySentencePiece model;
  model.kind = kind;
  model.pieces = {
      {"<unk>", 0, Type::unknown}, {"<s>", 0, Type::control},    {"</s>", 0, Type::control},
      {"l", -2, Type::normal},     {"o", -2, Type::normal},      {"lo", -1, Type::unused},
      {"llo", -1, Type::normal},   {"\u2581", -3, Type::normal}, {"wor", 0, Type::user_defined}};
  model.add_byte_pieces();
  model.normalizer = bytes_field(2, tiny_charsmap());
  return model.bytes();
}

// The 256 bytes and three words.
inline std::string tiktoken_bytes() {
  std::string file;
  int rank = 0;
  for (; rank < 256; ++rank) {
    file += base64(std::string(1, static_cast<char>(rank))) + " " + std::to_string(rank) + "\n";
  }
  for (const char* token : {"he", "llo", "hello"}) {
    file += base64(token) + " " + std::to_string(rank++) + "\n";
  }
  return file;
}

}  // namespace halftone::test
