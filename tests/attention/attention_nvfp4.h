// What P in NVFP4 may be when each P is known up to a relative error: the rule of docs/numerics.md
// over intervals, with the scalar codecs.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/codec.h"

namespace halftone::test {

// E2M1(P * (2688 / scale)) * scale / 2688 for scale = E4M3(448 * largest P of the block).
inline double nvfp4_weight(double p, double block_largest) {
  const double scale = decode_e4m3(encode_e4m3(static_cast<float>(448 * block_largest)));
  if (scale == 0) return 0;
  const float inverse = 2688.0f / static_cast<float>(scale);
  return decode_e2m1(encode_e2m1(static_cast<float>(p) * inverse)) * scale / 2688;
}

// `p`: softmax numerators relative to `p_unit` of each key (the largest of the chunk of keys it is
// in), up to a relative error x. Become the middle of the values after quantisation, `half` half
// the distance of the extremes.
inline void quantise_nvfp4(std::vector<double>* p, const std::vector<double>& x, int64_t chunk,
                           std::vector<double>* half) {
  const auto keys = static_cast<int64_t>(p->size());
  half->assign(p->size(), 0);
  for (int64_t c = 0; c < keys; c += chunk) {
    const int64_t end = std::min(keys, c + chunk);
    double most = 0;
    for (int64_t j = c; j < end; ++j) most = std::max(most, (*p)[static_cast<size_t>(j)]);
    if (most == 0) continue;
    for (int64_t block = c; block < end; block += 16) {
      const int64_t block_end = std::min(end, block + 16);
      double low = 0, high = 0;  // of the block's largest
      for (int64_t j = block; j < block_end; ++j) {
        const auto i = static_cast<size_t>(j);
        low = std::max(low, (*p)[i] / most * (1 - x[i]));
        high = std::max(high, std::min(1.0, (*p)[i] / most * (1 + x[i])));
      }
      for (int64_t j = block; j < block_end; ++j) {
        const auto i = static_cast<size_t>(j);
        double least = INFINITY, greatest = 0;
        for (const double largest : {low, high}) {
          for (const double sign : {-1.0, 1.0}) {
            const double value = nvfp4_weight((*p)[i] / most * (1 + sign * x[i]), largest);
            least = std::min(least, value), greatest = std::max(greatest, value);
          }
        }
        (*p)[i] = most * (least + greatest) / 2;
        (*half)[i] = most * (greatest - least) / 2;
      }
    }
  }
}

}  // namespace halftone::test
