// Unigram segmentation: of all ways to cut a text into pieces, the one of the highest sum of
// scores, which are logarithms of probabilities. SentencePiece models and tokenizer.json share it.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace halftone {

// Finds the pieces that a text begins with: a trie, (node << 8 | byte) -> node.
class PieceTrie {
 public:
  void add(std::string_view text, int32_t id) {
    uint32_t node = 0;
    for (const char c : text) {
      const auto [place, added] = edges_.emplace(key(node, c), static_cast<uint32_t>(ids_.size()));
      if (added) ids_.push_back(-1);
      node = place->second;
    }
    ids_[node] = id;
  }
  // Calls visit(length, id) for each, the shortest first.
  template <class Visit>
  void prefixes(std::string_view text, const Visit& visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(key(node, text[i]));
      if (edge == edges_.end()) return;
      node = edge->second;
      if (ids_[node] >= 0) visit(i + 1, ids_[node]);
    }
  }
  size_t longest(std::string_view text) const {
    size_t length = 0;
    prefixes(text, [&](size_t n, int32_t) { length = n; });
    return length;
  }
  // The piece that is the whole text; -1: none.
  int32_t find(std::string_view text) const {
    int32_t found = -1;
    prefixes(text, [&](size_t n, int32_t id) { found = n == text.size() ? id : -1; });
    return found;
  }

 private:
  static uint64_t key(uint32_t node, char c) {
    return uint64_t{node} << 8 | static_cast<unsigned char>(c);
  }
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> ids_ = {-1};
};

// Length of the character that begins the text, by its first byte alone.
inline size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  return std::min(length, text.size());
}

struct Segment {
  size_t begin, length;
  int32_t id;
};

// An unknown character costs this much more than the dearest piece.
inline constexpr float kUnknownPenalty = 10;

// The best score of each prefix, from the left (Viterbi). `score(id, length)` is nothing where the
// piece is no token; a character that is no piece is `unknown`. Sum: what a prefix's score is
// rounded to, of which the choice between near equals depends.
template <class Sum, class Score>
std::vector<Segment> likeliest_segments(std::string_view text, const PieceTrie& pieces,
                                        const Score& score, int32_t unknown, double unknown_score) {
  struct Best {
    Sum score = 0;
    size_t begin = SIZE_MAX;
    int32_t id = -1;
  };
  std::vector<Best> best(text.size() + 1);  // by the end of the prefix
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = character_length(text.substr(begin));
    const Sum score_here = best[begin].score;
    const auto consider = [&](size_t length, int32_t id, double more) {
      Best& target = best[begin + length];
      const double candidate = more + score_here;
      if (target.begin != SIZE_MAX && !(candidate > target.score)) return;
      target = {static_cast<Sum>(candidate), begin, id};
    };
    bool single = false;
    pieces.prefixes(text.substr(begin), [&](size_t length, int32_t id) {
      const std::optional<double> more = score(id, length);
      if (!more) return;
      consider(length, id, *more);
      single = single || length == character;
    });
    if (!single) consider(character, unknown, unknown_score);
    begin += character;
  }
  std::vector<Segment> segments;
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    segments.push_back({best[end].begin, end - best[end].begin, best[end].id});
  }
  std::reverse(segments.begin(), segments.end());
  return segments;
}

}  // namespace halftone
