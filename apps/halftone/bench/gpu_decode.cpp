// Attention on a GPU, one query token a sequence.
#include <utility>

#include "base/message.h"
#include "bench/gpu.h"
#include "bench/gpu_data.h"

namespace halftone {

std::string DecodeShape::name() const {
  return concat("decode ", batch, " x ", keys, ", 32/8 heads of 128, ", cache, " cache",
                batch_invariant ? ", batch-invariant" : "");
}

BenchRow bench_decode(const DecodeShape& s, const GpuBench& b) {
  constexpr int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  Stream& stream = b.stream;
  const auto cache = [&](uint64_t seed) {
    return in_format(normal_on_device({s.batch, s.keys, kKvHeads, kHeadDim}, seed, stream), s.cache,
                     stream);
  };
  std::vector<AttentionTensors> sets;
  for (int copies = 2, i = 0; i < copies; ++i) {
    const auto seed = static_cast<uint64_t>(3 * i);
    AttentionTensors t;
    t.q = normal_on_device({s.batch, 1, kHeads, kHeadDim}, seed, stream);
    t.k = cache(seed + 1), t.v = cache(seed + 2);
    t.out = Tensor::empty({s.batch, 1, kHeads, kHeadDim}, Format::bf16, stream.device());
    copies = b.copies(t.k.bytes() + t.v.bytes());
    sets.push_back(t);
  }
  AttentionProblem p;
  p.batch = s.batch, p.query_length = 1, p.key_length = s.keys;
  p.heads = kHeads, p.kv_heads = kKvHeads, p.head_dim = kHeadDim;
  p.k = p.v = sets[0].k.format(), p.mode = {p.k, Format::bf16};
  p.batch_invariant = s.batch_invariant;
  const AttentionPlan made = plan(p, stream.device());
  const GpuTiming time = time_in_graph(
      stream, static_cast<int>(sets.size()),
      [&](int i, Stream& on) { run(made, sets[static_cast<size_t>(i)], on); }, b.timing());

  BenchRow row;
  row.name = s.name();
  row.bytes = static_cast<double>(sets[0].k.bytes() + sets[0].v.bytes());  // with scales
  set_bandwidth(time, b.roofs.read, "read", &row);
  return row;
}

std::vector<BenchRow> bench_gpu_decode(const GpuBench& b) {
  std::vector<BenchRow> rows;
  for (const char* cache : {"bf16", "fp8_row", "nvfp4"}) {
    for (const auto& [batch, keys] :
         {std::pair{1, 8192}, {1, 65536}, {16, 8192}, {64, 4096}, {128, 2048}}) {
      if (b.few_sizes() && batch != 16) continue;
      for (const bool invariant : {false, true}) {
        if (invariant && cache != std::string("bf16")) continue;
        const DecodeShape shape{batch, keys, cache, invariant};
        if (b.choice.begins(shape.name())) rows.push_back(bench_decode(shape, b));
      }
    }
  }
  return rows;
}

}  // namespace halftone
