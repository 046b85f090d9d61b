// CPU attention driver: distributes tiles over threads and combines split-KV partials.
#include "ops/attention/cpu/run_tiles.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/message.h"
#include "base/thread_pool.h"

namespace halftone {

namespace {

// Beyond this much memory for the partials of chunks, units are not split: long caches with many
// rows a unit have work enough for a thread each.
constexpr int64_t kMostPartialBytes = int64_t{64} << 20;

class ThreadMemory {
 public:
  uint8_t* get(int64_t bytes) {
    if (bytes > size_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<uint8_t*>(
          std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
      if (data_ == nullptr) {
        fail(ErrorCode::out_of_memory, "attention needs ", bytes,
             " bytes of scratch a thread, which the system refused");
      }
      size_ = bytes;
    }
    return data_.get();
  }

 private:
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  std::unique_ptr<uint8_t[], Free> data_;
  int64_t size_ = 0;
};
thread_local ThreadMemory memory[4];

// Estimated time of one thread: about 100 multiply-adds of an element of K or V with one of a row a
// nanosecond, in decode (a row of 256 elements and four heads in 10 ns) as in prefill.
int64_t nanoseconds_of(const AttentionTile& t) {
  const int64_t chunk = attention_chunk(std::max(t.head_dim, t.value_dim));
  const int64_t keys = std::min(t.keys, (t.end_chunk - t.first_chunk) * chunk);
  return keys * (t.head_dim + t.value_dim) * t.kv_heads * t.queries * t.group / 100;
}

}  // namespace

uint8_t* attention_memory(AttentionMemory which, int64_t bytes) {
  return memory[static_cast<int>(which)].get(bytes);
}

void run_attention(const AttentionCpu& cpu, const AttentionWork& work, Stream& stream) {
  const auto prepare = [&](int64_t unit, AttentionTile* tile) {
    tile->scratch = attention_memory(AttentionMemory::scratch, work.scratch_bytes);
    return work.prepare(unit, tile);
  };
  // The total of the first units, the longest: the cache may be far larger than its sequences.
  const int64_t units = work.units, chunks = work.chunks, threads = stream.threads();
  int64_t nanoseconds = 0, most = 0;
  for (int64_t unit = 0; threads > 1 && unit < std::min(units, 4 * threads); ++unit) {
    AttentionTile tile;
    if (!prepare(unit, &tile)) continue;
    nanoseconds += nanoseconds_of(tile);
    most = std::max(most, tile.end_chunk - tile.first_chunk);
  }
  // Split-KV: with fewer units than would keep the threads busy, ranges of chunks of a unit go to
  // several threads.
  const int64_t floats = cpu.partial_floats(work.value_dim, work.rows);
  const int64_t partial_bytes = units * chunks * floats * static_cast<int64_t>(sizeof(float));
  const bool whole = units == 0 || nanoseconds < kTeamNanoseconds || units >= 4 * threads ||
                     partial_bytes > kMostPartialBytes;
  const int64_t pieces = whole ? 1 : std::min(most, (4 * threads + units - 1) / units);
  if (pieces <= 1) {
    stream.pool().parallel_for(units, 1, nanoseconds, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        AttentionTile tile;
        if (!prepare(unit, &tile)) continue;
        work.load(unit, &tile);
        cpu.run(tile);
      }
    });
    return;
  }

  auto* partial =
      reinterpret_cast<float*>(attention_memory(AttentionMemory::partial, partial_bytes));
  const auto place = [&](int64_t unit, int64_t c, AttentionTile* tile) {
    tile->partial = partial + (unit * chunks + c) * floats;
    tile->partial_stride = floats;
  };
  stream.pool().parallel_for(units * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      AttentionTile tile;
      const int64_t unit = i / pieces, piece = i % pieces;
      if (!prepare(unit, &tile)) continue;
      const int64_t first = tile.first_chunk, count = tile.end_chunk - first;
      tile.first_chunk = first + count * piece / pieces;
      tile.end_chunk = first + count * (piece + 1) / pieces;
      place(unit, tile.first_chunk, &tile);
      if (tile.first_chunk >= tile.end_chunk) continue;
      work.load(unit, &tile);
      cpu.run(tile);
    }
  });
  stream.pool().parallel_for(units, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      AttentionTile tile;
      if (!prepare(unit, &tile)) continue;
      place(unit, tile.first_chunk, &tile);
      cpu.combine(tile);
    }
  });
}

}  // namespace halftone
