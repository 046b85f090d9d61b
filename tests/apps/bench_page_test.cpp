// The page of `halftone bench --html` in a real browser: Chromium, headless. Skipped without one.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/run_command.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::run_command;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> part{};
  for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  pclose(pipe);
  return text;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t i = text.find(what); i != std::string::npos; i = text.find(what, i + 1)) ++n;
  return n;
}

class BenchPage : public ::testing::Test {
 protected:
  void SetUp() override {
    if (output_of("command -v chromium").empty()) {
      GTEST_SKIP() << "chromium is not installed; the page is not opened";
    }
    folder_ = fs::temp_directory_path() / ("halftone-page-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  // Two families of three rows; one name that is markup, one row without a roof.
  std::string page() const {
    const auto row = [](const std::string& name, double value, double bound) {
      return json{
          {"name", name},
          {"seconds", 1e-3},
          {"seconds_quartiles", {0.9e-3, 1.2e-3}},
          {"repeats", 5},
          {"value", value},
          {"unit", "GB/s"},
          {"roof", 100.0},
          {"roof_name", "memory read"},
          {"fraction_of_roof", value / 100},
          {"flops", 2e9},
          {"bytes", 1e8},
          {"published", {{{"peer", "ggml"}, {"value", 30.0}, {"unit", "GB/s"}}}},
          {"target",
           {{"text", "0.8 of the roof"}, {"reached", value / 100}, {"met", value / 100 >= bound}}}};
    };
    json bare = row("bare", 5, 0.8);
    for (const char* key : {"roof", "roof_name", "fraction_of_roof", "target", "published"}) {
      bare.erase(key);
    }
    // Targets are those of the table, by the names of family and row.
    const auto family = [&](const char* name, const std::string& rows) {
      return json{{"name", name},
                  {"title", name},
                  {"rows",
                   {row(rows + "met & more", 90, 0.8), row(rows + "</script><b id=\"x\">", 40, 0.8),
                    bare}}};
    };
    const json report{{"machine",
                       {{"processor", "a processor"},
                        {"cpu_level", "avx2"},
                        {"threads", 2},
                        {"version", "1"},
                        {"commit", "abc"},
                        {"compiler", "g++"}}},
                      {"conditions",
                       {{"started", "now"},
                        {"quick", false},
                        {"load_average_before", "0"},
                        {"load_average_after", "0"}}},
                      {"published_source", "somebody"},
                      {"roofs",
                       {{"read", {{"value", 90.0}, {"unit", "GB/s"}}},
                        {"f32", {{"value", 500.0}, {"unit", "GFLOP/s"}}},
                        {"bf16", {{"value", 1000.0}, {"unit", "GFLOP/s"}}},
                        {"int8", {{"value", 2000.0}, {"unit", "GOP/s"}}}}},
                      {"families",
                       {family("gemv", "gemv 4096x4096 nvfp4 weights "),
                        family("attention", "decode 32/8 heads of 128, cache 8192 ")}}};
    std::ofstream(folder_ / "report.json") << report.dump();
    const test::CommandResult r =
        run_command({"bench", "--from", (folder_ / "report.json").string(), "--html",
                     (folder_ / "page.html").string(), "--json"});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    std::ostringstream text;
    text << std::ifstream(folder_ / "page.html").rdbuf();
    return text.str();
  }

  // What the browser made of it.
  std::string rendered(const std::string& html, int width) const {
    std::ofstream(folder_ / "shown.html") << html;
    return output_of("HOME=" + folder_.string() +
                     " chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
                     "--host-resolver-rules='MAP * ~NOTFOUND' --virtual-time-budget=2000 "
                     "--window-size=" +
                     std::to_string(width) + ",900 --dump-dom file://" +
                     (folder_ / "shown.html").string() + " 2>/dev/null");
  }

  fs::path folder_;
};

TEST_F(BenchPage, DrawsItsChartsAndTables) {
  const std::string html = page();
  EXPECT_EQ(count(html, "http://"), 1u) << "the name space of SVG alone";
  EXPECT_EQ(count(html, "https://"), 0u);
  for (const int width : {390, 1280}) {  // a phone and a desk
    const std::string dom = rendered(html, width);
    EXPECT_EQ(count(dom, "data-error"), 0u + count(html, "data-error"));
    EXPECT_EQ(count(dom, "class=\"bars\""), 2u);
    EXPECT_EQ(count(dom, "class=\"bar met\""), 2u);
    EXPECT_EQ(count(dom, "class=\"bar missed\""), 2u);
    EXPECT_EQ(count(dom, "class=\"aim\""), 4u);
    EXPECT_EQ(count(dom, "class=\"roofline\""), 1u);
    EXPECT_EQ(count(dom, "class=\"point "), 6u);
    EXPECT_EQ(count(dom, "class=\"roof\""), 3u);
    EXPECT_EQ(count(dom, "role=\"img\""), count(dom, "aria-label=\"Roofline") + 2);
    EXPECT_EQ(count(dom, "<tr>"), 8u);  // two heads, six rows
    EXPECT_GE(count(dom, "met &amp; more"), 2u);
    EXPECT_EQ(count(dom, "<b id="), 0u) << "a row's name was taken for markup";
    EXPECT_NE(dom.find("2 of 4</b>targets met"), std::string::npos);
  }
}

// What the command itself measures and writes: a row of three families, in both files.
TEST_F(BenchPage, ASuiteAsItIsMeasured) {
  const std::string page = (folder_ / "suite.html").string();
  const std::string file = (folder_ / "suite.json").string();
  const test::CommandResult r =
      run_command({"bench", "--suite", "cpu", "--quick", "--rows", "start", "silu 512x4096",
                   "1500 full", "--json", file, "--html", page});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json report = json::parse(std::ifstream(file));
  EXPECT_EQ(report.at("benchmark"), "cpu");
  ASSERT_EQ(report.at("families").size(), 3u);
  EXPECT_EQ(report["families"][0].at("rows").size(), 1u);
  std::ostringstream html;
  html << std::ifstream(page).rdbuf();
  const std::string dom = rendered(html.str(), 1280);
  EXPECT_EQ(count(dom, "data-error"), count(html.str(), "data-error"));
  EXPECT_EQ(count(dom, "<tr>"), 6u);  // three heads, three rows
  EXPECT_EQ(count(dom, "class=\"roofline\""), 1u);
  EXPECT_EQ(count(dom, "class=\"point "), 1u);  // of the row that counts operations and bytes
}

// The test above notices a page whose script fails.
TEST_F(BenchPage, AnErrorInThePageIsSeen) {
  std::string html = page();
  const std::string start = "function roofline(width) {";
  const size_t at = html.find(start);
  ASSERT_NE(at, std::string::npos);
  const size_t before = count(html, "data-error");
  html.insert(at + start.size(), "throw new Error(\"deliberate\");");
  const std::string dom = rendered(html, 1280);
  EXPECT_GT(count(dom, "data-error"), before);
  EXPECT_EQ(count(dom, "class=\"point "), 0u);
}

}  // namespace
}  // namespace halftone
