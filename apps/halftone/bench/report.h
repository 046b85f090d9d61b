// What `halftone bench` found, as JSON, as text and as a page.
#pragma once
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/row.h"

namespace halftone::app {

// {"name", "title", "rows": [...]}: with the spread of the times, roofs, peers, published figures,
// the target and whether it is met.
nlohmann::json family_to_json(const std::string& name, const std::string& title,
                              std::span<const BenchRow> rows);
// A table for the terminal or, `markdown`, for a document; of one family.
std::string family_to_text(const nlohmann::json& family, bool markdown = false);
// One self-contained page of a whole report: {"benchmark", "machine", "conditions", "families"}.
std::string report_to_html(const nlohmann::json& report);

// Reads reports written with --json and joins their families under the first one's machine; of rows
// of one name the last counts. A family's "conditions" are those of every report it has rows of.
// Anything else in the files is a sentence that says so.
nlohmann::json join_reports(const std::vector<std::string>& paths);

}  // namespace halftone::app
