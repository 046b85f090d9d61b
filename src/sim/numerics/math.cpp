#include "sim/numerics/math.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <utility>

#include "formats/codec.h"
#include "sim/numerics/convert.h"

namespace halftone::sim {
namespace {

float flush(float x, bool ftz) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return ftz && (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : x;
}

// FP64 is 29 bits finer than FP32, so rounding its result once more changes nothing, except within
// 2^-29 of a tie.
template <class F>
float rounded(float x, bool ftz, F f) {
  const float y = static_cast<float>(f(static_cast<double>(flush(x, ftz))));
  return y == y ? flush(y, ftz) : std::bit_cast<float>(0x7fffffffu);
}

// Sine and cosine are two instructions: a product with 1/(2 pi), rounded towards zero, and a
// function of the fraction of a turn. The first one's error grows with x, until nothing of the
// fraction is left; it is reproduced.
double turns(float x, bool ftz) {
  if (!std::isfinite(x)) return std::nan("");
  const double product = double{flush(x, ftz)} * double{0.15915493667125701904f};
  float rounded = static_cast<float>(product);
  if (std::abs(double{rounded}) > std::abs(product)) rounded = std::nextafter(rounded, 0.0f);
  return std::fmod(double{flush(rounded, ftz)}, 1.0);
}
constexpr double kTurn = 6.283185307179586;

std::atomic<const MeasuredFunctions*> measured = nullptr;

}  // namespace

MeasuredFunctions::MeasuredFunctions(std::vector<float> ex2, std::vector<float> rcp)
    : ex2_(std::move(ex2)), rcp_(std::move(rcp)) {
  measured = this;
}
MeasuredFunctions::~MeasuredFunctions() { measured = nullptr; }

float MeasuredFunctions::ex2(float x) const {
  const double fine = std::ldexp(double{x}, 23);
  const auto steps = static_cast<int64_t>(x > 0 ? std::floor(fine) + 1 : std::ceil(fine));
  const int64_t below = steps > 0 ? (steps + kCount - 1) / kCount * kCount : 0;
  const auto down = static_cast<uint32_t>(below - steps);
  const auto exponent = static_cast<int>(below / kCount) - static_cast<int>(down / kCount);
  return std::ldexp(ex2_[down % kCount], exponent);
}
float MeasuredFunctions::rcp(float x) const {
  const auto bits = std::bit_cast<uint32_t>(x);
  const float y = std::ldexp(rcp_[bits % kCount], 127 - static_cast<int>(bits >> 23 & 0xff));
  return x < 0 ? -y : y;
}

float ex2_approx(float x, bool ftz) {
  const MeasuredFunctions* chip = measured;
  if (chip != nullptr && x >= -126 && x < 127) return chip->ex2(x);
  return rounded(x, ftz, [](double v) { return std::exp2(v); });
}
float lg2_approx(float x, bool ftz) {
  return rounded(x, ftz, [](double v) { return std::log2(v); });
}
float rcp_approx(float x, bool ftz) {
  const MeasuredFunctions* chip = measured;
  if (const float size = std::abs(x); chip != nullptr && size >= 0x1p-126f && size <= 0x1p125f) {
    return chip->rcp(x);
  }
  return rounded(x, ftz, [](double v) { return 1 / v; });
}
float rsqrt_approx(float x, bool ftz) {
  return rounded(x, ftz, [](double v) { return 1 / std::sqrt(v); });
}
float sqrt_approx(float x, bool ftz) {
  return rounded(x, ftz, [](double v) { return std::sqrt(v); });
}
float sin_approx(float x, bool ftz) {
  return rounded(x, ftz, [&](double) { return std::sin(kTurn * turns(x, ftz)); });
}
float cos_approx(float x, bool ftz) {
  return rounded(x, ftz, [&](double) { return std::cos(kTurn * turns(x, ftz)); });
}
float tanh_approx(float x) {
  return rounded(x, false, [](double v) { return std::tanh(v); });
}

uint16_t ex2_approx_f16(uint16_t x) { return cvt_f16(ex2_approx(decode_f16(x), false)); }
uint16_t ex2_approx_ftz_bf16(uint16_t x) { return cvt_bf16(ex2_approx(decode_bf16(x), true)); }
uint16_t tanh_approx_f16(uint16_t x) { return cvt_f16(tanh_approx(decode_f16(x))); }
uint16_t tanh_approx_bf16(uint16_t x) { return cvt_bf16(tanh_approx(decode_bf16(x))); }

}  // namespace halftone::sim
