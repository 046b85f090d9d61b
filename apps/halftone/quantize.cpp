// halftone quantize: a checkpoint in another format.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "command.h"
#include "console.h"
#include "model_options.h"

namespace halftone::app {

namespace {

struct QuantizeArguments {
  std::string model, out, format;
  std::optional<int64_t> shard;
};

int64_t size_of(const std::string& path) {
  namespace fs = std::filesystem;
  if (!fs::is_directory(path)) return static_cast<int64_t>(fs::file_size(path));
  int64_t total = 0;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file()) total += static_cast<int64_t>(entry.file_size());
  }
  return total;
}

int run_quantize(const QuantizeArguments& o) {
  const std::vector<std::string> formats = {
      "f32",   "f16",   "bf16", "fp8",  "fp8_row",  "fp8_tensor", "nvfp4",
      "mxfp8", "mxfp4", "int8", "int4", "int4_g64", "int4_g128"};
  if (std::find(formats.begin(), formats.end(), o.format) == formats.end()) {
    unknown_choice("quantize: --format", o.format, formats);
  }
  check_model_path(o.model);
  std::error_code error;
  if (std::filesystem::equivalent(o.model, o.out, error)) {
    wrong_input(fmt::format("quantize: OUT \"{}\" is MODEL itself; give another directory", o.out));
  }
  {
    Progress bar("quantizing to " + o.format);
    save_checkpoint(o.model, o.out, o.format, bar.callback(), o.shard.value_or(5'000'000'000));
  }
  fmt::print(stderr, "{}: {} -> {}: {}\n", o.model, bytes(static_cast<double>(size_of(o.model))),
             o.out, bytes(static_cast<double>(size_of(o.out))));
  return kOk;
}

std::function<int()> declare_quantize(CLI::App& app) {
  const auto o = std::make_shared<QuantizeArguments>();
  app.add_option("MODEL", o->model, "the model to read")->required();
  app.add_option("OUT", o->out, "the directory to write")->required();
  app.add_option("--format", o->format,
                 "f32, f16, bf16, fp8 (128x128 blocks), fp8_row, fp8_tensor, nvfp4, mxfp8, mxfp4, "
                 "int8 or int4 (groups of 32; int4_g64, int4_g128)")
      ->type_name("FORMAT")
      ->required();
  add_number(app, "--shard-bytes", o->shard, 1, int64_t{1} << 50,
             "most bytes of one file; more become several with an index (default 5e9)");
  return [o] { return run_quantize(*o); };
}

}  // namespace

Command quantize_command() {
  return {"quantize", "write a model's checkpoint in another format",
          "  halftone quantize examples/models/bard bard-fp8 --format fp8\n"
          "  halftone quantize examples/models/bard bard-nvfp4 --format nvfp4\n",
          declare_quantize};
}

}  // namespace halftone::app
