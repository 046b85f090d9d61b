// Streams, events and graphs of CUDA devices.
#include "base/cuda/stream.h"

namespace halftone::cuda {

namespace {

class CudaEvent : public EventState {
 public:
  explicit CudaEvent(const Device& device) : device_(device) {
    const OnDevice scope(device);
    check(cudaEventCreate(&event_), "making an event of ", device.name());
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  void record(Stream& stream) override {
    const OnDevice scope(device_);
    check(cudaEventRecord(event_, native(stream)), "recording an event on ", device_.name());
    recorded_ = true;
  }
  void wait(Stream& stream) override {
    const OnDevice scope(stream.device());
    check(cudaStreamWaitEvent(native(stream), event_, cudaEventWaitDefault), "making a stream of ",
          stream.device().name(), " wait for an event");
  }
  void synchronize() override {
    check(cudaEventSynchronize(event_), "waiting for an event of ", device_.name());
  }
  bool done() override {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(state, "asking for an event of ", device_.name());
    return true;
  }
  float milliseconds_since(EventState& begin) override {
    auto& other = static_cast<CudaEvent&>(begin);
    require(recorded_ && other.recorded_,
            "an event that was never recorded was asked for its time");
    other.synchronize();
    synchronize();
    float time = 0;
    check(cudaEventElapsedTime(&time, other.event_, event_), "measuring between events of ",
          device_.name());
    return time;
  }

 private:
  Device device_;
  cudaEvent_t event_ = nullptr;
  bool recorded_ = false;
};

class CudaGraph : public GraphState {
 public:
  // Takes the graph over.
  CudaGraph(const Device& device, cudaGraph_t graph) : device_(device), graph_(graph) {
    size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count), "counting the nodes of a graph");
    nodes_ = static_cast<int>(count);
    check(cudaGraphInstantiate(&ready_, graph_, 0), "making a graph of ", count, " nodes ready on ",
          device.name());
  }
  ~CudaGraph() override {
    if (ready_ != nullptr) cudaGraphExecDestroy(ready_);
    cudaGraphDestroy(graph_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void replay(Stream& stream) override {
    const OnDevice scope(device_);
    check(cudaGraphLaunch(ready_, native(stream)), "replaying a graph of ", nodes_, " nodes on ",
          device_.name());
    static_cast<CudaStream*>(stream.state())->last_kernel = "a replayed graph";
  }
  int nodes() const override { return nodes_; }

 private:
  Device device_;
  cudaGraph_t graph_;
  cudaGraphExec_t ready_ = nullptr;
  int nodes_ = 0;
};

// The streams of a capture: the first is its own, the others are of branches. Apart from the
// default stream: allocations and releases of other threads may go on beside the capture.
class CaptureStreams {
 public:
  explicit CaptureStreams(const Device& device) {
    for (cudaStream_t& stream : streams_) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "making a stream to capture a graph of ", device.name());
    }
  }
  ~CaptureStreams() {
    for (const cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }
  CaptureStreams(const CaptureStreams&) = delete;
  CaptureStreams& operator=(const CaptureStreams&) = delete;
  cudaStream_t operator[](size_t i) const { return streams_[i % kStreams]; }

  static constexpr size_t kStreams = 3;  // q, k and v

 private:
  cudaStream_t streams_[kStreams] = {};
};
thread_local const CaptureStreams* capture_streams = nullptr;

// A point of a capture that other branches wait for.
class Joint {
 public:
  explicit Joint(cudaStream_t stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event of a graph");
    check(cudaEventRecord(event_, stream), "recording an event of a graph");
  }
  ~Joint() { cudaEventDestroy(event_); }
  Joint(const Joint&) = delete;
  Joint& operator=(const Joint&) = delete;
  void wait(cudaStream_t stream) const {
    check(cudaStreamWaitEvent(stream, event_, cudaEventWaitDefault), "joining branches of a graph");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

bool captures() { return capturing; }

void run_branches(Stream& stream, std::initializer_list<FunctionRef<void(Stream&)>> parts) {
  const OnDevice scope(stream.device());
  const CaptureStreams& streams = *capture_streams;
  const cudaStream_t trunk = native(stream);
  const Joint fork(trunk);
  size_t i = 0;
  for (const auto& part : parts) {
    const cudaStream_t branch = streams[i++];
    if (branch == trunk) {
      part(stream);
      continue;
    }
    fork.wait(branch);
    Stream inner = Stream::borrow(stream.device(), branch);
    part(inner);
  }
  for (size_t b = 0; b < CaptureStreams::kStreams && b < parts.size(); ++b) {
    if (streams[b] != trunk) Joint(streams[b]).wait(trunk);
  }
}

void CudaStream::synchronize() {
  const OnDevice scope(device_);
  const cudaError_t error = cudaStreamSynchronize(stream_);
  if (error == cudaSuccess) return;
  const char* kernel = last_kernel;
  check(error, "work on ", device_.name(), " failed, found when waiting for its stream",
        kernel != nullptr ? concat("; started last there: ", kernel) : std::string());
}

std::shared_ptr<StreamState> make_stream(const Device& device) {
  const OnDevice scope(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreate(&stream), "making a stream of ", device.name());
  return std::make_shared<CudaStream>(device, stream, true);
}

std::shared_ptr<StreamState> borrow_stream(const Device& device, void* native) {
  auto stream = static_cast<cudaStream_t>(native);
  return std::make_shared<CudaStream>(device, stream != nullptr ? stream : cudaStreamLegacy, false);
}

std::unique_ptr<EventState> make_event(const Device& device) {
  return std::make_unique<CudaEvent>(device);
}

std::unique_ptr<GraphState> capture(Stream& outer, const std::function<void(Stream&)>& body) {
  const Device& device = outer.device();
  require(!capturing, "a graph was to be captured during the capture of another on this thread");
  const OnDevice scope(device);
  const CaptureStreams streams(device);
  const cudaStream_t native_stream = streams[0];
  struct Closer {
    ~Closer() { capturing = false, capture_streams = nullptr; }
  } closer;
  Stream inner = Stream::borrow(device, native_stream);
  check(cudaStreamBeginCapture(native_stream, cudaStreamCaptureModeThreadLocal),
        "beginning the capture of a graph of ", device.name());
  capturing = true, capture_streams = &streams;
  cudaGraph_t graph = nullptr;
  try {
    body(inner);
  } catch (...) {
    if (cudaStreamEndCapture(native_stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(native_stream, &graph), "capturing a graph of ", device.name(),
        " (it may hold only launches, copies and events)");
  return std::make_unique<CudaGraph>(device, graph);
}

}  // namespace halftone::cuda
