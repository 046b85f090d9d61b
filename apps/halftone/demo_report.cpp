#include "demo_report.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <utility>

#include "check/accuracy_table.h"
#include "console.h"

namespace halftone::app {

namespace {

std::string rounded(double x) { return fmt::format("{:.0f}", x); }

std::string model_table(const DemoModel& model) {
  Table table({"weights", "kv cache", "weight memory", "session", "prompt tok/s", "tok/s",
               "perplexity", "KL from f32"});
  for (const DemoRun& r : model.runs) {
    table.add({r.weights, r.kv, bytes(static_cast<double>(r.weight_bytes)),
               bytes(static_cast<double>(r.session_bytes)), rounded(r.prompt_tokens_per_second),
               rounded(r.tokens_per_second), fmt::format("{:.2f}", r.perplexity),
               significant(r.kl, 3)});
  }
  return fmt::format("\n{}  {}\n{}", bold(model.name), model.description, table.text());
}

// Of the modes that round at all, those with the smallest and the largest error.
std::string attention_lines(const DemoReport& report) {
  const AccuracyRow *best = nullptr, *worst = nullptr;
  size_t judged = 0, refused = 0;
  const auto error = [](const AccuracyRow& r) {
    return r.format_relative_l2 + r.kernel_relative_l2;
  };
  for (const AccuracyRow& r : report.attention) {
    if (!r.refused.empty()) {
      ++refused;
      continue;
    }
    ++judged;
    if (r.format_relative_l2 == 0) continue;
    if (best == nullptr || error(r) < error(*best)) best = &r;
    // NaN counts as the worst of all.
    if (worst == nullptr || (!std::isnan(error(*worst)) && !(error(r) <= error(*worst)))) {
      worst = &r;
    }
  }
  std::string text =
      fmt::format("\n{}  {} rows: modes (formats of qk+pv) and data{}\n", bold("attention"), judged,
                  refused > 0 ? fmt::format("; {} refused", refused) : "");
  for (const auto& [what, row] : {std::pair{"best", best}, std::pair{"worst", worst}}) {
    if (row == nullptr) continue;
    text += fmt::format("  {:5}  {} on data \"{}\": relative error {} by format, {} by kernel\n",
                        what, row->mode, row->data, significant(row->format_relative_l2, 3),
                        significant(row->kernel_relative_l2, 3));
  }
  if (!report.table.empty()) text += fmt::format("  all    {}\n", report.table);
  return text;
}

}  // namespace

std::string demo_screen(const DemoReport& report) {
  std::string text = fmt::format(
      "{}\nPerplexity, and KL divergence from the f32 model in nats a token, on {}/heldout.txt.\n",
      report.machine, report.models_folder);
  for (const DemoModel& model : report.models) text += model_table(model);
  text += attention_lines(report);
  text += fmt::format(
      "\n{}\n"
      "  {c} chat {m}/bard --template plain\n"
      "  {c} generate {m}/bard --prompt \"KING:\" --weights nvfp4 --kv fp8\n"
      "  {c} quantize {m}/bard build/bard-nvfp4 --format nvfp4\n"
      "  {c} info --why      # which kernel runs here, and why\n"
      "  {c} bench ops --quick\n",
      bold("what to try next"), fmt::arg("c", report.command), fmt::arg("m", report.models_folder));
  return text;
}

nlohmann::json demo_json(const DemoReport& report) {
  nlohmann::json json{{"models", nlohmann::json::array()}, {"attention", nlohmann::json::array()}};
  for (const DemoModel& model : report.models) {
    nlohmann::json rows = nlohmann::json::array();
    for (const DemoRun& r : model.runs) {
      rows.push_back({{"weights", r.weights},
                      {"kv", r.kv},
                      {"text", r.text},
                      {"weight_bytes", r.weight_bytes},
                      {"session_bytes", r.session_bytes},
                      {"prompt_tokens_per_second", r.prompt_tokens_per_second},
                      {"tokens_per_second", r.tokens_per_second},
                      {"perplexity", r.perplexity},
                      {"kl", r.kl}});
    }
    json["models"].push_back(
        {{"model", model.name}, {"description", model.description}, {"rows", std::move(rows)}});
  }
  for (const AccuracyRow& row : report.attention) json["attention"].push_back(accuracy_json(row));
  return json;
}

}  // namespace halftone::app
