#include "engine/tokenizer/charsmap.h"

#include "base/message.h"

namespace halftone {

namespace {

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

// A unit of the double array: its label, the distance to its children, and whether one of them is
// a leaf, which holds the value.
struct Unit {
  uint32_t bits;
  bool has_leaf() const { return (bits >> 8 & 1) != 0; }
  uint32_t value() const { return bits & 0x7fffffffu; }
  uint32_t label() const { return bits & 0x800000ffu; }  // the top bit marks a leaf: no label
  uint32_t offset() const { return (bits >> 10) << ((bits & 0x200u) >> 6); }
};

}  // namespace

CharsMap::CharsMap(std::string_view blob, const std::string& where) {
  if (blob.empty()) return;
  const auto malformed = [&](const auto&... parts) {
    fail(ErrorCode::malformed_file, where, parts...);
  };
  if (blob.size() < 4) malformed(" has ", blob.size(), " bytes; it needs at least 4");
  const uint32_t bytes = little_endian(blob);
  blob.remove_prefix(4);
  if (bytes > blob.size() || bytes % 4 != 0 || bytes == 0) {
    malformed(" has a trie of ", bytes, " bytes; it must be a positive multiple of 4, at most ",
              blob.size());
  }
  units_.reserve(bytes / 4);
  for (size_t i = 0; i < bytes; i += 4) units_.push_back(little_endian(blob.substr(i, 4)));
  texts_ = blob.substr(bytes);
  if (!texts_.empty() && texts_.back() != '\0') {
    malformed(" ends inside a text; each must end with a zero byte");
  }
}

template <class Visit>
void CharsMap::sequences(std::string_view text, const Visit& visit) const {
  if (units_.empty()) return;
  size_t at = Unit{units_[0]}.offset();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (at >= units_.size()) return;
    const Unit unit{units_[at]};
    if (unit.label() != byte) return;
    at ^= unit.offset();
    if (at >= units_.size()) return;
    if (!unit.has_leaf()) continue;
    const uint32_t begin = Unit{units_[at]}.value();
    if (begin >= texts_.size()) continue;  // a damaged map knows less
    // To the zero byte; the last text has one too.
    if (!visit(i + 1, std::string_view(texts_.data() + begin))) return;
  }
}

size_t CharsMap::longest(std::string_view text, std::string_view& becomes) const {
  size_t longest = 0;
  sequences(text, [&](size_t length, std::string_view value) {
    longest = length;
    becomes = value;
    return true;
  });
  return longest;
}

bool CharsMap::shortest(std::string_view text, std::string_view& becomes) const {
  bool found = false;
  sequences(text, [&](size_t, std::string_view value) {
    found = true;
    becomes = value;
    return false;
  });
  return found;
}

}  // namespace halftone
