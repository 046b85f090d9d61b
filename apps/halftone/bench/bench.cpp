// halftone bench: speed beside the roofs of the machine, measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>

#include "bench/families.h"
#include "bench/gpu.h"
#include "bench/report.h"
#include "bench/targets.h"
#include "command.h"
#include "console.h"
#include "interrupt.h"
#include "measure/machine.h"
#include "measure/roofs.h"

namespace halftone::app {

namespace {

using nlohmann::json;

struct BenchArguments {
  std::string what, suite, device = "cpu", json_path, html_path;
  std::vector<std::string> from, rows;
  std::optional<int64_t> threads;
  GenerateBench generate;
  bool quick = false, list = false;
  const CLI::Option *json = nullptr, *html = nullptr, *device_option = nullptr;
  bool device_given() const { return device_option->count() > 0; }
  bool wants_json() const { return json->count() > 0; }
  bool wants_html() const { return html->count() > 0; }
};

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

// The chosen families; all of them for a suite.
std::vector<BenchFamily> families(const BenchArguments& o) {
  const std::span<const BenchFamily> all = bench_families();
  if (!o.suite.empty()) {
    if (!o.what.empty()) {
      wrong_input(fmt::format("bench: \"{}\" and --suite exclude each other", o.what));
    }
    if (o.suite != "cpu") unknown_choice("bench: --suite of the cpu", o.suite, {"cpu"});
    return {all.begin(), all.end()};
  }
  std::vector<std::string> names;
  for (const BenchFamily& f : all) {
    names.emplace_back(f.name);
    if (o.what == f.name) return {f};
  }
  if (o.what.empty()) {
    wrong_input(
        fmt::format("bench: say what to measure: {}, or --suite cpu", fmt::join(names, ", ")));
  }
  unknown_choice("bench:", o.what, names);
}

// Of a GPU: by name, by suite or both.
std::vector<GpuBenchFamily> gpu_families(const BenchArguments& o) {
  std::vector<GpuBenchFamily> chosen;
  std::vector<std::string> names, suites;
  for (const GpuBenchFamily& f : gpu_bench_families()) {
    names.emplace_back(f.name), suites.emplace_back(f.suite);
    if ((o.what.empty() || o.what == f.name) && (o.suite.empty() || o.suite == f.suite)) {
      chosen.push_back(f);
    }
  }
  if (o.what.empty() && o.suite.empty()) {
    wrong_input(
        fmt::format("bench: say what to measure on {}: {}", o.device, fmt::join(names, ", ")));
  }
  const auto known = [](const std::vector<std::string>& all, const std::string& one) {
    return one.empty() || std::find(all.begin(), all.end(), one) != all.end();
  };
  if (!known(names, o.what)) unknown_choice("bench --device " + o.device + ":", o.what, names);
  if (!known(suites, o.suite)) unknown_choice("bench: --suite of a GPU", o.suite, suites);
  if (chosen.empty()) {
    wrong_input(fmt::format("bench: {} has no suite \"{}\"", o.what, o.suite));
  }
  return chosen;
}

json roofs(Stream& stream) {
  return {{"read", {{"value", read_roof(stream, int64_t{320} << 20) * 1e-9}, {"unit", "GB/s"}}},
          {"copy", {{"value", copy_roof(stream, int64_t{320} << 20, 5) * 1e-9}, {"unit", "GB/s"}}},
          {"f32", {{"value", f32_roof(stream) * 1e-9}, {"unit", "GFLOP/s"}}},
          {"bf16", {{"value", bf16_roof(stream) * 1e-9}, {"unit", "GFLOP/s"}}},
          {"int8", {{"value", int8_roof(stream) * 1e-9}, {"unit", "GOP/s"}}}};
}

json gpu_machine(const Device& device) {
  const DeviceProperties& p = properties(device);
  json all = machine(available_processors());
  all["gpu"] = {{"name", p.name},
                {"arch", name(p.arch)},
                {"multiprocessors", p.sm_count},
                {"clock_ghz", p.clock_ghz},
                {"driver", p.driver}};
  return all;
}

// After the last row. None at all is a wrong call, but where Ctrl-C came first, which is written
// down.
void close_rows(const BenchArguments& o, json* report, json* conditions) {
  end_steps();
  if (stop_on_interrupt().stop_requested()) {
    (*conditions)["ended_early"] = true;
    return;
  }
  if (!report->at("families").empty()) return;
  wrong_input(fmt::format("bench: no row's name contains \"{}\"", fmt::join(o.rows, "\" or \"")));
}

json measure_gpu(const BenchArguments& o, const Device& device) {
  if (device.kind() == Device::Kind::simulator) {
    wrong_input(fmt::format(
        "bench: --device {} is simulated, its time says nothing; halftone simulate counts",
        o.device));
  }
  if (o.threads) wrong_input("bench: --threads goes with the cpu");
  const std::vector<GpuBenchFamily> chosen = gpu_families(o);
  Stream stream(device);
  const GpuRoofs roofs = measure_gpu_roofs(stream, o.quick);
  const GpuSensors sensors(device);
  const GpuBench bench{stream, o.quick, roofs, o.generate, {o.rows, stop_on_interrupt()}, &sensors};
  const auto roof = [](double value, double unit, const char* name) {
    return json{{"value", value / unit}, {"unit", name}};
  };
  json conditions{
      {"started", now()},
      {"quick", o.quick},
      {"load_average_before", load_average()},
      {"timing",
       "device events; bursts of 4 ms after rest, the median of 5; sustained: "
       "0.25 s after 0.5 s of load; random data, sets of it in turn, past the caches "
       "where memory is the bound; clock and power: medians during the sustained figure"}};
  if (const double limit = sensors.power_limit_watts(); limit > 0) {
    conditions["power_limit_watts"] = limit;
  }
  json report{{"benchmark", o.suite.empty() ? o.what : o.suite},
              {"machine", gpu_machine(device)},
              {"published_source", kPublishedSource},
              {"roofs",
               {{"read", roof(roofs.read, 1e12, "TB/s")},
                {"copy", roof(roofs.copy, 1e12, "TB/s")},
                {"bf16_product_8192", roof(roofs.product, 1e12, "TFLOP/s")}}},
              {"families", json::array()}};
  for (const GpuBenchFamily& family : chosen) {
    const std::vector<BenchRow> rows = family.run(bench);
    if (rows.empty()) continue;  // none of its rows was asked for
    report["families"].push_back(family_to_json(family.name, family.title, rows));
  }
  close_rows(o, &report, &conditions);
  conditions["load_average_after"] = load_average();
  report["conditions"] = std::move(conditions);
  return report;
}

json measure(const BenchArguments& o) {
  if (const Device device = Device::parse(o.device); !device.is_cpu())
    return measure_gpu(o, device);
  const std::vector<BenchFamily> chosen = families(o);
  Stream stream(Device::cpu(), static_cast<int>(o.threads.value_or(0)));
  json conditions{{"started", now()}, {"quick", o.quick}, {"load_average_before", load_average()}};
  json report{{"benchmark", o.suite.empty() ? o.what : o.suite},
              {"machine", machine(stream.threads())},
              {"published_source", kPublishedSource},
              {"families", json::array()}};
  size_t done = 0;
  for (const BenchFamily& family : chosen) {
    if (chosen.size() > 1) {
      remark(fmt::format("bench: {} ({} of {})", family.title, ++done, chosen.size()));
    }
    const std::vector<BenchRow> rows = family.run({stream, o.quick, {o.rows, stop_on_interrupt()}});
    if (rows.empty()) continue;  // none of its rows was asked for
    report["families"].push_back(family_to_json(family.name, family.title, rows));
  }
  close_rows(o, &report, &conditions);
  if (!conditions.contains("ended_early")) report["roofs"] = roofs(stream);
  conditions["load_average_after"] = load_average();
  report["conditions"] = std::move(conditions);
  return report;
}

void write_file(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    wrong_input(
        fmt::format("bench: {} \"{}\" cannot be written: {}", option, path, std::strerror(errno)));
  }
}

void print_text(const json& report) {
  const json &machine = report.at("machine"), &conditions = report.at("conditions");
  const std::string where =
      machine.contains("gpu")
          ? fmt::format("{} · {} multiprocessors at {:.2f} GHz", machine["gpu"].value("name", ""),
                        machine["gpu"].value("multiprocessors", 0),
                        machine["gpu"].value("clock_ghz", 0.0))
          : fmt::format("{} · {} · {} threads", machine.value("processor", ""),
                        machine.value("cpu_level", ""), machine.value("threads", 0));
  fmt::print("{} · load average {} before, {} after\n", where,
             conditions.value("load_average_before", ""),
             conditions.value("load_average_after", ""));
  for (const json& family : report.at("families")) {
    fmt::print("\n{}\n\n{}", bold(family.value("title", "")), family_to_text(family));
  }
  fmt::print("\n{}\n{}\n",
             dim("roofs are measured in the same run; spread: between the quartiles, of the time"),
             dim("published: " + report.value("published_source", std::string())));
}

// Every row's name with its target or why it has none, of the CPU and of a GPU: of a Hopper, where
// none is here, as names do not depend on the chip but for what it refuses.
json list_rows(const BenchArguments& o) {
  json rows = json::array();
  const auto add = [&](const char* device, const char* family, const std::vector<std::string>& of) {
    for (const std::string& name : of) {
      json row{{"device", device}, {"family", family}, {"name", name}};
      if (const BenchTarget* target = target_of(family, name)) {
        row["target"] = to_string(*target, name, "in its unit");
        row["source"] = target->source;
        if (target->of == BenchTarget::Of::row) row["compared_with"] = compared_with(*target, name);
        row["entry"] = target - bench_targets().data();
      } else if (const BenchWithoutTarget* reason = reason_of(family, name)) {
        row["no_target"] = reason->why;
        row["entry"] = reason - bench_without_target().data();
      }
      rows.push_back(std::move(row));
    }
  };
  const auto chosen = [&](const char* name, const char* suite) {
    return (o.what.empty() || o.what == name) && (o.suite.empty() || o.suite == suite);
  };
  const bool cpu = !o.device_given() || o.device == "cpu", gpu = !o.device_given() || !cpu;
  std::vector<std::string> names;
  const BenchChoice choice{o.rows, stop_on_interrupt(), &names};
  for (const BenchFamily& family : bench_families()) {
    if (!cpu || !chosen(family.name, "cpu")) continue;
    names.clear();
    Stream stream(Device::cpu(), 1);
    family.run({stream, o.quick, choice});
    add("cpu", family.name, names);
  }
  for (const GpuBenchFamily& family : gpu_bench_families()) {
    if (!gpu || !chosen(family.name, family.suite)) continue;
    names.clear();
    Stream stream(Device::simulator(Arch::sm_90a));
    family.run({stream, o.quick, {}, o.generate, choice});
    add("gpu", family.name, names);
  }
  if (rows.empty()) wrong_input("bench: no row has these names; halftone bench --list shows all");
  return rows;
}

int print_list(const BenchArguments& o) {
  const json rows = list_rows(o);
  if (o.wants_json()) {
    const std::string text = rows.dump(2) + "\n";
    if (o.json_path.empty()) {
      fmt::print("{}", text);
    } else {
      write_file("--json", o.json_path, text);
    }
    return kOk;
  }
  Table table({"device", "family", "benchmark", "target"});
  for (const json& row : rows) {
    table.add(
        {row.value("device", ""), row.value("family", ""), row.value("name", ""),
         row.contains("target") ? row.value("target", "") : "none: " + row.value("no_target", "")});
  }
  fmt::print("{}", table.text());
  return kOk;
}

int run_bench(const BenchArguments& o) {
  if (o.list) return print_list(o);
  if (!o.from.empty() && (!o.what.empty() || !o.suite.empty())) {
    wrong_input(
        "bench: --from shows earlier reports and measures nothing; leave out what to measure");
  }
  const json report = o.from.empty() ? measure(o) : join_reports(o.from);
  if (o.wants_html()) {
    write_file("--html", o.html_path.empty() ? "halftone-bench.html" : o.html_path,
               report_to_html(report));
  }
  if (o.wants_json() && o.json_path.empty()) {
    fmt::print("{}\n", report.dump(2));
  } else {
    if (o.wants_json()) write_file("--json", o.json_path, report.dump(2) + "\n");
    print_text(report);
  }
  if (!report.at("conditions").value("ended_early", false) || !o.from.empty()) return kOk;
  remark("bench: ended early; the report has the rows that were measured");
  return kInterrupted;
}

std::function<int()> declare_bench(CLI::App& app) {
  const auto o = std::make_shared<BenchArguments>();
  std::string names;
  for (const BenchFamily& family : bench_families()) names += std::string(family.name) + " ";
  std::string of_gpus;
  for (const GpuBenchFamily& family : gpu_bench_families()) {
    const std::string name = std::string(family.name) + " ";
    if (of_gpus.find(name) == std::string::npos) of_gpus += name;
  }
  names.pop_back(), of_gpus.pop_back();
  app.add_option("WHAT", o->what, "one of: " + names + "; of a GPU: " + of_gpus);
  app.add_option("--suite", o->suite,
                 "cpu: every family, with targets and published figures; of a GPU: prefill, "
                 "decode, products, experts, operations, generate");
  o->device_option = app.add_option("--device", o->device, "cpu, or a GPU: cuda:N")
                         ->type_name("DEVICE")
                         ->capture_default_str();
  app.add_option("--model", o->generate.models,
                 "generate: shapes, of llama-3-8b, qwen3-30b-a3b, gpt-oss-20b, small")
      ->type_name("NAME ...");
  app.add_option("--weights", o->generate.weights,
                 "generate: formats of the weights; stored: as the model has them")
      ->type_name("FORMAT ...");
  app.add_flag("--batch-invariant", o->generate.batch_invariant,
               "family generate: with SessionOptions::batch_invariant");
  app.add_option("--activations", o->generate.activations,
                 "generate: format of what goes from operation to operation")
      ->type_name("FORMAT")
      ->capture_default_str();
  app.add_option("--batch", o->generate.batches, "generate: sequences in step")->type_name("N ...");
  app.add_option("--rows", o->rows, "only rows whose names contain one of these")
      ->type_name("TEXT ...");
  app.add_flag("--list", o->list,
               "measure nothing: every row's name and target, of the CPU and of GPUs");
  app.add_flag("--quick", o->quick,
               "fewer repeats and sizes; of a GPU, none of the rows asked for is left out");
  o->json = app.add_option("--json", o->json_path, "write JSON to FILE; alone: to stdout")
                ->expected(0, 1)
                ->type_name("[FILE]");
  o->html = app.add_option("--html", o->html_path,
                           "write a page with tables and charts; alone: halftone-bench.html")
                ->expected(0, 1)
                ->type_name("[FILE]");
  app.add_option("--from", o->from, "show what earlier runs wrote with --json instead of measuring")
      ->type_name("FILE ...");
  add_number(app, "--threads", o->threads, 1, 1024, "processor threads; default: all usable");
  return [o] { return run_bench(*o); };
}

}  // namespace

Command bench_command() {
  return {"bench", "speed of the operations beside the roofs of this machine",
          "  halftone bench gemv\n"
          "  halftone bench attention --quick\n"
          "  halftone bench --list\n"
          "  halftone bench attention --rows decode int8+bf16\n"
          "  halftone bench attention --device cuda:0 --suite prefill\n"
          "  halftone bench --suite cpu --json cpu.json --html cpu.html\n"
          "  halftone bench --from a.json b.json --html both.html\n",
          declare_bench};
}

}  // namespace halftone::app
