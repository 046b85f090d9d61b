// Attention with Q and K in NVFP4, compared with the same attention in BF16.
#include <cmath>
#include <cstdio>
#include <random>

#include "halftone/attention.h"
#include "halftone/quantize.h"

namespace {

using halftone::Format;
using halftone::Tensor;

// [batch, length, heads, head_dim] of BF16, standard normal.
Tensor random_tensor(const halftone::Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Tensor values = Tensor::empty(shape, Format::f32);
  for (int64_t i = 0; i < values.numel(); ++i) values.data<float>()[i] = normal(engine);
  return halftone::convert(values, Format::bf16);
}

double cosine(const Tensor& a, const Tensor& b) {
  const Tensor x = halftone::convert(a, Format::f32), y = halftone::convert(b, Format::f32);
  double xy = 0, xx = 0, yy = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double u = x.data<float>()[i], v = y.data<float>()[i];
    xy += u * v, xx += u * u, yy += v * v;
  }
  return xy / std::sqrt(xx * yy);
}

}  // namespace

int main() {
  try {
    // 8 query heads share 2 key/value heads.
    const Tensor q = random_tensor({1, 256, 8, 64}, 1);
    const Tensor k = random_tensor({1, 256, 2, 64}, 2);
    const Tensor v = random_tensor({1, 256, 2, 64}, 3);
    halftone::AttentionOptions options;
    options.causal = true;
    const Tensor exact = halftone::attention(q, k, v, options);

    // Quantised once, used as they are: E2M1 with one E4M3 scale per 16 and one FP32 scale.
    const halftone::QuantizeOptions nvfp4(Format::nvfp4);
    const Tensor q4 = halftone::quantize(q, nvfp4), k4 = halftone::quantize(k, nvfp4);
    const Tensor both = halftone::attention(q4, k4, v, options);
    std::printf("K takes %lld bytes in BF16 and %lld in NVFP4\n", static_cast<long long>(k.bytes()),
                static_cast<long long>(k4.bytes()));
    std::printf("nvfp4+bf16  cosine %.5f\n", cosine(both, exact));

    // Or let the call quantise: by its name.
    options.mode = halftone::parse_attention_mode("nvfp4+fp8");
    const Tensor with_fp8 = halftone::attention(q, k, v, options);
    std::printf("nvfp4+fp8   cosine %.5f\n", cosine(with_fp8, exact));
    return cosine(both, exact) > 0.98 && cosine(with_fp8, exact) > 0.98 ? 0 : 1;
  } catch (const halftone::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
