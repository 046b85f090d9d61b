// What `halftone demo` has seen: one screen of text, or JSON.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/accuracy_row.h"

namespace halftone::app {

struct DemoRun {
  std::string weights, kv, text;
  int64_t weight_bytes = 0, session_bytes = 0;
  double prompt_tokens_per_second = 0, tokens_per_second = 0, perplexity = 0, kl = 0;
};
struct DemoModel {
  std::string name, description;
  std::vector<DemoRun> runs;
};
struct DemoReport {
  std::string machine, models_folder;
  std::string command;  // as the user would call it again
  std::string table;    // the file with every row of the attention's accuracy; may be empty
  std::vector<DemoModel> models;
  std::vector<AccuracyRow> attention;
};

// At most 40 lines for two models of six runs.
std::string demo_screen(const DemoReport&);
nlohmann::json demo_json(const DemoReport&);

}  // namespace halftone::app
