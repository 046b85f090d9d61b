#include "engine/tokenizer/base64.h"

#include <cstddef>
#include <cstdint>

namespace halftone {

namespace {

int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

bool decode_base64(std::string_view text, std::string& bytes) {
  bytes.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t digits = text.size();
  while (digits > text.size() - 2 && text[digits - 1] == '=') --digits;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int digit = i < digits ? digit_of(text[i]) : 0;
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift & 0xff);
    bits = 0;
  }
  bytes.resize(bytes.size() - (text.size() - digits));
  return true;
}

}  // namespace halftone
