// Tensor maps (cuTensorMapEncodeTiled) and the copies that go through them.
#pragma once
#include <cstdint>

#include "sim/execution/thread.h"
#include "sim/memory/async.h"

namespace halftone::sim {

enum class TensorMapType : uint8_t {
  // The order of CUtensorMapDataType.
  u8,
  u16,
  u32,
  s32,
  u64,
  s64,
  f16,
  f32,
  f64,
  bf16,
  f32_ftz,
  tf32,
  tf32_ftz,
  u4_align8,   // 16 values in 8 bytes, copied packed
  u4_align16,  // 16 values in 8 bytes go to 16 bytes of shared memory
  u6_align16,  // 16 values in 12 bytes; go to 16 bytes
};
enum class TensorMapSwizzle : uint8_t { none, b32, b64, b128 };
enum class TensorMapFill : uint8_t { zero, nan };  // what elements outside the tensor read as

// What the 128-byte object says, in the clear; copied into the opaque object that kernels get.
// Dimension 0 is the fastest.
struct TensorMap {
  static constexpr uint32_t kValid = 0x544d4150;
  uint32_t valid = 0;  // kValid once `make_tensor_map` has made it
  TensorMapType type = TensorMapType::u8;
  TensorMapSwizzle swizzle = TensorMapSwizzle::none;
  TensorMapFill fill = TensorMapFill::zero;
  uint8_t rank = 0;
  void* address = nullptr;
  uint64_t extent[5] = {};  // elements
  uint64_t stride[4] = {};  // bytes, of dimensions 1..4
  uint16_t box[5] = {};     // elements
  uint8_t step[5] = {};     // elementStrides

  uint32_t element_bits() const;
  // Bytes of the full box, what a load signals on its mbarrier.
  uint32_t box_bytes() const;
  // Bytes of shared memory the box takes: more than box_bytes where rows are padded to the swizzle.
  uint32_t shared_bytes() const;
  // What a load writes for `n` bytes of elements that lie outside the tensor.
  void fill_outside(uint8_t* bytes, size_t n) const;
};
static_assert(sizeof(TensorMap) <= 128);

// With the arguments of cuTensorMapEncodeTiled (interleave none): `strides` has rank - 1 entries.
// Error names the argument, its value and the rule.
TensorMap make_tensor_map(TensorMapType, uint32_t rank, void* address, const uint64_t* extents,
                          const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                          TensorMapSwizzle, TensorMapFill);

enum class TensorReduction : uint8_t { none, add, min, max, inc, dec, bit_and, bit_or, bit_xor };

// cp.async.bulk.tensor global -> shared, by one thread. `blocks` 0: `destination` as it is,
// `barrier` signalled; else (multicast) the same offsets in every block whose rank's bit is set.
void tensor_load(Thread&, const TensorMap*, const int32_t* coordinates, uint32_t destination,
                 uint32_t barrier, uint32_t blocks, const Site&);
// shared -> global, and cp.reduce.async.bulk.tensor; part of the thread's next bulk group.
void tensor_store(Thread&, const TensorMap*, const int32_t* coordinates, uint32_t source,
                  TensorReduction, const Site&);
// cp.async.bulk.prefetch.tensor: checks the map and coordinates, nothing else.
void tensor_prefetch(Thread&, const TensorMap*, const int32_t* coordinates, const Site&);

// Bulk copies without a map, 16-byte multiples: global -> shared (multicast as above), shared ->
// shared of another block, shared -> global (bulk group).
void bulk_load(Thread&, uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier,
               uint32_t blocks, const Site&);
void bulk_send(Thread&, uint32_t destination, uint32_t source, uint32_t bytes, uint32_t barrier,
               const Site&);
void bulk_store(Thread&, void* destination, uint32_t source, uint32_t bytes, const Site&);
// cp.reduce.async.bulk to global or to shared memory of another block (with a barrier).
void bulk_reduce(Thread&, void* destination, uint32_t source, uint32_t bytes, TensorMapType,
                 TensorReduction, const Site&);
// cp.async of 4, 8 or 16 bytes, of which `from_source` are copied and the others are zero.
void cp_async(Thread&, uint32_t destination, const void* source, uint32_t bytes,
              uint32_t from_source, const Site&);
// st.async of 4, 8 or 16 bytes to another block, with its bytes on an mbarrier of that block.
void store_async(Thread&, uint32_t destination, const void* value, uint32_t bytes, uint32_t barrier,
                 const Site&);

}  // namespace halftone::sim
