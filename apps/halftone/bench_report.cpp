#include "bench_report.h"

#include <fmt/format.h>

#include "bench_targets.h"
#include "command.h"
#include "console.h"

namespace halftone::app {

namespace {

using nlohmann::json;

json row_to_json(const BenchRow& row, std::span<const BenchRow> all) {
  json out{{"name", row.name},
           {"seconds", row.seconds.median},
           {"seconds_quartiles", {row.seconds.low, row.seconds.high}},
           {"repeats", row.seconds.repeats},
           {"value", row.value},
           {"unit", row.unit}};
  if (row.roof > 0) {
    out["roof"] = row.roof;
    out["roof_name"] = row.roof_name;
    out["fraction_of_roof"] = row.value / row.roof;
  }
  if (row.peer > 0) {
    out["peer"] = row.peer;
    out["peer_name"] = row.peer_name;
    out["ratio_to_peer"] = row.value / row.peer;
  }
  if (row.flops > 0) out["flops"] = row.flops;
  if (row.bytes > 0) out["bytes"] = row.bytes;
  for (const Published& p : published_for(row.name)) {
    out["published"].push_back({{"peer", p.peer}, {"value", p.value}, {"unit", p.unit}});
  }
  if (const auto judged = judge(row, all)) {
    out["target"] = {{"text", judged->target}, {"reached", judged->reached}, {"met", judged->met}};
  }
  return out;
}

std::string best_published(const json& row) {
  if (!row.contains("published")) return "–";
  const json* best = nullptr;
  for (const json& p : row.at("published")) {
    if (best == nullptr || p.at("value").get<double>() > best->at("value").get<double>()) best = &p;
  }
  return fmt::format("{} ({})", significant(best->at("value").get<double>()),
                     best->at("peer").get<std::string>());
}

}  // namespace

json family_to_json(const std::string& name, const std::string& title,
                    std::span<const BenchRow> rows) {
  json family{{"name", name}, {"title", title}, {"rows", json::array()}};
  for (const BenchRow& row : rows) family["rows"].push_back(row_to_json(row, rows));
  return family;
}

std::string family_to_text(const json& family, bool markdown) {
  Table table({"benchmark", "time", "spread", "speed", "unit", "roof", "reached", "peer", "x peer",
               "published", "target"});
  for (const json& row : family.at("rows")) {
    const auto number = [&](const char* key) { return row.value(key, 0.0); };
    const bool roof = number("roof") > 0, peer = number("peer") > 0;
    const double seconds = number("seconds");
    const json& quartiles = row.at("seconds_quartiles");
    std::string target = "–";
    if (row.contains("target")) {
      const json& t = row.at("target");
      target = fmt::format("{}: {}", t.at("met").get<bool>() ? "met" : "missed",
                           t.at("text").get<std::string>());
    }
    table.add({row.at("name").get<std::string>(), duration(seconds),
               fmt::format("{:.0f} %",
                           100 * (quartiles.at(1).get<double>() - quartiles.at(0).get<double>()) /
                               (seconds > 0 ? seconds : 1)),
               significant(number("value")), row.at("unit").get<std::string>(),
               roof ? significant(number("roof")) : "–",
               roof ? fmt::format("{:.0f} %", 100 * number("fraction_of_roof")) : "–",
               peer ? significant(number("peer")) : "–",
               peer ? fmt::format("{:.2f} ({})", number("ratio_to_peer"),
                                  row.value("peer_name", std::string()))
                    : "–",
               best_published(row), target});
  }
  return markdown ? table.markdown() : table.text();
}

json join_reports(const std::vector<std::string>& paths) {
  json joined;
  for (const std::string& path : paths) {
    const json report = json::parse(read_text("bench: --from", path), nullptr, false);
    const bool sound = report.is_object() && report.contains("machine") &&
                       report.contains("conditions") && report.contains("families") &&
                       report.at("families").is_array();
    if (!sound) {
      wrong_input(fmt::format(
          "bench: --from \"{}\" is no report of halftone bench --json; it needs machine, "
          "conditions and families",
          path));
    }
    if (joined.is_null()) {
      joined = report;
      joined["families"] = json::array();
    }
    for (const json& family : report.at("families")) {
      if (!family.is_object() || !family.contains("name") || !family.contains("rows")) {
        wrong_input(fmt::format("bench: --from \"{}\" has a family without name or rows", path));
      }
      json& all = joined["families"];
      json copy = family;
      copy["conditions"] = report.at("conditions");
      const auto same = std::find_if(all.begin(), all.end(), [&](const json& other) {
        return other.at("name") == family.at("name");
      });
      if (same == all.end()) {
        all.push_back(std::move(copy));
      } else {
        *same = std::move(copy);
      }
    }
  }
  return joined;
}

}  // namespace halftone::app
