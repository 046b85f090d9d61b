// tcgen05 used wrongly: each broken form is reported, the right one is clean.
#include "hw/tcgen05_product.h"

namespace halftone::test {
namespace {

using hw::CtaGroup;
using hw::TensorAddress;
using hw::TensorShape;
using tile::Tcgen05Descriptor;

// A product of 128 x 16 x 16 in BF16 from zeros, with A in shared or tensor memory: what each
// thread does, and what a broken form leaves out or does wrong.
struct Kernel {
  bool proxy_fence = true, fence_before = true, fence_after = true, wait = true, wait_store = true;
  bool wait_load = true, a_in_tensor = false, barrier = true;
  uint32_t window = 0;       // added to the warp's lanes on reading
  uint32_t d_column = 0;     // of an allocation of 64 columns
  uint32_t instruction = 0;  // bits changed in the descriptor
  uint64_t a_bits = 0;       // bits changed in A's descriptor
  bool shift = false, zero_columns = false, overwrite_scales = false, free_all = true;
  uint32_t issuer = 0;  // rank of the block that issues, of a pair

  template <CtaGroup group>
  void run() const {
    using namespace hw;
    const SharedAddress shared = shared_memory_base(), address = shared + 8;
    const uint32_t a = shared.value + 1024, b = a + 128 * 32;
    const uint32_t thread = thread_index().x, warp = thread / 32;
    const Mbarrier done{shared};
    const auto sync = [] {
      if (group == CtaGroup::one) return barrier_sync();
      cluster_arrive();
      cluster_wait();
    };
    if (warp == 0) tcgen05_alloc<group>(address, 64);
    if (thread == 0) {
      mbarrier_init(done, 1);
      fence_mbarrier_init();
    }
    for (uint32_t at = a + thread * 16; at < b + 16 * 32; at += 128 * 16) {
      store_shared({at}, Words4{});
    }
    if (proxy_fence) fence_proxy_async();
    sync();
    const TensorAddress base{load_shared<uint32_t>(address)};
    if (a_in_tensor) {
      const uint32_t zeros[8] = {};
      tcgen05_st<TensorShape::s32x32b, 8>(base.plus(warp * 32, 32), zeros);
      if (wait_store) tcgen05_wait_st();
    }
    if (fence_before) tcgen05_fence_before_thread_sync();
    if (barrier) sync();
    if (thread == 0 && cluster_rank() == issuer) {
      if (fence_after) tcgen05_fence_after_thread_sync();
      issue<group>(base, a, b);
      tcgen05_commit_multicast<group>(done, group == CtaGroup::one ? 1 : 3);
    }
    if (wait) mbarrier_wait(done, 0);
    if (fence_after) tcgen05_fence_after_thread_sync();
    uint32_t values[16];
    tcgen05_ld<TensorShape::s32x32b, 16>(values, base.plus((warp + window) % 4 * 32, d_column));
    if (wait_load) tcgen05_wait_ld(values);
    uint32_t sum = 0;
    for (const uint32_t value : values) sum |= value;
    if (!wait_load) {
      EXPECT_NE(sum, 0u) << "registers that have not arrived hold NaN";
      tcgen05_wait_ld(values);
    }
    tcgen05_fence_before_thread_sync();
    sync();
    tcgen05_fence_after_thread_sync();
    if (warp == 0 && free_all) tcgen05_dealloc<group>(base, 64);
  }

