#include "engine/model/upload.h"

#include <algorithm>
#include <cstring>

#include "base/device_memory.h"
#include "base/thread_pool.h"

namespace halftone {

namespace {
// Four of 8 MiB: a copy of one takes some 150 us at the speed of PCIe 5, far above what starting it
// costs, and there are always some to fill.
constexpr size_t kPieces = 4;
constexpr int64_t kPieceBytes = int64_t{8} << 20;
// What a thread reads at a time.
constexpr int64_t kGrain = int64_t{256} << 10;
}  // namespace

Tensor Upload::operator()(const Tensor& from) {
  const Device& device = device_.device();
  if (!from.defined() || from.device() == device) return from;
  if (device.kind() != Device::Kind::cuda) return from.to(device);
  const Tensor source = from.contiguous() ? from : from.contiguous_copy();
  const Tensor result = Tensor::empty(from.shape(), from.format(), device);
  move(source.data<char>(), result.data<char>(), packed_bytes(from.format(), from.numel()));
  if (!from.has_scales()) return result;
  return result.quantized(from.scaling(), (*this)(from.scales()), (*this)(from.tensor_scale()),
                          (*this)(from.zero_points()));
}

void Upload::move(const char* from, char* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes; done += kPieceBytes) {
    if (pieces_.size() < kPieces) {
      pieces_.push_back({Tensor::empty_pinned({kPieceBytes}, Format::u8), Event(device_.device())});
    }
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % kPieces;
    piece.copied.synchronize();
    const int64_t count = std::min(kPieceBytes, bytes - done);
    char* staged = piece.memory.data<char>();
    host_.pool().parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(staged + begin, from + done + begin, static_cast<size_t>(end - begin));
    });
    copy_memory(device_.device(), to + done, Device::cpu(), staged, static_cast<size_t>(count),
                &device_);
    piece.copied.record(device_);
  }
}

}  // namespace halftone
