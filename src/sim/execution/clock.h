// Vector clocks. A component is something whose accesses are in one order: a thread, the copies
// that signal one mbarrier, the groups of an engine. An epoch of it stands for all it did up to
// then.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

namespace halftone::sim {

using Component = uint16_t;  // 0: nobody
struct Epoch {
  Component component = 0;
  uint32_t value = 0;
};
inline constexpr uint32_t kForever = 0xffffffff;

// An immutable vector of epochs, shared by all who know the same; one OS thread uses it. Components
// beyond its size are at 0.
class Clock {
 public:
  uint32_t size() const { return size_; }
  uint32_t operator[](Component c) const { return c < size_ ? at_[c] : 0; }
  const uint32_t* data() const { return at_; }

 private:
  friend class ClockRef;
  uint32_t references_ = 0, size_ = 0;
  uint32_t at_[1];
};

class ClockRef {
 public:
  ClockRef() = default;
  ClockRef(const ClockRef& other) : clock_(other.clock_) {
    if (clock_ != nullptr) ++clock_->references_;
  }
  ClockRef(ClockRef&& other) noexcept : clock_(std::exchange(other.clock_, nullptr)) {}
  ClockRef& operator=(ClockRef other) noexcept { return std::swap(clock_, other.clock_), *this; }
  ~ClockRef() {
    if (clock_ != nullptr && --clock_->references_ == 0) std::free(clock_);
  }
  const Clock* operator->() const { return clock_; }
  const Clock& operator*() const { return *clock_; }
  const Clock* get() const { return clock_; }
  explicit operator bool() const { return clock_ != nullptr; }
  bool operator==(const ClockRef& other) const { return clock_ == other.clock_; }

  // `fill` writes the `size` epochs.
  template <class Fill>
  static ClockRef make(uint32_t size, Fill fill) {
    auto* clock = static_cast<Clock*>(std::malloc(sizeof(Clock) + size * sizeof(uint32_t)));
    if (clock == nullptr) throw std::bad_alloc();
    new (clock) Clock();
    clock->references_ = 1;
    clock->size_ = size;
    fill(clock->at_);
    ClockRef result;
    result.clock_ = clock;
    return result;
  }

 private:
  Clock* clock_ = nullptr;
};

// Some epochs more than those of a clock; never fewer.
inline ClockRef with(const ClockRef& base, const Epoch* more, size_t count) {
  uint32_t size = base ? base->size() : 0;
  for (size_t i = 0; i < count; ++i) size = std::max(size, uint32_t{more[i].component} + 1);
  return ClockRef::make(size, [&](uint32_t* at) {
    const uint32_t old = base ? base->size() : 0;
    if (old != 0) std::memcpy(at, base->data(), old * sizeof(uint32_t));
    if (size != old) std::memset(at + old, 0, (size - old) * sizeof(uint32_t));
    for (size_t i = 0; i < count; ++i) {
      at[more[i].component] = std::max(at[more[i].component], more[i].value);
    }
  });
}

// Joins, remembered: the threads of a warp mostly join the same pairs.
class ClockJoiner {
 public:
  ClockRef join(const ClockRef& a, const ClockRef& b);
  // Component by component the smaller one.
  static ClockRef meet(const ClockRef& a, const ClockRef& b);
  void clear() {
    for (Entry& entry : entries_) entry = {};
  }

 private:
  struct Entry {
    ClockRef a, b, joined;
  };
  static constexpr unsigned kEntryBits = 8;
  Entry entries_[1u << kEntryBits];
};

// What an agent knows: a clock and a few epochs of its own.
struct View {
  ClockRef clock;
  Epoch own[6];
  uint32_t owns = 0;

  void add(Component component, uint32_t value) {
    if (component == 0) return;
    if (owns < 6) own[owns++] = {component, value};
  }
  bool knows(Component component, uint32_t value) const {
    if (clock && (*clock)[component] >= value) return true;
    for (uint32_t i = 0; i < owns; ++i) {
      if (own[i].component == component) return own[i].value >= value;
    }
    return component == 0;
  }
};

// Knowledge handed over at a barrier. `generic`: of accesses; `async`: of accesses that
// asynchronous work may build on (a proxy fence followed them); `tensor`: of tcgen05 work that a
// fence before the synchronisation has covered.
struct Knowledge {
  ClockRef generic, async, tensor;
};

// Collects knowledge until a barrier's phase completes.
class Accumulator {
 public:
  void add(ClockJoiner& joiner, const Knowledge& knowledge) {
    generic_.base = joiner.join(generic_.base, knowledge.generic);
    async_.base = joiner.join(async_.base, knowledge.async);
    tensor_.base = joiner.join(tensor_.base, knowledge.tensor);
  }
  void add_generic(Epoch epoch) { generic_.own.push_back(epoch); }
  void add_async(Epoch epoch) { async_.own.push_back(epoch); }
  void add_tensor(Epoch epoch) { tensor_.own.push_back(epoch); }
  void add_all(Epoch epoch) { add_generic(epoch), add_async(epoch), add_tensor(epoch); }
  bool empty() const { return !generic_.base && generic_.own.empty() && async_.own.empty(); }
  Knowledge knowledge() const { return {generic_.finish(), async_.finish(), tensor_.finish()}; }
  void clear() { generic_.clear(), async_.clear(), tensor_.clear(); }

 private:
  struct Part {
    ClockRef base;
    std::vector<Epoch> own;
    ClockRef finish() const { return own.empty() ? base : with(base, own.data(), own.size()); }
    void clear() { base = {}, own.clear(); }
  };
  Part generic_, async_, tensor_;
};

}  // namespace halftone::sim
