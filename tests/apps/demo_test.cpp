// The screen that `halftone demo` ends with, and its JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>
#include <string>

#include "demo_report.h"

namespace halftone::app {
namespace {

AccuracyRow row(const char* mode, double format, double kernel, const char* refused = "") {
  AccuracyRow r;
  r.mode = mode, r.data = "normal", r.refused = refused;
  r.format_relative_l2 = format, r.kernel_relative_l2 = kernel;
  return r;
}

DemoReport report() {
  DemoReport report;
  report.machine = "a processor, avx2, 2 threads";
  report.models_folder = "examples/models";
  report.command = "build/release/apps/halftone/halftone";
  report.table = "build/demo-attention.txt";
  for (const char* name : {"bard", "bard-moe"}) {
    DemoModel model{name, "some layers", {}};
    for (const char* weights : {"f32", "bf16", "fp8", "mxfp8", "nvfp4", "int4"}) {
      model.runs.push_back(
          {weights, "bf16", "ROMEO: ay", 2000000, 30000, 900.4, 456.6, 30.81, 2e-3});
    }
    report.models.push_back(model);
  }
  for (int i = 0; i < 100; ++i) report.attention.push_back(row("bf16+bf16", 0.01, 0.001));
  report.attention.push_back(row("f32+f32", 0, 1e-7));  // rounds nothing: neither best nor worst
  report.attention.push_back(row("tf32+tf32", 1e-4, 1e-6));
  report.attention.push_back(row("nvfp4+nvfp4", 0.25, 0.02));
  report.attention.push_back(row("int3+int3", 9, 9, "no such kernel"));
  return report;
}

bool has_line(const std::string& text, const std::string& begin, const std::string& part) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(begin) && line.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(Demo, EndsWithOneScreen) {
  const std::string text = demo_screen(report());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 110u) << line;
  for (const char* weights : {"f32", "bf16", "fp8", "mxfp8", "nvfp4", "int4"}) {
    EXPECT_TRUE(has_line(text, weights, "457")) << weights << "\n" << text;
    EXPECT_TRUE(has_line(text, weights, "30.81")) << weights << "\n" << text;
  }
  EXPECT_TRUE(has_line(text, "  best   tf32+tf32", "0.0001")) << text;
  EXPECT_TRUE(has_line(text, "  worst  nvfp4+nvfp4", "0.25")) << text;
  EXPECT_TRUE(has_line(text, "attention", "103 rows")) << text;
  EXPECT_TRUE(has_line(text, "attention", "1 refused")) << text;
  EXPECT_TRUE(has_line(text, "  all", "build/demo-attention.txt")) << text;
  EXPECT_TRUE(
      has_line(text, "  build/release/apps/halftone/halftone chat", "examples/models/bard"));
}

TEST(Demo, AResultThatIsNoNumberIsTheWorst) {
  DemoReport r = report();
  r.attention.insert(r.attention.begin() + 3,
                     row("fp8+fp8", 0.1, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(has_line(demo_screen(r), "  worst  fp8+fp8", "nan")) << demo_screen(r);
}

TEST(Demo, JsonHasEveryRow) {
  const nlohmann::json json = demo_json(report());
  ASSERT_EQ(json.at("models").size(), 2u);
  EXPECT_EQ(json.at("models")[1].at("model"), "bard-moe");
  ASSERT_EQ(json.at("models")[1].at("rows").size(), 6u);
  EXPECT_EQ(json.at("models")[0].at("rows")[4].at("weights"), "nvfp4");
  EXPECT_EQ(json.at("models")[0].at("rows")[4].at("text"), "ROMEO: ay");
  EXPECT_EQ(json.at("models")[0].at("rows")[4].at("kl").get<double>(), 2e-3);
  ASSERT_EQ(json.at("attention").size(), 104u);
  EXPECT_EQ(json.at("attention")[102].at("format").at("relative_l2").get<double>(), 0.25);
  EXPECT_EQ(json.at("attention")[103].at("refused"), "no such kernel");
}

}  // namespace
}  // namespace halftone::app
