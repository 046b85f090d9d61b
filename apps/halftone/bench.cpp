// halftone bench: speed beside the roofs of the machine, measured in the same run.
#include <fmt/format.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "bench_attention.h"
#include "bench_matmul.h"
#include "bench_ops.h"
#include "command.h"
#include "console.h"
#include "machine.h"

namespace halftone::app {

namespace {

struct Options {
  std::string what;
  std::optional<int64_t> threads;
  bool json = false, quick = false;
};

struct Family {
  const char* name;
  std::vector<BenchRow> (*run)(Stream&, bool quick);
};
constexpr Family kFamilies[] = {{"matmul", bench_matmul},
                                {"gemv", bench_gemv},
                                {"attention", bench_attention},
                                {"ops", bench_ops}};

std::string load_average() {
  std::ifstream file("/proc/loadavg");
  std::string one;
  file >> one;
  return one;
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  char text[32];
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

nlohmann::json to_json(const BenchRow& row) {
  nlohmann::json json{
      {"name", row.name}, {"seconds", row.seconds}, {"value", row.value}, {"unit", row.unit}};
  if (row.roof > 0) {
    json["roof"] = row.roof;
    json["roof_name"] = row.roof_name;
    json["fraction_of_roof"] = row.value / row.roof;
  }
  if (row.peer > 0) {
    json["peer"] = row.peer;
    json["peer_name"] = row.peer_name;
    json["ratio_to_peer"] = row.value / row.peer;
  }
  return json;
}

std::string to_text(const std::vector<BenchRow>& rows) {
  Table table({"benchmark", "time", "speed", "unit", "roof", "reached", "peer", "x peer"});
  for (const BenchRow& row : rows) {
    const bool roof = row.roof > 0, peer = row.peer > 0;
    table.add({row.name, duration(row.seconds), significant(row.value), row.unit,
               roof ? significant(row.roof) : "–",
               roof ? fmt::format("{:.0f} %", 100 * row.value / row.roof) : "–",
               peer ? significant(row.peer) : "–",
               peer ? fmt::format("{:.2f} ({})", row.value / row.peer, row.peer_name) : "–"});
  }
  return table.text();
}

int run(const Options& o) {
  const Family* family = nullptr;
  std::vector<std::string> names;
  for (const Family& f : kFamilies) {
    names.emplace_back(f.name);
    if (o.what == f.name) family = &f;
  }
  if (family == nullptr) unknown_choice("bench:", o.what, names);
  Stream stream(Device::cpu(), static_cast<int>(o.threads.value_or(0)));
  const std::string load_before = load_average(), started = now();
  const std::vector<BenchRow> rows = family->run(stream, o.quick);
  if (!o.json) {
    fmt::print("{} · {} · {} threads · load average {} before, {} after\n\n{}", cpu_name(),
               name(cpu_level()), stream.threads(), load_before, load_average(), to_text(rows));
    for (const BenchRow& row : rows) {
      if (row.roof <= 0) continue;
      fmt::print("\n{}\n", dim("roofs are measured in the same run: " + row.roof_name));
      break;
    }
    return kOk;
  }
  nlohmann::json json{{"benchmark", o.what},
                      {"machine", machine(stream.threads())},
                      {"conditions",
                       {{"started", started},
                        {"quick", o.quick},
                        {"load_average_before", load_before},
                        {"load_average_after", load_average()}}}};
  for (const BenchRow& row : rows) json["rows"].push_back(to_json(row));
  fmt::print("{}\n", json.dump(2));
  return kOk;
}

std::function<int()> declare(CLI::App& app) {
  const auto o = std::make_shared<Options>();
  app.add_option("WHAT", o->what, "matmul, gemv, attention or ops")->required();
  app.add_flag("--quick", o->quick, "fewer sizes and repeats");
  app.add_flag("--json", o->json, "one JSON object on stdout");
  add_number(app, "--threads", o->threads, 1, 1024, "processor threads; default: all usable");
  return [o] { return run(*o); };
}

}  // namespace

Command bench_command() {
  return {"bench", "speed of the operations beside the roofs of this machine",
          "  halftone bench gemv\n"
          "  halftone bench attention --quick\n"
          "  halftone bench matmul --json > bench/results/matmul.json\n",
          declare};
}

}  // namespace halftone::app
