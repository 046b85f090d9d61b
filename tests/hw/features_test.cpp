// The build assembles instructions for the architectures that src/hw/features.h names.
#include "hw/features.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <sstream>

namespace halftone::hw {
namespace {

constexpr Arch kArchs[] = {Arch::sm_80, Arch::sm_89, Arch::sm_90a, Arch::sm_100a, Arch::sm_120a};

const std::map<std::string, Feature>& features() {
  static const std::map<std::string, Feature> all = {
      {"common", Feature::common},
      {"fp8_convert", Feature::fp8_convert},
      {"mma_fp8", Feature::mma_fp8},
      {"mbarrier_tx", Feature::mbarrier_tx},
      {"stmatrix", Feature::stmatrix},
      {"setmaxnreg", Feature::setmaxnreg},
      {"wgmma", Feature::wgmma},
      {"tcgen05", Feature::tcgen05},
      {"f32x2", Feature::f32x2},
      {"fp4_convert", Feature::fp4_convert},
      {"ldmatrix_narrow", Feature::ldmatrix_narrow},
      {"mma_f8f6f4", Feature::mma_f8f6f4},
      {"mma_block_scale", Feature::mma_block_scale},
      {"redux_f32", Feature::redux_f32},
      {"tma_gather4", Feature::tma_gather4},
      {"tma_cta_group", Feature::tma_cta_group},
  };
  return all;
}

TEST(Features, OfTheBuildAreThoseOfTheTable) {
  EXPECT_EQ(features().size(), size_t{static_cast<uint8_t>(Feature::tma_cta_group)} + 1)
      << "a feature is missing here";
  std::istringstream table(HALFTONE_FEATURE_TABLE);
  size_t count = 0;
  for (std::string line; table >> line; ++count) {
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals);
    ASSERT_TRUE(features().contains(name)) << name;
    std::ostringstream archs;
    for (const Arch arch : kArchs) {
      if (!available(features().at(name), arch)) continue;
      if (archs.tellp() > 0) archs << ',';
      archs << halftone::name(arch);
    }
    EXPECT_EQ(line.substr(equals + 1), archs.str()) << name;
  }
  EXPECT_EQ(count, features().size());
}

}  // namespace
}  // namespace halftone::hw
