// Runs the steps of the ladder on a device, compares each with sums in FP64, and on the simulator
// prints what it counted.
//   ladder [--device sim:sm_90a] [--size MxNxK] [--step N] [--report]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "halftone/error.h"
#include "halftone/simulator.h"
#include "ladder.h"
#include "matrices.h"

using namespace halftone;

namespace {

struct Arguments {
  std::string device = "sim:sm_90a";
  long m = 256, n = 512, k = 256;
  int step = 0;  // 0: all that the device has
  bool report = false;
};

Arguments parse(int argc, char** argv) {
  Arguments args;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) throw Error(ErrorCode::invalid_argument, word + " wants a value");
      return argv[++i];
    };
    if (word == "--device") {
      args.device = value();
    } else if (word == "--size") {
      const char* size = value();
      if (std::sscanf(size, "%ldx%ldx%ld", &args.m, &args.n, &args.k) != 3) {
        throw Error(ErrorCode::invalid_argument,
                    "--size " + std::string(size) + " is not MxNxK, for example 256x512x256");
      }
    } else if (word == "--step") {
      args.step = std::atoi(value());
    } else if (word == "--report") {
      args.report = true;
    } else {
      throw Error(ErrorCode::invalid_argument,
                  word + " is unknown; options: --device NAME, --size MxNxK, --step N, --report");
    }
  }
  return args;
}

void print_simulated(Stream& stream, bool whole) {
  const SimulatorReport& report = simulator_report(stream);
  if (whole) {
    std::printf("%s\n", to_string(report).c_str());
    return;
  }
  const SimulatorCounters& c = report.counters;
  std::printf("  shared %llu wavefronts, %llu without conflicts;",
              static_cast<unsigned long long>(c.shared_wavefronts),
              static_cast<unsigned long long>(c.shared_ideal));
  for (const SimulatorBound& b : report.bounds) {
    std::printf(" %s %.2f us", b.unit.c_str(), b.seconds * 1e6);
  }
  std::printf("%s\n", report.clean() ? "" : " VIOLATIONS");
}

int run(const Arguments& args) {
  const Device device = Device::parse(args.device);
  Stream stream(device);
  const auto a_values = ladder::random_matrix(args.m, args.k, 1);
  const auto b_values = ladder::random_matrix(args.n, args.k, 2);
  const std::vector<uint16_t> nan(static_cast<size_t>(args.m * args.n), 0xffff);
  const auto on_device = [&](const std::vector<uint16_t>& values, long rows, long columns) {
    return Tensor::copy_of(values.data(), values.size() * 2, {rows, columns}, Format::bf16)
        .to(device);
  };
  const Tensor a = on_device(a_values, args.m, args.k), b = on_device(b_values, args.n, args.k);
  std::printf("%ld x %ld x %ld on %s\n", args.m, args.n, args.k, device.name().c_str());
  int wrong = 0;
  for (const ladder::Step& step : ladder::steps()) {
    if (args.step != 0 && step.number != args.step) continue;
    if (step.arch > device.arch()) continue;
    const Tensor c = on_device(nan, args.m, args.n);  // poisoned, so that holes show
    ladder::multiply(step.number, a, b, c, stream);
    stream.synchronize();
    const Tensor back = c.to(Device::cpu());
    const auto* values = back.data<uint16_t>();
    const ladder::Distance d =
        ladder::distance(a_values, b_values, {values, values + nan.size()}, args.m, args.n, args.k,
                         std::max(8L, (1L << 28) / (args.n * args.k)));
    const bool right = d.unwritten == 0 && d.worst <= 1;
    wrong += !right;
    std::printf("%d %-24s error %.2e, worst element at %.2f of its bound%s\n", step.number,
                step.name, d.relative, d.worst, right ? "" : "  WRONG");
    if (device.kind() == Device::Kind::simulator) {
      print_simulated(stream, args.report);
      clear_simulator_report(stream);
    }
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "ladder: %s\n", e.what());
    return 2;
  }
}
