// The order in which operations run on a device. On the CPU a stream is a team of threads.
#pragma once
#include <memory>

#include "halftone/device.h"

namespace halftone {

class EventState;
class StreamState;
class ThreadPool;

class Stream {
 public:
  // `threads` 0: the processors this process may use (affinity, cgroup quota), or HALFTONE_THREADS.
  // A stream of a CUDA device has no team.
  explicit Stream(Device device = Device::cpu(), int threads = 0);
  // A caller's cudaStream_t, which outlives the Stream and all work on it; null is the device's
  // default stream. Where it was made non-blocking (cudaStreamNonBlocking), the tensors it works on
  // must live until that work has ended.
  static Stream borrow(const Device&, void* cuda_stream);
  const Device& device() const { return device_; }
  // Number of CPU threads.
  int threads() const;
  // Waits for everything submitted; throws what went wrong in it. CPU operations have ended when
  // `run` returns.
  void synchronize();
  // The cudaStream_t of a stream of a CUDA device, else null.
  void* native() const;
  ThreadPool& pool() const { return *pool_; }
  // What the device's backend keeps for the stream; null on the CPU.
  StreamState* state() const { return state_.get(); }

  // The process-wide stream of a device that the one-line functions use; safe from any thread.
  static Stream& default_stream(const Device& device = Device::cpu());

 private:
  Stream(const Device&, std::shared_ptr<StreamState>);
  Device device_;
  std::shared_ptr<ThreadPool> pool_;
  std::shared_ptr<StreamState> state_;
};

// A point in a stream: others wait for it, and two of them measure time.
class Event {
 public:
  explicit Event(const Device& = Device::cpu());
  // Marks what has been submitted to the stream so far. Both are of the same device.
  void record(Stream&);
  // Later work of the stream starts after the point. An event never recorded holds nobody up.
  void wait(Stream&) const;
  void synchronize() const;
  bool done() const;
  // Between two recorded points; waits for this one.
  float milliseconds_since(const Event& begin) const;
  const Device& device() const { return device_; }

 private:
  Device device_;
  std::shared_ptr<EventState> state_;
};

// Processors this process may use: affinity mask, then cgroup quota (rounded up), at least 1.
int available_processors();

}  // namespace halftone
