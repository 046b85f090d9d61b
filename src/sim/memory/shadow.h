// Who touched each 32-bit word last: the shadow of shared and of tensor memory.
//
// A word keeps its last writer and up to three readers since. Words whose bytes have different
// writers move to a side table. Checking a word that the same agent has just touched is a compare.
#pragma once
#include <cstdint>
#include <vector>

#include "sim/execution/clock.h"

namespace halftone::sim {

// One access as the shadow remembers it. Marks are the bytes concerned: of a writer those that are
// initialised, of a reader those it read.
struct Stamp {
  uint32_t epoch = 0;
  Component component = 0;
  uint16_t site = 0;  // site << 4 | marks
  uint32_t marks() const { return site & 15u; }
  uint32_t site_id() const { return site >> 4; }
  bool same_agent(const Stamp& other) const {
    return epoch == other.epoch && component == other.component;
  }
  bool operator==(const Stamp&) const = default;
};
inline constexpr uint32_t kSiteIds = 4096;  // ids of sites are below

// Writers that are none: the word belongs to an mbarrier, its bytes have writers of their own.
inline constexpr Component kBarrierWord = 0xffff, kSplitWord = 0xfffe;
// Set in the component of an atomic access: those do not race with each other.
inline constexpr Component kAtomic = 0x4000;
inline constexpr Component kComponents = 0x3fff;
constexpr Component plain(Component c) { return static_cast<Component>(c & ~kAtomic); }

struct Cell {
  Stamp writer;
  Stamp readers[3];
  bool operator==(const Cell&) const = default;
};
static_assert(sizeof(Cell) == 32);

// Agent of an access, its knowledge and its mark.
struct Access {
  const View* view;
  Component component;
  uint32_t epoch;
  uint32_t site;  // id
  bool atomic = false;
  bool ordered_self = true;  // accesses of one component are in order (not so: copies by an engine)
  Stamp stamp(uint32_t marks) const {
    return {epoch, static_cast<Component>(component | (atomic ? kAtomic : 0)),
            static_cast<uint16_t>(site << 4 | marks)};
  }
  bool after(const Stamp& other) const {
    const Component c = plain(other.component);
    if (c == component && (ordered_self || other.epoch < epoch)) return true;
    return view->knows(c, other.epoch);
  }
};

enum class Conflict : uint8_t {
  read_after_write,
  write_after_write,
  write_after_read,
  uninitialised,
  barrier
};

class Shadow {
 public:
  // Called for a word in which an access is not in order after `other`.
  using Found = void (*)(void* context, Conflict, uint32_t word, const Stamp& other);

  explicit Shadow(uint32_t words) : cells_(words) {}
  Cell& operator[](uint32_t word) { return cells_[word]; }
  uint32_t words() const { return static_cast<uint32_t>(cells_.size()); }

  // One word; `marks`: which of its bytes.
  template <class Report>
  void read(uint32_t word, uint32_t marks, const Access& access, Report&& report) {
    Cell& cell = cells_[word];
    const Stamp mine = access.stamp(marks);
    // Read by the same agent a moment ago: nothing can have changed.
    if (cell.readers[0] == mine && (cell.writer.marks() & marks) == marks &&
        cell.writer.component < kSplitWord) {
      return;
    }
    read_slow(word, marks, access, report);
  }
  template <class Report>
  void write(uint32_t word, uint32_t marks, const Access& access, Report&& report) {
    Cell& cell = cells_[word];
    if (marks == 15 && cell.writer == access.stamp(15) && access.ordered_self &&
        cell.readers[0].component == 0) {
      return;
    }
    write_slow(word, marks, access, report);
  }

  // Neighbouring whole words: most are in the same state as the one before.
  template <class Report>
  void read_range(uint32_t word, uint32_t count, const Access& access, Report&& report) {
    Cell before, after;
    bool have = false;
    for (uint32_t i = word; i < word + count; ++i) {
      Cell& cell = cells_[i];
      if (have && cell == before) {
        cell = after;
        continue;
      }
      before = cell;
      read(i, 15, access, report);
      after = cell;
      have = after.writer.component < kSplitWord && after.readers[0].component != 0;
    }
  }
  // As read_range by an agent that goes on to write the same words: the write is what later
  // accesses must come after, so the reads leave no mark.
  template <class Report>
  void read_range_to_write(uint32_t word, uint32_t count, const Access& access, Report&& report) {
    Stamp before;
    bool have = false;
    for (uint32_t i = word; i < word + count; ++i) {
      const Stamp writer = cells_[i].writer;
      if (have && writer == before) continue;
      before = writer;
      have = writer.component < kSplitWord && writer.marks() == 15 && access.after(writer);
      if (!have) read(i, 15, access, report);
    }
  }
  template <class Report>
  void write_range(uint32_t word, uint32_t count, const Access& access, Report&& report) {
    Cell before, after;
    bool have = false;
    for (uint32_t i = word; i < word + count; ++i) {
      Cell& cell = cells_[i];
      if (have && cell == before) {
        cell = after;
        continue;
      }
      before = cell;
      bool clean = true;
      write(i, 15, access, [&](Conflict conflict, uint32_t at, const Stamp& other) {
        clean = false;
        report(conflict, at, other);
      });
      after = cell;
      have = clean && before.writer.component < kSplitWord;
    }
  }

