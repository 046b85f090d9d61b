#include "bench_ops.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/message.h"
#include "base/thread_pool.h"
#include "halftone/halftone.h"
#include "roofs.h"

namespace halftone {

namespace {

Tensor random_tensor(const Shape& shape, Format format) {
  std::mt19937 engine(1);
  std::uniform_real_distribution<float> uniform(-2, 2);
  Tensor t = Tensor::empty(shape, Format::f32);
  // A short pattern is enough: no kernel looks at what it has seen before.
  for (int64_t i = 0; i < t.numel(); ++i) {
    t.data<float>()[i] = i < 4096 ? uniform(engine) : t.data<float>()[i - 4096];
  }
  return format == Format::f32 ? t : convert(t, format);
}

// Bytes/s read and written by copying half of `bytes` to the other half, each thread its part.
double copy_roof(Stream& stream, int64_t bytes, int repeats) {
  const int64_t half = bytes / 2 / 4096 * 4096;
  const Tensor from = Tensor::zeros({half}, Format::u8), to = Tensor::zeros({half}, Format::u8);
  const double seconds = median_seconds(repeats, [&](int) {
    stream.pool().parallel_for(
        half / 4096, std::max<int64_t>(1, half / 4096 / 64), [&](int64_t begin, int64_t end) {
          std::memcpy(to.data<char>() + begin * 4096, from.data<char>() + begin * 4096,
                      static_cast<size_t>(end - begin) * 4096);
        });
  });
  return 2.0 * static_cast<double>(half) / seconds;
}

struct Bench {
  Stream& stream;
  int repeats;
  std::vector<BenchRow> rows;

  // `bytes` a call reads and writes, against a copy that touches as many.
  template <class F>
  void add(const std::string& name, int64_t bytes, const F& f) {
    BenchRow row;
    row.name = name;
    row.unit = "GB/s";
    row.roof_name = "copy of as many bytes";
    // The roof before and after: on a shared machine it moves, and the better one counts.
    const double before = copy_roof(stream, bytes, repeats);
    row.seconds = median_seconds(repeats, [&](int) { f(); });
    row.roof = std::max(before, copy_roof(stream, bytes, repeats)) / 1e9;
    row.value = static_cast<double>(bytes) / row.seconds / 1e9;
    rows.push_back(row);
  }
};

}  // namespace

std::vector<BenchRow> bench_ops(Stream& stream, bool quick) {
  Bench bench{stream, quick ? 5 : 15, {}};
  const Device cpu = Device::cpu();
  constexpr int64_t kColumns = 4096;
  // 1 row: in the first-level cache; 512 rows of bf16: 4 MiB, beyond the second level; 8192: DRAM.
  for (const int64_t rows : {int64_t{1}, int64_t{512}, int64_t{8192}}) {
    if (quick && rows > 512) continue;
    const Format f = Format::bf16;
    const int64_t count = rows * kColumns;
    const auto label = [&](const char* what) {
      return concat(what, " ", rows, "x", kColumns, " bf16");
    };
    const Tensor x = random_tensor({rows, kColumns}, f), y = random_tensor({rows, kColumns}, f);
    const Tensor out = Tensor::zeros({rows, kColumns}, f);
    const Tensor weight = random_tensor({kColumns}, f);
    const NormPlan norm = plan(NormProblem{rows, kColumns, f, f}, cpu);
    bench.add(label("rms norm"), 4 * count, [&] { run(norm, {x, weight, out, {}}, stream); });
    const NormPlan fused = plan(NormProblem{rows, kColumns, f, f, 1e-5f, true}, cpu);
    bench.add(label("rms norm + residual"), 8 * count, [&] {
      run(fused, {x, weight, out, y}, stream);
    });
    const SwigluPlan gated = plan(SwigluProblem{rows, kColumns, f}, cpu);
    bench.add(label("swiglu"), 6 * count, [&] { run(gated, {x, y, out}, stream); });
    const SoftmaxPlan soft = plan(SoftmaxProblem{rows, kColumns, f, f}, cpu);
    bench.add(label("softmax"), 4 * count, [&] { run(soft, {x, out}, stream); });
    std::vector<int32_t> at(static_cast<size_t>(rows));
    for (size_t i = 0; i < at.size(); ++i) at[i] = static_cast<int32_t>(i);
    const Tensor positions = Tensor::from<int32_t>(at, {rows}, Format::i32);
    const RopePlan turn = plan(RopeProblem{rows, kColumns / 128, 128, f, {}}, cpu);
    const Tensor heads = out.reshape({rows, kColumns / 128, 128});
    bench.add(label("rope"), 4 * count, [&] { run(turn, {heads, positions}, stream); });
  }
  const int64_t rows = quick ? 512 : 4096;
  const Tensor x = random_tensor({rows, kColumns}, Format::bf16);
  for (const char* name : {"fp8", "mxfp8", "mxfp4", "nvfp4", "int8", "int4"}) {
    const QuantizeOptions options = parse_quantization(name);
    const int64_t bytes = x.bytes() + quantize(x, options, stream).bytes();
    bench.add(concat("quantize ", rows, "x", kColumns, " bf16 to ", name), bytes,
              [&] { quantize(x, options, stream); });
  }
  return bench.rows;
}

}  // namespace halftone
