// Distributes CPU attention tiles over threads: whole units, or ranges of chunks of a unit
// (split-KV) whose partials are combined afterwards, the same sums in the same order.
#pragma once
#include "base/function_ref.h"
#include "halftone/stream.h"
#include "ops/attention/cpu/kernel.h"

namespace halftone {

// Memory of the calling thread that outlives the call: after the first run of a size nothing is
// allocated, and a plan can be run by several threads at once. `which` is one of a few buffers.
enum class AttentionMemory { scratch, partial, rows, lists };
uint8_t* attention_memory(AttentionMemory which, int64_t bytes);

struct AttentionWork {
  int64_t units = 0;
  int64_t chunks = 0, rows = 0;  // of a unit, at most; rows of all its heads
  int64_t value_dim = 0;
  int64_t scratch_bytes = 0;
  // Fills in the tile of a unit; false when it has no rows.
  FunctionRef<bool(int64_t unit, AttentionTile*)> prepare;
  // Makes the keys of the tile's chunks readable, on the thread that runs it.
  FunctionRef<void(int64_t unit, AttentionTile*)> load;
};
void run_attention(const AttentionCpu&, const AttentionWork&, Stream&);

}  // namespace halftone
