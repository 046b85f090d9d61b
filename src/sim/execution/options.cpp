// Options as words, and what a stream on a simulated device keeps.
#include <charconv>
#include <cstdlib>
#include <system_error>

#include "base/message.h"
#include "halftone/simulator.h"
#include "halftone/stream.h"
#include "sim/chip.h"
#include "sim/sink.h"

namespace halftone {

namespace {

using Options = SimulatorOptions;

struct Word {
  const char* text;
  void (*apply)(Options&);
};

constexpr Word kWords[] = {
    {"off", [](Options& o) { o.severity = Options::Severity::off; }},
    {"check", [](Options& o) { o.severity = Options::Severity::check; }},
    {"strict", [](Options& o) { o.severity = Options::Severity::strict; }},
    {"exact", [](Options& o) { o.numerics = Options::Numerics::exact; }},
    {"fast", [](Options& o) { o.numerics = Options::Numerics::fast; }},
    {"fifo", [](Options& o) { o.schedule = Options::Schedule::fifo; }},
    {"random", [](Options& o) { o.schedule = Options::Schedule::random; }},
    {"adversarial", [](Options& o) { o.schedule = Options::Schedule::adversarial; }},
};

void apply_word(std::string_view word, Options& options) {
  for (const Word& known : kWords) {
    if (word == known.text) return known.apply(options);
  }
  const size_t equals = word.find('=');
  if (equals != std::string_view::npos) {
    const std::string_view key = word.substr(0, equals), text = word.substr(equals + 1);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(error == std::errc{} && end == text.data() + text.size(), "simulator option \"", word,
            "\": ", key, " takes a number that is not negative");
    if (key == "seed") return void(options.seed = value);
    if (key == "steps") {
      require(value > 0, "simulator option \"", word, "\": steps must be at least 1");
      return void(options.step_limit = value);
    }
    if (key == "throws") return void(options.throws = value != 0);
    if (key == "counters") return void(options.counters = value != 0);
  }
  fail(ErrorCode::invalid_argument, "simulator option \"", word,
       "\" is not known; the options are off, check, strict, exact, fast, fifo, random, "
       "adversarial, seed=N, steps=N, throws=0|1, counters=0|1");
}

SimulatorStream& simulator_of(const Stream& stream) {
  require(stream.device().kind() == Device::Kind::simulator, "the stream is on ",
          stream.device().name(), ", which is not a simulated device");
  return static_cast<SimulatorStream&>(*stream.state());
}

}  // namespace

SimulatorOptions parse_simulator_options(std::string_view text, SimulatorOptions base) {
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (!word.empty()) apply_word(word, base);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return base;
}

std::string to_string(const SimulatorOptions& options) {
  constexpr const char* kSeverities[] = {"off", "check", "strict"};
  constexpr const char* kNumerics[] = {"exact", "fast"};
  constexpr const char* kSchedules[] = {"fifo", "random", "adversarial"};
  return concat(kSeverities[int(options.severity)], ",", kNumerics[int(options.numerics)], ",",
                kSchedules[int(options.schedule)], ",seed=", options.seed);
}

std::shared_ptr<StreamState> simulator::make_stream(const Device& device) {
  auto stream = std::make_shared<SimulatorStream>();
  stream->report.device = concat(device.name(), " (", sim::chip(device.arch()).name, ")");
  if (const char* text = std::getenv("HALFTONE_SIM"); text != nullptr) {
    stream->options = parse_simulator_options(text);
  }
  return stream;
}

void configure(Stream& stream, const SimulatorOptions& options) {
  SimulatorStream& simulator = simulator_of(stream);
  const std::lock_guard lock(simulator.mutex);
  const char* text = std::getenv("HALFTONE_SIM");
  simulator.options = text == nullptr ? options : parse_simulator_options(text, options);
}

const SimulatorOptions& simulator_options(const Stream& stream) {
  return simulator_of(stream).options;
}

const SimulatorReport& simulator_report(const Stream& stream) {
  return simulator_of(stream).report;
}

void clear_simulator_report(Stream& stream) {
  SimulatorStream& simulator = simulator_of(stream);
  const std::lock_guard lock(simulator.mutex);
  SimulatorReport fresh;
  fresh.device = std::move(simulator.report.device);
  simulator.report = std::move(fresh);
}

}  // namespace halftone
