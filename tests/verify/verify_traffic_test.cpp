// Atomics, reducing copies and what a cluster shares: the GPU gives the bits of the simulator.
#include "verify_traffic.h"

#include <algorithm>

#include "verify_host.h"

namespace halftone::verify {
namespace {

constexpr const char* kNames[] = {
#define HT_NAME(kernel, ...) __VA_ARGS__,
    HT_VERIFY_ATOMIC(HT_NAME) HT_VERIFY_REDUCE(HT_NAME) "cp.async of a source that ends",
    "shared memory of a cluster"};
constexpr const char* kAtomicNames[] = {HT_VERIFY_ATOMIC(HT_NAME)};
#undef HT_NAME
constexpr size_t kShortCopies = std::size(kNames) - 2, kExchange = std::size(kNames) - 1;

class Traffic : public testing::Test {
 protected:
  // Runs on one device; `words` of d, the first of which are b.
  static std::vector<uint32_t> results(const char* device, size_t index, uint32_t threads,
                                       uint32_t shared_bytes, uint32_t blocks, uint32_t cluster,
                                       const std::vector<uint32_t> (&in)[3], size_t words) {
    const Device on = device_named(device);
    Stream stream(on);
    const Buffer a(on, in[0]), b(on, in[1]), c(on, in[2]);
    std::vector<uint32_t> start(words, 0xa5a5a5a5u);
    std::copy_n(in[1].begin(), std::min(words, in[1].size()), start.begin());
    const Buffer d(on, start);
    const Params params{a.words(), b.words(), c.words(), d.words()};
    const KernelImage image{kNames[index],
                            Arch::sm_90a,
                            kTrafficEntries.gpu != nullptr ? kTrafficEntries.gpu[index] : nullptr,
                            kTrafficEntries.sim[index],
                            sizeof params,
                            threads};
    LaunchShape shape;
    shape.grid = {blocks};
    shape.block = {threads};
    shape.cluster = {cluster};
    shape.shared_bytes = shared_bytes;
    launch(image, shape, params, stream);
    stream.synchronize();
    return d.read<uint32_t>();
  }

  static void compare(size_t index, const std::vector<uint32_t>& chip,
                      const std::vector<uint32_t>& simulated) {
    size_t wrong = 0;
    for (size_t i = 0; i < chip.size(); ++i) {
      if (chip[i] == simulated[i]) continue;
      if (++wrong <= 3) {
        ADD_FAILURE() << kNames[index] << ": word " << i << std::hex << ": GPU " << chip[i]
                      << ", simulator " << simulated[i];
      }
    }
    report("cuda", kNames[index], chip.size(), wrong);
  }
};

TEST_F(Traffic, GpuGivesTheBitsOfTheSimulator) {
  ASSERT_EQ(missing("sim"), "");
  const bool gpu = missing("cuda").empty();
  const uint32_t n = gpu ? 1 << 17 : 1 << 10;
  const std::vector<uint32_t> in[3] = {operands(n, 1), operands(n, 2), operands(n, 3)};
  for (size_t index = 0; index < kExchange; ++index) {
    uint32_t shared_bytes = Reduce<BulkReduction::add, Type::u32>::kSharedBytes;
    uint32_t blocks = n / 512;
    size_t words = n;
    if (index < std::size(kAtomicNames)) {
      shared_bytes = AtomicShared<shared_memory::add_u32>::kSharedBytes;
      blocks = n / 128, words = 2 * n;
    } else if (index == kShortCopies) {
      shared_bytes = ShortCopies::kSharedBytes;
      blocks = n / 1024;
    }
    const auto simulated = results("sim", index, 128, shared_bytes, blocks, 1, in, words);
    if (!gpu) continue;
    compare(index, results("cuda", index, 128, shared_bytes, blocks, 1, in, words), simulated);
  }
  if (!gpu) GTEST_SKIP() << missing("cuda");
}

TEST_F(Traffic, BlocksOfAClusterExchange) {
  ASSERT_EQ(missing("sim"), "");
  for (const char* device : {"sim", "cuda"}) {
    if (!missing(device).empty()) GTEST_SKIP() << missing(device);
    const uint32_t blocks = device[0] == 's' ? 4 : 512;
    const std::vector<uint32_t> in[3] = {operands(blocks * 64, 4), {1}, {1}};
    const auto d =
        results(device, kExchange, 32, Exchange::kSharedBytes, blocks, 2, in, blocks * 256);
    size_t wrong = 0;
    for (uint32_t block = 0; block < blocks; ++block) {
      const uint32_t* other = &in[0][(block ^ 1) * 64];
      const uint32_t* even = &in[0][(block & ~1u) * 64];
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t* got = &d[block * 256 + i];
        wrong += got[0] != other[i];        // st.shared::cluster
        wrong += got[32] != other[32 + i];  // st.async
        wrong += got[64] != other[i];       // cp.async.bulk to the other block
        wrong += got[96] != even[i];        // multicast of block 0
        wrong += got[128] != even[64 + i];  // multicast of block 1
        wrong += got[160] != ~other[i];     // ld.shared::cluster
        wrong += got[192] != 1;             // the barrier saw every byte
      }
    }
    EXPECT_EQ(wrong, 0u) << device;
    report(device, kNames[kExchange], blocks * 224, wrong);
  }
}

}  // namespace
}  // namespace halftone::verify
