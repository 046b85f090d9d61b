// The CUDA backend of a build without GPU code: every call says why there is none.
#include "base/backend.h"
#include "base/cuda/load_kernel.h"
#include "base/message.h"

namespace halftone::cuda {

namespace {
constexpr char kReason[] =
    "this build of Halftone has no GPU code: " HALFTONE_GPU_CODE "; or use cpu";
[[noreturn]] void none(int index) {
  fail(ErrorCode::unsupported, "device cuda:", index, " is not available: ", kReason);
}
}  // namespace

Device device(int index) { none(index); }
int device_count(std::string* reason) {
  if (reason != nullptr) *reason = kReason;
  return 0;
}
const DeviceProperties& properties(const Device& device) { none(device.index()); }
DeviceMemory memory(const Device& device) { none(device.index()); }
void* allocate(const Device& device, size_t) { none(device.index()); }
void deallocate(const Device&, void*, size_t) noexcept {}
void fill(const Device& device, void*, int, size_t, Stream*) { none(device.index()); }
void copy(const Device& to, void*, const Device&, const void*, size_t, Stream*) {
  none(to.index());
}
void* allocate_pinned(size_t) { none(0); }
void deallocate_pinned(void*) noexcept {}
std::shared_ptr<StreamState> make_stream(const Device& device) { none(device.index()); }
std::shared_ptr<StreamState> borrow_stream(const Device& device, void*) { none(device.index()); }
std::unique_ptr<EventState> make_event(const Device& device) { none(device.index()); }
void* driver_function(const char*) { none(0); }
std::unique_ptr<GraphState> capture(Stream&, const std::function<void(Stream&)>&) { none(0); }
void load(const KernelImage&, const Device& device) { none(device.index()); }
bool captures() { return false; }
void run_branches(Stream&, std::initializer_list<FunctionRef<void(Stream&)>>) { none(0); }
void launch(const KernelImage&, const LaunchShape&, const void*, Stream&) { none(0); }

}  // namespace halftone::cuda
