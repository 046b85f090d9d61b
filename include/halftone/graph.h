// A sequence of operations captured once and replayed with one submission to the GPU.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "halftone/stream.h"

namespace halftone {

class GraphState;

class Graph {
 public:
  // Runs `body`, which submits its work to the stream it is given; nothing is carried out, all of
  // it is recorded. `body` must not allocate device memory, synchronise, or use other streams
  // except through events. Error::unsupported on devices without graphs, with the reason.
  static Graph capture(Stream&, const std::function<void(Stream&)>& body);
  // Submits everything once more, with the arguments and addresses of the capture.
  void replay(Stream&) const;
  // Operations recorded.
  int size() const;
  const Device& device() const { return device_; }

 private:
  Device device_;
  std::shared_ptr<GraphState> state_;
};

// Empty where streams of the device can be captured.
std::string why_no_graph(const Device&);

}  // namespace halftone
