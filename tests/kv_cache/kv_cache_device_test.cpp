// The cache of keys and values on GPUs.
#include "halftone/kv_cache.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "halftone/norm.h"
#include "halftone/quantize.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class KvCacheOnDevice : public OnDevice {
 protected:
  // A cache here and one there get the same runs of tokens, in every layer.
  void expect_same_caches(const KvCacheOptions& options, Format source,
                          std::initializer_list<int64_t> runs, uint64_t seed) const {
    SCOPED_TRACE(std::string(name(options.format)) + " from " + name(source));
    const int64_t heads = options.kv_heads;
    KvCache here(options), there(options, device);
    Stream s = stream();
    for (const int64_t tokens : runs) {
      for (int64_t layer = 0; layer < options.layers; ++layer) {
        // Keys and values are parts of a fused projection.
        const Tensor fused =
            test::random_tensor({tokens, 2 * heads + 2, options.head_dim}, source, ++seed);
        const Tensor on = fused.to(device);
        const auto keys = [&](const Tensor& t) { return t.slice(1, 2, 2 + heads); };
        const auto values = [&](const Tensor& t) { return t.slice(1, 2 + heads, 2 + 2 * heads); };
        here.append(layer, keys(fused), values(fused), Stream::default_stream());
        there.append(layer, keys(on), values(on), s);
      }
      here.advance(tokens), there.advance(tokens);
    }
    s.synchronize();
    for (int64_t layer = 0; layer < options.layers; ++layer) {
      for (const auto part : {&KvCache::keys, &KvCache::values}) {
        const Tensor expected = (here.*part)(layer);
        const Tensor y = (there.*part)(layer).to(Device::cpu());
        EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), options.format),
                              Tensor::view(expected.data(), y.shape(), options.format)));
        if (y.has_scales()) {
          EXPECT_TRUE(same_bits(y.scales(), expected.scales()));
        }
      }
    }
    EXPECT_TRUE(same_bits(there.page_table().to(Device::cpu()), here.page_table()));
    EXPECT_EQ(there.bytes(), here.bytes());
  }
};

TEST_P(KvCacheOnDevice, HoldsWhatTheCpuHolds) {
  for (const Format format :
       {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3, Format::nvfp4}) {
    for (const Format source : {Format::f32, Format::bf16}) {
      KvCacheOptions options;
      options.format = format;
      options.layers = 2, options.kv_heads = 3, options.head_dim = 48;
      options.page_size = 4, options.max_length = 50;
      expect_same_caches(options, source, {1, 3, 5, 12, 1}, 0);  // the cache grows several times
    }
  }
}

// Static scales of one layer, beside a layer whose tokens and heads have their own; what is no
// number stays one, and what is too large saturates.
TEST_P(KvCacheOnDevice, StaticScales) {
  KvCacheOptions options;
  options.format = Format::fp8_e4m3;
  options.layers = 2, options.kv_heads = 3, options.head_dim = 48;
  options.page_size = 4, options.max_length = 50;
  options.key_scales = {0.013f, 0.0f}, options.value_scales = {0.0f, 0.002f};
  expect_same_caches(options, Format::f32, {1, 3, 5, 12, 1}, 0);
  expect_same_caches(options, Format::bf16, {20}, 7);
  Tensor k = test::random_tensor({2, 3, 48}, Format::f32, 1);
  k.data<float>()[0] = std::nanf(""), k.data<float>()[1] = 3e38f;
  k.data<float>()[2] = -std::numeric_limits<float>::infinity();
  KvCache here(options), there(options, device);
  Stream s = stream();
  here.append(0, k, k, Stream::default_stream());
  there.append(0, k.to(device), k.to(device), s);
  s.synchronize();
  const Tensor expected = here.keys(0), y = there.keys(0).to(Device::cpu());
  EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), options.format),
                        Tensor::view(expected.data(), y.shape(), options.format)));
  const auto* codes = static_cast<const uint8_t*>(expected.data());
  EXPECT_EQ(codes[0] & 0x7f, 0x7f);
  EXPECT_EQ(codes[1], 0x7e);
  EXPECT_EQ(codes[2], 0xfe);
}

