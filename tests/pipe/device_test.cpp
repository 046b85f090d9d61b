// Rings, roles, named barriers, epilogues and tensor maps on the simulated GPU, under every
// schedule.
#include <cstring>

#include "halftone/error.h"
#include "halftone/simulator.h"
#include "hw/entry.h"
#include "pipe/cases.h"

namespace halftone::test {
namespace {

using Schedule = SimulatorOptions::Schedule;

template <class Case>
void under_every_schedule(Arch arch, Case run) {
  for (const Schedule schedule : {Schedule::fifo, Schedule::random, Schedule::adversarial}) {
    for (const uint64_t seed : {1, 2, 3}) {
      if (schedule == Schedule::fifo && seed > 1) continue;
      SCOPED_TRACE("schedule " + std::to_string(static_cast<int>(schedule)) + ", seed " +
                   std::to_string(seed));
      Stream stream(Device::simulator(arch));
      configure(stream, {.schedule = schedule, .seed = seed});
      run(stream);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(PipeOnSimulator, RingOfTensorCopies) {
  under_every_schedule(Arch::sm_90a, [](Stream& s) { double_tiles(s, 2, 128, 160); });
}

TEST(PipeOnSimulator, BlocksWithoutTiles) {
  Stream stream(Device::simulator(Arch::sm_90a));
  double_tiles(stream, 4, 32, 64);
}

TEST(PipeOnSimulator, RingOfStores) {
  under_every_schedule(Arch::sm_90a, [](Stream& s) { store_ring(s, 9); });
  Stream stream(Device::simulator(Arch::sm_120a));
  store_ring(stream, 0);
}

TEST(PipeOnSimulator, Epilogues) {
  under_every_schedule(Arch::sm_90a, [](Stream& s) { write_sums(s, 64, 256); });
  under_every_schedule(Arch::sm_90a, [](Stream& s) { write_sums(s, 50, 200); });
}

// A consumer that never gives its stages back: the report names the barrier, the one who waits and
// the role that has not arrived.
struct Forgetful {
  struct Params {
    uint32_t unused;
  };
  static constexpr uint32_t kThreads = 64;
  HT_DEVICE static void run(const Params&) {
    const pipe::Ring<2, 0> ring{hw::shared_memory_base()};
    if (hw::thread_index().x == 0) {
      ring.init(1, 1);
      ring.name("page", "free page");
    }
    hw::barrier_sync();
    if (hw::thread_index().x == 0) {
      hw::set_role("write");
      auto fill = ring.producer();
      for (int i = 0; i < 3; ++i) fill.commit(fill.wait());
    } else if (hw::thread_index().x == 32) {
      hw::set_role("read");
      auto read = ring.consumer();
      for (int i = 0; i < 3; ++i) static_cast<void>(read.wait());
    }
  }
};

TEST(PipeOnSimulator, DeadlocksNameTheRing) {
  const KernelImage image{
      "Forgetful",        Arch::sm_90a, nullptr, hw::sim_body<Forgetful>, sizeof(Forgetful::Params),
      Forgetful::kThreads};
  Stream stream(Device::simulator(Arch::sm_90a));
  try {
    launch(image, {.grid = {1}, .block = {64}, .cluster = {}, .shared_bytes = 32},
           Forgetful::Params{}, stream);
    stream.synchronize();
    FAIL() << "no deadlock was reported";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* words : {"deadlock", "free page[0]", "page[0]", "(write)", "(read)"})
      EXPECT_NE(text.find(words), std::string::npos) << words << " is not in: " << text;
  }
}

// The swizzle does what it is for.
TEST(PipeOnSimulator, EpiloguesHaveNoBankConflicts) {
  Stream stream(Device::simulator(Arch::sm_90a));
  write_sums(stream, 64, 256);
  bool seen = false;
  for (const auto& site : simulator_report(stream).counters.shared_sites) {
    if (site.what.find("stmatrix") == std::string::npos) continue;
    seen = true;
    EXPECT_EQ(site.wavefronts, site.ideal) << site.what;
  }
  EXPECT_TRUE(seen);
}

// The two sides agree on the bytes of a box.
TEST(TensorBox, CountsBytesAsTheSimulatorDoes) {
  const Tensor t = Tensor::zeros({1 << 20}, Format::u8, Device::simulator(Arch::sm_100a));
  for (const auto& [type, columns] : {std::pair{hw::Type::bf16, 64u},
                                      {hw::Type::bf16, 32u},
                                      {hw::Type::e4m3, 128u},
                                      {hw::Type::f32, 16u},
                                      {hw::Type::e2m1, 128u},
                                      {hw::Type::e3m2, 128u}}) {
    for (const tile::Swizzle s : {tile::Swizzle::none, tile::Swizzle::b128}) {
      const pipe::TensorBox box =
          pipe::matrix_box(type, t.data<uint8_t>(), 256, 512, 2048, 24, columns, s);
      const hw::TensorMap map = pipe::make_tensor_map(box, t.device());
      sim::TensorMap simulated;
      std::memcpy(static_cast<void*>(&simulated), &map, sizeof(simulated));
      EXPECT_EQ(box.box_bytes(), simulated.box_bytes());
      EXPECT_EQ(box.shared_bytes(), simulated.shared_bytes());
    }
  }
}

TEST(TensorMapCache, EncodesEachBoxOnce) {
  const Device device = Device::simulator(Arch::sm_90a);
  const Tensor t = Tensor::zeros({1024, 64}, Format::bf16, device);
  const auto box = [&](uint32_t rows) {
    return pipe::matrix_box(hw::Type::bf16, t.data<uint16_t>(), 1024, 64, 128, rows, 64,
                            tile::Swizzle::b128);
  };
  pipe::TensorMapCache cache;
  const hw::TensorMap first = cache.get(box(8), device);
  EXPECT_EQ(std::memcmp(&first, cache.get(box(8), device).words, sizeof(first)), 0);
  EXPECT_EQ(cache.made(), 1u);
  cache.get(box(16), device);
  EXPECT_EQ(cache.made(), 2u);
  for (uint32_t rows = 1; rows <= pipe::TensorMapCache::kEntries; ++rows)
    cache.get(box(100 + rows), device);
  EXPECT_EQ(cache.made(), 2u + pipe::TensorMapCache::kEntries);
  cache.get(box(8), device);  // given up meanwhile
  EXPECT_EQ(cache.made(), 3u + pipe::TensorMapCache::kEntries);
  EXPECT_THROW(cache.get(box(8), Device::cpu()), Error);
  EXPECT_THROW(cache.get(box(300), device), Error);
}

}  // namespace
}  // namespace halftone::test
