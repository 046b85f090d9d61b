// Bank conflicts of one warp-wide access to shared memory.
//
// 32 banks of 4 bytes serve one word each per wavefront. An access goes in phases: all 32 lanes for
// up to 4 bytes each, half warps for 8, quarter warps for 16; ldmatrix and stmatrix take the eight
// rows of one matrix. In a phase, lanes on one word share it, and different words of one bank
// follow one another: the wavefronts of a phase are the words of its busiest bank.
#pragma once
#include "hw/target.h"

namespace halftone::tile {

inline constexpr uint32_t kBanks = 32;
HT_HOST_DEVICE uint32_t bank_of(uint32_t address) { return address / 4 % kBanks; }

struct BankPhase {
  uint32_t first = 0, count = 0;  // lanes (for ldmatrix: of the lanes that name rows)
  uint32_t words[kBanks] = {};    // different words of each bank
  uint32_t wavefronts = 0;
};

// The phase of lanes first .. first + count - 1, each `bytes` from its address on. Lanes whose bit
// in `mask` is clear take no part. Addresses are multiples of min(bytes, 4).
HT_HOST_DEVICE BankPhase bank_phase(const uint32_t* addresses, uint32_t mask, uint32_t first,
                                    uint32_t count, uint32_t bytes) {
  BankPhase phase;
  phase.first = first, phase.count = count;
  const uint32_t words = bytes < 4 ? 1 : bytes / 4;
  for (uint32_t lane = first; lane < first + count; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    for (uint32_t w = 0; w < words; ++w) {
      const uint32_t word = addresses[lane] / 4 + w;
      bool seen = false;
      for (uint32_t other = first; other <= lane && !seen; ++other) {
        if ((mask >> other & 1) == 0 || other == lane) continue;
        const uint32_t begin = addresses[other] / 4;
        seen = word >= begin && word < begin + words;
      }
      if (!seen) ++phase.words[word % kBanks];
    }
  }
  for (uint32_t b = 0; b < kBanks; ++b)
    if (phase.words[b] > phase.wavefronts) phase.wavefronts = phase.words[b];
  return phase;
}

// Lanes of one phase of loads and stores of `bytes` a lane.
HT_HOST_DEVICE uint32_t lanes_per_phase(uint32_t bytes) {
  return bytes == 16 ? 8 : bytes == 8 ? 16 : 32;
}

// All wavefronts of an access, and how many it would take without conflicts.
HT_HOST_DEVICE uint32_t wavefronts(const uint32_t* addresses, uint32_t mask, uint32_t bytes) {
  const uint32_t lanes = lanes_per_phase(bytes);
  uint32_t sum = 0;
  for (uint32_t first = 0; first < 32; first += lanes)
    sum += bank_phase(addresses, mask, first, lanes, bytes).wavefronts;
  return sum;
}

}  // namespace halftone::tile
