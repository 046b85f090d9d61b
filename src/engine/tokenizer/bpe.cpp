#include "engine/tokenizer/bpe.h"

#include <queue>
#include <tuple>
#include <utility>

namespace halftone {

namespace {
uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
}  // namespace

MergeTable::MergeTable(size_t expected) {
  size_t capacity = 16;
  while (capacity < 2 * expected) capacity *= 2;
  slots_.resize(capacity);
}

size_t MergeTable::place(uint64_t key) const {
  // Multiplication spreads the key into the high bits; 2^64 / golden ratio.
  const size_t mask = slots_.size() - 1;
  size_t i = static_cast<size_t>((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask;
  return i;
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  if (2 * (used_ + 1) > slots_.size()) grow();
  const uint64_t key = pair_key(left, right);
  Slot& slot = slots_[place(key)];
  if (slot.key == key) return;
  slot = {key, merge};
  ++used_;
}

void MergeTable::grow() {
  const std::vector<Slot> old = std::move(slots_);
  slots_.assign(old.size() * 2, Slot());
  for (const Slot& slot : old) {
    if (slot.key != kFree) slots_[place(slot.key)] = slot;
  }
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  const Slot& slot = slots_[place(key)];
  return slot.key == key ? slot.merge : Merge();
}

namespace {

// Scans for the best pair each time: quadratic, and fastest for the words of ordinary text.
void merge_short(std::vector<int32_t>& symbols, const MergeTable& table, std::vector<Merge>& next) {
  const size_t count = symbols.size();
  next.resize(count);
  for (size_t i = 0; i + 1 < count; ++i) next[i] = table.find(symbols[i], symbols[i + 1]);
  size_t size = count;
  while (size > 1) {
    size_t best = size;
    for (size_t i = 0; i + 1 < size; ++i) {
      if (next[i].rank >= 0 && (best == size || next[i].rank < next[best].rank)) best = i;
    }
    if (best == size) break;
    symbols[best] = next[best].result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    next.erase(next.begin() + static_cast<ptrdiff_t>(best) + 1);
    --size;
    if (best + 1 < size) next[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) next[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
}

// A linked list of symbols and a queue of pairs; pairs that changed since are skipped.
void merge_long(std::vector<int32_t>& symbols, const MergeTable& table) {
  const size_t count = symbols.size();
  constexpr size_t kNone = ~size_t{0};
  struct Links {
    size_t previous, next;
  };
  std::vector<Links> links(count);
  for (size_t i = 0; i < count; ++i) {
    links[i] = {i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  }
  struct Candidate {
    int32_t rank;
    size_t position;
    int32_t left, right, result;
    bool operator<(const Candidate& other) const {  // the queue's top is its largest
      return std::tie(rank, position) > std::tie(other.rank, other.position);
    }
  };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](size_t position) {
    if (position == kNone || links[position].next == kNone) return;
    const int32_t left = symbols[position], right = symbols[links[position].next];
    const Merge merge = table.find(left, right);
    if (merge.rank >= 0) queue.push({merge.rank, position, left, right, merge.result});
  };
  for (size_t i = 0; i + 1 < count; ++i) consider(i);
  constexpr int32_t kGone = -1;
  while (!queue.empty()) {
    const Candidate c = queue.top();
    queue.pop();
    const size_t next = links[c.position].next;
    if (symbols[c.position] != c.left || next == kNone || symbols[next] != c.right) continue;
    symbols[c.position] = c.result;
    symbols[next] = kGone;
    links[c.position].next = links[next].next;
    if (links[next].next != kNone) links[links[next].next].previous = c.position;
    consider(c.position);
    consider(links[c.position].previous);
  }
  std::erase(symbols, kGone);
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'A' && c <= 'F';
    if (!digit && !letter) return -1;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return value;
}

void merge_pairs(std::vector<int32_t>& symbols, const MergeTable& table) {
  constexpr size_t kShort = 48;  // about where the two ways take the same time
  if (symbols.size() <= kShort) {
    std::vector<Merge> next;
    merge_short(symbols, table, next);
  } else {
    merge_long(symbols, table);
  }
}

}  // namespace halftone
