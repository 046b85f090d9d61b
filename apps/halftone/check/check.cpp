// halftone check: accuracy, with the error of the format apart from the error of the kernel.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "check/accuracy_table.h"
#include "check/attention.h"
#include "check/matmul.h"
#include "check/ops.h"
#include "command.h"
#include "console.h"
#include "measure/machine.h"
#include "weight_names.h"

namespace halftone::app {

namespace {

struct CheckArguments {
  std::string what, model, text, device = "cpu";
  std::vector<std::string> formats;
  std::optional<int64_t> m, n, k, queries, keys, heads, kv_heads, head_dim, tokens, threads, repeat;
  std::optional<uint64_t> seed;
  bool full = false, json = false;
};

std::vector<AccuracyRow> matmul_rows(const CheckArguments& o, Stream& stream) {
  MatmulCheck check;
  check.m = o.m.value_or(check.m);
  check.n = o.n.value_or(check.n);
  check.k = o.k.value_or(check.k);
  check.seed = o.seed.value_or(check.seed);
  check.formats = o.formats;
  check.runs = o.repeat.value_or(1);
  for (const std::string& format : o.formats) check_weights("check: --mode", format);
  for (const auto& [option, given] : {std::pair{"--queries", o.queries.has_value()},
                                      {"--keys", o.keys.has_value()},
                                      {"--heads", o.heads.has_value()},
                                      {"--kv-heads", o.kv_heads.has_value()},
                                      {"--head-dim", o.head_dim.has_value()},
                                      {"--full", o.full},
                                      {"--model", !o.model.empty()},
                                      {"--text", !o.text.empty()},
                                      {"--tokens", o.tokens.has_value()}}) {
    if (given) wrong_input(fmt::format("check: {} goes with attention, not with matmul", option));
  }
  return check_matmul(check, stream);
}

std::vector<AttentionData> attention_data(const CheckArguments& o) {
  if (o.model.empty() != o.text.empty()) {
    wrong_input("check: --model and --text go together: a model, and what it reads");
  }
  if (!o.model.empty()) {
    for (const auto& [option, given] : {std::pair{"--queries", o.queries.has_value()},
                                        {"--keys", o.keys.has_value()},
                                        {"--heads", o.heads.has_value()},
                                        {"--kv-heads", o.kv_heads.has_value()},
                                        {"--head-dim", o.head_dim.has_value()},
                                        {"--full", o.full},
                                        {"--seed", o.seed.has_value()}}) {
      if (given)
        wrong_input(fmt::format("check: {} is of random data, --model brings its own", option));
    }
#if HALFTONE_HAS_ENGINE
    return model_attention_data(o.model, read_text("--text", o.text), o.tokens.value_or(512),
                                static_cast<int>(o.threads.value_or(0)));
#else
    wrong_input("check: --model needs the engine, which this build is without");
#endif
  }
  if (o.tokens) wrong_input("check: --tokens goes with --model");
  CheckAttentionOptions check;
  check.queries = o.queries.value_or(check.queries);
  check.keys = o.keys.value_or(std::max(check.keys, check.queries));
  check.heads = o.heads.value_or(check.heads);
  check.kv_heads = o.kv_heads.value_or(o.heads ? *o.heads : check.kv_heads);
  check.head_dim = o.head_dim.value_or(check.head_dim);
  check.causal = !o.full;
  check.seed = o.seed.value_or(check.seed);
  return random_attention_data(check);
}

std::vector<AccuracyRow> attention_rows(const CheckArguments& o, Stream& stream) {
  for (const auto& [option, given] :
       {std::pair{"--m", o.m.has_value()}, {"--n", o.n.has_value()}, {"--k", o.k.has_value()}}) {
    if (given) wrong_input(fmt::format("check: {} goes with matmul, not with attention", option));
  }
  const std::vector<AttentionData> data = attention_data(o);
  if (o.formats.empty()) return check_attention(stream, data, {}, o.repeat.value_or(1));
  std::vector<AccuracyRow> rows;
  for (const std::string& name : o.formats) {
    const AttentionMode mode = parse_attention_mode(name);
    for (AccuracyRow& row : check_attention(stream, data, mode, o.repeat.value_or(1))) {
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

int run_check(const CheckArguments& o) {
  if (o.what != "attention" && o.what != "matmul" && o.what != "ops") {
    unknown_choice("check:", o.what, {"attention", "matmul", "ops"});
  }
  const Device device = Device::parse(o.device);
  if (o.what == "ops" && !device.is_cpu()) {
    wrong_input("check: --device goes with attention and matmul; ops runs on the cpu");
  }
  Stream stream(device, static_cast<int>(o.threads.value_or(0)));
  const std::vector<AccuracyRow> rows =
      o.what == "matmul" ? matmul_rows(o, stream)
      : o.what == "ops"  ? check_ops(o.formats, o.seed.value_or(1), stream, o.repeat.value_or(1))
                         : attention_rows(o, stream);
  if (o.json) {
    nlohmann::json json{
        {"check", o.what}, {"device", device.name()}, {"machine", machine(stream.threads())}};
    for (const AccuracyRow& row : rows) json["rows"].push_back(accuracy_json(row));
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}", accuracy_table(rows));
  }
  const auto differing = std::count_if(
      rows.begin(), rows.end(), [](const AccuracyRow& row) { return row.differing_runs > 0; });
  if (differing == 0) return kOk;
  fmt::print(stderr, "halftone: check: {} of {} rows gave other bits when they ran again\n",
             differing, rows.size());
  return kFailed;
}

std::function<int()> declare_check(CLI::App& app) {
  const auto o = std::make_shared<CheckArguments>();
  app.add_option("WHAT", o->what, "attention, matmul or ops")->required();
  app.add_option(
         "--mode", o->formats,
         "only this attention mode (qk+pv), weight format or format of ops; may be repeated")
      ->type_name("MODE")
      ->allow_extra_args(false);
  constexpr int64_t kMost = 1 << 20;
  add_number(app, "--m", o->m, 1, kMost, "matmul: rows of the activations (default 16)");
  add_number(app, "--n", o->n, 1, kMost, "matmul: rows of the weights (default 512)");
  add_number(app, "--k", o->k, 1, kMost, "matmul: length of the sums (default 1024)");
  add_number(app, "--queries", o->queries, 1, kMost, "attention: queries (default 128)");
  add_number(app, "--keys", o->keys, 1, kMost, "attention: keys (default 384)");
  add_number(app, "--heads", o->heads, 1, 4096, "attention: query heads (default 4)");
  add_number(app, "--kv-heads", o->kv_heads, 1, 4096, "attention: key heads (default 2)");
  add_number(app, "--head-dim", o->head_dim, 1, 4096, "attention: head dimension (default 128)");
  app.add_option("--model", o->model,
                 "attention: Q, K and V of this model's layers instead of random ones");
  app.add_option("--text", o->text, "attention: what the model reads; - is standard input");
  add_number(app, "--tokens", o->tokens, 1, kMost,
             "attention: tokens of it, at most (default 512)");
  app.add_flag("--full", o->full, "attention: every query sees every key, not the causal part");
  add_number(app, "--seed", o->seed, "of the random data (default 1)");
  add_number(app, "--repeat", o->repeat, 1, kMost,
             "runs of each kernel, which must all give the same bits (default 1)");
  app.add_option("--device", o->device, "attention, matmul: whose kernels; cpu, cuda:N or sim:ARCH")
      ->type_name("DEVICE");
  add_number(app, "--threads", o->threads, 1, 1024, "processor threads; default: all usable");
  app.add_flag("--json", o->json, "one JSON object on stdout");
  return [o] { return run_check(*o); };
}

}  // namespace

Command check_command() {
  return {"check", "accuracy of the operations: format error apart from kernel error",
          "  halftone check attention\n"
          "  halftone check attention --mode nvfp4+bf16 --head-dim 64 --keys 1000\n"
          "  halftone check attention --device cuda:0 --repeat 100\n"
          "  halftone check attention --model examples/models/bard --text "
          "examples/models/heldout.txt\n"
          "  halftone check matmul --mode nvfp4 --mode int4 --k 4096\n"
          "  halftone check matmul --json\n"
          "  halftone check ops --mode bf16\n",
          declare_check};
}

}  // namespace halftone::app
