// Tokens that are found in a text before any other step: special tokens and user additions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halftone {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;                 // skipped when decoding
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes the white space on that side
  bool normalized = false;              // searched after normalisation
};

// Finds tokens, the longest at each place from the left, in time linear in the text.
class AddedTokenMatcher {
 public:
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // A stretch of text, or a token (id >= 0).
  struct Part {
    int32_t id;
    std::string_view text;
  };
  // Without `special`, the text of special tokens is text like any other.
  void split(std::string_view text, bool special, std::vector<Part>& parts) const;

 private:
  // The longest token that begins at `at`, or null.
  const AddedToken* longest(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  // A trie: (node << 8 | byte) -> node; node 0 is the root.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> token_at_ = {-1};  // index into tokens_ per node
  bool first_byte_[256] = {};
};

}  // namespace halftone
