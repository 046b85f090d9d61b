// halftone simulate: runs a kernel on a simulated GPU and prints what it found, counted and bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "bug.h"
#include "command.h"
#include "console.h"
#include "halftone/simulator.h"
#include "simulated_kernels.h"

namespace halftone::app {

namespace {

struct SimulateArguments {
  std::string kernel, device, schedule = "fifo", severity = "check", numerics = "exact";
  std::optional<uint64_t> seed;
  std::optional<int64_t> seeds;
  std::vector<int64_t> size;
  bool list = false, bugs = false, json = false;
};

template <class Value>
Value one_of(const char* option, const std::string& word,
             const std::vector<std::pair<const char*, Value>>& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) {
    if (word == name) return value;
    names.push_back(name);
  }
  unknown_choice(std::string("simulate: ") + option, word, names);
}

SimulatorOptions simulator_options(const SimulateArguments& o) {
  using S = SimulatorOptions;
  S options;
  options.schedule = one_of<S::Schedule>("--schedule", o.schedule,
                                         {{"fifo", S::Schedule::fifo},
                                          {"random", S::Schedule::random},
                                          {"adversarial", S::Schedule::adversarial}});
  options.severity = one_of<S::Severity>(
      "--severity", o.severity,
      {{"off", S::Severity::off}, {"check", S::Severity::check}, {"strict", S::Severity::strict}});
  options.numerics = one_of<S::Numerics>(
      "--numerics", o.numerics, {{"exact", S::Numerics::exact}, {"fast", S::Numerics::fast}});
  options.seed = o.seed.value_or(1);
  options.throws = false;
  return options;
}

// --- the report as JSON

nlohmann::json to_json(const SimulatorAccess& a) {
  nlohmann::json json{{"what", a.what}, {"file", a.file}, {"line", a.line}, {"block", a.block}};
  if (!a.role.empty()) json["role"] = a.role;
  if (!a.proxy.empty()) json["proxy"] = a.proxy;
  if (a.warp >= 0) json["warp"] = a.warp;
  if (a.lane >= 0) json["lane"] = a.lane;
  if (a.phase >= 0) json["phase"] = a.phase;
  return json;
}

nlohmann::json to_json(const SimulatorReport& r, const std::string& comparison) {
  nlohmann::json json{{"kernel", r.kernel},
                      {"device", r.device},
                      {"options", to_string(r.options)},
                      {"result", comparison},
                      {"violations", nlohmann::json::array()},
                      {"bounds", nlohmann::json::array()}};
  for (const SimulatorViolation& v : r.violations) {
    nlohmann::json accesses = nlohmann::json::array();
    for (const SimulatorAccess& a : v.accesses) accesses.push_back(to_json(a));
    json["violations"].push_back({{"rule", v.rule},
                                  {"text", v.text},
                                  {"fix", v.fix},
                                  {"count", v.count},
                                  {"accesses", accesses}});
  }
  for (const SimulatorBound& b : r.bounds) {
    json["bounds"].push_back({{"unit", b.unit}, {"seconds", b.seconds}, {"how", b.how}});
  }
  const SimulatorCounters& c = r.counters;
  nlohmann::json& counters = json["counters"];
  for (const auto& [name, count] : c.instructions) counters["instructions"][name] = count;
  for (const auto& [name, count] : c.multiply_adds) counters["multiply_adds"][name] = count;
  for (const auto& site : c.shared_sites) {
    counters["shared_sites"].push_back({{"file", site.file},
                                        {"line", site.line},
                                        {"what", site.what},
                                        {"accesses", site.accesses},
                                        {"bytes", site.bytes},
                                        {"wavefronts", site.wavefronts},
                                        {"ideal", site.ideal}});
  }
  counters["shared_wavefronts"] = c.shared_wavefronts;
  counters["shared_ideal"] = c.shared_ideal;
  counters["async_shared_bytes"] = c.async_shared_bytes;
  counters["tma_bytes_read"] = c.tma_bytes_read;
  counters["tma_bytes_written"] = c.tma_bytes_written;
  counters["global_bytes_read"] = c.global_bytes_read;
  counters["global_bytes_written"] = c.global_bytes_written;
  counters["hbm_bytes"] = c.hbm_bytes;
  counters["mufu"] = c.mufu;
  counters["barrier_waits"] = c.barrier_waits;
  counters["steps"] = c.steps;
  return json;
}

// --- what the command does

int print_list(bool json) {
  nlohmann::json rows = nlohmann::json::array();
  Table table({"kernel", "from", "size", "what it is"});
  for (const SimulatedKernel& k : simulated_kernels()) {
    std::string size;
    for (size_t i = 0; i < k.size.size(); ++i) {
      size += fmt::format("{}{}={}", i == 0 ? "" : ",", k.extent[i], k.size[i]);
    }
    table.add({k.name, name(k.arch), size, k.summary});
    rows.push_back({{"name", k.name}, {"arch", name(k.arch)}, {"summary", k.summary}});
  }
  fmt::print("{}", json ? rows.dump(2) + "\n" : table.text());
  return kOk;
}

// The mutation table: what the simulator says of every known bug, and of its fixed form.
int print_bugs(const SimulateArguments& o) {
  const int seeds = static_cast<int>(o.seeds.value_or(20));
  Progress progress("simulate --bugs", !o.json);
  nlohmann::json rows = nlohmann::json::array();
  Table table({"bug", "on", "rule", "reported", "sites", "fixed: clean", "seen in"});
  const auto& all = bugs::catalogue();
  size_t done = 0, right = 0;
  for (const bugs::Bug& bug : all) {
    const bugs::Verdict v = bugs::judge(bug, seeds);
    const char* sites = !v.source_read ? "no source" : v.sites_right ? "right" : "wrong";
    table.add({bug.name, name(bug.arch), bug.rule, v.reported ? "yes" : "NO", sites,
               fmt::format("{} of {} seeds", v.clean_seeds, seeds), bug.seen_in});
    rows.push_back({{"bug", bug.name},
                    {"summary", bug.summary},
                    {"rule", bug.rule},
                    {"reported", v.reported},
                    {"sites", sites},
                    {"clean_seeds", v.clean_seeds},
                    {"seeds", seeds},
                    {"seen_in", bug.seen_in}});
    right += v.reported && (v.sites_right || !v.source_read) && v.clean_seeds == seeds;
    progress(static_cast<double>(++done) / static_cast<double>(all.size()));
  }
  if (o.json) {
    fmt::print("{}\n", rows.dump(2));
  } else {
    fmt::print("{}{} of {} as they should be\n", table.text(), right, all.size());
  }
  return right == all.size() ? kOk : kFailed;
}

int run_simulate(const SimulateArguments& o) {
  if (o.list) return print_list(o.json);
  if (o.bugs) return print_bugs(o);
  if (o.kernel.empty()) {
    wrong_input("simulate: name a kernel; `halftone simulate --list` shows them");
  }
  const std::vector<SimulatedKernel> all = simulated_kernels();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const SimulatedKernel& k) { return k.name == o.kernel; });
  if (found == all.end()) {
    wrong_input(fmt::format(
        "simulate: KERNEL \"{}\" is not known; `halftone simulate --list` shows them", o.kernel));
  }
  std::vector<int64_t> size = found->size;
  if (!o.size.empty()) {
    if (o.size.size() != found->extent.size()) {
      wrong_input(fmt::format("simulate: --size has {} numbers; {} takes {}: {}", o.size.size(),
                              found->name, found->extent.size(), fmt::join(found->extent, ",")));
    }
    size = o.size;
  }
  const Device device = o.device.empty() ? Device::simulator(found->arch) : Device::parse(o.device);
  if (device.kind() != Device::Kind::simulator) {
    wrong_input(
        fmt::format("simulate: --device {} is not a simulated one; they are sim:sm_80, "
                    "sim:sm_89, sim:sm_90a, sim:sm_100a and sim:sm_120a",
                    device.name()));
  }
  Stream stream(device);
  configure(stream, simulator_options(o));
  const std::string comparison = found->run(stream, size);
  const SimulatorReport& report = simulator_report(stream);
  if (o.json) {
    fmt::print("{}\n", to_json(report, comparison).dump(2));
  } else {
    fmt::print("{}\n", to_string(report));
    if (!comparison.empty()) fmt::print("result: {}\n", comparison);
  }
  return report.clean() ? kOk : kFailed;
}

