// A test that names a kernel is for that kernel: where dispatch gives its problem to another one,
// the test fails instead of passing for it. The suite's name says which kernel is meant, and every
// plan that such tests make goes through `planned` or `expect_named_kernel`.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace halftone::test {

// How the plan of a suite's kernel describes itself: begins with `kernel`, says `says`, and does
// not say `never` (kernels of one name differ in it).
struct NamedKernel {
  std::string_view suite, kernel, says = "", never = "";
};
inline constexpr NamedKernel kNamedKernels[] = {
    {"AttentionSm90", "attention_sm90:"},
    {"AttentionSm90Layouts", "attention_sm90:"},
    {"AttentionOnGpu", "attention_sm90:"},
    {"AttentionSm90Fp8", "attention_sm90_fp8:"},
    {"AttentionSm90Fp8Layouts", "attention_sm90_fp8:"},
    {"AttentionFp8OnGpu", "attention_sm90_fp8:"},
    {"AttentionSm90Dequant", "attention_sm90_dequant:"},
    {"AttentionDequantOnGpu", "attention_sm90_dequant:"},
    {"AttentionSm80", "attention_sm80:"},
    {"AttentionSm80Layouts", "attention_sm80:"},
    {"AttentionSm80OnGpu", "attention_sm80:"},
    {"AttentionDecode", "attention_decode"},  // also of codes
    {"AttentionDecodeOnGpu", "attention_decode"},
    {"MatmulSm90", "gemm_sm90_", "", "small_m_w"},
    {"MatmulSm90Fp8SmallM", "gemm_sm90_fp8_small_m:"},
    {"MatmulSm90Gemv", "gemv_sm90:"},
    {"MatmulSm90SmallM", "gemm_sm90_small_m_w"},
    {"MoeSm90", "gemm_sm90_", "", "small_m_grouped"},
    {"MoeGroupedGemv", "gemv_sm90_grouped:"},
    {"MoeGroupedSmallM", "gemm_sm90_small_m_grouped"},
    {"MatmulByCublasLt", "gemm_cublaslt"},
    {"MatmulByCublasLtBlocks", "gemm_cublaslt"},
};

// While one lives, plans of another kernel are meant: as a reference, or because the test is about
// what the named kernel leaves to others.
class OtherKernels {
 public:
  OtherKernels() { ++count(); }
  ~OtherKernels() { --count(); }
  OtherKernels(const OtherKernels&) = delete;
  OtherKernels& operator=(const OtherKernels&) = delete;
  static bool meant() { return count() > 0; }

 private:
  static int& count() {
    static thread_local int living = 0;
    return living;
  }
};

// make(), by another kernel: what a result is compared with.
template <class Make>
auto by_another_kernel(const Make& make) {
  const OtherKernels meant;
  return make();
}

inline void expect_named_kernel(const std::string& description) {
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  if (test == nullptr || OtherKernels::meant()) return;
  const auto* named =
      std::find_if(std::begin(kNamedKernels), std::end(kNamedKernels),
                   [&](const NamedKernel& k) { return k.suite == test->test_suite_name(); });
  if (named == std::end(kNamedKernels)) {
    const std::string_view suite = test->test_suite_name();
    for (const std::string_view chip : {"Sm80", "Sm90", "Sm100", "Sm120"}) {
      EXPECT_EQ(suite.find(chip), std::string_view::npos)
          << "the suite names a kernel of " << chip << "; say which in kNamedKernels";
    }
    return;
  }
  const bool other = !description.starts_with(named->kernel) ||
                     description.find(named->says) == std::string::npos ||
                     (!named->never.empty() && description.find(named->never) != std::string::npos);
  EXPECT_FALSE(other) << named->suite << " is for " << named->kernel << " " << named->says
                      << "; dispatch chose " << description;
}

// plan(), of the kernel that the test names.
template <class Problem, class Device>
auto planned(const Problem& problem, const Device& device) {
  auto made = plan(problem, device);
  expect_named_kernel(describe(made));
  return made;
}

}  // namespace halftone::test
