// Timing on a GPU by its own events: how the rows of `halftone bench --device cuda:N` are measured.
#pragma once
#include <functional>

#include "bench/row.h"
#include "halftone/stream.h"
#include "measure/gpu_sensors.h"

namespace halftone {

// What a measurement does; the defaults are those of reports, `quick` ones are for tests.
struct GpuTimingOptions {
  double rest = 1.0;     // seconds of idling before a burst: clocks and temperature recover
  double burst = 0.004;  // of calls in a burst, short enough to stay below the power cap
  int bursts = 5;
  double warm_up = 0.5;                 // of calls before the sustained figure: clocks have settled
  double sustained = 0.25;              // of calls that it is taken from
  const GpuSensors* sensors = nullptr;  // asked during the sustained figure
  static GpuTimingOptions quick() { return {0, 0, 1, 0, 0, nullptr}; }
};

struct GpuTiming {
  Timing burst;          // seconds a call: the median of the bursts, and their quartiles
  double sustained = 0;  // seconds a call
  GpuState state;        // of the chip during the sustained figure
};

// f(i) submits call i to the stream; i counts on, for the rotation of buffers. The first call,
// which may make tensor maps and the like, is not counted.
GpuTiming time_on_gpu(Stream&, const std::function<void(int)>& f, const GpuTimingOptions& = {});
// The same of f(0) to f(turn - 1), over and over, as a graph, so that the host's time to submit
// them does not count; one by one where the device has no graphs. f submits to the stream that it
// is given.
GpuTiming time_in_graph(Stream&, int turn, const std::function<void(int, Stream&)>& f,
                        const GpuTimingOptions& = {});

}  // namespace halftone
