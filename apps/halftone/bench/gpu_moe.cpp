// Layers of experts on a GPU, from one token to thousands: beside the bytes of the experts that the
// tokens meet, or the operations, whichever takes longer.
#include <set>
#include <utility>

#include "base/message.h"
#include "bench/gpu.h"
#include "bench/gpu_data.h"
#include "halftone/moe.h"
#include "halftone/quantize.h"

namespace halftone {

namespace {

struct Layer {
  const char* model;
  int64_t experts, hidden, intermediate;
  int top_k;
};
constexpr Layer kQwen{"Qwen3-30B-A3B", 128, 2048, 768, 8};
constexpr Layer kGptOss{"gpt-oss-20b", 32, 2880, 2880, 4};
constexpr Layer kDeepSeek{"DeepSeek-V3", 256, 7168, 2048, 8};

// Few tokens meet other experts in every call, so that their weights come from memory.
constexpr int kRoutings = 8;

struct Routed {
  std::vector<Routing> all;
  double experts = 0;  // met, on average
};
Routed routings(const Layer& l, int64_t tokens, const Device& device) {
  Routed r;
  RoutingOptions options;
  options.top_k = l.top_k;
  for (uint64_t i = 0; i < kRoutings; ++i) {
    const Routing routing = route(normal_data({tokens, l.experts}, 10 + 31 * i), options);
    const auto* e = routing.experts.data<int32_t>();
    r.experts += static_cast<double>(std::set<int32_t>(e, e + tokens * l.top_k).size()) / kRoutings;
    r.all.push_back({routing.experts.to(device), routing.weights.to(device)});
  }
  return r;
}

std::string row_name(const Layer& l, int64_t tokens, const char* format) {
  return concat("moe ", l.model, ", ", tokens, tokens == 1 ? " token, " : " tokens, ", format,
                " weights");
}

std::vector<BenchRow> layer(const Layer& l, const char* format, const std::vector<int64_t>& sweep,
                            const GpuBench& b) {
  const Device& device = b.stream.device();
  MoeProblem p;
  p.hidden = l.hidden, p.intermediate = l.intermediate, p.experts = l.experts, p.top_k = l.top_k;
  ExpertTensors tensors;
  const auto weights = [&](const Shape& shape, uint64_t seed) {
    const Tensor t = in_format(normal_on_device(shape, seed, b.stream), format, b.stream);
    b.stream.synchronize();
    return t;
  };
  tensors.gate_up = weights({l.experts, 2 * l.intermediate, l.hidden}, 1);
  tensors.all_down = weights({l.experts, l.hidden, l.intermediate}, 2);
  p.weight = tensors.gate_up.format();
  p.scaled = tensors.gate_up.has_scales();
  if (p.scaled) p.scaling = tensors.gate_up.scaling();
  const double expert_bytes =
      static_cast<double>(tensors.gate_up.bytes() + tensors.all_down.bytes()) /
      static_cast<double>(l.experts);
  const MoeWeights bound = bind_experts(p, std::move(tensors));
  std::vector<BenchRow> rows;
  for (const int64_t tokens : sweep) {
    if (!b.choice.begins(row_name(l, tokens, format))) break;
    p.tokens = tokens;
    const MoePlan made = plan(p, device);
    const Tensor x = normal_on_device({tokens, l.hidden}, 3, b.stream);
    const Tensor out = Tensor::empty(x.shape(), x.format(), device);
    const Routed routed = routings(l, tokens, device);
    BenchRow row;
    row.name = row_name(l, tokens, format);
    row.flops = 6.0 * static_cast<double>(tokens * l.top_k) *
                static_cast<double>(l.hidden * l.intermediate);
    row.bytes = routed.experts * expert_bytes + static_cast<double>(x.bytes() + out.bytes());
    const GpuTiming time = time_in_graph(
        b.stream, kRoutings,
        [&](int i, Stream& stream) {
          MoeTensors t;
          t.x = x, t.routing = routed.all[static_cast<size_t>(i)], t.out = out, t.weights = &bound;
          run(made, t, stream);
        },
        b.timing());
    set_either(time, b.roofs, &row);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

std::vector<BenchRow> bench_gpu_moe(const GpuBench& b) {
  const std::vector<int64_t> few = {1, 8, 64, 512};
  const std::vector<int64_t> all = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  std::vector<BenchRow> rows;
  const auto add = [&](const Layer& l, const char* format, std::vector<int64_t> sweep) {
    std::erase_if(sweep,
                  [&](int64_t tokens) { return !b.choice.asks_for(row_name(l, tokens, format)); });
    if (sweep.empty() || b.choice.stop.stop_requested()) return;
    if (b.choice.only_lists()) {
      for (const int64_t tokens : sweep) {
        static_cast<void>(b.choice.begins(row_name(l, tokens, format)));
      }
      return;
    }
    for (BenchRow& row : layer(l, format, sweep, b)) rows.push_back(std::move(row));
  };
  for (const char* format : {"bf16", "fp8", "nvfp4", "mxfp4", "int4", "int4_g128"})
    add(kQwen, format, b.few_sizes() ? few : all);
  add(kGptOss, "mxfp4", b.few_sizes() ? few : all);
  if (b.few_sizes()) return rows;
  for (const char* format : {"fp8", "nvfp4"}) add(kDeepSeek, format, all);
  return rows;
}

}  // namespace halftone
