// The normaliser of SentencePiece: a map from character sequences to texts, stored as a double
// array (a trie in one array of 32-bit units) and the texts behind it, each ended by a zero byte.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halftone {

class CharsMap {
 public:
  CharsMap() = default;  // maps nothing
  // `where` begins the errors.
  CharsMap(std::string_view blob, const std::string& where);

  bool empty() const { return units_.empty(); }
  // The longest sequence at the beginning of `text` that the map knows: its length (0: none) and
  // what it becomes.
  size_t longest(std::string_view text, std::string_view& becomes) const;
  // The shortest such sequence instead; whether there is one.
  bool shortest(std::string_view text, std::string_view& becomes) const;

 private:
  // Calls visit(length, becomes) for each, the shortest first, until it returns false.
  template <class Visit>
  void sequences(std::string_view text, const Visit& visit) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace halftone
