#include "sim/execution/clock.h"

namespace halftone::sim {

namespace {

// True when `a` is at or beyond `b` everywhere.
bool covers(const Clock& a, const Clock& b) {
  const uint32_t common = std::min(a.size(), b.size());
  uint32_t behind = 0;
  for (uint32_t i = 0; i < common; ++i) behind |= a.data()[i] < b.data()[i] ? 1u : 0u;
  if (behind != 0) return false;
  for (uint32_t i = common; i < b.size(); ++i) {
    if (b.data()[i] != 0) return false;
  }
  return true;
}

}  // namespace

ClockRef ClockJoiner::join(const ClockRef& a, const ClockRef& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  const uint64_t pair = reinterpret_cast<uintptr_t>(a.get()) * 0x9e3779b97f4a7c15ull ^
                        (reinterpret_cast<uintptr_t>(b.get()) + 0x7f4a7c15) * 0xbf58476d1ce4e5b9ull;
  Entry& entry = entries_[pair >> (64 - kEntryBits)];
  if (entry.a == a && entry.b == b) return entry.joined;
  ClockRef joined;
  if (covers(*b, *a)) {
    joined = b;
  } else if (covers(*a, *b)) {
    joined = a;
  } else {
    const Clock& large = a->size() >= b->size() ? *a : *b;
    const Clock& small = a->size() >= b->size() ? *b : *a;
    joined = ClockRef::make(large.size(), [&](uint32_t* at) {
      for (uint32_t i = 0; i < small.size(); ++i) {
        at[i] = std::max(large.data()[i], small.data()[i]);
      }
      std::copy(large.data() + small.size(), large.data() + large.size(), at + small.size());
    });
  }
  entry = {a, b, joined};
  return joined;
}

ClockRef ClockJoiner::meet(const ClockRef& a, const ClockRef& b) {
  if (a == b) return a;
  if (!a || !b) return {};
  const uint32_t size = std::min(a->size(), b->size());
  return ClockRef::make(size, [&](uint32_t* at) {
    for (uint32_t i = 0; i < size; ++i) at[i] = std::min(a->data()[i], b->data()[i]);
  });
}

}  // namespace halftone::sim
