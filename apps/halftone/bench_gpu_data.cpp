#include "bench_gpu_data.h"

#include <algorithm>
#include <random>
#include <vector>

#include "halftone/quantize.h"
#include "ops/roofs/roofs.h"

namespace halftone {

// Drawn once and repeated: a period that is prime and far above any tile looks random to every unit
// of the chip, and drawing hundreds of millions would take minutes.
Tensor normal_data(const Shape& shape, uint64_t seed) {
  constexpr size_t kPeriod = 1'048'573;
  static const std::vector<float> drawn = [] {
    std::vector<float> values(kPeriod);
    std::mt19937_64 engine(1);
    std::normal_distribution<float> normal;
    for (float& x : values) x = normal(engine);
    return values;
  }();
  Tensor x = Tensor::empty(shape, Format::f32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = drawn[(static_cast<uint64_t>(i) + seed * 7919) % kPeriod];
  }
  return x;
}

Tensor normal_on_device(const Shape& shape, uint64_t seed, Stream& stream) {
  // Beyond 16 Mi elements, copies of these: no cache of a GPU knows that they are equal.
  constexpr int64_t kDrawn = int64_t{16} << 20;
  const Device& device = stream.device();
  Tensor x = Tensor::empty(shape, Format::bf16, device);
  const int64_t most = std::min(x.numel(), kDrawn);
  const Tensor drawn = convert(normal_data({most}, seed), Format::bf16).to(device);
  for (int64_t done = 0; done < x.numel(); done += most) {
    const int64_t count = std::min(most, x.numel() - done);
    copy_memory(drawn.slice(0, 0, count),
                Tensor::view(x.data<uint16_t>() + done, {count}, Format::bf16, device), stream);
  }
  stream.synchronize();
  return x;
}

Tensor in_format(const Tensor& normal, const std::string& name, Stream& stream) {
  if (name != "f32" && name != "f16" && name != "bf16") {
    return quantize(normal, parse_quantization(name), stream);
  }
  if (name != "bf16") return convert(normal, parse_format(name), stream);
  Tensor copy = Tensor::empty(normal.shape(), Format::bf16, stream.device());
  copy_memory(normal, copy, stream);
  return copy;
}

}  // namespace halftone
