// Approximations: how far the GPU is from the correctly rounded value, octave by octave, against
// what the ISA documents.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "verify_host.h"
#include "verify_mufu.h"

namespace halftone::verify {
namespace {

constexpr const char* kNames[] = {
#define HT_NAME(name) #name,
    HT_VERIFY_MUFU(HT_NAME) HT_VERIFY_MUFU_PAIR(HT_NAME)};
#undef HT_NAME

// Error of `got` where `exact` is correctly rounded; in units in the last place of `exact`,
// relative and absolute.
struct Error {
  uint32_t units = 0;
  double relative = 0, absolute = 0;
  void add(const Error& e) {
    units = std::max(units, e.units);
    relative = std::max(relative, e.relative);
    absolute = std::max(absolute, e.absolute);
  }
};

// What PTX ISA 9.1 promises of f32, with the half unit that rounding the exact value may add.
struct Bound {
  const char* name;
  std::function<bool(float x, const Error&)> holds;
};
const Bound kBounds[] = {
    {"ex2", [](float, const Error& e) { return e.units <= 2; }},
    // 2^-22 absolute in (0.5, 2), relative elsewhere.
    {"lg2",
     [](float x, const Error& e) {
       return e.units <= 1 || (x > 0.5f && x < 2 ? e.absolute : e.relative) <= 0x1.01p-22;
     }},
    {"rcp", [](float, const Error& e) { return e.units <= 1; }},
    {"rsqrt", [](float, const Error& e) { return e.relative <= 0x1.01p-22 + 0x1p-24; }},
    {"sqrt", [](float, const Error& e) { return e.units <= 1 || e.relative <= 0x1p-22; }},
    // 2^-20.5 within a turn; the model has the same reduction, so elsewhere too.
    {"sin", [](float, const Error& e) { return e.absolute <= 0x1.6a1p-21 + 0x1p-24; }},
    {"cos", [](float, const Error& e) { return e.absolute <= 0x1.6a1p-21 + 0x1p-24; }},
    {"tanh", [](float, const Error& e) { return e.relative <= 0x1p-11; }},
};

uint32_t kind(float x) { return std::isnan(x) ? 2 : std::isinf(x) ? 1 : 0; }

Error error_of(float got, float exact) {
  Error e;
  const auto magnitude = [](float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffffu; };
  if (magnitude(got) == 0 && magnitude(exact) == 0) return e;
  e.units = std::signbit(got) != std::signbit(exact)
                ? magnitude(got) + magnitude(exact)
                : static_cast<uint32_t>(std::abs(static_cast<int64_t>(magnitude(got)) -
                                                 static_cast<int64_t>(magnitude(exact))));
  e.absolute = std::abs(double{got} - double{exact});
  e.relative = exact == 0 ? (got == 0 ? 0 : INFINITY) : e.absolute / std::abs(double{exact});
  return e;
}

std::vector<uint32_t> results(const Device& device, size_t index, const std::vector<uint32_t>& in) {
  Stream stream(device);
  const Buffer a(device, in), d(device, std::vector<uint32_t>(in.size(), 0xa5a5a5a5u));
  Params params;
  params.a = a.words();
  params.d = d.words();
  constexpr uint32_t kThreads = Mufu<mufu::tanh_approx>::kThreads;
  run(kMufuEntries, index, kNames[index], kThreads, 0, static_cast<uint32_t>(in.size()) / kThreads,
      params, stream);
  return d.read<uint32_t>();
}

TEST(Mufu, GpuIsWithinTheDocumentedErrorOfTheModel) {
  ASSERT_EQ(missing("sim"), "");
  const bool gpu = missing("cuda").empty();
  const uint32_t per_octave = gpu ? 1 << 11 : 1;
  std::vector<uint32_t> in;
  for (uint32_t octave = 0; octave < 512; ++octave)
    for (uint32_t i = 0; i < per_octave; ++i)
      in.push_back(octave << 23 | ((i * 2654435761u) & 0x7fffffu));
  for (size_t index = 0; index < std::size(kNames); ++index) {
    const std::string name = kNames[index];
    if (name.ends_with("x2")) continue;
    const auto exact = results(device_named("sim"), index, in);
    if (!gpu) continue;
    const auto chip = results(device_named("cuda"), index, in);
    const auto* bound = std::find_if(std::begin(kBounds), std::end(kBounds), [&](const Bound& b) {
      return name.starts_with(std::string(b.name) + "_");
    });
    ASSERT_NE(bound, std::end(kBounds)) << name;
    Error most;
    size_t same = 0, wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const auto x = std::bit_cast<float>(in[i]);
      const auto got = std::bit_cast<float>(chip[i]), want = std::bit_cast<float>(exact[i]);
      same += chip[i] == exact[i];
      bool fits = kind(got) == kind(want) && (kind(got) == 0 || chip[i] == exact[i]);
      if (fits && kind(got) == 0) {
        const Error e = error_of(got, want);
        most.add(e);
        fits = bound->holds(x, e);
      }
      if (!fits && ++wrong <= 3) {
        ADD_FAILURE() << name << " of " << x << std::hex << " (" << in[i] << "): GPU " << chip[i]
                      << ", correctly rounded " << exact[i];
      }
    }
    std::printf(
        "cuda  %-18s %8zu inputs, %6.2f %% exact, at most %u ulp, 2^%.2f relative, 2^%.2f "
        "absolute, %zu outside the documented error\n",
        name.c_str(), in.size(), 100.0 * static_cast<double>(same) / in.size(), most.units,
        std::log2(most.relative), std::log2(most.absolute), wrong);
  }
  if (!gpu) GTEST_SKIP() << missing("cuda");
}

// Functions of halves: all 65,536 codes, at most one unit of the half away.
TEST(Mufu, HalvesAreWithinOneUnit) {
  ASSERT_EQ(missing("sim"), "");
  const bool gpu = missing("cuda").empty();
  std::vector<uint32_t> in(gpu ? 1 << 16 : 256);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = i | (i ^ 0x5555u) << 16;
  for (size_t index = 0; index < std::size(kNames); ++index) {
    const std::string name = kNames[index];
    if (!name.ends_with("x2")) continue;
    const auto exact = results(device_named("sim"), index, in);
    if (!gpu) continue;
    const auto chip = results(device_named("cuda"), index, in);
    size_t same = 0, wrong = 0;
    for (size_t i = 0; i < 2 * in.size(); ++i) {
      const uint32_t got = chip[i / 2] >> 16 * (i % 2) & 0xffff;
      const uint32_t want = exact[i / 2] >> 16 * (i % 2) & 0xffff;
      same += got == want;
      wrong += got != want && got + 1 != want && want + 1 != got;
    }
    EXPECT_EQ(wrong, 0u) << name;
    std::printf("cuda  %-24s every code, %6.2f %% exact, the rest 1 ulp, %zu further away\n",
                name.c_str(), 50.0 * static_cast<double>(same) / in.size(), wrong);
  }
  if (!gpu) GTEST_SKIP() << missing("cuda");
}

}  // namespace
}  // namespace halftone::verify