  void set_barrier(uint32_t word, bool live) {
    drop_split(word);
    cells_[word] = {};
    if (live) cells_[word].writer = {0, kBarrierWord, 0};
  }
  void reset(uint32_t first, uint32_t count) {
    for (uint32_t i = first; i < first + count; ++i) {
      drop_split(i);
      cells_[i] = {};
    }
  }
  void clear() {
    std::fill(cells_.begin(), cells_.end(), Cell{});
    split_.clear(), free_.clear();
  }

 private:
  struct Bytes {
    Stamp writer[4];  // marks: 1 when initialised
  };
  Bytes& bytes(const Cell& cell) { return split_[cell.writer.epoch]; }
  void drop_split(uint32_t word) {
    if (cells_[word].writer.component == kSplitWord) free_.push_back(cells_[word].writer.epoch);
  }
  void make_split(Cell& cell);

  template <class Report>
  void read_slow(uint32_t word, uint32_t marks, const Access& access, Report&& report) {
    Cell& cell = cells_[word];
    const Stamp writer = cell.writer;
    if (writer.component == kBarrierWord) return report(Conflict::barrier, word, writer);
    if (writer.component == kSplitWord) {
      const Bytes& each = bytes(cell);
      bool bare = false;
      for (uint32_t b = 0; b < 4; ++b) {
        if ((marks >> b & 1) == 0) continue;
        if (each.writer[b].marks() == 0) {
          bare = true;
        } else if (!access.after(each.writer[b]) &&
                   !(access.atomic && (each.writer[b].component & kAtomic) != 0)) {
          report(Conflict::read_after_write, word, each.writer[b]);
          break;
        }
      }
      if (bare) report(Conflict::uninitialised, word, Stamp{});
    } else {
      if ((writer.marks() & marks) != marks) {
        report(Conflict::uninitialised, word, writer);
      } else if (!access.after(writer) && !(access.atomic && (writer.component & kAtomic) != 0)) {
        report(Conflict::read_after_write, word, writer);
      }
    }
    add_reader(cell, marks, access);
  }

  void add_reader(Cell& cell, uint32_t marks, const Access& access) {
    const Stamp mine = access.stamp(marks);
    // In place of an earlier read that this one stands for, or of nobody.
    for (Stamp& reader : cell.readers) {
      const bool covered =
          reader.component == 0 || ((reader.marks() & ~marks) == 0 && access.after(reader) &&
                                    (access.atomic || (reader.component & kAtomic) == 0));
      if (!covered) continue;
      reader = mine;
      if (&reader != cell.readers) std::swap(reader, cell.readers[0]);
      return;
    }
    // Full: rather one of the same warp, which is mostly in the same state.
    uint32_t victim = access.epoch % 3;
    for (uint32_t i = 0; i < 3; ++i) {
      if (plain(cell.readers[i].component) >> 5 == access.component >> 5) victim = i;
    }
    cell.readers[victim] = mine;
    if (victim != 0) std::swap(cell.readers[victim], cell.readers[0]);
  }

  template <class Report>
  void write_slow(uint32_t word, uint32_t marks, const Access& access, Report&& report) {
    Cell& cell = cells_[word];
    if (cell.writer.component == kBarrierWord) return report(Conflict::barrier, word, cell.writer);
    const auto ordered = [&](const Stamp& other) {
      return access.after(other) || (access.atomic && (other.component & kAtomic) != 0);
    };
    for (Stamp& reader : cell.readers) {
      if (reader.component == 0 || (reader.marks() & marks) == 0) continue;
      if (!ordered(reader)) report(Conflict::write_after_read, word, reader);
      const uint32_t left = reader.marks() & ~marks;
      reader.site = static_cast<uint16_t>(reader.site_id() << 4 | left);
      if (left == 0) reader = {};
    }
    if (cell.writer.component == kSplitWord) {
      Bytes& each = bytes(cell);
      for (uint32_t b = 0; b < 4; ++b) {
        if ((marks >> b & 1) == 0) continue;
        if (each.writer[b].component != 0 && !ordered(each.writer[b])) {
          report(Conflict::write_after_write, word, each.writer[b]);
        }
        each.writer[b] = access.stamp(1);
      }
      if (marks != 15) return;
      drop_split(word);
      cell.writer = access.stamp(15);
      return;
    }
    Stamp& writer = cell.writer;
    if (writer.component != 0 && (writer.marks() & marks) != 0 && !ordered(writer)) {
      report(Conflict::write_after_write, word, writer);
    }
    const uint32_t others = writer.marks() & ~marks;
    if (others == 0 || writer.same_agent(access.stamp(0))) {
      writer = access.stamp(writer.same_agent(access.stamp(0)) ? writer.marks() | marks : marks);
      return;
    }
    make_split(cell);
    Bytes& each = bytes(cell);
    for (uint32_t b = 0; b < 4; ++b) {
      if ((marks >> b & 1) != 0) each.writer[b] = access.stamp(1);
    }
  }

  std::vector<Cell> cells_;
  std::vector<Bytes> split_;
  std::vector<uint32_t> free_;
};

inline void Shadow::make_split(Cell& cell) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(split_.size());
    split_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Bytes& each = split_[index];
  for (uint32_t b = 0; b < 4; ++b) {
    each.writer[b] = {};
    if ((cell.writer.marks() >> b & 1) == 0) continue;
    each.writer[b] = cell.writer;
    each.writer[b].site = static_cast<uint16_t>(cell.writer.site_id() << 4 | 1);
  }
  cell.writer = {index, kSplitWord, 15};
}

}  // namespace halftone::sim
