#include "bench/report.h"

#include <cstddef>

#include <fmt/format.h>

#include "bench/targets.h"
#include "command.h"
#include "console.h"

namespace halftone::app {

namespace {

using nlohmann::json;

void set_target(const std::string& family, const BenchRow& row, std::span<const BenchRow> all,
                json& out) {
  out.erase("target");  // of an earlier table
  if (const auto judged = judge(family, row, all)) {
    out["target"] = {{"text", judged->target}, {"reached", judged->reached}, {"met", judged->met}};
  }
}

json row_to_json(const std::string& family, const BenchRow& row, std::span<const BenchRow> all) {
  json out{{"name", row.name},
           {"seconds", row.seconds.median},
           {"seconds_quartiles", {row.seconds.low, row.seconds.high}},
           {"repeats", row.seconds.repeats},
           {"value", row.value},
           {"unit", row.unit}};
  if (row.sustained > 0) out["sustained"] = row.sustained;
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
  if (row.clock_ghz > 0) out["sustained_clock_ghz"] = row.clock_ghz;
  if (row.watts > 0) out["sustained_watts"] = row.watts;
  for (const Published& p : published_for(row.name)) {
    out["published"].push_back({{"peer", p.peer}, {"value", p.value}, {"unit", p.unit}});
  }
  set_target(family, row, all, out);
  return out;
}

// Judges rows again whose peers were added to the report (bench/compare).
void judge_again(json& family) {
  std::vector<BenchRow> rows;
  for (const json& row : family.at("rows")) {
    BenchRow& r = rows.emplace_back();
    r.name = row.value("name", ""), r.value = row.value("value", 0.0);
    r.seconds = row.value("seconds", 0.0), r.roof = row.value("roof", 0.0);
    r.peer = row.value("peer", 0.0), r.peer_name = row.value("peer_name", "");
    r.unit = row.value("unit", "");
  }
  for (size_t i = 0; i < rows.size(); ++i)
    set_target(family.value("name", ""), rows[i], rows, family["rows"][i]);
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
  for (const BenchRow& row : rows) family["rows"].push_back(row_to_json(name, row, rows));
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
               number("sustained") > 0
                   ? fmt::format("{} ({} sustained)", significant(number("value")),
                                 significant(number("sustained")))
                   : significant(number("value")),
               row.at("unit").get<std::string>(), roof ? significant(number("roof")) : "–",
               roof ? fmt::format("{:.0f} %", 100 * number("fraction_of_roof")) : "–",
               peer ? significant(number("peer")) : "–",
               peer ? fmt::format("{:.2f} ({})", number("ratio_to_peer"),
                                  row.value("peer_name", std::string()))
                    : "–",
               best_published(row), target});
  }
  return markdown ? table.markdown() : table.text();
}

namespace {

// Files are written by hand and by scripts too: what the tables read must be there, of its type.
bool is_sound_row(const json& row) {
  const auto is = [&](const char* key, auto type) {
    return row.contains(key) && (row.at(key).*type)();
  };
  if (!row.is_object() || !is("name", &json::is_string) || !is("unit", &json::is_string) ||
      !is("seconds", &json::is_number) || !is("value", &json::is_number) ||
      !is("seconds_quartiles", &json::is_array) || row.at("seconds_quartiles").size() != 2) {
    return false;
  }
  for (const char* key : {"roof", "fraction_of_roof", "peer", "ratio_to_peer", "sustained"}) {
    if (row.contains(key) && !row.at(key).is_number()) return false;
  }
  const json& quartiles = row.at("seconds_quartiles");
  return quartiles[0].is_number() && quartiles[1].is_number() &&
         (!row.contains("peer_name") || row.at("peer_name").is_string());
}

// A row measured again takes the place of the earlier one of its name; the others are added.
void take_rows(const json& later, json* rows) {
  for (const json& row : later) {
    const auto same = std::find_if(rows->begin(), rows->end(), [&](const json& earlier) {
      return earlier.at("name") == row.at("name");
    });
    if (same == rows->end()) {
      rows->push_back(row);
    } else {
      *same = row;
    }
  }
}

}  // namespace

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
      const json& rows = family.at("rows");
      if (!rows.is_array() || !std::all_of(rows.begin(), rows.end(), is_sound_row)) {
        wrong_input(fmt::format(
            "bench: --from \"{}\": family {} has a row without name, unit, value, seconds or their "
            "quartiles, or with one of another type",
            path, family.at("name").dump()));
      }
      json& all = joined["families"];
      const auto same = std::find_if(all.begin(), all.end(), [&](const json& other) {
        return other.at("name") == family.at("name");
      });
      if (same == all.end()) {
        json first = family;
        first["conditions"] = json::array({report.at("conditions")});
        all.push_back(std::move(first));
      } else {
        take_rows(rows, &(*same)["rows"]);
        (*same)["conditions"].push_back(report.at("conditions"));
      }
    }
  }
  for (json& family : joined["families"]) judge_again(family);
  return joined;
}

}  // namespace halftone::app
