// The command at work: streams, JSON, exit codes, interruption, terminals.
#include <gtest/gtest.h>
#include <pty.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "apps/run_command.h"

namespace halftone {
namespace {

using nlohmann::json;
using test::CommandCall;
using test::CommandResult;
using test::run_command;

const std::string kBard = test::source("examples/models/bard");
const std::string kText = test::source("examples/models/heldout.txt");
constexpr int kInterrupted = 130;

class WithModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kBard.c_str(), R_OK) != 0) GTEST_SKIP() << kBard << " is absent";
  }
};

TEST(Command, HelpIsFastAndComplete) {
  double best = 1;
  CommandResult r;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    r = run_command({"--help"});
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  EXPECT_EQ(r.exit_code, 0);
#if defined(HALFTONE_SANITIZED)
  EXPECT_LT(best, 1.0);
#else
  EXPECT_LT(best, 0.030);
#endif
  EXPECT_EQ(run_command({"help"}).out, r.out);
  for (const char* name : {"generate", "quantize", "perplexity", "demo", "check", "bench",
                           "inspect", "simulate", "info"}) {
    EXPECT_NE(r.out.find(name), std::string::npos);
    const CommandResult help = run_command({"help", name});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_NE(help.out.find(std::string("examples\n  ")), std::string::npos) << name;
    EXPECT_EQ(help.out, run_command({name, "--help"}).out);
  }
  EXPECT_TRUE(run_command({"--version"}).out.starts_with("halftone "));
}

TEST_F(WithModel, JsonAndStreamAgree) {
  const std::vector<std::string> call = {
      "generate", kBard, "--prompt", "ROMEO:", "-n", "24", "--seed", "7"};
  const CommandResult streamed = run_command(call);
  EXPECT_EQ(streamed.exit_code, 0);
  EXPECT_NE(streamed.err.find("tok/s"), std::string::npos);
  EXPECT_NE(streamed.err.find("memory"), std::string::npos);
  auto with_json = call;
  with_json.emplace_back("--json");
  const CommandResult r = run_command(with_json);
  EXPECT_EQ(r.exit_code, 0);
  const json object = json::parse(r.out);
  EXPECT_EQ(object.at("text").get<std::string>() + "\n", streamed.out);
  EXPECT_EQ(object.at("generated_tokens"), object.at("tokens").size());
  EXPECT_EQ(object.at("finish"), "length");
  EXPECT_GT(object.at("tokens_per_second").get<double>(), 0);
  EXPECT_GT(object.at("weight_bytes").get<int64_t>(), 1000000);
  EXPECT_EQ(object.at("sampling").at("seed"), 7);
  EXPECT_FLOAT_EQ(object.at("sampling").at("temperature").get<float>(), 0.8f);  // the model's own
  EXPECT_EQ(object.at("sampling").at("top_k"), 40);
  auto quiet = call;
  quiet.emplace_back("--quiet");
  const CommandResult silent = run_command(quiet);
  EXPECT_EQ(silent.out, streamed.out);
  EXPECT_EQ(silent.err, "");
}

TEST_F(WithModel, OptionsOverrideTheModelsDefaults) {
  const auto text = [](std::vector<std::string> extra, const char* tokens = "16") {
    std::vector<std::string> call = {"generate", kBard, "-n", tokens, "--quiet"};
    call.insert(call.end(), extra.begin(), extra.end());
    const CommandResult r = run_command(call);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.out;
  };
  const std::string greedy = text({"--prompt", "JULIET:", "--temperature", "0"});
  EXPECT_EQ(greedy, text({"--prompt", "JULIET:", "--top-k", "1", "--seed", "5"}));
  EXPECT_EQ(greedy, text({"--prompt", "JULIET:", "--temperature", "0", "--threads", "1"}));
  EXPECT_NE(greedy, text({"--prompt", "JULIET:", "--seed", "5"}));
  EXPECT_EQ(text({"--prompt", "JULIET:"}, "0"), "\n");
}

