// Streams, events and graphs of CUDA devices.
#include "base/cuda_stream.h"

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

}  // namespace

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
  // A stream of its own, apart from the default stream: allocations and releases of other threads
  // may go on beside the capture.
  cudaStream_t native_stream = nullptr;
  check(cudaStreamCreateWithFlags(&native_stream, cudaStreamNonBlocking),
        "making a stream to capture a graph of ", device.name());
  struct Closer {
    cudaStream_t stream;
    ~Closer() {
      capturing = false;
      cudaStreamDestroy(stream);
    }
  } closer{native_stream};
  Stream inner = Stream::borrow(device, native_stream);
  check(cudaStreamBeginCapture(native_stream, cudaStreamCaptureModeThreadLocal),
        "beginning the capture of a graph of ", device.name());
  capturing = true;
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
