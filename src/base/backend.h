// What each kind of device does beneath tensors, streams and launches: one set of functions per
// kind. cuda: cuda_*.cpp, or no_cuda.cpp where the toolkit is missing. simulator: simulator_*.cpp.
// Everybody else uses device_memory.h, launch.h and the public headers.
#pragma once
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/function_ref.h"
#include "halftone/memory.h"

namespace halftone {

class Stream;
struct KernelImage;
struct LaunchShape;

// Makes the devices that Device::cuda and Device::simulator return.
struct DeviceAccess {
  static Device make(Device::Kind kind, int index, Arch arch) {
    Device device;
    device.kind_ = kind, device.index_ = index, device.arch_ = arch;
    return device;
  }
};

// The part of a Stream that belongs to its kind of device; the CPU has none.
class StreamState {
 public:
  virtual ~StreamState() = default;
  // Waits for everything submitted; throws what went wrong in it.
  virtual void synchronize() {}
  // The driver's handle (cudaStream_t), or null.
  virtual void* native() const { return nullptr; }
};

// A point in a stream; see Event.
class EventState {
 public:
  virtual ~EventState() = default;
  virtual void record(Stream&) = 0;
  virtual void wait(Stream&) = 0;  // the stream waits
  virtual void synchronize() = 0;
  virtual bool done() = 0;
  virtual float milliseconds_since(EventState& begin) = 0;  // of the same kind
};

// A captured sequence of launches and copies; see Graph.
class GraphState {
 public:
  virtual ~GraphState() = default;
  virtual void replay(Stream&) = 0;
  virtual int nodes() const = 0;
};

namespace cuda {
// Error::unsupported, saying what to do, when there is no such device or no driver.
Device device(int index);
int device_count(std::string* reason);
const DeviceProperties& properties(const Device&);
DeviceMemory memory(const Device&);

// 256-byte aligned, uninitialised; in the order of the device's default stream, which every stream
// made here keeps to. `stream` null: the call returns when the bytes are there.
void* allocate(const Device&, size_t bytes);
void deallocate(const Device&, void*, size_t bytes) noexcept;
void fill(const Device&, void* to, int byte, size_t bytes, Stream* stream);
// At least one of the two is a CUDA device; the other may be any.
void copy(const Device& to_device, void* to, const Device& from_device, const void* from,
          size_t bytes, Stream* stream);
// Page-locked host memory, which copies to and from a GPU need to run beside the host.
void* allocate_pinned(size_t bytes);
void deallocate_pinned(void*) noexcept;

std::shared_ptr<StreamState> make_stream(const Device&);
std::shared_ptr<StreamState> borrow_stream(const Device&, void* native);
std::unique_ptr<EventState> make_event(const Device&);
// A function of the driver's API by its name ("cuTensorMapEncodeTiled"), as toolkit 12.0 declares
// it: libcuda is never linked. Error::unsupported where the driver has none.
void* driver_function(const char* name);
std::unique_ptr<GraphState> capture(Stream&, const std::function<void(Stream&)>& body);
// Whether this thread captures a graph; if so, the parts become branches of it.
bool captures();
void run_branches(Stream&, std::initializer_list<FunctionRef<void(Stream&)>> parts);
void launch(const KernelImage&, const LaunchShape&, const void* params, Stream&);
}  // namespace cuda

namespace simulator {
Device device(Arch);
const DeviceProperties& properties(const Device&);
void* allocate(const Device&, size_t bytes);
void deallocate(const Device&, void*, size_t bytes) noexcept;
// The simulated devices' memory is host memory; these tell the memory model what was written.
void fill(const Device&, void* to, int byte, size_t bytes, Stream* stream);
// At least one of the two is a simulated device, none is CUDA's.
void copy(const Device& to_device, void* to, const Device& from_device, const void* from,
          size_t bytes, Stream* stream);
std::shared_ptr<StreamState> make_stream(const Device&);
void launch(const KernelImage&, const LaunchShape&, const void* params, Stream&);
}  // namespace simulator

}  // namespace halftone