TEST_F(WithModel, PromptFromAFileAndStandardInput) {
  const CommandResult direct =
      run_command({"generate", kBard, "--prompt", "KING:", "-n", "8", "--quiet"});
  const CommandResult piped = run_command(
      CommandCall{{"generate", kBard, "--prompt-file", "-", "-n", "8", "--quiet"}, {}, "KING:"});
  EXPECT_EQ(direct.out, piped.out);
  EXPECT_EQ(piped.exit_code, 0);
}

TEST_F(WithModel, StopTextsEndTheOutput) {
  const std::vector<std::string> call = {"generate", kBard,           "--prompt", "ROMEO:", "-n",
                                         "60",       "--temperature", "0",        "--json"};
  const json whole = json::parse(run_command(call).out);
  const std::string text = whole.at("text");
  ASSERT_GT(text.size(), 12u);
  const std::string stop = text.substr(8, 3);
  auto stopping = call;
  stopping.insert(stopping.end(), {"--stop", "never to be seen", "--stop", stop});
  const json cut = json::parse(run_command(stopping).out);
  EXPECT_EQ(cut.at("text"), text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.at("finish"), "stop");
}

TEST_F(WithModel, CtrlCEndsGenerationWithItsTextSoFar) {
  const CommandResult r = run_command(CommandCall{
      {"generate", kBard, "--prompt", "ROMEO:", "-n", "400", "--ignore-eos"}, {}, "", SIGINT});
  EXPECT_EQ(r.exit_code, kInterrupted) << r.err;
  EXPECT_TRUE(r.out.ends_with("\n"));
  EXPECT_NE(r.err.find("tok/s"), std::string::npos);  // the figures still come
}

