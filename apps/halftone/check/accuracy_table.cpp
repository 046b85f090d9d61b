#include "check/accuracy_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "console.h"

namespace halftone::app {

nlohmann::json accuracy_json(const AccuracyRow& r) {
  if (!r.refused.empty()) return {{"mode", r.mode}, {"data", r.data}, {"refused", r.refused}};
  nlohmann::json json{
      {"mode", r.mode},
      {"data", r.data},
      {"format",
       {{"cosine", r.format_cosine}, {"relative_l2", r.format_relative_l2}, {"max", r.format_max}}},
      {"kernel",
       {{"cosine", r.kernel_cosine}, {"relative_l2", r.kernel_relative_l2}, {"max", r.kernel_max}}},
      {"worst", r.worst}};
  if (r.runs > 1) json["repeat"] = {{"runs", r.runs}, {"differing", r.differing_runs}};
  if (r.total_rmse) json["total"] = {{"rmse", *r.total_rmse}};
  return json;
}

std::string accuracy_table(const std::vector<AccuracyRow>& rows) {
  const bool repeated =
      std::any_of(rows.begin(), rows.end(), [](const AccuracyRow& row) { return row.runs > 1; });
  std::vector<std::string> head = {"mode",        "data",        "format: cosine",
                                   "relative L2", "max",         "kernel: relative L2",
                                   "max",         "total: RMSE", "worst element"};
  if (repeated) head.push_back("runs with the same bits");
  Table table(head);
  std::set<std::string> refused;
  for (const AccuracyRow& r : rows) {
    if (!r.refused.empty()) {
      refused.insert(fmt::format("{} is refused: {}\n", r.mode, r.refused));
      continue;
    }
    std::vector<std::string> cells = {r.mode,
                                      r.data,
                                      fmt::format("{:.6f}", r.format_cosine),
                                      significant(r.format_relative_l2, 3),
                                      significant(r.format_max, 3),
                                      significant(r.kernel_relative_l2, 3),
                                      significant(r.kernel_max, 3),
                                      r.total_rmse ? significant(*r.total_rmse, 3) : "",
                                      r.worst};
    if (repeated) cells.push_back(fmt::format("{} of {}", r.runs - r.differing_runs, r.runs));
    table.add(std::move(cells));
  }
  return table.text() + fmt::format("{}", fmt::join(refused, ""));
}

}  // namespace halftone::app
