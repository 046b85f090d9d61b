// How a kernel reports what it finds wrong in its data (base/fault.h).
#pragma once
#include "base/fault.h"
#include "hw/atomic.h"
#include "hw/memory.h"

namespace halftone::pipe {

// The first report counts.
HT_DEVICE void report_fault(const FaultReporter& to, Fault fault, int64_t index, int64_t value,
                            int64_t limit, hw::Site site = hw::Site::current()) {
  if (hw::atomic_cas_global(to.claim, 0u, 1u, site) != 0) return;
  hw::store_global(&to.record->index, index, site);
  hw::store_global(&to.record->value, value, site);
  hw::store_global(&to.record->limit, limit, site);
  hw::store_global(&to.record->fault, fault, site);
}

// Element i of i32 or i64 indices.
HT_DEVICE int64_t load_index(const void* indices, bool wide, int64_t i,
                             hw::Site site = hw::Site::current()) {
  if (wide) return hw::load_global(static_cast<const int64_t*>(indices) + i, site);
  return hw::load_global(static_cast<const int32_t*>(indices) + i, site);
}

}  // namespace halftone::pipe
