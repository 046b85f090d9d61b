// Matrix instructions of sm_90a against the arithmetic of the simulator, bit for bit.
#include <cstring>

#include "sim/mma_cases.h"
#include "verify_host.h"
#include "verify_mma.h"
#include "verify_wgmma.h"

namespace halftone::verify {
namespace {

using namespace sim;

struct Instruction {
  MmaUnit unit;
  std::string name;
  uint32_t threads, shared_bytes;
  int m, n, row_bytes;
  MmaElement a, b;
  MmaAccumulator accumulator;
  bool saturate = false, nibbles = false;
};

std::vector<Instruction> mma_instructions() {
  std::vector<Instruction> all;
#define HT_ROW(kernel, A, B, C, kRowBytes, suffix)                                                \
  all.push_back({MmaUnit::mma_sync, "mma.sync " #C "." #A "." #B suffix,                          \
                 HT_VERIFY_UNWRAP kernel::kThreads, HT_VERIFY_UNWRAP kernel::kSharedBytes, 16, 8, \
                 kRowBytes, MmaElement::A, MmaElement::B, MmaAccumulator::C});
  HT_VERIFY_MMA(HT_ROW)
#undef HT_ROW
  for (Instruction& x : all) {
    x.saturate = x.name.ends_with("satfinite");
    x.nibbles = x.name.ends_with("nibbles");
  }
  return all;
}

// Four-bit integers: the case has them as bytes, the kernel two to a byte, the lower one first.
std::vector<uint8_t> packed(std::vector<uint8_t>& bytes, MmaElement type) {
  std::vector<uint8_t> nibbles(bytes.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint32_t nibble = bytes[i] & 15;
    nibbles[i / 2] = static_cast<uint8_t>(nibbles[i / 2] | nibble << 4 * (i % 2));
    bytes[i] = static_cast<uint8_t>(type == MmaElement::s8 && nibble >= 8 ? nibble - 16 : nibble);
  }
  return nibbles;
}

// Types, N, where A is and how both lie.
template <class Kernel>
std::string wgmma_name(const char* types, int n) {
  return std::string("wgmma ") + types + " n" + std::to_string(n) + ", " +
         (Kernel::kInRegisters ? "A in registers, " : "") +
         (Kernel::kAlongK ? "K-major, " : "MN-major, ") + tile::name(Kernel::kLayout);
}
std::vector<Instruction> wgmma_instructions() {
  std::vector<Instruction> all;
#define HT_ROW(kernel, kN, A, B, C, kRowBytes)                                                     \
  all.push_back({MmaUnit::wgmma, wgmma_name<HT_VERIFY_UNWRAP kernel>(#C "." #A "." #B, kN),        \
                 HT_VERIFY_UNWRAP kernel::kThreads, HT_VERIFY_UNWRAP kernel::kSharedBytes, 64, kN, \
                 kRowBytes, MmaElement::A, MmaElement::B, MmaAccumulator::C});
  HT_VERIFY_WGMMA(HT_ROW)
#undef HT_ROW
  return all;
}

class Mma : public OnDevice {
 protected:
  void verify(const Instruction& x, const Entries& entries, size_t index) {
    const auto rule = mma_rule(Arch::sm_90a, x.unit, x.a, x.b, x.accumulator);
    ASSERT_TRUE(rule) << x.name;
    const int k = x.nibbles ? 2 * x.row_bytes : x.row_bytes / code_bytes(x.a);
    // 100,000 outputs on a GPU; the simulator's operands are gathered a thread at a time.
    const int outputs = x.m * x.n;
    const int blocks = on_gpu() ? (10500 + outputs - 1) / outputs : 1;
    Stream stream(device_);
    size_t cases = 0, mismatches = 0;
    for (const MmaData data : kMmaData) {
      MmaCases make(static_cast<uint64_t>(index) * 16 + static_cast<uint64_t>(data));
      std::vector<MmaCase> made;
      std::vector<uint8_t> a, b, c;
      for (int i = 0; i < blocks; ++i) {
        made.push_back(make.make(x.a, x.b, x.accumulator, x.m, x.n, k, data));
        MmaCase& last = made.back();
        const auto codes_a = x.nibbles ? packed(last.a, x.a) : last.a;
        const auto codes_b = x.nibbles ? packed(last.b, x.b) : last.b;
        a.insert(a.end(), codes_a.begin(), codes_a.end());
        b.insert(b.end(), codes_b.begin(), codes_b.end());
        c.insert(c.end(), last.c.begin(), last.c.end());
      }
      const Buffer in_a(device_, a), in_b(device_, b), in_c(device_, c);
      const Buffer out(device_, std::vector<uint8_t>(c.size(), 0xa5));
      run(entries, index, x.name.c_str(), x.threads, x.shared_bytes, static_cast<uint32_t>(blocks),
          {in_a.words(), in_b.words(), in_c.words(), out.words()}, stream);
      const auto d = out.read<uint8_t>();
      const size_t bytes = made[0].output_bytes(), word = bytes / static_cast<size_t>(outputs);
      std::vector<uint8_t> expected(bytes);
      size_t wrong = 0;
      for (size_t i = 0; i < made.size(); ++i) {
        MmaTile tile = made[i].tile(expected.data());
        tile.saturate = x.saturate;
        mma_exact(*rule, tile);
        for (size_t at = 0; at < bytes; at += word)
          wrong += std::memcmp(&expected[at], &d[i * bytes + at], word) != 0;
      }
      EXPECT_EQ(wrong, 0u) << x.name << ", " << name(data);
      mismatches += wrong;
      cases += made.size() * static_cast<size_t>(outputs);
    }
    report(GetParam(), x.name, cases, mismatches);
    EXPECT_TRUE(!on_gpu() || cases >= 100000u) << cases;
  }
};

TEST_P(Mma, Synchronous) {
  const auto all = mma_instructions();
  for (size_t i = 0; i < all.size(); ++i) verify(all[i], kMmaEntries, i);
}

TEST_P(Mma, Warpgroup) {
  const auto all = wgmma_instructions();
  for (size_t i = 0; i < all.size(); ++i) verify(all[i], kWgmmaEntries, i);
}

HT_ON_DEVICES(Mma);

}  // namespace
}  // namespace halftone::verify
