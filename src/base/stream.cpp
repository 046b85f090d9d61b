#include "halftone/stream.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/backend.h"
#include "base/branches.h"
#include "base/fault.h"
#include "base/message.h"
#include "base/thread_pool.h"
#include "halftone/graph.h"

namespace halftone {

namespace {

// Processors that a cgroup quota allows, or 0 when there is none. Reads cgroup v2, then v1.
int cgroup_quota() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period) {
    if (quota == "max" || period <= 0) return 0;
    return static_cast<int>(std::atof(quota.c_str()) / period + 0.999);
  }
  double v1_quota = 0, v1_period = 0;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> v1_quota;
  std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> v1_period;
  return v1_quota > 0 && v1_period > 0 ? static_cast<int>(v1_quota / v1_period + 0.999) : 0;
}

int default_threads() {
  const char* text = std::getenv("HALFTONE_THREADS");
  if (text == nullptr || *text == '\0') return available_processors();
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  require(*end == '\0' && value >= 1 && value <= 1024, "HALFTONE_THREADS=", text,
          " must be a number from 1 to 1024");
  return static_cast<int>(value);
}

}  // namespace

int available_processors() {
  int count = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) count = CPU_COUNT(&mask);
#endif
  const int quota = cgroup_quota();
  if (quota > 0) count = std::min(count, quota);
  return std::max(count, 1);
}

Stream::Stream(Device device, int threads) : device_(device) {
  require(threads >= 0 && threads <= 1024, "threads is ", threads, "; it must be 0 to 1024");
  switch (device.kind()) {
    case Device::Kind::cpu:
      break;
    case Device::Kind::cuda:
      state_ = cuda::make_stream(device);
      threads = 1;
      break;
    case Device::Kind::simulator:
      state_ = simulator::make_stream(device);
      break;
  }
  if (state_) fault_reporter(device);
  pool_ = std::make_shared<ThreadPool>(threads == 0 ? default_threads() : threads);
}

Stream::Stream(const Device& device, std::shared_ptr<StreamState> state)
    : device_(device), pool_(std::make_shared<ThreadPool>(1)), state_(std::move(state)) {
  fault_reporter(device);
}

Stream Stream::borrow(const Device& device, void* cuda_stream) {
  require(device.kind() == Device::Kind::cuda, "a borrowed stream is of a CUDA device, not ",
          device.name());
  return Stream(device, cuda::borrow_stream(device, cuda_stream));
}

int Stream::threads() const { return pool_->size(); }

void Stream::synchronize() {
  if (!state_) return;
  state_->synchronize();
  throw_fault(device_);
}

void* Stream::native() const { return state_ ? state_->native() : nullptr; }

Stream& Stream::default_stream(const Device& device) {
  static Stream cpu;
  if (device.is_cpu()) return cpu;
  static std::mutex mutex;
  static std::map<std::string, Stream> others;
  const std::lock_guard lock(mutex);
  return others.try_emplace(device.name(), device).first->second;
}

namespace {

// Of devices whose work has ended when its call returns.
class HostEvent : public EventState {
 public:
  void record(Stream&) override { at_ = std::chrono::steady_clock::now(); }
  void wait(Stream&) override {}
  void synchronize() override {}
  bool done() override { return true; }
  float milliseconds_since(EventState& begin) override {
    const auto& other = static_cast<HostEvent&>(begin);
    require(at_ && other.at_, "an event that was never recorded was asked for its time");
    return std::chrono::duration<float, std::milli>(*at_ - *other.at_).count();
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> at_;
};

}  // namespace

Event::Event(const Device& device) : device_(device) {
  if (device.kind() == Device::Kind::cuda) {
    state_ = cuda::make_event(device);
  } else {
    state_ = std::make_shared<HostEvent>();
  }
}

void Event::record(Stream& stream) {
  require(stream.device() == device_, "the event is of ", device_.name(), ", the stream of ",
          stream.device().name());
  state_->record(stream);
}

void Event::wait(Stream& stream) const {
  require(stream.device().kind() == device_.kind(), "the event is of ", device_.name(),
          ", the stream of ", stream.device().name());
  state_->wait(stream);
}

void Event::synchronize() const { state_->synchronize(); }
bool Event::done() const { return state_->done(); }

float Event::milliseconds_since(const Event& begin) const {
  require(begin.device_ == device_, "the events are of ", begin.device_.name(), " and ",
          device_.name());
  return state_->milliseconds_since(*begin.state_);
}

std::string why_no_graph(const Device& device) {
  if (device.kind() == Device::Kind::cuda) return "";
  return concat("device ", device.name(), " has no graphs: only CUDA devices record them");
}

Graph Graph::capture(Stream& stream, const std::function<void(Stream&)>& body) {
  const std::string reason = why_no_graph(stream.device());
  if (!reason.empty()) fail(ErrorCode::unsupported, reason);
  Graph graph;
  graph.device_ = stream.device();
  graph.state_ = cuda::capture(stream, body);
  return graph;
}

void Graph::replay(Stream& stream) const {
  require(state_ != nullptr, "a graph that captured nothing was replayed");
  require(stream.device() == device_, "the graph is of ", device_.name(), ", the stream of ",
          stream.device().name());
  state_->replay(stream);
}

void run_beside(Stream& stream, std::initializer_list<FunctionRef<void(Stream&)>> parts) {
  if (stream.device().kind() == Device::Kind::cuda && cuda::captures()) {
    return cuda::run_branches(stream, parts);
  }
  for (const auto& part : parts) part(stream);
}

int Graph::size() const { return state_ ? state_->nodes() : 0; }

}  // namespace halftone