 private:
  template <CtaGroup group>
  void issue(TensorAddress base, uint32_t a, uint32_t b) const {
    using namespace hw;
    Tcgen05Instruction i;
    i.ctas = static_cast<int>(group), i.m = 128 * i.ctas, i.n = zero_columns ? 64 : 16 * i.ctas;
    const uint32_t bits = i.encode() ^ instruction;
    const auto lines = [](uint32_t at) {
      return Tcgen05Descriptor::encode(
          {.start = at, .leading = 16, .stride = 256, .swizzle = Swizzle::b32});
    };
    const Tcgen05Descriptor a_lines{lines(a).bits ^ a_bits};
    if (shift) tcgen05_shift_down<group>(base);
    if (zero_columns) {
      tcgen05_mma_ws_zero_columns<Tcgen05Kind::f16>(base, a_lines, lines(b), bits, false, 1);
    } else if (a_in_tensor) {
      tcgen05_mma<Tcgen05Kind::f16, group>(base, base.plus(0, 32), lines(b), bits, false);
    } else {
      tcgen05_mma<Tcgen05Kind::f16, group>(base.plus(0, d_column), a_lines, lines(b), bits, false);
    }
    if (overwrite_scales) {  // cp after an mma is not in order behind it
      tcgen05_cp<tile::TensorCopy::s128x128b, group>(base, lines(b));
    }
  }
};

template <CtaGroup group = CtaGroup::one>
SimulatorReport report_of(const Kernel& kernel, SimulatorOptions options = {},
                          Arch arch = Arch::sm_100a) {
  options.throws = false;
  options.severity = SimulatorOptions::Severity::strict;
  const auto blocks = static_cast<uint32_t>(group);
  Stream stream = simulated(arch, options, 1);
  run(stream, {.grid = {blocks}, .block = {128}, .cluster = {blocks}, .shared_bytes = 16 * 1024},
      [&](sim::Thread&) { kernel.run<group>(); });
  return simulator_report(stream);
}

// The rule (or its other side: which access comes first is the schedule's choice) is reported,
// under every schedule and a few seeds.
template <CtaGroup group = CtaGroup::one>
void expect_reported(const Kernel& kernel, const std::string& rule, const std::string& other = {}) {
  for (const auto schedule : kSchedules) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      const SimulatorReport report = report_of<group>(kernel, {.schedule = schedule, .seed = seed});
      EXPECT_TRUE(find(report, rule) != nullptr || find(report, other) != nullptr)
          << rule << " is not in\n"
          << to_string(report, false);
    }
  }
}

TEST(Tcgen05Rules, TheRightFormIsClean) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const SimulatorOptions options{.schedule = SimulatorOptions::Schedule::adversarial,
                                   .seed = seed};
    for (const bool a_in_tensor : {false, true}) {
      const Kernel kernel{.a_in_tensor = a_in_tensor};
      SimulatorReport report = report_of(kernel, options);
      EXPECT_TRUE(report.clean()) << to_string(report, false);
      report = report_of<CtaGroup::two>(kernel, options);
      EXPECT_TRUE(report.clean()) << to_string(report, false);
    }
  }
}

TEST(Tcgen05Rules, Order) {
  expect_reported({.proxy_fence = false}, "proxy.missing_fence");
  expect_reported({.wait = false}, "async.not_waited", "async.source_overwritten");
  expect_reported({.fence_after = false, .a_in_tensor = true}, "tcgen05.missing_fence_after");
  expect_reported({.fence_before = false, .a_in_tensor = true}, "tcgen05.missing_fence_before");
  expect_reported({.wait_store = false, .a_in_tensor = true}, "async.not_waited");
  expect_reported({.overwrite_scales = true}, "tcgen05.not_pipelined");
}

TEST(Tcgen05Rules, RegistersOfALoadArriveWithTheWait) {
  const SimulatorReport report = report_of({.wait_load = false});
  EXPECT_TRUE(report.clean()) << to_string(report, false);  // read, not written: only NaN shows it
}

TEST(Tcgen05Rules, Lanes) {
  expect_reported({.window = 1}, "tmem.lane_window");
  expect_reported({.d_column = 56}, "tmem.out_of_allocation");
  expect_reported({.free_all = false}, "tmem.exit");
}

TEST(Tcgen05Rules, DescriptorsThatNobodyVerifiedAreRefused) {
  expect_reported({.instruction = 1u << 2}, "tcgen05.instruction");      // sparse
  expect_reported({.instruction = 24u << 24}, "tcgen05.instruction");    // M
  expect_reported({.a_bits = uint64_t{1} << 49}, "tcgen05.descriptor");  // base offset
  expect_reported({.a_bits = uint64_t{1} << 46}, "tcgen05.descriptor");
  expect_reported({.a_bits = uint64_t{1} << 61}, "tcgen05.descriptor");  // swizzle 7
  expect_reported({.a_bits = 8}, "tcgen05.descriptor");  // starts at 128: not on the pattern
  expect_reported({.shift = true}, "tcgen05.unverified");
  expect_reported({.zero_columns = true}, "tcgen05.unverified");
}

