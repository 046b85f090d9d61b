// Comparison of a result with its reference, and random data, for tests.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "halftone/quantize.h"
#include "halftone/tensor.h"
#include "support/source_path.h"

namespace halftone::test {

// What to fill a tensor with. `outliers` is N(0,1) + N(0,100) * Bernoulli(0.001).
enum class Data { normal, outliers, tiny, huge, all_equal };

inline std::vector<float> random_values(int64_t count, uint64_t seed, Data data = Data::normal) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) {
    x = normal(engine);
    switch (data) {
      case Data::normal:
        break;
      case Data::outliers:
        if (engine() % 1000 == 0) x += 10.0f * normal(engine);
        break;
      case Data::tiny:
        x *= 1e-20f;
        break;
      case Data::huge:
        x *= 1e12f;
        break;
      case Data::all_equal:
        x = 0.75f;
        break;
    }
  }
  return values;
}

// Row-major tensor of f32, f16 or bf16.
inline Tensor random_tensor(const Shape& shape, Format format, uint64_t seed,
                            Data data = Data::normal) {
  const std::vector<float> values = random_values(element_count(shape), seed, data);
  const Tensor f32 = Tensor::from<float>(values, shape, Format::f32);
  return format == Format::f32 ? f32 : convert(f32, format);
}

// Any plain float tensor as f32 values in row-major order.
inline std::vector<float> to_floats(const Tensor& t) {
  const Tensor f32 = t.format() == Format::f32 ? t.contiguous_copy() : convert(t, Format::f32);
  return {f32.data<float>(), f32.data<float>() + f32.numel()};
}

struct Difference {
  double cosine = 1, relative_l2 = 0, max = 0;
  int64_t worst = -1;         // flat index of the largest difference
  bool same_specials = true;  // NaN and infinities at the same places
};

inline Difference compare(const std::vector<float>& result, const std::vector<float>& reference) {
  Difference d;
  EXPECT_EQ(result.size(), reference.size());
  double dot = 0, rr = 0, xx = 0, ee = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double x = result[i], r = reference[i];
    if (!std::isfinite(x) || !std::isfinite(r)) {
      const bool same = (std::isnan(x) && std::isnan(r)) || x == r;
      if (!same) {
        d.same_specials = false;
        d.worst = static_cast<int64_t>(i);
      }
      continue;
    }
    dot += x * r, rr += r * r, xx += x * x, ee += (x - r) * (x - r);
    if (std::abs(x - r) > d.max) d.max = std::abs(x - r), d.worst = static_cast<int64_t>(i);
  }
  if (rr > 0)
    d.relative_l2 = std::sqrt(ee / rr);
  else
    d.relative_l2 = ee > 0 ? INFINITY : 0;
  if (rr > 0 || xx > 0) d.cosine = dot / std::sqrt(rr * xx);
  return d;
}

// Each element within `bound[i]` of the reference, specials equal.
inline ::testing::AssertionResult within(const std::vector<float>& result,
                                         const std::vector<float>& reference,
                                         const std::vector<double>& bound) {
  if (result.size() != reference.size() || bound.size() != reference.size()) {
    return ::testing::AssertionFailure()
           << "sizes " << result.size() << ", " << reference.size() << ", " << bound.size();
  }
  for (size_t i = 0; i < reference.size(); ++i) {
    const double x = result[i], r = reference[i];
    const bool same_special = (std::isnan(x) && std::isnan(r)) || x == r;
    if (same_special) continue;
    if (!(std::abs(x - r) <= bound[i])) {  // also fails for NaN
      return ::testing::AssertionFailure()
             << "element " << i << " is " << x << ", reference " << r << ", bound " << bound[i];
    }
  }
  return ::testing::AssertionSuccess();
}

// Runs a test body at every ISA level this machine has, through HALFTONE_CPU, and at the
// level with dot products of bf16 both with and without them.
template <class Body>
void at_every_level(const Body& body) {
  for (int i = 0; i <= static_cast<int>(detected_cpu_level()); ++i) {
    const auto level = static_cast<CpuLevel>(i);
#if defined(HALFTONE_SECOND_LEVEL)  // the other levels are other names of the two
    if (level != CpuLevel::baseline && level != CpuLevel::HALFTONE_SECOND_LEVEL) continue;
#endif
    setenv("HALFTONE_CPU", name(level), 1);
    for (const char* products : {"dot", "f32"}) {
      SCOPED_TRACE(std::string("HALFTONE_CPU=") + name(level) + " HALFTONE_BF16=" + products);
      setenv("HALFTONE_BF16", products, 1);
      body();
      if (level < CpuLevel::avx512_bf16) break;
    }
  }
  unsetenv("HALFTONE_CPU");
  unsetenv("HALFTONE_BF16");
}

// Expects an Error whose message contains every one of `words`.
template <class Body>
void expect_error(const Body& body, const std::vector<std::string>& words) {
  try {
    body();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "message \"" << error.what() << "\" does not say \"" << word << "\"";
    }
  }
}

// Folder of the optional shared test data beside the checkout, or "" (then skip with a message).
inline std::string shared_data(const std::string& path) {
  const char* override_path = std::getenv("HALFTONE_SHARED");
  const std::string root = override_path != nullptr ? override_path : source_path("../shared");
  const std::string full = root + "/" + path;
  return access(full.c_str(), R_OK) == 0 ? full : "";
}

}  // namespace halftone::test
