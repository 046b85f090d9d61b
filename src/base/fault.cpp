#include "base/fault.h"

#include <map>
#include <mutex>
#include <string>

#include "base/backend.h"
#include "base/message.h"

namespace halftone {

namespace {

FaultReporter make_reporter(const Device& device) {
  FaultReporter made;
  void* claim = nullptr;
  if (device.kind() == Device::Kind::cuda) {
    // Page-locked memory, which the GPU writes: waiting for a stream needs no copy to look at it.
    made.record = new (cuda::allocate_pinned(sizeof(FaultRecord))) FaultRecord;
    claim = cuda::allocate(device, sizeof(uint32_t));
    cuda::fill(device, claim, 0, sizeof(uint32_t), nullptr);
  } else {
    made.record = static_cast<FaultRecord*>(simulator::allocate(device, sizeof(FaultRecord)));
    simulator::fill(device, made.record, 0, sizeof(FaultRecord), nullptr);
    claim = simulator::allocate(device, sizeof(uint32_t));
    simulator::fill(device, claim, 0, sizeof(uint32_t), nullptr);
  }
  made.claim = static_cast<uint32_t*>(claim);
  return made;
}

std::string sentence(const FaultRecord& r) {
  switch (r.fault) {
    case Fault::embedding_id:
      return concat("embedding: ids[", r.index, "] is ", r.value, ", outside the table of ",
                    r.limit, " rows");
    case Fault::rope_position:
      return concat("rope: positions[", r.index, "] is ", r.value, "; it must be 0 to 2^31");
    case Fault::quantize_scale:
      return concat("quantize: the scale of block ", r.index,
                    " is above 65504, the largest f16; choose a scaling with f32 scales");
    case Fault::histogram_value: {
      const auto value = __builtin_bit_cast(float, static_cast<int32_t>(r.value));
      return concat("histogram: x[", r.index, "] is ", value,
                    r.limit == 0
                        ? std::string("; it has no place between edges")
                        : concat("; without edges values must be from 0 to below bins, ", r.limit));
    }
    case Fault::histogram_edge:
      return concat("histogram: edges[", r.index, "] is above edges[", r.index + 1,
                    "]; they must ascend");
    case Fault::nms_score:
      return concat("nms: scores[", r.index, "] is nan; it must be a number");
    case Fault::nms_box:
      return concat("nms: boxes[", r.index, "] must be finite with x1 <= x2 and y1 <= y2");
    case Fault::logits:
      return concat("sampling: the logits of sequence ", r.value,
                    " have no finite largest one; at ", r.index,
                    " stands nan, an infinity, or -inf as everywhere");
    case Fault::moe_expert:
      return concat("moe: routing.experts has ", r.value, " in slot ", r.index, "; there are ",
                    r.limit, " experts");
    case Fault::moe_token:
      return concat("route: token_ids[", r.index, "] is ", r.value, "; expert_table has ", r.limit,
                    " rows");
    case Fault::moe_table:
      return concat("route: row ", r.index, " of expert_table has ", r.value, "; there are ",
                    r.limit, " experts");
    case Fault::group_count:
      return concat("grouped_matmul: counts[", r.index, "] is ", r.value, "; there is room for ",
                    r.limit, " rows, of contiguous groups for those of all");
    case Fault::none:
      break;
  }
  return "a kernel reported a fault";
}

std::mutex mutex;

}  // namespace

FaultReporter fault_reporter(const Device& device) {
  // Lives as long as the process: a kernel may report when everything else is gone.
  static auto* reporters = new std::map<std::string, FaultReporter>;
  const std::lock_guard lock(mutex);
  const auto [place, made] = reporters->try_emplace(device.name());
  if (made) {
    try {
      place->second = make_reporter(device);
    } catch (...) {
      reporters->erase(place);
      throw;
    }
  }
  return place->second;
}

void throw_fault(const Device& device) {
  const FaultReporter reporter = fault_reporter(device);
  const std::lock_guard lock(mutex);
  // The GPU writes it behind the compiler's back.
  if (*const_cast<const volatile Fault*>(&reporter.record->fault) == Fault::none) return;
  const FaultRecord found = *reporter.record;
  if (device.kind() == Device::Kind::cuda) {
    *reporter.record = {};
    cuda::fill(device, reporter.claim, 0, sizeof(uint32_t), nullptr);
  } else {
    simulator::fill(device, reporter.record, 0, sizeof(FaultRecord), nullptr);
    simulator::fill(device, reporter.claim, 0, sizeof(uint32_t), nullptr);
  }
  fail(ErrorCode::invalid_argument, sentence(found), "; a kernel found it on ", device.name());
}

}  // namespace halftone
