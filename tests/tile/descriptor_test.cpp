#include "tile/descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

namespace halftone::tile {
namespace {

constexpr SharedTile kSw128{.mn = 128, .k = 64};

// Encoded by hand from the field tables.
static_assert(WgmmaDescriptor::of(kSw128, 0x400).bits == 0x4000'0040'0001'0040);
static_assert(Tcgen05Descriptor::of(kSw128, 0x400).bits == 0x4000'4040'0001'0040);
static_assert(WgmmaDescriptor::of({.swizzle = Swizzle::b64, .mn = 64, .k = 32}, 0x200).bits ==
              0x8000'0020'0001'0020);
static_assert(WgmmaDescriptor::of({.swizzle = Swizzle::b32, .mn = 64, .k = 16}, 0x100).bits ==
              0xC000'0010'0001'0010);
static_assert(WgmmaDescriptor::of({.swizzle = Swizzle::none, .mn = 64, .k = 16}, 0x10).bits ==
              0x0000'0008'0040'0001);
static_assert(Tcgen05Descriptor::of({.swizzle = Swizzle::b32, .mn = 64, .k = 16}, 0x100).bits ==
              0xC000'4010'0001'0010);
static_assert(Tcgen05Descriptor::of({.swizzle = Swizzle::b64, .mn = 64, .k = 32}, 0x200).bits ==
              0x8000'4020'0001'0020);
// MN-major: 64 columns to a panel of 32 lines.
static_assert(WgmmaDescriptor::of({.major = Major::mn, .mn = 128, .k = 32}, 0).bits ==
              0x4000'0040'0100'0000);
// A K step of 16 BF16 is two units of the start field.
static_assert(WgmmaDescriptor::of(kSw128, 0x400).advanced(kSw128.advance(0, 16)).bits ==
              0x4000'0040'0001'0042);

TEST(Descriptor, DecodesWhatItEncodes) {
  for (const Swizzle s : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128,
                          Swizzle::b128_atom32, Swizzle::b128_atom64}) {
    for (uint32_t start = 0; start < 1u << 18; start += 0x1230) {
      const OperandFields f{start & ~15u, (start * 3) & 0x3FFF0, (start * 7) & 0x3FFF0, 0, s};
      ASSERT_TRUE(f.valid());
      if (WgmmaDescriptor::has(s)) {
        ASSERT_EQ(WgmmaDescriptor::encode(f).decode(), f);
      }
      if (Tcgen05Descriptor::has(s)) {
        const Tcgen05Descriptor d = Tcgen05Descriptor::encode(f);
        ASSERT_TRUE(d.valid());
        ASSERT_EQ(d.decode(), f);
      }
    }
  }
}

TEST(Descriptor, RefusesWhatIsNoOperand) {
  EXPECT_FALSE((OperandFields{.start = 8}.valid()));
  EXPECT_FALSE((OperandFields{.start = 1u << 18}.valid()));
  EXPECT_FALSE((OperandFields{.leading = 24}.valid()));
  EXPECT_FALSE((OperandFields{.base_offset = 1}.valid()));
  const Tcgen05Descriptor good = Tcgen05Descriptor::of(kSw128, 0);
  EXPECT_TRUE(good.valid());
  for (const uint64_t mode : {3, 5, 7}) {
    EXPECT_FALSE((Tcgen05Descriptor{(good.bits & ~(uint64_t{7} << 61)) | mode << 61}.valid()));
  }
  EXPECT_FALSE((Tcgen05Descriptor{good.bits & ~(uint64_t{1} << 46)}.valid()));
  EXPECT_FALSE((Tcgen05Descriptor{good.bits | uint64_t{1} << 52}.valid()));
}

TEST(Descriptor, KnowsPatternBoundaries) {
  OperandFields f{.start = 0x460, .swizzle = Swizzle::b128};
  EXPECT_TRUE(f.line_aligned());  // the third K step of a tile at 0x400
  f.start = 0x480;                // the second line of the pattern
  EXPECT_FALSE(f.line_aligned());
}

struct Case {
  const char* what;
  SharedTile tile;
};
const Case kTiles[] = {
    {"K 128 bf16", {.mn = 64, .k = 128}},
    {"K 64 bf16", {.swizzle = Swizzle::b64, .mn = 40, .k = 64}},
    {"K 32 e4m3", {.swizzle = Swizzle::b32, .element_bits = 8, .mn = 24, .k = 96}},
    {"K none bf16", {.swizzle = Swizzle::none, .mn = 64, .k = 64}},
    {"K 128 fp4", {.element_bits = 4, .mn = 16, .k = 512}},
    {"K 128 tf32", {.element_bits = 32, .mn = 16, .k = 64}},
    {"MN 128 bf16", {.major = Major::mn, .mn = 128, .k = 48}},
    {"MN 64 bf16", {.major = Major::mn, .swizzle = Swizzle::b64, .mn = 96, .k = 32}},
    {"MN 32 bf16", {.major = Major::mn, .swizzle = Swizzle::b32, .mn = 32, .k = 16}},
    {"MN none bf16", {.major = Major::mn, .swizzle = Swizzle::none, .mn = 64, .k = 32}},
    {"MN 128 fp8", {.major = Major::mn, .element_bits = 8, .mn = 256, .k = 32}},
    {"MN atom32 tf32",
     {.major = Major::mn, .swizzle = Swizzle::b128_atom32, .element_bits = 32, .mn = 64, .k = 16}},
};

TEST(SharedTile, EveryByteIsUsedOnce) {
  for (const auto& [what, t] : kTiles) {
    ASSERT_TRUE(t.valid()) << what << ": " << t.broken_rule();
    std::multiset<uint32_t> seen;
    const uint32_t base = 4096;
    for (uint32_t mn = 0; mn < t.mn; ++mn)
      for (uint32_t k = 0; k < t.k; ++k) seen.insert(t.address(base, mn, k));
    const size_t per_address = t.element_bits == 4 ? 2 : 1;
    ASSERT_EQ(seen.size() * t.element_bits / 8, t.bytes()) << what;
    for (const uint32_t a : seen) {
      ASSERT_EQ(seen.count(a), per_address) << what;
      ASSERT_TRUE(a >= base && a < base + t.bytes()) << what;
    }
  }
}

// What the hardware reads through a descriptor of the tile, from any step along K and any panel or
// group of 8 along MN, is the tile's own element.
TEST(SharedTile, DescriptorsReadTheTile) {
  for (const auto& [what, t] : kTiles) {
    const uint32_t base = 4096, step = 256 / t.element_bits;
    const uint32_t mn_step = t.major == Major::mn ? t.panel_elements() : 8;
    for (uint32_t k0 = 0; k0 < t.k; k0 += step) {
      for (uint32_t mn0 = 0; mn0 < t.mn; mn0 += mn_step) {
        const Tcgen05Descriptor d = Tcgen05Descriptor::of(t, base).advanced(t.advance(mn0, k0));
        const OperandFields f = d.decode();
        if (WgmmaDescriptor::has(t.swizzle)) {
          ASSERT_EQ(WgmmaDescriptor::of(t, base).advanced(t.advance(mn0, k0)).decode(), f);
        }
        ASSERT_TRUE(f.valid() && f.line_aligned()) << what;
        for (uint32_t mn = mn0; mn < t.mn; mn += 3) {
          for (uint32_t k = k0; k < std::min(k0 + step, t.k); ++k) {
            const uint32_t offset = operand_offset(t.major, f.swizzle, t.element_bits, f.leading,
                                                   f.stride, mn - mn0, k - k0);
            ASSERT_EQ(swizzled(f.swizzle, f.start + offset), t.address(base, mn, k))
                << what << " element " << mn << ", " << k << " from " << mn0 << ", " << k0;
          }
        }
      }
    }
  }
}

TEST(SharedTile, NamesTheBrokenRule) {
  const auto rule = [](const SharedTile& t) { return std::string(t.broken_rule()); };
  EXPECT_NE(rule({.mn = 64, .k = 32}).find("span"), std::string::npos);
  EXPECT_NE(rule({.mn = 12, .k = 64}).find("multiple of 8"), std::string::npos);
  EXPECT_NE(rule({.element_bits = 6, .mn = 8, .k = 64}).find("bits"), std::string::npos);
  EXPECT_NE(rule({.major = Major::mn, .element_bits = 4, .mn = 256, .k = 64}).find("K-major"),
            std::string::npos);
  EXPECT_NE(rule({.swizzle = Swizzle::b128_atom32, .mn = 64, .k = 64}).find("32-bit"),
            std::string::npos);
  EXPECT_NE(rule({.swizzle = Swizzle::b128_atom64, .mn = 64, .k = 64}).find("64-byte"),
            std::string::npos);
}

}  // namespace
}  // namespace halftone::tile
