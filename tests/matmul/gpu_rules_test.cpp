// GEMMs on simulated GPUs: what they promise beside their values.
#include <array>
#include <fstream>
#include <regex>

#include "matmul/gpu_cases.h"
#include "support/source_path.h"

namespace halftone::test {
namespace {

using F = Format;
using Options = SimulatorOptions;

const WeightSpec kBf16{F::bf16}, kFp8{F::fp8_e4m3, true, {F::f32, 128, 128}};
const WeightSpec kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true};
const WeightSpec kInt4{F::int4, true, {F::bf16, 1, 32, ScaleLayout::linear, true}};

// No race, no conflict of banks, whatever the order; and the same bits.
TEST(MatmulGpu, StrictUnderAdversarialSchedules) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint64_t kSeeds = 2;
#else
  constexpr uint64_t kSeeds = 6;
#endif
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    for (const GpuCase& c :
         {GpuCase{kBf16, kBf16, 2, 40, 1024}, GpuCase{kFp8, {F::f32}, 2, 20, 2048},
          GpuCase{kNvfp4, kBf16, 3, 16, 4096}, GpuCase{kInt4, kBf16, 17, 130, 256},
          GpuCase{{F::f32}, {F::f32}, 9, 20, 128}}) {
      const Tensor x = random_weight(c.x, c.m, c.k, 3).tensor;
      const Tensor w = random_weight(c.weight, c.n, c.k, 4).tensor;
      std::vector<float> first;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Stream stream(Device::simulator(arch));
        configure(stream, {.severity = Options::Severity::strict,
                           .numerics = Options::Numerics::fast,
                           .schedule = Options::Schedule::adversarial,
                           .seed = seed,
                           .throws = false});
        const std::vector<float> y = to_floats(matmul_on(stream, x, w));
        const SimulatorReport report = simulator_report(stream);
        ASSERT_TRUE(report.clean()) << label(c.weight) << " seed " << seed << "\n"
                                    << to_string(report);
        EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
            << label(c.weight) << "\n"
            << to_string(report);
        if (first.empty()) first = y;
        ASSERT_EQ(y, first) << "seed " << seed;
      }
    }
  }
}

// The bits of a row are the same with one tile of columns and with two.
TEST(MatmulGpu, WholeSpansAreBatchInvariant) {
  Stream stream(Device::simulator(Arch::sm_89));
  const WeightSpec int4_g128{F::int4, true, {F::f16, 1, 128}},
      int8_g32{F::int8, true, {F::f32, 1, 32}};
  for (const WeightSpec& spec :
       {kBf16, WeightSpec{F::f16}, kFp8, WeightSpec{F::mxfp8, true, {F::ue8m0, 1, 32}}, int8_g32,
        kNvfp4, WeightSpec{F::mxfp4, true, {F::ue8m0, 1, 32}}, int4_g128}) {
    SCOPED_TRACE(label(spec));
    const int64_t n = 24, k = 16 * 1024 / bits(spec.format);
    const Tensor w = random_weight(spec, n, k, 6).tensor, x = random_tensor({12, k}, F::bf16, 4);
    const Tensor all = matmul_on(stream, x, w);
    for (const int64_t m : {2, 7}) {
      EXPECT_EQ(to_floats(matmul_on(stream, x.slice(0, 3, 3 + m).contiguous_copy(), w)),
                to_floats(all.slice(0, 3, 3 + m)));
    }
  }
}

// A row's bits are a function of its x and of W: not of the rows beside it, while the tile is the
// same.
TEST(MatmulGpu, RowsAreBatchInvariant) {
  Stream stream(Device::simulator(Arch::sm_90a));
  for (const WeightSpec& spec : {kBf16, kFp8, kNvfp4}) {
    const Tensor w = random_weight(spec, 20, 640, 6).tensor;
    for (const auto& [m, begin, end] : {std::array<int64_t, 3>{8, 5, 7}, {150, 120, 140}}) {
      const Tensor x = random_tensor({m, 640}, F::bf16, 4);
      EXPECT_EQ(to_floats(matmul_on(stream, x.slice(0, begin, end).contiguous_copy(), w)),
                to_floats(matmul_on(stream, x, w).slice(0, begin, end)));
    }
  }
}

