#include "bench_formats.h"

#include <string>

#include "halftone/quantize.h"
#include "roofs.h"

namespace halftone {

namespace {

// 29 M elements: sources of 117 MB (f32) lie outside every cache, while results stay below the
// 32 MiB up to which the allocator reuses memory; fresh pages would measure the kernel instead.
constexpr int64_t kRows = 4096, kColumns = 7168;

Tensor source(Format format) {
  Tensor x = Tensor::empty({kRows, kColumns}, Format::f32);
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

std::vector<BenchRow> bench_formats(Stream& stream, bool quick) {
  const int repeats = quick ? 3 : 9;
  const double roof = read_roof(stream, int64_t{512} << 20) * 1e-9;
  std::vector<BenchRow> rows;
  const auto add = [&](const std::string& name, int64_t bytes, const std::function<void(int)>& f) {
    BenchRow row;
    row.name = name;
    row.seconds = median_seconds(repeats, f);
    row.value = static_cast<double>(bytes) * 1e-9 / row.seconds;
    row.unit = "GB/s";
    row.roof = roof;
    row.roof_name = "memory read";
    rows.push_back(row);
  };
  std::vector<std::string> names = {"fp8", "fp8_row", "mxfp8", "nvfp4", "int8", "int4"};
  if (!quick) {
    for (const char* more : {"fp8_tensor", "fp8_1x128", "fp8_e5m2_row", "mxfp4", "int4_g128",
                             "int4_g128_asym", "nvfp4_adaptive"}) {
      names.push_back(more);
    }
  }
  for (Format format : {Format::f32, Format::bf16}) {
    const Tensor x = source(format);
    for (const std::string& name : names) {
      const QuantizeOptions options = parse_quantization(name);
      const Tensor q = quantize(x, options, stream);
      add("quantize " + std::string(halftone::name(format)) + " to " + name, x.bytes() + q.bytes(),
          [&](int) { quantize(x, options, stream); });
    }
    const Format other = format == Format::f32 ? Format::bf16 : Format::f16;
    // A quarter of the rows: the result must stay below the allocator's limit, too.
    const Tensor part = x.slice(0, 0, kRows / 2);
    add("convert " + std::string(halftone::name(format)) + " to " + halftone::name(other),
        part.bytes() + part.numel() * 2, [&](int) { convert(part, other, stream); });
  }
  const Tensor x = source(Format::bf16).slice(0, 0, kRows / 2);
  for (const std::string& name : names) {
    if (name.ends_with("adaptive")) continue;
    const Tensor q = quantize(x, parse_quantization(name), stream);
    add("dequantize " + name + " to bf16", q.bytes() + q.numel() * 2,
        [&](int) { dequantize(q, Format::bf16, stream); });
  }
  return rows;
}

}  // namespace halftone
