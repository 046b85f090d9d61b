// What a kernel finds wrong in data that the host cannot see, such as an index out of range: the
// first thread to find something records it, and the next Stream::synchronize of any stream of the
// device throws it. The kernel itself goes on as its documentation says.
#pragma once
#include <cstdint>

#include "halftone/device.h"

namespace halftone {

enum class Fault : uint32_t {
  none,
  embedding_id,     // ids[index] is value; the table has limit rows
  rope_position,    // positions[index] is value; the largest is limit
  quantize_scale,   // that of block index overflows its format
  histogram_value,  // x[index] has the bits `value` as f32; limit is the bins, 0 with edges
  histogram_edge,   // edges[index] is above the next
  nms_score,        // scores[index] is NaN
  nms_box,          // boxes[index] is not finite or not ordered
  logits,           // of sequence value: the one at index is not finite, or none is
  moe_expert,       // slot index of the routing is value; there are limit experts
  moe_token,        // token_ids[index] is value; expert_table has limit rows
  moe_table,        // row index of expert_table has value; there are limit experts
  group_count,      // counts[index] is value; there is room for limit rows
};
struct FaultRecord {
  Fault fault = Fault::none;
  uint32_t padding = 0;
  int64_t index = 0, value = 0, limit = 0;
};
// A kernel's parameter; pipe/fault.h reports to it.
struct FaultReporter {
  uint32_t* claim = nullptr;      // on the device; 0: nobody has reported
  FaultRecord* record = nullptr;  // which the host reads
};

// Of a GPU, real or simulated. Made with the device's first stream, so never during a capture.
FaultReporter fault_reporter(const Device&);
// Throws what kernels that have ended reported, and forgets it.
void throw_fault(const Device&);

}  // namespace halftone
