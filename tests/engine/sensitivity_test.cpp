// What a format does to a bundled model's predictions against what its rounding error predicts.
#include "engine/session/sensitivity.h"
#include "support/sanitized.h"
#include "support/source_path.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace halftone {
namespace {

std::string heldout(size_t characters) {
  std::ifstream file(test::source_path("examples/models/heldout.txt"));
  std::stringstream text;
  text << file.rdbuf();
  return text.str().substr(0, characters);
}

// Divergence is quadratic in the error to leading order, and its constant is measured with noise
// that no format makes. What is left: errors of a format are not spread over rows and columns as
// the noise is, and on so short a text one draw of errors is not its mean. A factor of 3 holds; one
// exponent wrong in the scales (4 times the squared error at least) breaks it.
TEST(Sensitivity, ExplainsEveryKindOfFormat) {
  const std::string path = test::source_path("examples/models/bard");
  const auto weights = test::some(std::vector<std::string>{"f32", "fp8", "nvfp4", "int4"});
  const auto caches =
      test::some(std::vector{Format::f32, Format::bf16, Format::fp8_e4m3, Format::nvfp4});
  const Sweep sweep = sweep_formats(path, heldout(900), 256, weights, caches);
  ASSERT_EQ(sweep.rows.size(), weights.size() * caches.size());
  for (const SweepRow& row : sweep.rows) {
    SCOPED_TRACE(row.weights + " " + row.kv);
    if (row.expected_kl == 0) {
      EXPECT_EQ(row.score.kl, 0);
      continue;
    }
    EXPECT_GT(row.score.kl, row.expected_kl / 3);
    EXPECT_LT(row.score.kl, row.expected_kl * 3);
    EXPECT_LT(std::abs(row.nll_change), row.expected_kl + 4 * row.nll_deviation);
    RecordProperty(row.weights + "_" + row.kv, std::to_string(row.score.kl / row.expected_kl));
  }
}

TEST(Sensitivity, RoundingErrorsOfACache) {
  EXPECT_EQ(cache_squared_error(Format::f32, 64), 0);
  // Rounding to p bits: uniform within half a unit, 2^-2p / 12 of a power of two's square; a normal
  // number's square is on average 2 of those (its mantissa is log-uniform, nearly).
  const double bf16 = std::sqrt(cache_squared_error(Format::bf16, 64));
  EXPECT_NEAR(bf16, 0x1p-7 / std::sqrt(12.0) / std::sqrt(2.0), 0x1p-11);
  EXPECT_NEAR(std::sqrt(cache_squared_error(Format::f16, 64)), bf16 / 8, 0x1p-14);
  EXPECT_NEAR(std::sqrt(cache_squared_error(Format::nvfp4, 64)), 0.095, 0.015);
}

}  // namespace
}  // namespace halftone