std::function<int()> declare_simulate(CLI::App& app) {
  const auto o = std::make_shared<SimulateArguments>();
  app.add_option("KERNEL", o->kernel, "a kernel of --list");
  app.add_option("--device", o->device, "sim:ARCH; default: the first architecture that has it")
      ->type_name("DEVICE");
  app.add_option("--schedule", o->schedule, "who runs next: fifo (default), random, adversarial")
      ->type_name("NAME");
  app.add_option("--severity", o->severity,
                 "off, check (default: what is proven wrong) or strict (also the letter of the "
                 "specification)")
      ->type_name("NAME");
  app.add_option("--numerics", o->numerics,
                 "exact (default: tensor cores bit for bit) or fast (plain FP32)")
      ->type_name("NAME");
  add_number(app, "--seed", o->seed, "of the schedule (default 1)");
  app.add_option("--size", o->size, "extents of the problem, as --list names them")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->type_name("N,N,...");
  app.add_flag("--list", o->list, "the kernels that can be simulated");
  app.add_flag("--bugs", o->bugs,
               "the table of known bugs: is each reported, at the right lines, and is its fixed "
               "form clean");
  add_number(app, "--seeds", o->seeds, 1, 10000,
             "--bugs: adversarial schedules for each fixed form (default 20)");
  app.add_flag("--json", o->json, "one JSON value on stdout");
  return [o] { return run_simulate(*o); };
}

}  // namespace

Command simulate_command() {
  return {"simulate", "run a kernel on a simulated GPU and report races, deadlocks and counts",
          "  halftone simulate --list\n"
          "  halftone simulate ladder:9 --size 256,512,128\n"
          "  halftone simulate bug:missing-proxy-fence\n"
          "  halftone simulate bug:skipped-release --schedule adversarial --seed 7\n"
          "  halftone simulate --bugs\n",
          declare_simulate};
}

}  // namespace halftone::app
