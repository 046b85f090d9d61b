// From counters to the least time each unit needs, and the report as text.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>

#include "base/message.h"
#include "sim/counter_state.h"

namespace halftone::sim {

namespace {

std::string base_name(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

void add_counts(std::vector<SimulatorCounters::Count>& to, const char* name, uint64_t count) {
  for (auto& one : to) {
    if (one.name == name) return void(one.count += count);
  }
  to.push_back({name, count});
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

}  // namespace

void NameCounts::merge_into(std::vector<SimulatorCounters::Count>& to) const {
  for (const auto& [name, count] : entries_) add_counts(to, name, count);
}

void add_counters(SimulatorCounters& to, const SimulatorCounters& from) {
  for (const auto& one : from.instructions) {
    add_counts(to.instructions, one.name.c_str(), one.count);
  }
  for (const auto& one : from.multiply_adds) {
    add_counts(to.multiply_adds, one.name.c_str(), one.count);
  }
  for (const auto& site : from.shared_sites) {
    const auto at = std::find_if(to.shared_sites.begin(), to.shared_sites.end(), [&](auto& one) {
      return one.line == site.line && one.file == site.file && one.what == site.what;
    });
    if (at == to.shared_sites.end()) {
      to.shared_sites.push_back(site);
    } else {
      at->accesses += site.accesses;
      at->bytes += site.bytes;
      at->wavefronts += site.wavefronts;
      at->ideal += site.ideal;
    }
  }
  to.shared_wavefronts += from.shared_wavefronts;
  to.shared_ideal += from.shared_ideal;
  to.async_shared_bytes += from.async_shared_bytes;
  to.tma_bytes_read += from.tma_bytes_read;
  to.tma_bytes_written += from.tma_bytes_written;
  to.global_bytes_read += from.global_bytes_read;
  to.global_bytes_written += from.global_bytes_written;
  to.hbm_bytes += from.hbm_bytes;
  to.mufu += from.mufu;
  to.barrier_waits += from.barrier_waits;
  to.steps += from.steps;
  std::sort(to.instructions.begin(), to.instructions.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(to.multiply_adds.begin(), to.multiply_adds.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  std::sort(to.shared_sites.begin(), to.shared_sites.end(), [](const auto& a, const auto& b) {
    const auto order = [](const auto& s) {
      return std::tuple(~(s.wavefronts - s.ideal), s.file, s.line, s.what);  // most conflicts first
    };
    return order(a) < order(b);
  });
}

SimulatorCounters ClusterCounters::result() const {
  SimulatorCounters out;
  instructions.merge_into(out.instructions);
  multiply_adds.merge_into(out.multiply_adds);
  for (const SharedSiteCount& site : sites) {
    out.shared_sites.push_back({.file = base_name(site.site.file_name()),
                                .line = site.site.line(),
                                .what = site.what,
                                .accesses = site.accesses,
                                .bytes = site.bytes,
                                .wavefronts = site.wavefronts,
                                .ideal = site.ideal});
    out.shared_wavefronts += site.wavefronts;
    out.shared_ideal += site.ideal;
  }
  out.async_shared_bytes = async_shared_bytes;
  out.tma_bytes_read = tma_read;
  out.tma_bytes_written = tma_written;
  out.global_bytes_read = global_read;
  out.global_bytes_written = global_written;
  out.hbm_bytes = hbm_bytes;
  out.mufu = mufu;
  out.barrier_waits = barrier_waits;
  out.steps = steps;
  return out;
}

std::vector<SimulatorBound> bounds(const SimulatorCounters& counters, const Chip& chip) {
  const double clocks = chip.sm_count * chip.rates.clock_ghz * 1e9;  // of all SMs in a second
  const std::string sms = concat(chip.sm_count, " SMs at ", chip.rates.clock_ghz, " GHz");
  std::vector<SimulatorBound> result;
  double tensor = 0;
  std::string how;
  for (const auto& kind : counters.multiply_adds) {
    const uint32_t rate = tensor_rate(chip, kind.name);
    if (rate == 0) continue;
    tensor += double(kind.count) / (rate * clocks);
    how += concat(how.empty() ? "" : " + ", number(double(kind.count)), " multiply-adds of ",
                  kind.name, " / ", rate, " a clock");
  }
  if (tensor > 0) result.push_back({"tensor core", tensor, concat(how, ", ", sms)});
  const double shared = double(counters.shared_wavefronts) +
                        double(counters.async_shared_bytes) / chip.rates.shared_bytes;
  if (shared > 0) {
    result.push_back(
        {"shared memory", shared / clocks,
         concat(counters.shared_wavefronts, " wavefronts + ", counters.async_shared_bytes,
                " bytes of engines / ", chip.rates.shared_bytes, " a clock, ", sms)});
  }
  if (counters.mufu > 0) {
    result.push_back({"mufu", double(counters.mufu) / (chip.rates.mufu * clocks),
                      concat(counters.mufu, " operations / ", chip.rates.mufu, " a clock, ", sms)});
  }
  const uint64_t traffic = counters.tma_bytes_read + counters.tma_bytes_written +
                           counters.global_bytes_read + counters.global_bytes_written;
  if (traffic > 0 && chip.rates.l2_bytes_per_second > 0) {
    result.push_back(
        {"l2", double(traffic) / chip.rates.l2_bytes_per_second,
         concat(traffic, " bytes / ", number(chip.rates.l2_bytes_per_second / 1e12), " TB/s")});
  }
  if (counters.hbm_bytes > 0) {
    result.push_back({"hbm", double(counters.hbm_bytes) / chip.rates.hbm_bytes_per_second,
                      concat(counters.hbm_bytes, " distinct bytes / ",
                             number(chip.rates.hbm_bytes_per_second / 1e12), " TB/s")});
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return result;
}

}  // namespace halftone::sim

namespace halftone {

std::string to_string(const SimulatorReport& report, bool with_counters) {
  std::string text = concat("kernel ", report.kernel, " on ", report.device, ", ",
                            to_string(report.options), ": ");
  text += report.clean() ? "no violation"
                         : concat(report.violations.size(),
                                  report.violations.size() == 1 ? " violation" : " violations");
  for (const SimulatorViolation& violation : report.violations) {
    text.append("\n").append(to_string(violation));
  }
  if (!with_counters) return text;
  const SimulatorCounters& c = report.counters;
  text += "\ninstructions:";
  for (const auto& one : c.instructions) text += concat("\n  ", one.name, ": ", one.count);
  if (!c.multiply_adds.empty()) text += "\nmultiply-adds:";
  for (const auto& one : c.multiply_adds) text += concat("\n  ", one.name, ": ", one.count);
  text += concat("\nshared memory: ", c.shared_wavefronts, " wavefronts, ",
                 c.shared_wavefronts - c.shared_ideal, " of them by bank conflicts; ",
                 c.async_shared_bytes, " bytes by engines");
  for (const auto& site : c.shared_sites) {
    text += concat("\n  ", site.file, ":", site.line, " ", site.what, ": ", site.accesses,
                   " accesses, ", site.bytes, " bytes, ", site.wavefronts, " wavefronts, ",
                   site.wavefronts - site.ideal, " by conflicts");
  }
  text += concat("\nglobal memory: ", c.tma_bytes_read, " bytes read and ", c.tma_bytes_written,
                 " written by engines, ", c.global_bytes_read, " read and ", c.global_bytes_written,
                 " written by threads, ", c.hbm_bytes, " distinct");
  text += concat("\nmufu operations: ", c.mufu, ", barrier waits: ", c.barrier_waits,
                 ", scheduling steps: ", c.steps);
  for (const SimulatorBound& bound : report.bounds) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.3f us", bound.seconds * 1e6);
    text += concat("\nbound by ", bound.unit, ": ", seconds, " (", bound.how, ")");
  }
  return text;
}

}  // namespace halftone
