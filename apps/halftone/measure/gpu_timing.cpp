#include "measure/gpu_timing.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "halftone/graph.h"

namespace halftone {

namespace {

// Seconds a call of `calls` calls in a row.
class Timer {
 public:
  Timer(Stream& stream, const std::function<void(int)>& f)
      : stream_(stream), f_(f), begin_(stream.device()), end_(stream.device()) {}

  double operator()(int calls) {
    begin_.record(stream_);
    for (int i = 0; i < calls; ++i) f_(next_++);
    end_.record(stream_);
    end_.synchronize();
    return end_.milliseconds_since(begin_) * 1e-3 / calls;
  }

 private:
  Stream& stream_;
  const std::function<void(int)>& f_;
  Event begin_, end_;
  int next_ = 0;
};

int calls_in(double seconds, double one) {
  return static_cast<int>(std::clamp(seconds / std::max(one, 1e-7), 1.0, 1e5));
}

}  // namespace

GpuTiming time_on_gpu(Stream& stream, const std::function<void(int)>& f,
                      const GpuTimingOptions& o) {
  Timer timer(stream, f);
  timer(1);
  const double one = timer(1);
  std::vector<double> bursts;
  for (int i = 0; i < o.bursts; ++i) {
    std::this_thread::sleep_for(std::chrono::duration<double>(i == 0 ? o.rest : o.rest / 4));
    bursts.push_back(timer(calls_in(o.burst, one)));
  }
  std::sort(bursts.begin(), bursts.end());
  GpuTiming result;
  result.burst = bursts[bursts.size() / 2];
  result.burst.low = bursts[bursts.size() / 4];
  result.burst.high = bursts[bursts.size() * 3 / 4];
  result.burst.repeats = static_cast<int>(bursts.size());
  if (o.warm_up > 0) timer(calls_in(o.warm_up, result.burst));
  const auto sustain = [&] { result.sustained = timer(calls_in(o.sustained, result.burst)); };
  if (o.sensors != nullptr) {
    result.state = o.sensors->during(sustain);
  } else {
    sustain();
  }
  return result;
}

GpuTiming time_in_graph(Stream& stream, int turn, const std::function<void(int, Stream&)>& f,
                        const GpuTimingOptions& o) {
  const auto all = [&](Stream& s) {
    for (int i = 0; i < turn; ++i) f(i, s);
  };
  all(stream);  // what the first call of each makes is there when the graph is captured
  stream.synchronize();
  std::optional<Graph> graph;
  if (why_no_graph(stream.device()).empty()) graph = Graph::capture(stream, all);
  GpuTiming result = time_on_gpu(
      stream, [&](int) { graph ? graph->replay(stream) : all(stream); }, o);
  for (double* seconds :
       {&result.burst.median, &result.burst.low, &result.burst.high, &result.sustained}) {
    *seconds /= turn;
  }
  return result;
}

}  // namespace halftone