TEST_F(WithModel, ChatKeepsTheCacheBetweenTurns) {
  const std::vector<std::string> call = {
      "chat", kBard, "--template", "plain", "--max-tokens", "6", "--temperature", "0", "--json"};
  const CommandResult r =
      run_command(CommandCall{call, {}, "Hello\nAgain\n/reset\nHello\n/exit\n"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  std::vector<json> turns;
  std::istringstream lines(r.out);
  json last;
  for (std::string line; std::getline(lines, line); last = json::parse(line)) {
    if (json event = json::parse(line); event.at("event") == "turn") turns.push_back(event);
  }
  EXPECT_EQ(last.at("event"), "end");
  EXPECT_EQ(last.at("finish"), "exit");
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_EQ(turns[0].at("reused_tokens"), 0);
  EXPECT_GT(turns[1].at("reused_tokens").get<int>(), 4);  // the first turn, still in the cache
  EXPECT_EQ(turns[2].at("text"), turns[0].at("text"));    // forgotten: the same answer again
}

TEST_F(WithModel, CtrlCEndsAChat) {
  const CommandResult r = run_command(CommandCall{
      {"chat", kBard, "--template", "plain", "-n", "400", "--json"}, {}, "Hello\n", SIGINT});
  EXPECT_EQ(r.exit_code, kInterrupted) << r.out << r.err;
}

TEST(Command, CtrlCEndsOtherCommandsAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const CommandResult r = run_command(CommandCall{
      {"check", "attention", "--repeat", "100"}, {}, "", SIGINT, CommandCall::When::start});
  EXPECT_EQ(r.exit_code, kInterrupted);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 5.0);
}

TEST(Command, CtrlCEndsABenchmarkWithItsRowsSoFar) {
  const CommandResult r = run_command(CommandCall{{"bench", "ops", "--quick", "--json"},
                                                  {},
                                                  "",
                                                  SIGINT,
                                                  CommandCall::When::err});  // the first row begins
  EXPECT_EQ(r.exit_code, kInterrupted) << r.err;
  EXPECT_TRUE(r.err.starts_with("bench: rms norm")) << r.err;
  const json report = json::parse(r.out);
  EXPECT_TRUE(report.at("conditions").at("ended_early"));
  ASSERT_EQ(report.at("families").size(), 1u);
  EXPECT_LT(report.at("families")[0].at("rows").size(), 30u);  // of 55
}

TEST_F(WithModel, PerplexityOfTheExactModelAndOfFourBits) {
  const auto score = [](std::vector<std::string> extra) {
    std::vector<std::string> call = {"perplexity", kBard, kText, "--json"};
    call.insert(call.end(), extra.begin(), extra.end());
    const CommandResult r = run_command(call);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return json::parse(r.out);
  };
  const json exact = score({"--weights", "f32", "--kv", "f32"});
  EXPECT_LT(exact.at("kl").get<double>(), 1e-9);
  EXPECT_NEAR(exact.at("perplexity").get<double>(), 30.8, 0.5);  // as its card says
  const json rough = score({"--weights", "nvfp4", "--window", "128"});
  EXPECT_GT(rough.at("kl").get<double>(), 1e-3);
  EXPECT_LT(rough.at("kl").get<double>(), 0.1);
  EXPECT_LT(rough.at("weight_bytes").get<int64_t>(), exact.at("weight_bytes").get<int64_t>() / 3);
  EXPECT_FALSE(score({"--against", "none"}).contains("kl"));
}

TEST_F(WithModel, PerplexityBesideAnotherDevice) {
  const CommandResult r = run_command(
      {"perplexity", kBard, kText, "--weights", "fp8", "--kv", "fp8", "--beside", "cpu", "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const json row = json::parse(r.out).at("rows").at(0);
  EXPECT_EQ(row.at("same_tokens"), row.at("tokens"));
  EXPECT_EQ(row.at("nll_difference").get<double>(), 0);
  EXPECT_GT(row.at("scored").get<int64_t>(), 1000);
}

TEST_F(WithModel, QuantizedCheckpointsLoadAgain) {
  const std::string folder = testing::TempDir() + "halftone_quantize_" + std::to_string(getpid());
  for (const char* format : {"fp8", "nvfp4"}) {
    const std::string out = folder + "_" + format;
    ASSERT_EQ(run_command({"quantize", kBard, out, "--format", format}).exit_code, 0);
    const CommandResult r =
        run_command({"generate", out, "--prompt", "ROMEO:", "-n", "8", "--json"});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_LT(json::parse(r.out).at("weight_bytes").get<int64_t>(), 2500000);
    std::filesystem::remove_all(out);
  }
}

TEST(Command, InfoCheckAndBenchSpeakJson) {
  const json info = json::parse(run_command({"info", "--json"}).out);
  EXPECT_GE(info.at("machine").at("threads").get<int>(), 1);
  EXPECT_GT(info.at("kernels").size(), 10u);
  EXPECT_FALSE(info.at("kernels")[0].at("considered").empty());
  const json& cpu = info.at("devices").front();
  EXPECT_EQ(cpu.at("name"), "cpu");
  const json& gpu = info.at("devices").at(1);  // there with its limits, or with what to do
  EXPECT_EQ(gpu.at("name"), "cuda:0");
  EXPECT_NE(
      gpu.at("note").get<std::string>().find(gpu.at("available") ? "shared memory" : "use cpu"),
      std::string::npos);
  const json& simulated = info.at("devices").back();
  EXPECT_EQ(simulated.at("name"), "sim:sm_120a");
  EXPECT_TRUE(simulated.at("available"));
  const json low =
      json::parse(run_command(CommandCall{{"info", "--json"}, {"HALFTONE_CPU=baseline"}}).out);
  EXPECT_EQ(low.at("machine").at("cpu_level"), "baseline");
  EXPECT_EQ(low.at("machine").at("bf16_products"), "f32");
  EXPECT_NE(low.at("kernels"), info.at("kernels"));
  // Kernels of a GPU, of this machine or not, with those that were passed over.
  const json hopper =
      json::parse(run_command({"info", "--device", "sim:sm_90a", "--json"}).out).at("kernels");
  const auto kernel = [&](const std::string& problem) {
    const auto found = std::find_if(hopper.begin(), hopper.end(),
                                    [&](const json& row) { return row.at("problem") == problem; });
    return found == hopper.end() ? "nothing" : found->at("plan").get<std::string>();
  };
  EXPECT_EQ(hopper[0].at("device"), "sim:sm_90a");
  EXPECT_TRUE(kernel("attention prefill 2048, fp8+fp8").starts_with("attention_sm90_fp8"))
      << kernel("attention prefill 2048, fp8+fp8");
  EXPECT_TRUE(kernel("matmul 512x4096x4096, weights nvfp4").starts_with("gemm_sm90_mixed:"))
      << kernel("matmul 512x4096x4096, weights nvfp4");
  const std::string matrix = run_command({"info", "--matrix"}).out;
  EXPECT_TRUE(matrix.starts_with(
      "| operation | formats | cpu | sm_80 † | sm_89 † | sm_90a | sm_100a † | sm_120a † |"))
      << matrix.substr(0, 200);

  const json check = json::parse(run_command({"check", "matmul", "--mode", "nvfp4", "--json"}).out);
  ASSERT_EQ(check.at("rows").size(), 2u);
  EXPECT_GT(check.at("rows")[0].at("format").at("cosine").get<double>(), 0.99);
  EXPECT_LT(check.at("rows")[0].at("kernel").at("relative_l2").get<double>(), 1e-5);
  const json attention = json::parse(run_command({"check", "attention", "--mode", "nvfp4+bf16",
                                                  "--keys", "64", "--queries", "8", "--json"})
                                         .out);
  EXPECT_EQ(attention.at("rows").size(), 6u);  // as it is, and transformed
  EXPECT_GT(attention.at("rows")[5].at("total").at("rmse").get<double>(), 0);
  const json again = json::parse(run_command({"check", "attention", "--mode", "fp8+fp8", "--keys",
                                              "64", "--queries", "8", "--repeat", "3", "--json"})
                                     .out);
  EXPECT_EQ(again.at("rows")[0].at("repeat"), json({{"runs", 3}, {"differing", 0}}));
  for (const char* what : {"matmul", "ops"}) {
    const CommandResult r = run_command({"check", what, "--mode", "bf16", "--repeat", "2"});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_NE(r.out.find("runs with the same bits"), std::string::npos);
    EXPECT_NE(r.out.find("2 of 2"), std::string::npos);
  }
  const json model = json::parse(
      run_command({"check", "attention", "--mode", "mxfp8+bf16", "--model", kBard, "--text",
                   test::source("examples/models/heldout.txt"), "--tokens", "64", "--json"})
          .out);
  ASSERT_EQ(model.at("rows").size(), 8u);  // three layers, and all of them, in two ways
  EXPECT_EQ(model.at("rows")[2].at("data"), "layer 1");
  EXPECT_GT(model.at("rows")[6].at("format").at("cosine").get<double>(), 0.99);

  const json bench = json::parse(run_command({"bench", "ops", "--quick", "--json"}).out);
  EXPECT_EQ(bench.at("benchmark"), "ops");
  EXPECT_GT(bench.at("families")[0].at("rows")[0].at("fraction_of_roof").get<double>(), 0);
  EXPECT_TRUE(bench.at("machine").contains("commit"));
  const CommandResult some =
      run_command({"bench", "overhead", "--quick", "--rows", "start", "greedy", "--json"});
  const json rows = json::parse(some.out).at("families")[0].at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("name"), "start halftone --help");
  EXPECT_EQ(rows[1].at("name"), "sample one of 128256 tokens, greedy");
}

// Standard output of a call whose terminal is a pseudo-terminal; none where the system has none to
// give (a bare container).
std::optional<std::string> on_terminal(const char* no_color) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child < 0) return std::nullopt;
  if (child == 0) {
    setenv("TERM", "xterm", 1);
    no_color != nullptr ? setenv("NO_COLOR", no_color, 1) : unsetenv("NO_COLOR");
    execl(HALFTONE_COMMAND, HALFTONE_COMMAND, "--help", nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  close(terminal);
  waitpid(child, nullptr, 0);
  return text;
}

TEST(Command, ColoursOnlyOnATerminalThatWantsThem) {
  EXPECT_EQ(run_command({"--help"}).out.find('\x1b'), std::string::npos);
  const auto wanted = on_terminal(nullptr), refused = on_terminal("1");
  if (!wanted || !refused) GTEST_SKIP() << "this system has no pseudo-terminals";
  EXPECT_NE(wanted->find('\x1b'), std::string::npos);
  EXPECT_EQ(refused->find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace halftone
