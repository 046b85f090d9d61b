#include "halftone/kv_cache.h"

#include <gtest/gtest.h>

#include "halftone/quantize.h"
#include "support/compare.h"

namespace halftone {
namespace {

using namespace test;

constexpr Format kFormats[] = {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3,
                               Format::nvfp4};

KvCacheOptions small(Format format) {
  KvCacheOptions o;
  o.format = format;
  o.layers = 2, o.kv_heads = 3, o.head_dim = 32;
  o.page_size = 4, o.max_length = 50;
  return o;
}

std::vector<float> values_of(const Tensor& t) {
  return is_plain_float(t.format()) ? to_floats(t) : to_floats(dequantize(t));
}

// What a cache of `format` must hold for x.
std::vector<float> stored(const Tensor& x, Format format) {
  if (is_plain_float(format)) return to_floats(convert(x, format));
  QuantizeOptions options(format);
  if (format == Format::nvfp4) {
    options.tensor_scale = 1.0f;
  } else {
    options.scaling = {Format::f32, 1, 0};
  }
  return to_floats(dequantize(quantize(x, options)));
}

TEST(KvCache, HoldsWhatWasAppendedInEveryFormat) {
  Stream stream(Device::cpu(), 2);
  at_every_level([&] {
    for (const Format format : kFormats) {
      for (const Format source : {Format::f32, Format::f16, Format::bf16}) {
        SCOPED_TRACE(std::string(name(format)) + " from " + name(source));
        KvCache cache(small(format));
        std::vector<std::vector<float>> keys(2), values(2);
        // Pieces that fill pages partly, exactly and several at once.
        for (const int64_t tokens : {1, 3, 0, 5, 12, 1}) {
          for (int64_t layer = 0; layer < 2; ++layer) {
            const auto seed = static_cast<uint64_t>(100 * tokens + layer);
            const Tensor k = random_tensor({tokens, 3, 32}, source, seed);
            const Tensor v = random_tensor({tokens, 3, 32}, source, seed + 50);
            cache.append(layer, k, v, stream);
            const auto add = [&](std::vector<float>* all, const Tensor& x) {
              const std::vector<float> more = stored(x, format);
              all->insert(all->end(), more.begin(), more.end());
            };
            add(&keys[static_cast<size_t>(layer)], k);
            add(&values[static_cast<size_t>(layer)], v);
          }
          cache.advance(tokens);
        }
        EXPECT_EQ(cache.length(), 22);
        for (size_t layer = 0; layer < 2; ++layer) {
          std::vector<float> k = values_of(cache.keys(static_cast<int64_t>(layer)));
          std::vector<float> v = values_of(cache.values(static_cast<int64_t>(layer)));
          k.resize(keys[layer].size()), v.resize(values[layer].size());
          EXPECT_EQ(k, keys[layer]);
          EXPECT_EQ(v, values[layer]);
        }
      }
    }
  });
}

TEST(KvCache, TruncateForgetsAndAppendWritesOver) {
  Stream stream(Device::cpu(), 1);
  KvCache cache(small(Format::bf16));
  const Tensor first = random_tensor({10, 3, 32}, Format::bf16, 1);
  const Tensor second = random_tensor({2, 3, 32}, Format::bf16, 2);
  for (int64_t layer = 0; layer < 2; ++layer) cache.append(layer, first, first, stream);
  cache.advance(10);
  cache.truncate(3);
  EXPECT_EQ(cache.length(), 3);
  cache.append(0, second, second, stream);
  cache.advance(2);
  const std::vector<float> got = to_floats(cache.keys(0));
  const std::vector<float> before = to_floats(first), after = to_floats(second);
  for (size_t i = 0; i < 3 * 96; ++i) ASSERT_EQ(got[i], before[i]);
  for (size_t i = 0; i < 2 * 96; ++i) ASSERT_EQ(got[3 * 96 + i], after[i]);
}

TEST(KvCache, GrowsByNeedAndNotBeyondItsLimit) {
  Stream stream(Device::cpu(), 1);
  KvCache cache(small(Format::nvfp4));
  const int64_t at_first = cache.bytes();
  const Tensor x = random_tensor({50, 3, 32}, Format::f32, 1);
  cache.append(0, x, x, stream);
  EXPECT_GT(cache.bytes(), at_first);
  EXPECT_LE(cache.keys(0).size(0), 13);  // ceil(50 / 4) pages
  EXPECT_EQ(cache.page_table().size(1), cache.keys(0).size(0));
  cache.advance(50);
  expect_error([&] { cache.append(0, x, x, stream); }, {"full", "50"});
  expect_error([&] { cache.advance(1); }, {"max_length", "50"});
}

// Row i of each sequence lies where its page table says, through every growth of the cache.
TEST(KvCache, SequencesHaveTheirOwnPages) {
  Stream stream(Device::cpu(), 2);
  KvCacheOptions options = small(Format::bf16);
  options.sequences = 3;
  KvCache cache(options);
  std::vector<Tensor> passes;
  for (const int64_t tokens : {1, 6, 13}) {
    passes.push_back(random_tensor({3 * tokens, 3, 32}, Format::bf16, 10 + uint64_t(tokens)));
    cache.append(1, passes.back(), passes.back(), stream);
    cache.advance(tokens);
  }
  EXPECT_EQ(cache.length(), 20);
  const Tensor table = cache.page_table(), keys = cache.keys(1);
  for (int64_t sequence = 0; sequence < 3; ++sequence) {
    int64_t position = 0;
    for (const Tensor& pass : passes) {
      const int64_t tokens = pass.size(0) / 3;
      for (int64_t i = 0; i < tokens; ++i, ++position) {
        const int32_t page = table.data<int32_t>()[sequence * table.size(1) + position / 4];
        const Tensor cell = keys.slice(0, page, page + 1).slice(1, position % 4, position % 4 + 1);
        const Tensor row = pass.slice(0, sequence * tokens + i, sequence * tokens + i + 1);
        EXPECT_EQ(to_floats(cell.contiguous_copy()), to_floats(row.contiguous_copy()))
            << "sequence " << sequence << " position " << position;
      }
    }
  }
  expect_error([&] { cache.append(0, passes[0].slice(0, 0, 2), passes[0].slice(0, 0, 2), stream); },
               {"2 rows", "3 sequences"});
}

TEST(KvCache, StridedSourcesAreReadByTheirStrides) {
  Stream stream(Device::cpu(), 1);
  KvCache cache(small(Format::fp8_e4m3));
  const Tensor wide = random_tensor({6, 5, 40}, Format::f32, 3);
  const Tensor x = wide.slice(1, 1, 4).slice(2, 4, 36);
  cache.append(1, x, x, stream);
  cache.advance(6);
  std::vector<float> got = values_of(cache.values(1));
  const std::vector<float> expected = stored(x.contiguous_copy(), Format::fp8_e4m3);
  got.resize(expected.size());
  EXPECT_EQ(got, expected);
}

TEST(KvCache, ErrorsNameTheArgument) {
  Stream stream(Device::cpu(), 1);
  KvCache cache(small(Format::bf16));
  const Tensor x = random_tensor({1, 3, 32}, Format::f32, 1);
  expect_error([&] { cache.append(2, x, x, stream); }, {"layer", "2"});
  expect_error(
      [&] {
        cache.append(0, random_tensor({1, 2, 32}, Format::f32, 1), x, stream);
      },
      {"k", "[1, 2, 32]"});
  expect_error(
      [&] {
        cache.append(0, x, random_tensor({2, 3, 32}, Format::f32, 1), stream);
      },
      {"k has 1", "v 2"});
  expect_error([&] { cache.truncate(1); }, {"truncate", "1"});
  expect_error([&] { cache.keys(-1); }, {"layer", "-1"});
  const auto refuses = [](auto change, const std::vector<std::string>& words) {
    KvCacheOptions o = small(Format::nvfp4);
    change(o);
    EXPECT_FALSE(can_run(o, Device::cpu()));
    expect_error([&] { KvCache{o}; }, words);
  };
  refuses([](KvCacheOptions& o) { o.head_dim = 40; }, {"head_dim", "40", "16"});
  refuses([](KvCacheOptions& o) { o.format = Format::int4; }, {"format", "int4"});
  refuses([](KvCacheOptions& o) { o.page_size = 0; }, {"page_size", "0"});
  refuses([](KvCacheOptions& o) { o.max_length = 0; }, {"max_length", "0"});
  refuses([](KvCacheOptions& o) { o.layers = 0; }, {"layers", "0"});
  refuses([](KvCacheOptions& o) { o.kv_heads = -1; }, {"kv_heads", "-1"});
}

TEST(KvCache, EnormousSizesAreErrors) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const auto refuses = [](auto change, const std::vector<std::string>& words) {
    KvCacheOptions o = small(Format::f32);
    change(o);
    expect_error([&] { KvCache{o}; }, words);
  };
  refuses([](KvCacheOptions& o) { o.page_size = kHuge; }, {"page_size", "2^31"});
  refuses([](KvCacheOptions& o) { o.layers = kHuge; }, {"layers", "2^58"});
  refuses([](KvCacheOptions& o) { o.kv_heads = kHuge; }, {"kv_heads", "2^58"});
  // Within the rule, beyond any machine: one page of all layers, then the tensors themselves.
  refuses([](KvCacheOptions& o) { o.kv_heads = int64_t{1} << 42; }, {"bytes", "machine"});
  refuses(
      [](KvCacheOptions& o) {
        o.layers = int64_t{1} << 40;
        o.kv_heads = o.page_size = o.head_dim = 1;
      },
      {"bytes", "machine"});
  // A cache that could not grow stays as it was.
  KvCacheOptions o = small(Format::f32);
  o.max_length = (int64_t{1} << 31) - 1, o.kv_heads = 1 << 12;
  KvCache cache(o);
  expect_error([&] { cache.advance(o.max_length); }, {"bytes", "machine"});
  EXPECT_EQ(cache.length(), 0);
}

}  // namespace
}  // namespace halftone
