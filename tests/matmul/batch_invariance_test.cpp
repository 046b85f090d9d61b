// With batch_invariant a row has the same bits alone and among others, on every architecture; the
// default has not, which shows that the comparison can fail.
#include <cstring>

#include "matmul/gpu_cases.h"
#include "support/sanitized.h"

namespace halftone::test {
namespace {

using F = Format;
constexpr Arch kArchs[] = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};

struct Case {
  WeightSpec x, weight;
  int64_t n, k;
};
const WeightSpec kBf16{F::bf16}, kF32{F::f32}, kNvfp4{F::nvfp4, true, {F::fp8_e4m3, 1, 16}, true},
    kBlocks{F::fp8_e4m3, true, {F::f32, 128, 128}};

// Few formats each: every way in which sums are made on Hopper, where tiles differ most.
std::vector<Case> cases(Arch arch) {
  std::vector<Case> all = {{kBf16, kBf16, 136, 320}, {kBf16, kNvfp4, 136, 512}};
  if (arch != Arch::sm_90a) {
    all.push_back({kF32, {F::int8, true, {F::f16, 1, 64}}, 72, 192});
    return kSanitized ? std::vector<Case>{all[0]} : all;
  }
  all.push_back({kBf16, kBlocks, 256, 512});
  all.push_back({kBf16, {F::mxfp4, true, {F::ue8m0, 1, 32}}, 136, 512});
  all.push_back({kBf16, {F::int4, true, {F::f16, 1, 64}}, 136, 512});
  all.push_back({{F::fp8_e4m3, true, {F::f32, 1, 128}}, kBlocks, 256, 512});
  all.push_back({kF32, kBf16, 72, 128});
  return kSanitized ? std::vector<Case>{all[0], all[2]} : all;
}

struct Operands {
  Tensor x, weight;
};
Operands operands_of(const Case& c, int64_t m) {
  return {random_weight(c.x, m, c.k, 3).tensor, random_weight(c.weight, c.n, c.k, 4).tensor};
}
// Rows [first, first + m) of x, scales and all.
Tensor rows_of(const Tensor& x, int64_t first, int64_t m) {
  const Tensor rows = x.slice(0, first, first + m);
  if (!x.has_scales()) return rows;
  return rows.quantized(x.scaling(), x.scales().slice(0, first, first + m), x.tensor_scale());
}
Tensor product(Stream& stream, const Operands& o, int64_t first, int64_t m, bool invariant) {
  MatmulOptions options;
  options.out = F::f32, options.batch_invariant = invariant;
  return matmul_on(stream, rows_of(o.x, first, m), o.weight, options);
}
bool same_bits(const Tensor& all, int64_t first, const Tensor& rows) {
  const int64_t row = all.size(1) * 4;
  return std::memcmp(all.data<char>() + first * row, rows.data(),
                     static_cast<size_t>(rows.size(0) * row)) == 0;
}

void expect_invariant(Stream& stream, const Case& c) {
  SCOPED_TRACE(concat(label(c.x), " x ", label(c.weight), " on ", stream.device().name()));
  const int64_t most = 300;
  const Operands o = operands_of(c, most);
  const Tensor all = product(stream, o, 0, most, true);
  for (const int64_t m : {1, 2, 8, 9, 16, 17, 33, 64, 65, 128, 129, 257}) {
    if (kSanitized && m != 1 && m != 65) continue;
    // The last rows, whose place in a tile is another.
    const int64_t first = most - m;
    EXPECT_TRUE(same_bits(all, first, product(stream, o, first, m, true))) << m << " rows";
  }
  EXPECT_TRUE(same_bits(all, 130, product(stream, o, 130, 1, true)));
}

TEST(MatmulBatchInvariance, RowsAloneAndAmongOthers) {
  for (const Arch arch : kArchs) {
    Stream stream(Device::simulator(arch), 1);
    configure(stream, {.numerics = SimulatorOptions::Numerics::fast});
    for (const Case& c : cases(arch)) expect_invariant(stream, c);
  }
}

TEST(MatmulBatchInvariance, Cpu) {
  Stream stream(Device::cpu());
  for (const Case& c : cases(Arch::sm_80)) expect_invariant(stream, c);
}

// One row and many have kernels of their own, and few tiles share K.
TEST(MatmulBatchInvariance, TheDefaultDependsOnTheRows) {
  for (const Arch arch : {Arch::sm_80, Arch::sm_90a}) {
    Stream stream(Device::simulator(arch), 1);
    const Operands o = operands_of({kBf16, kBf16, 136, 2048}, 40);
    const Tensor all = product(stream, o, 0, 40, false);
    EXPECT_FALSE(same_bits(all, 39, product(stream, o, 39, 1, false))) << name(arch);
  }
}

// Large ones, whose tiles have 256 rows of x in the default: the plan says that K is not split.
TEST(MatmulBatchInvariance, OneKernelForAllRows) {
  for (const Arch arch : kArchs) {
    for (const Case& c : cases(arch)) {
      std::string first;
      for (const int64_t m : {1, 2, 16, 17, 64, 100, 256, 1024, 4096, 65536}) {
        GpuCase one{c.weight, c.x, m, 4096, 4096, F::bf16};
        MatmulProblem p = problem_of(one);
        p.batch_invariant = true;
        const std::string how = describe(plan(p, Device::simulator(arch)));
        EXPECT_EQ(how.find("split-K"), std::string::npos) << how;
        const std::string kernel = how.substr(0, how.find(':'));
        // FP8 by FP8 has three kernels with the same sums.
        const bool fp8 = c.x.format == F::fp8_e4m3 && arch == Arch::sm_90a;
        if (fp8) continue;
        if (first.empty()) first = kernel;
        EXPECT_EQ(kernel, first) << m;
      }
    }
  }
}

// Several matrices in one launch, and a gate.
TEST(MatmulBatchInvariance, GatedAndFused) {
  for (const Arch arch : kArchs) {
    Stream stream(Device::simulator(arch), 1);
    const int64_t n = 64, k = 256, most = 70;
    const Tensor x = random_tensor({most, k}, F::bf16, 3);
    const Tensor gate = random_tensor({n, k}, F::bf16, 4), up = random_tensor({n, k}, F::bf16, 5);
    MatmulOptions o;
    o.out = F::f32, o.gated = GatedActivation::swiglu(), o.up = up, o.batch_invariant = true;
    const Tensor all = matmul_on(stream, x, gate, o);
    for (const int64_t m : {1, 20, 65}) {
      EXPECT_TRUE(same_bits(all, most - m, matmul_on(stream, x.slice(0, most - m, most), gate, o)))
          << name(arch) << " " << m;
    }
  }
}

}  // namespace
}  // namespace halftone::test
