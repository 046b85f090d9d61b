// Rotary embedding: a block rotates all heads of a token by 512 pairs' angles, which it computes
// once, with the additions and products of the CPU kernel and so to the same bits. A token whose
// position is out of range stays as it is, and the position is reported.
#pragma once
#include "base/launch.h"
#include "hw/barrier.h"
#include "hw/thread.h"
#include "ops/rope/kernels.h"
#include "pipe/elements.h"
#include "pipe/fault.h"

namespace halftone {

struct RopeGpu {
  struct Params {
    RopeArgs args;  // frequencies and positions are on the device
    FaultReporter faults;
  };
  static constexpr uint32_t kThreads = 128, kMinBlocks = 1;
  static constexpr uint32_t kPairs = 512;  // of a block: 4 KB of cosines and sines
  static constexpr uint32_t kSharedBytes = kPairs * 2 * sizeof(float);
  static constexpr int64_t kLastPosition = int64_t{1} << 31;

  static LaunchShape shape(const RopeArgs& args, int64_t tokens) {
    const auto chunks = static_cast<uint32_t>((args.pairs + kPairs - 1) / kPairs);
    return {.grid = {static_cast<uint32_t>(tokens), chunks, 1},
            .block = {kThreads, 1, 1},
            .shared_bytes = kSharedBytes};
  }

  // Cosine and sine of an angle |a| < 2^32, as simd/ computes them: within 2 ulp.
  HT_DEVICE static void sine_cosine(double a, float& cosine, float& sine) {
    // n = round(a 2/pi) by adding 1.5 * 2^52, which leaves n in the low bits.
    constexpr double kShift = 6755399441055744.0;
    const double shifted = a * 0.63661977236758134308 + kShift, n = shifted - kShift;
    // pi/2 in parts, two of them of 22 bits: their products with n < 2^31 are exact without FMA.
    double r = a - n * 0x1.921fbp+0;
    r = r - n * 0x1.5110bp-22;
    r = r - n * 0x1.18469898cc517p-44;
    const auto x = static_cast<float>(r);
    const auto quadrant = static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted) & 3);
    // On |x| <= pi/4: polynomials with relative error below 2^-25 (sine) and 2^-26 (cosine).
    const float z = x * x;
    float s = (z * -1.9515295891e-4f + 8.3321608736e-3f) * z - 1.6666654611e-1f;
    s = s * z * x + x;
    float c = (z * 2.443315711809948e-5f - 1.388731625493765e-3f) * z + 4.166664568298827e-2f;
    c = c * z * z - z * 0.5f + 1.0f;
    const bool odd = (quadrant & 1) != 0;
    sine = std::bit_cast<float>(std::bit_cast<uint32_t>(odd ? c : s) ^ (quadrant & 2) << 30);
    cosine =
        std::bit_cast<float>(std::bit_cast<uint32_t>(odd ? s : c) ^ ((quadrant + 1) & 2) << 30);
  }

  HT_DEVICE static void run(const Params& p) {
    const RopeArgs& args = p.args;
    const uint32_t thread = hw::thread_index().x;
    const int64_t token = hw::block_index().x;
    const int64_t first = int64_t{hw::block_index().y} * kPairs;
    const int64_t position =
        pipe::load_index(args.positions, args.wide_positions, token * args.position_stride);
    if (position < 0 || position > kLastPosition) {
      if (thread == 0 && first == 0) {
        pipe::report_fault(p.faults, Fault::rope_position, token, position, kLastPosition);
      }
      return;
    }
    const int64_t left = args.pairs - first;
    const auto pairs = static_cast<uint32_t>(left < kPairs ? left : kPairs);
    // Pair 8 u + k of unit u is at k * units + u: the threads of a warp, which have units side by
    // side, read neighbours.
    const uint32_t units = (pairs + 7) / 8;
    const hw::SharedAddress cosines = hw::shared_memory_base();
    const hw::SharedAddress sines = cosines + kPairs * 4;
    for (uint32_t slot = thread; slot < units * 8; slot += kThreads) {
      const uint32_t pair = slot % units * 8 + slot / units;
      float cosine = 1, sine = 0;
      if (pair < pairs) {
        const double frequency = hw::load_global(args.frequencies + first + pair);
        sine_cosine(static_cast<double>(position) * frequency, cosine, sine);
        if (args.magnitude != 1) cosine = cosine * args.magnitude, sine = sine * args.magnitude;
      }
      hw::store_shared(cosines + slot * 4, cosine);
      hw::store_shared(sines + slot * 4, sine);
    }
    hw::barrier_sync();
    const auto heads = static_cast<uint32_t>(args.heads);
    for (uint32_t i = thread; i < heads * units; i += kThreads) {
      const uint32_t unit = i % units;
      char* x = args.x + token * args.token_stride + i / units * args.head_stride;
      float c[8], s[8];
      HT_UNROLL
      for (uint32_t k = 0; k < 8; ++k) {
        c[k] = hw::load_shared<float>(cosines + (k * units + unit) * 4);
        s[k] = hw::load_shared<float>(sines + (k * units + unit) * 4);
      }
      rotate(args, x, first + unit * 8, c, s);
    }
  }

  // Eight pairs from `pair` on: of two halves, or of neighbours.
  HT_DEVICE static void rotate(const RopeArgs& args, char* x, int64_t pair, const float (&c)[8],
                               const float (&s)[8]) {
    const int64_t begin = args.interleaved ? 2 * pair : pair;
    const int64_t partner = args.interleaved ? begin + 8 : begin + args.pairs;
    const pipe::Quads low{begin, begin + 4}, high{partner, partner + 4};
    const int64_t low_end = args.interleaved ? 2 * args.pairs : args.pairs;
    const int64_t high_end = 2 * args.pairs;
    float a[8], b[8];
    pipe::load_eight(args.format, x, low, low_end, a);
    pipe::load_eight(args.format, x, high, high_end, b);
    HT_UNROLL
    for (uint32_t k = 0; k < 8; ++k) {
      if (args.interleaved) {
        float& even = k < 4 ? a[2 * k] : b[2 * k - 8];
        float& odd = k < 4 ? a[2 * k + 1] : b[2 * k - 7];
        const float turned = even * c[k] + odd * -s[k];
        odd = odd * c[k] + even * s[k];
        even = turned;
      } else {
        const float turned = a[k] * c[k] - b[k] * s[k];
        b[k] = b[k] * c[k] + a[k] * s[k];
        a[k] = turned;
      }
    }
    pipe::store_eight(args.format, x, low, low_end, a);
    pipe::store_eight(args.format, x, high, high_end, b);
  }
};

}  // namespace halftone
