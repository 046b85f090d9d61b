#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>

#include "base/message.h"
#include "bench/engine.h"
#include "bench/families.h"
#include "halftone/sampling.h"
#include "measure/roofs.h"

extern char** environ;

namespace halftone {

namespace {

// This program with --help, until it has ended.
void start_and_end() {
  char program[] = "/proc/self/exe", help[] = "--help";
  char* arguments[] = {program, help, nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  if (posix_spawn(&child, program, &quiet, nullptr, arguments, environ) == 0) {
    waitpid(child, nullptr, 0);
  }
  posix_spawn_file_actions_destroy(&quiet);
}

BenchRow seconds_row(const std::string& name, const Timing& seconds) {
  BenchRow row;
  row.name = name;
  row.seconds = seconds;
  row.value = 1 / seconds.median;
  row.unit = "/s";
  return row;
}

}  // namespace

std::vector<BenchRow> bench_overhead(const CpuBench& asked) {
  const int repeats = asked.quick ? 9 : 31;
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, const std::function<void(int)>& f) {
    if (asked.choice.begins(name)) rows.push_back(seconds_row(name, median_seconds(repeats, f)));
  };
  add("start halftone --help", [](int) { start_and_end(); });
#if HALFTONE_HAS_ENGINE
  for (BenchRow& row : bench_engine_overhead(asked)) rows.push_back(std::move(row));
#endif
  std::vector<float> logits(128256);  // a large vocabulary
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0, 3);
  for (float& x : logits) x = normal(engine);
  const std::vector<int32_t> history(2048, 7);
  struct Case {
    const char* name;
    SamplingOptions options;
  };
  std::vector<Case> cases = {{"greedy", {}},
                             {"temperature", {}},
                             {"top-k 40, top-p 0.95", {}},
                             {"top-p 0.95, penalties", {}}};
  for (size_t i = 1; i < cases.size(); ++i) cases[i].options.temperature = 0.8f;
  cases[2].options.top_k = 40, cases[2].options.top_p = 0.95f;
  cases[3].options.top_p = 0.95f, cases[3].options.repetition_penalty = 1.1f;
  for (const Case& c : cases) {
    Sampler sampler(c.options);
    add(concat("sample one of ", logits.size(), " tokens, ", c.name),
        [&](int) { sampler.sample(logits, history); });
  }
  return rows;
}

}  // namespace halftone
