// Orders and scopes of memory accesses, with the enumerators and values of hw::Order, hw::Scope.
#pragma once
#include <cstdint>

namespace halftone::sim {

enum class MemoryScope : uint8_t { cta, cluster, gpu, sys };
enum class Order : uint8_t { weak, volatile_access, relaxed, acquire, release, acq_rel };

}  // namespace halftone::sim
