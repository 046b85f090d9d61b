// Every row of `halftone bench` has a target or a reason to have none, every target has a row, and
// no row is compared with itself.
#include "bench/targets.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/run_command.h"

namespace halftone {
namespace {

using nlohmann::json;
using Of = BenchTarget::Of;

// All rows that there are, as the benches themselves name them: --quick has some of its own, and
// whole models are named on the command line.
std::vector<json> all_rows() {
  std::vector<json> rows;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{},
        {"--quick"},
        {"generate", "--device", "cuda:0", "--model", "gpt-oss-20b", "--weights", "stored"}}) {
    std::vector<std::string> call{"bench"};
    call.insert(call.end(), more.begin(), more.end());
    call.insert(call.end(), {"--list", "--json"});
    const test::CommandResult r = test::run_command(call);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    for (const json& row : json::parse(r.out)) rows.push_back(row);
  }
  return rows;
}

std::string key(const json& row) {
  return row.value("device", "") + " " + row.value("family", "") + ": " + row.value("name", "");
}

TEST(BenchTargets, EveryRowHasOneOrAReason) {
  size_t cpu = 0, gpu = 0;
  for (const json& row : all_rows()) {
    ++(row.at("device") == "cpu" ? cpu : gpu);
    EXPECT_TRUE(row.contains("target") || row.contains("no_target")) << key(row);
    if (!row.contains("entry")) continue;
    const auto entry = row.at("entry").get<size_t>();
    const char* family = row.contains("target") ? bench_targets()[entry].family
                                                : bench_without_target()[entry].family;
    EXPECT_EQ(family, row.value("device", "") + " " + row.value("family", "")) << key(row);
  }
  EXPECT_GT(cpu, 200u);
  EXPECT_GT(gpu, 700u);
}

TEST(BenchTargets, EveryEntryHasARow) {
  std::set<size_t> targets, reasons;
  for (const json& row : all_rows()) {
    if (!row.contains("entry")) continue;
    (row.contains("target") ? targets : reasons).insert(row.at("entry").get<size_t>());
  }
  for (size_t i = 0; i < bench_targets().size(); ++i) {
    EXPECT_TRUE(targets.contains(i))
        << bench_targets()[i].family << ": " << bench_targets()[i].rows;
  }
  for (size_t i = 0; i < bench_without_target().size(); ++i) {
    const BenchWithoutTarget& entry = bench_without_target()[i];
    EXPECT_TRUE(reasons.contains(i)) << entry.family << ": " << entry.rows;
  }
}

TEST(BenchTargets, NoRowIsComparedWithItself) {
  std::set<std::string> names;
  std::map<std::string, std::string> compared;
  for (const json& row : all_rows()) {
    names.insert(key(row));
    if (!row.contains("compared_with")) continue;
    json other = row;
    other["name"] = row.at("compared_with");
    EXPECT_NE(key(other), key(row));
    compared[key(other)] = key(row);
  }
  EXPECT_GT(compared.size(), 20u);
  for (const auto& [other, row] : compared) {
    EXPECT_TRUE(names.contains(other)) << row << " is compared with " << other << ", no row";
  }
}

TEST(BenchTargets, TargetsAreOfTheirFormats) {
  const auto bound = [](const char* family, const char* row) {
    const BenchTarget* target = target_of(family, row);
    return target == nullptr ? 0 : target->bound;
  };
  EXPECT_EQ(bound("gemv", "gemv 4096 x 4096, bf16 weights, 1 row"), 3.6);
  EXPECT_EQ(bound("gemv", "gemv 4096 x 4096, f16 weights, 1 row"), 3.6);
  EXPECT_EQ(bound("gemv", "gemv 4096 x 4096, int8_g64 weights, 1 row"), 3.0);
  EXPECT_EQ(bound("gemv", "gemv 4096 x 4096, int4_g64 weights, 1 row"), 2.2);
  EXPECT_EQ(bound("moe", "moe Qwen3-30B-A3B, 256 tokens, fp8 weights"), 0.85);
  EXPECT_EQ(bound("moe", "moe Qwen3-30B-A3B, 512 tokens, fp8 weights"), 0);  // 32 an expert
  EXPECT_EQ(bound("moe", "moe gpt-oss-20b, 256 tokens, mxfp4 weights"), 0);
}

BenchRow row_of(const char* name, double value, double peer = 0, const char* peer_name = "") {
  BenchRow row;
  row.name = name, row.value = value, row.peer = peer, row.peer_name = peer_name;
  row.unit = "TFLOP/s";
  return row;
}

TEST(BenchTargets, JudgesByTheRowOrThePeerThatTheTargetNames) {
  const std::vector<BenchRow> rows = {
      row_of("matmul 1024 x 14336 x 4096, bf16 weights x bf16", 700, 720, "cuBLASLt"),
      row_of("matmul 1024 x 14336 x 4096, nvfp4 weights x bf16", 600),
      row_of("prefill 1 x 16384, 16 heads of 128, full bf16+bf16", 700, 600, "cuDNN"),
      row_of("prefill 8 x 2048, 16 heads of 128, causal bf16+bf16", 500, 480, "FlashAttention-3"),
      row_of("prefill 8 x 2048, 16 heads of 128, causal bf16+bf16, softcap", 400)};
  const auto judged = [&](const char* family, size_t i) { return judge(family, rows[i], rows); };
  ASSERT_TRUE(judged("matmul", 0));
  EXPECT_FALSE(judged("matmul", 0)->met) << "by the peer, not by itself";
  EXPECT_NEAR(judged("matmul", 0)->reached, 700.0 / 720, 1e-12);
  ASSERT_TRUE(judged("matmul", 1));
  EXPECT_FALSE(judged("matmul", 1)->met);
  EXPECT_NEAR(judged("matmul", 1)->reached, 600.0 / 700, 1e-12);
  EXPECT_FALSE(judged("attention", 2)) << "another peer than the target's";
  EXPECT_TRUE(judged("attention", 3)->met);
  EXPECT_TRUE(judged("attention", 4)->met);
  EXPECT_FALSE(judge("matmul", rows[1], std::span(rows).subspan(1))) << "nothing to compare with";
}

}  // namespace
}  // namespace halftone
