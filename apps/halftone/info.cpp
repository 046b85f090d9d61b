// halftone info: the machine, the devices, and which kernels are chosen and why.
#include <fmt/format.h>

#include <cstdlib>
#include <functional>

#include "base/kernel_table.h"
#include "command.h"
#include "console.h"
#include "halftone/halftone.h"
#include "info_problem.h"
#include "measure/machine.h"
#include "support_matrix.h"

namespace halftone::app {

namespace {

struct InfoArguments {
  bool json = false, matrix = false, why = false;
  std::vector<std::string> devices, problem;
};

struct Choice {
  std::string problem, plan;
  KernelTrace considered;
};

// The kernels of a device.
struct Choices {
  Device device;
  std::vector<Choice> all;

  template <class Problem>
  void add(const std::string& what, const Problem& problem) {
    Choice& c = all.emplace_back(Choice{what, "", {}});
    kernel_trace = &c.considered;
    const Support support = can_run(problem, device);
    kernel_trace = nullptr;
    c.plan = support ? describe(plan(problem, device)) : "not supported: " + support.reason;
  }
};

template <class Problem>
void set_weights(Problem& p, const std::string& weights) {
  if (weights == "bf16" || weights == "f32") {
    p.weight = parse_format(weights);
    if (weights == "f32") p.x = Format::f32;
  } else {
    const QuantizeOptions q = parse_quantization(weights);
    p.weight = q.format, p.scaling = q.scaling, p.scaled = true;
  }
}

MatmulProblem product(int64_t m, const std::string& weights) {
  MatmulProblem p;
  p.m = m, p.n = p.k = 4096;
  set_weights(p, weights);
  p.out = p.x;
  return p;
}

MoeProblem experts_of(int64_t tokens, const std::string& weights) {
  MoeProblem p;
  p.tokens = tokens, p.hidden = 2048, p.intermediate = 768, p.experts = 128, p.top_k = 8;
  set_weights(p, weights);
  return p;
}

AttentionProblem attention_of(int64_t queries, int64_t keys, const AttentionMode& mode) {
  AttentionProblem p;
  p.batch = 1, p.heads = 32, p.kv_heads = 8, p.head_dim = 128;
  p.query_length = queries, p.key_length = keys, p.causal = true;
  p.q = queries == 1 && !is_plain_float(mode.qk) ? Format::bf16 : mode.qk;
  p.k = mode.qk, p.v = mode.pv, p.mode = mode;
  p.out = mode.qk == Format::f32 ? Format::f32 : Format::bf16;
  return p;
}

// What a language model asks for, prefill and decode.
Choices choices(const Device& device) {
  Choices all{device, {}};
  for (const char* weights : {"f32", "bf16", "fp8", "mxfp8", "mxfp4", "nvfp4", "int8", "int4"}) {
    for (const int64_t m : {1, 32, 512}) {
      all.add(fmt::format("matmul {}x4096x4096, weights {}", m, weights), product(m, weights));
    }
  }
  for (const char* weights : {"bf16", "fp8", "mxfp4", "nvfp4"}) {
    for (const int64_t tokens : {1, 32, 512}) {
      all.add(fmt::format("8 of 128 experts, {} token{}, weights {}", tokens,
                          tokens == 1 ? "" : "s", weights),
              experts_of(tokens, weights));
    }
  }
  for (const AttentionMode& mode : attention_modes()) {
    all.add("attention prefill 2048, " + to_string(mode), attention_of(2048, 2048, mode));
    all.add("attention decode over 8192, " + to_string(mode), attention_of(1, 8192, mode));
  }
  all.add("rms norm 1x4096", NormProblem{1, 4096});
  all.add("swiglu 512x14336", SwigluProblem{512, 14336});
  all.add("softplus 512x4096", ActivationProblem{{512, 4096}, {.kind = Activation::softplus}});
  all.add("add 512x4096", ElementwiseProblem{Elementwise::add, {512, 4096}});
  all.add("sum 512x4096", ReduceProblem{Reduction::sum, {512, 4096}});
  all.add("transpose 512x4096", PermuteProblem{{512, 4096}, {1, 0}});
  Conv1dProblem stem;
  stem.in_channels = 80, stem.length = 3000, stem.out_channels = 384, stem.kernel = 3;
  stem.padding = 1;
  all.add("conv1d 80x3000 to 384, k 3", stem);
  all.add("rope 512 tokens, 32 heads", RopeProblem{512, 32, 128, Format::bf16, {}});
  all.add("softmax 512x32000", SoftmaxProblem{512, 32000});
  EmbeddingProblem e;
  e.tokens = 512, e.vocabulary = 32000, e.columns = 4096;
  all.add("embedding 512 of 32000", e);
  return all;
}

// What is asked for by name.
Choices choices(const Device& device, const std::vector<std::string>& problem) {
  Choices all{device, {}};
  std::visit([&](const auto& p) { all.add(fmt::format("{}", fmt::join(problem, " ")), p); },
             parse_gemm(problem));
  return all;
}

// On the devices asked for; else on the CPU and every GPU of this machine.
std::vector<Choices> choices(const InfoArguments& o) {
  std::vector<Device> devices;
  for (const std::string& device : o.devices) devices.push_back(Device::parse(device));
  if (devices.empty()) {
    devices.push_back(Device::cpu());
    for (int i = 0; i < cuda_device_count(); ++i) devices.push_back(Device::cuda(i));
  }
  std::vector<Choices> of_devices;
  for (const Device& device : devices) {
    of_devices.push_back(o.problem.empty() ? choices(device) : choices(device, o.problem));
  }
  return of_devices;
}

void print_json(const std::vector<Choices>& chosen) {
  nlohmann::json json{{"machine", machine(Stream::default_stream().threads())},
                      {"gpu_code", HALFTONE_GPU_CODE}};
  for (const DeviceState& d : devices()) {
    json["devices"].push_back({{"name", d.name}, {"available", d.available}, {"note", d.note}});
  }
  for (const Choices& of_device : chosen) {
    for (const Choice& c : of_device.all) {
      nlohmann::json considered = nlohmann::json::array();
      for (const auto& [kernel, reason] : c.considered) {
        considered.push_back({{"kernel", kernel}, {"refused_because", reason}});
      }
      json["kernels"].push_back({{"device", of_device.device.name()},
                                 {"problem", c.problem},
                                 {"plan", c.plan},
                                 {"considered", considered}});
    }
  }
  fmt::print("{}\n", json.dump(2));
}

void print_kernels(const Choices& chosen, bool why) {
  Table kernels({fmt::format("problem on {}", chosen.device.name()),
                 "kernel: the first of its family's table that device and problem allow"});
  for (const Choice& c : chosen.all) {
    kernels.add({c.problem, c.plan});
    if (!why) continue;
    for (const auto& [kernel, reason] : c.considered) {
      kernels.add({"", fmt::format("  {}: {}", kernel, reason.empty() ? "chosen" : reason)});
    }
  }
  fmt::print("\n{}", kernels.text());
}

void print_text(const std::vector<Choices>& chosen, bool why) {
  const Stream& stream = Stream::default_stream();
  const char* forced = std::getenv("HALFTONE_CPU");
  Table facts({"machine", ""});
  facts.add({"processor", cpu_name()});
  facts.add({"ISA level",
             fmt::format("{} in force{}, {} detected", name(cpu_level()),
                         forced != nullptr ? " (HALFTONE_CPU)" : "", name(detected_cpu_level()))});
  facts.add({"bf16 products", bf16_products()});
  facts.add({"threads",
             fmt::format("{} of {} usable processors", stream.threads(), available_processors())});
  facts.add({"memory", bytes(static_cast<double>(total_memory()))});
  facts.add({"build", version()});
  facts.add({"GPU code", HALFTONE_GPU_CODE});
  fmt::print("{}\n", facts.text());

  Table present({"device", "state"});
  for (const DeviceState& d : devices()) {
    present.add({d.name, d.available ? "available: " + d.note : d.note});
  }
  fmt::print("{}", present.text());
  for (const Choices& of_device : chosen) print_kernels(of_device, why);
  if (!why)
    fmt::print("\n{}\n", dim("--why shows the kernels that were passed over and the reasons"));
}

int run_info(const InfoArguments& o) {
  if (o.matrix) {
    fmt::print("{}", support_matrix());
  } else if (o.json) {
    print_json(choices(o));
  } else if (!o.problem.empty()) {
    for (const Choices& of_device : choices(o)) print_kernels(of_device, o.why);
  } else {
    print_text(choices(o), o.why);
  }
  return kOk;
}

std::function<int()> declare_info(CLI::App& app) {
  const auto o = std::make_shared<InfoArguments>();
  app.add_flag("--json", o->json, "one JSON object on stdout");
  app.add_flag("--matrix", o->matrix, "the support matrix in Markdown");
  app.add_flag("--why", o->why, "also the kernels passed over, with the reason");
  app.add_option("PROBLEM", o->problem, kGemmWords);
  app.add_option("--device", o->devices,
                 "whose kernels: cpu, cuda:N, sim:ARCH; default: the CPU's and every GPU's")
      ->allow_extra_args(false);
  return [o] { return run_info(*o); };
}

}  // namespace

Command info_command() {
  return {"info", "machine, devices, kernels chosen and why",
          "  halftone info --why\n"
          "  HALFTONE_CPU=avx2 halftone info\n"
          "  halftone info --device sim:sm_90a\n"
          "  halftone info --device sim:sm_90a --why matmul m=16 n=4096 k=4096 weight=nvfp4\n"
          "  halftone info --matrix\n",
          declare_info};
}

}  // namespace halftone::app