// Scales that only one window of 32 lanes holds: the others would multiply by something else.
TEST(Tcgen05Rules, ScalesMustBeInEveryWindow) {
  for (const bool everywhere : {true, false}) {
    Cells tensor(1, 16), cells(1, 16);
    for (int lane = 0; lane < 128; ++lane) {
      for (int column = 0; column < 16; ++column) {
        tensor.at(0, lane, column) = everywhere || lane < 32 ? 0x7f7f7f7f : 0x80808080;
      }
    }
    const std::vector<std::vector<uint8_t>> shared(1, std::vector<uint8_t>(16 * 1024));
    const SimulatorReport report =
        run_product<CtaGroup::one>({}, shared, tensor, cells, [](TensorAddress base) {
          Tcgen05Instruction i;
          i.kind = Tcgen05Kind::mxf8f6f4, i.a = i.b = Tcgen05Type::e4m3, i.n = 16;
          const auto lines = Tcgen05Descriptor::encode(
              {.start = kData, .leading = 16, .stride = 256, .swizzle = Swizzle::b32});
          hw::tcgen05_mma_block_scale<Tcgen05Kind::mxf8f6f4, hw::ScaleBlock::block32,
                                      CtaGroup::one>(base, lines, lines, i.encode(), base, base,
                                                     false);
        });
    EXPECT_EQ(find(report, "tcgen05.scale_windows") == nullptr, everywhere)
        << to_string(report, false);
  }
}

TEST(Tcgen05Rules, PackedFp4InTensorMemoryIsReportedAsUnverified) {
  Cells tensor(1, 32), cells(1, 16);
  for (uint32_t& cell : tensor.values) cell = 0x7f7f7f7f;  // scales of 1; A is some FP4 codes
  const std::vector<std::vector<uint8_t>> shared(1, std::vector<uint8_t>(16 * 1024));
  const SimulatorReport report =
      run_product<CtaGroup::one>({}, shared, tensor, cells, [](TensorAddress base) {
        Tcgen05Instruction i;
        i.kind = Tcgen05Kind::mxf4, i.a = i.b = Tcgen05Type::e2m1, i.n = 16;
        const auto lines = Tcgen05Descriptor::encode(
            {.start = kData, .leading = 16, .stride = 256, .swizzle = Swizzle::b32});
        hw::tcgen05_mma_block_scale<Tcgen05Kind::mxf4, hw::ScaleBlock::block32, CtaGroup::one>(
            base, base.plus(0, 16), lines, i.encode(), base, base, false);
      });
  ASSERT_EQ(report.violations.size(), 1u) << to_string(report, false);
  EXPECT_EQ(report.violations[0].rule, "tcgen05.unverified");
  EXPECT_EQ(report.violations[0].level, SimulatorViolation::Level::warning);
  for (const uint32_t cell : cells.values) EXPECT_EQ(cell, 0u);  // B is zero
}

TEST(Tcgen05Rules, ThePairIsLedByTheEvenRank) {
  expect_reported<CtaGroup::two>({.issuer = 1}, "tcgen05.pair");
}

TEST(Tcgen05Rules, OtherArchitecturesHaveNoTensorMemory) {
  const SimulatorReport report = report_of(Kernel{}, {}, Arch::sm_90a);
  ASSERT_EQ(report.violations.size(), 1u) << to_string(report, false);
  EXPECT_EQ(report.violations[0].level, SimulatorViolation::Level::fatal);
  EXPECT_NE(report.violations[0].text.find("tcgen05.alloc"), std::string::npos)
      << report.violations[0].text;
}

}  // namespace
}  // namespace halftone::test
