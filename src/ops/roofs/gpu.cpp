#include "ops/roofs/gpu.cuh"
#include "base/message.h"
#include "hw/image.h"
#include "ops/roofs/roofs.h"

namespace halftone {

namespace {

void move(const Tensor& from, hw::Words4* to, Stream& stream) {
  require(from.contiguous() && from.bytes() > 0 && from.bytes() % 16 == 0, "from is ",
          to_string(from), "; memory is moved by 16 bytes, from contiguous tensors");
  const MemoryRoofParams p{from.data<hw::Words4>(), to, static_cast<uint64_t>(from.bytes()) / 16};
  launch(hw::image_of<MemoryRoof>("memory_roof"), MemoryRoof::shape(p), p, stream);
}

}  // namespace

void read_memory(const Tensor& from, Stream& stream) { move(from, nullptr, stream); }

void copy_memory(const Tensor& from, const Tensor& to, Stream& stream) {
  require(to.contiguous() && to.bytes() == from.bytes(), "to is ", to_string(to),
          "; it must be contiguous and have the bytes of from, ", from.bytes());
  move(from, to.data<hw::Words4>(), stream);
}

}  // namespace halftone
