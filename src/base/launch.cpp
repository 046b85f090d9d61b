#include "base/launch.h"

#include "base/backend.h"
#include "base/cuda/load_kernel.h"
#include "base/message.h"

namespace halftone {

namespace {

struct Text {
  Dim3 dim;
  friend std::ostream& operator<<(std::ostream& out, const Text& t) {
    return out << t.dim.x << "x" << t.dim.y << "x" << t.dim.z;
  }
};

// Parameters a kernel may have: what the driver passes in constant memory.
constexpr size_t kMaxParams = 32764;

void check(const KernelImage& kernel, const LaunchShape& shape, const Device& device) {
  const DeviceProperties& limits = properties(device);
  const auto rule = [&](bool holds, const auto&... parts) {
    if (!holds) {
      fail(ErrorCode::invalid_argument, "kernel ", kernel.name, " on ", device.name(), ": ",
           parts...);
    }
  };
  if (device.arch() < kernel.arch) {
    fail(ErrorCode::unsupported, "kernel ", kernel.name, " needs ", name(kernel.arch), "; ",
         device.name(), " is ", name(device.arch()));
  }
  rule(shape.grid.count() > 0 && shape.grid.x <= 0x7fffffff && shape.grid.y <= 65535 &&
           shape.grid.z <= 65535,
       "grid ", Text{shape.grid}, " must be 1 to 2147483647 x 65535 x 65535");
  rule(shape.block.count() > 0 && shape.block.count() <= kernel.threads, "block ",
       Text{shape.block}, " must have 1 to ", kernel.threads, " threads, its launch bound");
  rule(kernel.threads <= static_cast<uint32_t>(limits.threads_per_block), "its launch bound of ",
       kernel.threads, " threads is above the device's ", limits.threads_per_block);
  rule(shape.cluster.count() > 0, "cluster ", Text{shape.cluster}, " is empty");
  rule(shape.grid.x % shape.cluster.x == 0 && shape.grid.y % shape.cluster.y == 0 &&
           shape.grid.z % shape.cluster.z == 0,
       "cluster ", Text{shape.cluster}, " does not divide grid ", Text{shape.grid});
  rule(shape.cluster.count() <= static_cast<uint64_t>(limits.cluster_size), "cluster ",
       Text{shape.cluster}, " has more than the device's ", limits.cluster_size, " blocks");
  rule(shape.shared_bytes <= static_cast<uint32_t>(limits.shared_per_block), shape.shared_bytes,
       " bytes of shared memory are above the device's ", limits.shared_per_block);
  rule(kernel.params_bytes <= kMaxParams, "its parameters take ", kernel.params_bytes,
       " bytes; at most ", kMaxParams, " are passed");
}

}  // namespace

void load(const KernelImage& kernel, const Device& device) {
  if (device.kind() == Device::Kind::cuda) cuda::load(kernel, device);
}

void launch(const KernelImage& kernel, const LaunchShape& shape, const void* params,
            Stream& stream) {
  const Device& device = stream.device();
  switch (device.kind()) {
    case Device::Kind::cpu:
      fail(ErrorCode::unsupported, "kernel ", kernel.name,
           " is a GPU kernel; the stream is on cpu, not on cuda:N or sim:ARCH");
    case Device::Kind::cuda:
      check(kernel, shape, device);
      return cuda::launch(kernel, shape, params, stream);
    case Device::Kind::simulator:
      check(kernel, shape, device);
      return simulator::launch(kernel, shape, params, stream);
  }
}

}  // namespace halftone
