// The encoders of E4M3, E5M2, E2M1, E2M3, E3M2 and UE8M0, scalar and at every ISA level, against
// the model on all 2^32 inputs. Takes about a minute on two cores; label `long`.
#include <array>
#include <atomic>
#include <cstring>

#include "base/thread_pool.h"
#include "formats/codec_model.h"
#include "formats/kernels.h"
#include "halftone/stream.h"
#include "support/compare.h"

namespace halftone {
namespace {

constexpr int64_t kChunk = 1 << 14;

// NaNs as they are in `x`, the rest by walking up from the chunk's first magnitude.
template <class Walk>
void fill(std::vector<uint8_t>& codes, uint32_t first, uint32_t nan, int sign_bit, Walk walk) {
  const uint32_t sign = first >> 31 ? 1u << sign_bit : 0;
  for (int64_t i = 0; i < kChunk; ++i) {
    const uint32_t magnitude = (first + static_cast<uint32_t>(i)) & 0x7fffffffu;
    codes[static_cast<size_t>(i)] =
        static_cast<uint8_t>(magnitude > 0x7f800000u ? nan : sign | walk(bits_float(magnitude)));
  }
}

struct Job {
  const char* name;
  Format target;
  bool down;
};
constexpr Job kJobs[] = {{"e4m3", Format::fp8_e4m3, false},   {"e5m2", Format::fp8_e5m2, false},
                         {"e2m1", Format::nvfp4, false},      {"e2m3", Format::mxfp6, false},
                         {"e3m2", Format::mxfp6_e3m2, false}, {"ue8m0 up", Format::ue8m0, false},
                         {"ue8m0 down", Format::ue8m0, true}};

std::vector<uint8_t> model_codes(const Job& job, uint32_t first) {
  std::vector<uint8_t> codes(kChunk);
  if (job.target == Format::ue8m0) {
    // Powers of two ascending; `code` is the first at or above, or the last at or below.
    int code = -1;
    const double start = bits_float(first & 0x7fffffffu);
    if (std::isfinite(start)) code = static_cast<int>(test::model_ue8m0(float(start), job.down));
    fill(codes, first & 0x7fffffffu, 255, 7, [&](double x) {
      if (job.down) {
        while (code < 254 && std::ldexp(1.0, code + 1 - 127) <= x) ++code;
      } else {
        while (code < 254 && std::ldexp(1.0, code - 127) < x) ++code;
      }
      return static_cast<uint32_t>(code < 0 ? 254 : code);
    });
    return codes;
  }
  const test::CodeTable table = job.target == Format::fp8_e4m3     ? test::e4m3_table()
                                : job.target == Format::fp8_e5m2   ? test::e5m2_table()
                                : job.target == Format::mxfp6      ? test::e2m3_table()
                                : job.target == Format::mxfp6_e3m2 ? test::e3m2_table()
                                                                   : test::e2m1_table();
  test::NearestCode nearest(table);
  nearest.search(static_cast<double>(bits_float(first & 0x7fffffffu)));
  fill(codes, first, table.nan, table.sign_bit, [&](double x) { return nearest(x); });
  return codes;
}

void encode(const FormatKernels& kernels, const Job& job, const std::vector<float>& x,
            std::vector<uint8_t>& codes) {
  if (job.target == Format::ue8m0) {
    kernels.encode_ue8m0(x.data(), kChunk, job.down, codes.data());
    return;
  }
  kernels.encode(Format::f32, job.target, x.data(), kChunk, 1.0f, 0, codes.data());
  if (!is_packed(job.target)) return;
  for (int64_t i = kChunk - 1; i >= 0; --i) {  // one a byte, from the last on
    codes[static_cast<size_t>(i)] = code_at(job.target, codes.data(), i);
  }
}

TEST(Exhaustive, EveryEncoderOnEveryFloat) {
  std::vector<const FormatKernels*> kernels = {&scalar_format_kernels()};
  for (int i = 0; i <= static_cast<int>(detected_cpu_level()); ++i) {
    kernels.push_back(&format_kernels(static_cast<CpuLevel>(i)));
  }
  std::atomic<int> failures{0};
  std::atomic<int64_t> done{0};
  Stream stream;
  stream.pool().parallel_for((int64_t{1} << 32) / kChunk, 64, [&](int64_t begin, int64_t end) {
    std::vector<float> x(kChunk);
    std::vector<uint8_t> codes(kChunk);
    for (int64_t chunk = begin; chunk < end && failures < 10; ++chunk) {
      const auto first = static_cast<uint32_t>(chunk * kChunk);
      for (int64_t i = 0; i < kChunk; ++i) {
        x[static_cast<size_t>(i)] = bits_float(first + static_cast<uint32_t>(i));
      }
      for (const Job& job : kJobs) {
        const std::vector<uint8_t> expected = model_codes(job, first);
        for (size_t k = 0; k < kernels.size(); ++k) {
          encode(*kernels[k], job, x, codes);
          if (codes == expected) continue;
          ++failures;
          size_t i = 0;
          while (codes[i] == expected[i]) ++i;
          ADD_FAILURE() << job.name << (k == 0 ? " scalar" : name(static_cast<CpuLevel>(k - 1)))
                        << ": input 0x" << std::hex << first + i << " gives 0x" << int{codes[i]}
                        << ", the model says 0x" << int{expected[i]};
        }
      }
      done += kChunk;
    }
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(done, int64_t{1} << 32);
}

}  // namespace
}  // namespace halftone