// Two sequences whose rows go where a tensor says, one of them behind every page: left out.
TEST_P(KvCacheOnDevice, PositionsAreReadWhenTheWorkIsDone) {
  for (const Format format : {Format::bf16, Format::fp8_e4m3, Format::nvfp4}) {
    SCOPED_TRACE(name(format));
    KvCacheOptions options;
    options.format = format;
    options.layers = 1, options.kv_heads = 2, options.head_dim = 64;
    options.page_size = 4, options.max_length = 24, options.sequences = 2;
    KvCache here(options), there(options, device);
    here.reserve(20), there.reserve(20);
    const std::vector<int32_t> chosen = {0, 1, 5, 3, 19, 40};
    const Tensor positions = Tensor::from<int32_t>(chosen, {6}, Format::i32);
    const Tensor k = test::random_tensor({6, 2, 64}, Format::bf16, 1);
    const Tensor v = test::random_tensor({6, 2, 64}, Format::bf16, 2);
    here.append(0, k, v, positions, Stream::default_stream());
    const Tensor on = positions.to(device), k_on = k.to(device), v_on = v.to(device);
    const Tensor values = there.values(0);
    expect_any_order(Tensor::view(values.data(), values.shape(), format, device),
                     [&](Stream& s) { there.append(0, k_on, v_on, on, s); });
    for (const auto part : {&KvCache::keys, &KvCache::values}) {
      const Tensor expected = (here.*part)(0), y = (there.*part)(0).to(Device::cpu());
      EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), format),
                            Tensor::view(expected.data(), y.shape(), format)));
      if (y.has_scales()) {
        EXPECT_TRUE(same_bits(y.scales(), expected.scales()));
      }
    }
  }
}

TEST_P(KvCacheOnDevice, WrongDevicesAreNamed) {
  KvCacheOptions options;
  options.layers = 1, options.kv_heads = 1, options.head_dim = 16, options.max_length = 8;
  KvCache cache(options, device);
  const Tensor k = test::random_tensor({1, 1, 16}, Format::bf16, 1);
  Stream s = stream();
  test::expect_error([&] { cache.append(0, k, k, s); }, {"k is on cpu", device.name()});
  test::expect_error([&] { cache.append(0, k.to(device), k.to(device), Stream::default_stream()); },
                     {"stream is on cpu"});
}

TEST_P(KvCacheOnDevice, RandomProblems) {
  const Format formats[] = {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3,
                            Format::nvfp4};
  random_problems([&](test::Draw& draw, uint64_t seed) {
    KvCacheOptions options;
    options.format = draw.of(formats);
    options.layers = 1, options.kv_heads = draw.extent(8), options.head_dim = 16 * draw.extent(16);
    options.page_size = draw.extent(64), options.max_length = 300;
    expect_same_caches(options, draw.plain_format(),
                       {draw.extent(150), draw.extent(8), draw.extent(100)}, seed);
  });
}

// Norm, rotation and append in one pass give the bits of one after the other.
// Of many tokens a block has one, whose threads have several heads; of few, several blocks.
TEST_P(KvCacheOnDevice, ManyTokensAreTransformedLikeFew) {
  const int64_t tokens = 134, head_dim = 64, queries = 70, keys = 3;
  KvCacheOptions options;
  options.format = Format::bf16, options.layers = 1, options.kv_heads = keys;
  options.head_dim = head_dim, options.page_size = 16, options.max_length = 160;
  KvCache many(options, device), few(options, device);
  many.reserve(tokens), few.reserve(tokens);
  std::vector<int32_t> places(tokens);
  std::iota(places.begin(), places.end(), 0);
  const Tensor positions = Tensor::from<int32_t>(places, {tokens}, Format::i32).to(device);
  const RopePlan all = plan(RopeProblem{tokens, 1, head_dim, Format::bf16, {}}, device);
  const Tensor rows = test::random_tensor({tokens, queries + 2 * keys, head_dim}, Format::bf16, 3);
  const Tensor a = rows.to(device), b = rows.contiguous_copy().to(device);
  Stream s = stream();
  const auto append = [&](KvCache& cache, const Tensor& x, const Tensor& at) {
    const HeadTransform to{{}, {}, 1e-5f, 0, &all};
    const Tensor q = x.slice(1, 0, queries), k = x.slice(1, queries, queries + keys);
    cache.append(0, q, k, x.slice(1, queries + keys, queries + 2 * keys), to, at, s);
  };
  append(many, a, positions);
  for (int64_t t = 0; t < tokens; t += 67) {
    append(few, b.slice(0, t, t + 67), positions.slice(0, t, t + 67));
  }
  s.synchronize();
  const auto bits = [](const Tensor& x) { return convert(x, Format::f32); };
  const auto turned = [&](const Tensor& x) {
    return bits(x.to(Device::cpu()).slice(1, 0, queries));
  };
  EXPECT_TRUE(same_bits(turned(a), turned(b)));
  EXPECT_FALSE(same_bits(turned(a), turned(rows)));
  EXPECT_TRUE(same_bits(bits(many.keys(0).to(Device::cpu())), bits(few.keys(0).to(Device::cpu()))));
}

