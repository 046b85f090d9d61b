#include "bench/gpu_data.h"

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

std::function<void()> quantise_again(const Tensor& x, const Tensor& codes, int64_t scale_tokens,
                                     bool values, Stream& stream) {
  QuantizeOptions options(codes.format());
  const Device& device = stream.device();
  const int64_t tokens = x.size(1), heads = x.size(2), dim = x.size(3);
  Tensor from = x, to = codes;
  const auto seen_as = [&](const Shape& shape, const Scaling& scaling, const Shape& scales) {
    options.scaling = scaling;
    to = Tensor::view(codes.data(), shape, codes.format(), device)
             .quantized(scaling, Tensor::view(codes.scales().data(), scales, Format::f32, device));
  };
  if (is_block(codes.format())) {
    // As they are.
  } else if (scale_tokens == 0) {
    from = x.reshape({tokens * heads, dim});
    seen_as({tokens * heads, dim}, {Format::f32, 0, 0}, {1, 1});
  } else if (scale_tokens > 1) {
    const int64_t blocks = (tokens + scale_tokens - 1) / scale_tokens;
    from = Tensor::view(x.data(), {heads, tokens, dim}, {dim, heads * dim, 1}, x.format(), device);
    seen_as({heads, tokens, dim}, {Format::f32, scale_tokens, 0}, {heads, blocks, 1});
  } else if (values && is_fp8(codes.format())) {
    // Powers of two, which attention reads as numbers: codes of 1 that have them as scales.
    options.scaling = {Format::ue8m0, 1, 0};
    const Tensor made = quantize(x, options, stream), scales = codes.scales();
    const Tensor ones = Tensor::from<uint8_t>(
        std::vector<uint8_t>(static_cast<size_t>(scales.numel()), 0x38),  // 1 in E4M3
        scales.shape(), Format::fp8_e4m3);
    const Tensor powers = ones.to(device).quantized({Format::ue8m0, 1, 0}, made.scales());
    to = Tensor::view(codes.data(), codes.shape(), codes.format(), device)
             .quantized(options.scaling, made.scales());
    return [=, &stream, filled = codes]() mutable {
      quantize_into(from, options, to, stream);
      Tensor numbers = scales;
      dequantize_into(powers, numbers, stream);
    };
  } else {
    options.scaling = {Format::f32, 1, 0};
  }
  return [=, &stream, kept = x, filled = codes]() mutable {
    quantize_into(from, options, to, stream);
  };
}

}  // namespace halftone
