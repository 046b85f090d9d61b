// Byte-pair merging: joins neighbouring symbols in the order of their rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace halftone {

// What a pair of symbols becomes, and when. Lower ranks go first.
struct Merge {
  int32_t rank = -1, result = -1;
};

// Pair -> Merge; open addressing, built once.
class MergeTable {
 public:
  explicit MergeTable(size_t expected = 0);
  // Keeps the first entry of a pair. Symbols are not negative.
  void insert(int32_t left, int32_t right, Merge merge);
  // rank < 0 when the pair does not merge.
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};
  size_t place(uint64_t key) const;
  void grow();
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t used_ = 0;
};

// The byte that a piece like "<0x0A>" stands for; -1 for other pieces.
int byte_of_piece(std::string_view piece);

// Repeatedly joins the pair of lowest rank, the leftmost of equals. O(n log n).
void merge_pairs(std::vector<int32_t>& symbols, const MergeTable& table);

}  // namespace halftone
