// The cache of keys and values on GPUs.
#include "halftone/kv_cache.h"

#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class KvCacheOnDevice : public OnDevice {};

TEST_P(KvCacheOnDevice, HoldsWhatTheCpuHolds) {
  for (const Format format :
       {Format::f32, Format::bf16, Format::f16, Format::fp8_e4m3, Format::nvfp4}) {
    for (const Format source : {Format::f32, Format::bf16}) {
      SCOPED_TRACE(std::string(name(format)) + " from " + name(source));
      KvCacheOptions options;
      options.format = format;
      options.layers = 2, options.kv_heads = 3, options.head_dim = 48;
      options.page_size = 4, options.max_length = 50;
      KvCache here(options), there(options, device);
      Stream s = stream();
      uint64_t seed = 0;
      for (const int64_t tokens : {1, 3, 5, 12, 1}) {  // the cache grows several times
        for (int64_t layer = 0; layer < 2; ++layer) {
          // Keys and values are parts of a fused projection.
          const Tensor fused = test::random_tensor({tokens, 8, 48}, source, ++seed);
          const Tensor on = fused.to(device);
          here.append(layer, fused.slice(1, 2, 5), fused.slice(1, 5, 8), Stream::default_stream());
          there.append(layer, on.slice(1, 2, 5), on.slice(1, 5, 8), s);
        }
        here.advance(tokens), there.advance(tokens);
      }
      s.synchronize();
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (const auto part : {&KvCache::keys, &KvCache::values}) {
          const Tensor expected = (here.*part)(layer);
          const Tensor y = (there.*part)(layer).to(Device::cpu());
          EXPECT_TRUE(same_bits(Tensor::view(y.data(), y.shape(), format),
                                Tensor::view(expected.data(), y.shape(), format)));
          if (y.has_scales()) {
            EXPECT_TRUE(same_bits(y.scales(), expected.scales()));
          }
        }
      }
      EXPECT_TRUE(same_bits(there.page_table().to(Device::cpu()), here.page_table()));
      EXPECT_EQ(there.bytes(), here.bytes());
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

HALFTONE_ON_DEVICES(KvCacheOnDevice);

}  // namespace
}  // namespace halftone
