#include <algorithm>
#include <functional>
#include <string>

#include "bench/families.h"
#include "halftone/activation.h"
#include "halftone/fused_quantize.h"
#include "halftone/norm.h"
#include "measure/roofs.h"

namespace halftone {

namespace {

// 29 M elements: sources of 59 MB (bf16) and 117 MB (f32) lie outside every cache, while results
// stay below the 32 MiB up to which the allocator reuses memory; fresh pages would measure the
// kernel instead.
constexpr int64_t kRows = 4096, kColumns = 7168;

Tensor source(Format format, int64_t count) {
  Tensor x = Tensor::empty({count, kColumns}, Format::f32);
  uint32_t state = 1;
  for (int64_t i = 0; i < x.numel(); ++i) {  // sums of uniform numbers: close enough to normal
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    }
    x.data<float>()[i] = sum;
  }
  return format == Format::f32 ? x : convert(x, format);
}

}  // namespace

std::vector<BenchRow> bench_quantize(const CpuBench& asked) {
  const bool quick = asked.quick;
  Stream& stream = asked.stream;
  const int repeats = quick ? 3 : 9;
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, int64_t bytes, const std::function<void(int)>& f) {
    if (!asked.choice.begins(name)) return false;
    BenchRow row;
    row.name = name;
    // The roof before and after: on a shared machine it moves, and the better one counts.
    const double before = copy_roof(stream, bytes, 3);
    row.seconds = median_seconds(repeats, f);
    row.roof = std::max(before, copy_roof(stream, bytes, 3)) * 1e-9;
    row.bytes = static_cast<double>(bytes);
    row.value = row.bytes * 1e-9 / row.seconds;
    row.unit = "GB/s";
    row.roof_name = "copy of as many bytes";
    rows.push_back(row);
    return true;
  };
  std::vector<std::string> names = {"fp8", "fp8_row", "mxfp8", "mxfp4", "nvfp4", "int8", "int4"};
  if (!quick) {
    for (const char* more : {"fp8_tensor", "fp8_1x128", "fp8_e5m2_row", "int4_g128",
                             "int4_g128_asym", "nvfp4_adaptive"}) {
      names.push_back(more);
    }
  }
  const int64_t count = asked.choice.only_lists() ? 2 : kRows;  // names alone need no data
  for (Format format : {Format::bf16, Format::f32}) {
    const Tensor x = source(format, count);
    if (format == Format::bf16) {
      // The fused operations beside the separate ones, whose result goes through memory.
      const Tensor weight = x.slice(0, 0, 1).reshape({kColumns}), up = source(format, count);
      Tensor middle = Tensor::empty(x.shape(), format);
      const NormPlan norm = plan(NormProblem{count, kColumns, format, format}, Device::cpu());
      const GatedPlan gate = plan(GatedProblem{count, kColumns, format}, Device::cpu());
      for (const char* name : {"mxfp8", "fp8_row", "int4_g128"}) {
        const QuantizeOptions options = parse_quantization(name);
        Tensor q = empty_quantized(x.shape(), options);
        const auto beside = [&](const std::function<void(int)>& separate) {
          rows.back().peer = rows.back().bytes * 1e-9 / median_seconds(repeats, separate);
          rows.back().peer_name = "one after the other";
        };
        if (add(std::string("quantize rms norm of bf16 to ") + name, x.bytes() + q.bytes(),
                [&](int) {
                  norm_quantize_into({}, {x, weight, {}, {}}, options, q, stream);
                })) {
          beside([&](int) {
            run(norm, {x, weight, middle, {}}, stream);
            quantize_into(middle, options, q, stream);
          });
        }
        if (add(std::string("quantize swiglu of bf16 to ") + name, 2 * x.bytes() + q.bytes(),
                [&](int) { gated_quantize_into(x, up, {}, options, q, stream); })) {
          beside([&](int) {
            run(gate, {x, up, middle}, stream);
            quantize_into(middle, options, q, stream);
          });
        }
      }
    }
    for (const std::string& name : names) {
      const QuantizeOptions options = parse_quantization(name);
      Tensor q = empty_quantized(x.shape(), options);
      add("quantize " + std::string(halftone::name(format)) + " to " + name, x.bytes() + q.bytes(),
          [&](int) { quantize_into(x, options, q, stream); });
    }
    const Format other = format == Format::f32 ? Format::bf16 : Format::f16;
    // Half the rows: the result must stay below the allocator's limit, too.
    const Tensor part = x.slice(0, 0, count / 2);
    add("convert " + std::string(halftone::name(format)) + " to " + halftone::name(other),
        part.bytes() + part.numel() * 2, [&](int) { convert(part, other, stream); });
  }
  const Tensor x = source(Format::bf16, count);
  for (const std::string& name : names) {
    if (name.ends_with("adaptive")) continue;
    const Tensor q = quantize(x, parse_quantization(name), stream);
    Tensor y = Tensor::empty(x.shape(), Format::bf16);
    add("dequantize " + name + " to bf16", q.bytes() + y.bytes(),
        [&](int) { dequantize_into(q, y, stream); });
  }
  return rows;
}

}  // namespace halftone
