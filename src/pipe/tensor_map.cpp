#include "pipe/tensor_map.h"

#include <cstring>

#include "halftone/error.h"
#include "pipe/tensor_map_backend.h"
#include "sim/memory/tensor_map.h"

namespace halftone::pipe {

namespace {

sim::TensorMapSwizzle simulated(tile::Swizzle s) {
  switch (s) {
    case tile::Swizzle::b32:
      return sim::TensorMapSwizzle::b32;
    case tile::Swizzle::b64:
      return sim::TensorMapSwizzle::b64;
    case tile::Swizzle::b128:
      return sim::TensorMapSwizzle::b128;
    case tile::Swizzle::none:
      return sim::TensorMapSwizzle::none;
    default:
      throw Error(ErrorCode::unsupported, std::string("tensor map: the simulator has no swizzle ") +
                                              tile::name(s) + "; it has none, 32, 64 and 128");
  }
}

hw::TensorMap make_simulated(const TensorBox& b) {
  const uint32_t steps[5] = {1, 1, 1, 1, 1};
  const sim::TensorMap map =
      sim::make_tensor_map(element_type(b.type), b.rank, b.address, b.extent.data(),
                           b.stride.data(), b.box.data(), steps, simulated(b.swizzle),
                           b.fill_with_nan ? sim::TensorMapFill::nan : sim::TensorMapFill::zero);
  hw::TensorMap opaque{};
  static_assert(sizeof(map) <= sizeof(opaque));
  std::memcpy(&opaque, &map, sizeof(map));
  return opaque;
}

}  // namespace

hw::TensorMap make_tensor_map(const TensorBox& b, const Device& device) {
  validate(b);
  if (device.kind() == Device::Kind::simulator) return make_simulated(b);
  if (device.kind() == Device::Kind::cuda) return make_cuda_tensor_map(b);
  throw Error(ErrorCode::unsupported, "tensor map: device " + device.name() +
                                          " has no tensor copies; GPUs from sm_90 have");
}

hw::TensorMap TensorMapCache::get(const TensorBox& box, const Device& device) {
  const std::lock_guard lock(mutex_);
  const uint64_t used = made_ < kEntries ? made_ : kEntries;
  for (uint64_t i = 0; i < used; ++i) {
    if (entries_[i].box == box && entries_[i].device == device) return entries_[i].map;
  }
  const hw::TensorMap map = make_tensor_map(box, device);
  entries_[made_++ % kEntries] = {box, device, map};
  return map;
}

}  // namespace halftone::pipe
