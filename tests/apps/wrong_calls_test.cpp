// What a user may get wrong on the command line: each call ends with exit code 2 and one sentence
// on stderr that names it.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/run_command.h"

namespace halftone {
namespace {

struct WrongCall {
  std::vector<std::string> arguments;
  std::vector<std::string> words;  // of the sentence
  int exit_code = 2;
  std::vector<std::string> environment = {};
};

const std::string kBard = test::source("examples/models/bard");
const std::string kText = test::source("examples/models/heldout.txt");

std::vector<WrongCall> wrong_calls() {
  return {
      {{"genrate"}, {"\"genrate\"", "nearest is \"generate\""}},
      {{"--vers"}, {"--vers", "--version"}},
      {{"help", "quantise"}, {"\"quantise\"", "\"quantize\""}},
      {{"help", "info", "bench"}, {"one command at a time"}},
      {{"generate"}, {"MODEL is missing"}},
      {{"generate", kBard}, {"--prompt TEXT is missing"}},
      {{"generate", kBard, "--prompt", "a", "--prompt-file", "b"}, {"exclude each other"}},
      {{"generate", kBard, "--promt", "a"}, {"--promt", "nearest is --prompt"}},
      {{"generate", kBard, "--prompt"}, {"--prompt needs a value"}},
      {{"generate", kBard, "--prompt", "a", "--prompt", "b"}, {"--prompt", "more than once"}},
      {{"generate", kBard, "extra", "--prompt", "a"}, {"\"extra\"", "too many"}},
      {{"generate", "no/such/model", "--prompt", "a"}, {"no/such/model", "does not exist"}},
      {{"generate", kText, "--prompt", "a"}, {"heldout.txt"}},
      {{"generate", test::source("examples"), "--prompt", "a"}, {"config.json"}},
      {{"generate", kBard, "--prompt-file", "no/such/file"}, {"--prompt-file", "no/such/file"}},
      {{"generate", kBard, "--prompt-file", "/"}, {"--prompt-file", "directory"}},
      {{"generate", kBard, "--prompt", "a", "--weights", "nvfp5"}, {"nvfp5", "nvfp4"}},
      {{"generate", kBard, "--prompt", "a", "--kv", "int4"}, {"--kv", "int4", "nvfp4"}},
      {{"generate", kBard, "--prompt", "a", "--device", "cuda:0"}, {"cuda:0", "use cpu"}},
      {{"generate", kBard, "--prompt", "a", "--device", "tpu"}, {"tpu", "cpu, cuda:N"}},
      {{"generate", kBard, "--prompt", "a", "-n", "many"},
       {"--max-tokens", "many", "whole number"}},
      {{"generate", kBard, "--prompt", "a", "-n", "-5"}, {"--max-tokens", "-5"}},
      {{"generate", kBard, "--prompt", "a", "--threads", "0"}, {"--threads", "1 to 1024"}},
      {{"generate", kBard, "--prompt", "a", "--temperature", "-1"}, {"--temperature", "-1"}},
      {{"generate", kBard, "--prompt", "a", "--temperature", "nan"}, {"--temperature", "nan"}},
      {{"generate", kBard, "--prompt", "a", "--top-k", "1.5"}, {"--top-k", "1.5", "whole"}},
      {{"generate", kBard, "--prompt", "a", "--top-p", "0"}, {"top_p is 0"}},
      {{"generate", kBard, "--prompt", "a", "--top-p", "1.5"}, {"--top-p", "0 to 1"}},
      {{"generate", kBard, "--prompt", "a", "--min-p", "2"}, {"--min-p", "0 to 1"}},
      {{"generate", kBard, "--prompt", "a", "--repetition-penalty", "0"}, {"repetition_penalty"}},
      {{"generate", kBard, "--prompt", "a", "--seed", "-1"}, {"--seed", "-1"}},
      {{"quantize", kBard}, {"OUT is missing"}},
      {{"quantize", kBard, "out"}, {"--format is missing"}},
      {{"quantize", kBard, "/tmp/none", "--format", "fp8_1x128"}, {"fp8_1x128", "fp8_row"}},
      {{"quantize", kBard, kBard, "--format", "fp8"}, {"OUT", "MODEL itself"}},
      {{"perplexity", kBard}, {"TEXTFILE is missing"}},
      {{"perplexity", kBard, "no/such/text"}, {"TEXTFILE", "no/such/text"}},
      {{"perplexity", kBard, kText, "--against", "f33"}, {"--against", "f33", "f32"}},
      {{"perplexity", kBard, kText, "--window", "1"}, {"--window", "2 to"}},
      {{"check"}, {"WHAT is missing"}},
      {{"check", "atention"}, {"atention", "attention"}},
      {{"check", "matmul", "--head-dim", "64"}, {"--head-dim", "attention"}},
      {{"check", "matmul", "--model", "x"}, {"--model", "attention"}},
      {{"check", "attention", "--model", "x"}, {"--text"}},
      {{"check", "attention", "--model", "x", "--text", kText}, {"MODEL", "does not exist"}},
      {{"check", "attention", "--tokens", "9"}, {"--tokens", "--model"}},
      {{"check", "attention", "--model", "x", "--text", "-", "--keys", "9"}, {"--keys", "--model"}},
      {{"check", "attention", "--k", "64"}, {"--k", "matmul"}},
      {{"check", "attention", "--mode", "nvfp4+nvfp5"}, {"nvfp4+nvfp5", "nvfp4+"}},
      {{"check", "attention", "--heads", "3", "--kv-heads", "2"}, {"heads", "3", "2"}},
      {{"check", "matmul", "--mode", "int3"}, {"int3", "int"}},
      {{"bench", "matmull"}, {"matmull", "matmul"}},
      {{"bench"}, {"say what to measure", "gemv", "--suite cpu"}},
      {{"bench", "gemv", "--suite", "cpu"}, {"gemv", "--suite", "exclude"}},
      {{"bench", "--suite", "gpu"}, {"--suite", "gpu", "cpu"}},
      {{"bench", "attention", "--rows", "prefil1"}, {"no row", "prefil1"}},
      {{"bench", "gemv", "--from", kBard}, {"--from", "leave out"}},
      {{"bench", "attention", "--device", "sim:sm_90a"}, {"sim:sm_90a", "simulate"}},
      {{"bench", "attention", "--device", "gpu"}, {"device \"gpu\""}},
      {{"check", "ops", "--device", "sim:sm_90a"}, {"--device", "attention and matmul"}},
      {{"check", "attention", "--device", "sim:sm_70"}, {"device \"sim:sm_70\""}},
      {{"bench", "--from", "no/such/file"}, {"--from", "no/such/file", "cannot be read"}},
      {{"demo", "--models", "no/such/folder"}, {"no/such/folder/bard", "--models"}},
      {{"demo", "--models", test::source("examples/models"), "--table", "no/such/folder/table"},
       {"--table", "no/such/folder/table", "cannot be written"}},
      {{"info", "--mtrix"}, {"--mtrix", "--matrix"}},
      {{"info"}, {"HALFTONE_CPU", "sse9", "avx512"}, 2, {"HALFTONE_CPU=sse9"}},
      {{"info"}, {"HALFTONE_THREADS", "zero"}, 2, {"HALFTONE_THREADS=zero"}},
  };
}

TEST(WrongCalls, EndWithOneSentenceThatNamesTheMistake) {
  if (access(kBard.c_str(), R_OK) != 0) GTEST_SKIP() << kBard << " is absent";
  ASSERT_GE(wrong_calls().size(), 30u);
  for (const WrongCall& call : wrong_calls()) {
    std::string line = "halftone";
    for (const std::string& a : call.arguments) line += " " + a;
    SCOPED_TRACE(line);
    const test::CommandResult r =
        test::run_command(test::CommandCall{call.arguments, call.environment});
    EXPECT_EQ(r.exit_code, call.exit_code);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("halftone: ")) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    for (const std::string& word : call.words) {
      EXPECT_NE(r.err.find(word), std::string::npos) << "\"" << word << "\" not in: " << r.err;
    }
  }
}

TEST(WrongCalls, NoCommandShowsTheOverview) {
  const test::CommandResult r = test::run_command(std::vector<std::string>{});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("generate"), std::string::npos);
}

}  // namespace
}  // namespace halftone