TEST(MatmulGpu, ToleranceBreaksOnSmallErrors) {
  Stream stream(Device::simulator(Arch::sm_80));
  const int64_t m = 3, n = 11, k = 640;
  for (const WeightSpec& spec : {kBf16, kFp8, kNvfp4, kInt4}) {
    SCOPED_TRACE(label(spec));
    const Weight w = random_weight(spec, n, k, 5);
    const Tensor x = random_tensor({m, k}, F::f32, 6);
    const Expected e = expect(to_floats(x), w.values, m, n, k);
    const std::vector<double> bound = gpu_bounds(e, k, F::f32, 10);
    const auto fits = [&](const Tensor& changed) {
      return static_cast<bool>(
          within(to_floats(matmul_on(stream, changed, w.tensor)), e.values, bound));
    };
    ASSERT_TRUE(fits(x));
    Tensor wrong = x.contiguous_copy();
    std::swap(wrong.data<float>()[k + 3], wrong.data<float>()[k + 4]);
    EXPECT_FALSE(fits(wrong));
    wrong = x.contiguous_copy();
    wrong.data<float>()[2 * k - 1] = 0;  // the last element of K is skipped
    EXPECT_FALSE(fits(wrong));
    if (!spec.scaled) continue;
    // An exponent of the first scale: of f32 bit 27, of bf16 bit 11, of E4M3 the lowest.
    w.tensor.scales().data<uint8_t>()[bits(spec.scaling.format) / 8 - 1] ^= 8;
    EXPECT_FALSE(fits(x));
  }
}

TEST(MatmulGpu, RefusesWithTheReason) {
  const Device device = Device::simulator(Arch::sm_89);
  const auto reason = [&](auto change) {
    MatmulProblem p;
    p.m = 4, p.n = 64, p.k = 64;
    change(p);
    return can_run(p, device).reason;
  };
  EXPECT_EQ(reason([](MatmulProblem&) {}), "");
  EXPECT_EQ(reason([](MatmulProblem& p) {
              p.out = F::mxfp8;
              p.quantize_out = parse_quantization("mxfp8_adaptive");
            }),
            "");
  EXPECT_EQ(reason([](MatmulProblem& p) { p.m = 3000000; }),
            "m is 3000000; GPUs take up to 2097152");
  EXPECT_EQ(reason([](MatmulProblem& p) { p.quantize_x = parse_quantization("nvfp4_adaptive"); }),
            "x is to be quantised with adaptive scales; GPU kernels take those of the recipe");
}

// What documents say of the rows from which on Hopper multiplies by wgmma, and what dispatch does.
TEST(MatmulGpu, DocumentsKnowFromHowManyRowsWgmmaMultiplies) {
  int64_t most = 0;  // rows that another kernel multiplies
  for (; most < 64; ++most) {
    const GpuCase c{kBf16, kBf16, most + 1, 4096, 4096};
    const std::string kernel = kernel_of(c, Device::simulator(Arch::sm_90a));
    if (kernel.starts_with("gemm_sm90_mixed:")) break;
  }
  const std::regex rows("more than (\\d+) rows");
  // A document, and what the line that says it has beside.
  for (const auto& [document, beside] :
       {std::pair{"docs/findings/gemm-hopper.md", "Taken for more"},
        {"include/halftone/matmul.h", "Hopper reads 16-bit ones in place"}}) {
    std::ifstream file(source_path(document));
    int found = 0;
    for (std::string line; std::getline(file, line);) {
      std::smatch match;
      if (line.find(beside) == std::string::npos || !std::regex_search(line, match, rows)) continue;
      EXPECT_EQ(match[1], std::to_string(most)) << document << ": " << line;
      ++found;
    }
    EXPECT_EQ(found, 1) << document;
  }
}

TEST(MatmulGpu, TensorsElsewhereAreErrors) {
  Stream stream(Device::simulator(Arch::sm_80));
  const Tensor x = Tensor::zeros({2, 32}, F::bf16, stream.device());
  const Tensor w = Tensor::zeros({4, 32}, F::bf16);
  try {
    matmul(x, w, stream);
    FAIL() << "a weight on the CPU was taken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("weight is on cpu; the plan runs on sim:sm_80"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace halftone::test