TEST_P(KvCacheOnDevice, TransformedHeadsEqualTheSeparateOperations) {
  uint64_t seed = 0;
  bool prefetch_positions = false;  // by turns
  for (const auto& [format, source, head_dim, normed, scale] :
       {std::tuple{Format::bf16, Format::bf16, int64_t{128}, true, 0.0f},
        {Format::fp8_e4m3, Format::bf16, 128, true, 0.0f},
        {Format::fp8_e4m3, Format::bf16, 128, true, 0.013f},
        {Format::nvfp4, Format::f16, 64, true, 0.0f},
        {Format::fp8_e4m3, Format::bf16, 256, false, 0.0f},
        {Format::bf16, Format::f32, 64, true, 0.0f},
        {Format::bf16, Format::bf16, 96, true, 0.0f}}) {
    SCOPED_TRACE(std::string(name(format)) + " from " + name(source) + " of " +
                 std::to_string(head_dim));
    KvCacheOptions options;
    options.format = format, options.layers = 1, options.kv_heads = 3;
    options.head_dim = head_dim, options.page_size = 4, options.max_length = 20;
    if (scale > 0) options.key_scales = options.value_scales = {scale};
    KvCache fused(options, device), separate(options, device);
    fused.reserve(12), separate.reserve(12);
    const Tensor positions =
        Tensor::from<int32_t>(std::vector<int32_t>{5, 0, 11, 400}, {4}, Format::i32).to(device);
    const RopePlan rope = plan(RopeProblem{4, 1, head_dim, source, {}}, device);
    HeadTransform to{{}, {}, 1e-5f, 0.5f, &rope};
    to.prefetch_positions = prefetch_positions = !prefetch_positions;
    if (normed) {
      to.q_weight = test::random_tensor({head_dim}, source, ++seed).to(device);
      to.k_weight = test::random_tensor({head_dim}, Format::f32, ++seed).to(device);
    }
    const Tensor rows = test::random_tensor({4, 11, head_dim}, source, ++seed);
    const Tensor a = rows.to(device), b = rows.contiguous_copy().to(device);
    const auto part = [](const Tensor& x, int i) {
      const int64_t first[] = {0, 5, 8, 11};
      return x.slice(1, first[i], first[i + 1]);
    };
    Stream s = stream();
    EXPECT_EQ(fused.appends_in_one_pass(part(a, 0), part(a, 1), part(a, 2), to, positions),
              source != Format::f32 && head_dim != 96);
    fused.append(0, part(a, 0), part(a, 1), part(a, 2), to, positions, s);
    for (int i = 0; i < 2; ++i) {
      const Tensor x = part(b, i), &weight = i == 0 ? to.q_weight : to.k_weight;
      if (normed) {
        NormProblem problem{4 * x.size(1), head_dim, source, weight.format(), to.eps};
        problem.weight_offset = to.weight_offset;
        run(plan(problem, device), {x, weight, x, {}, {}, {}}, s);
      }
      run(plan(RopeProblem{4, x.size(1), head_dim, source, {}}, device), {x, positions}, s);
    }
    separate.append(0, part(b, 1), part(b, 2), positions, s);
    s.synchronize();
    const auto on_host = [](const Tensor& x) { return x.to(Device::cpu()); };
    EXPECT_TRUE(same_bits(convert(part(on_host(a), 0), Format::f32),
                          convert(part(on_host(b), 0), Format::f32)));
    for (const auto kind : {&KvCache::keys, &KvCache::values}) {
      const Tensor x = on_host((fused.*kind)(0)), y = on_host((separate.*kind)(0));
      EXPECT_TRUE(same_bits(Tensor::view(x.data(), x.shape(), format),
                            Tensor::view(y.data(), y.shape(), format)));
      if (y.has_scales()) {
        EXPECT_TRUE(same_bits(x.scales(), y.scales()));
      }
    }
  }
}

HALFTONE_ON_DEVICES(KvCacheOnDevice);

}  // namespace
}  // namespace halftone
