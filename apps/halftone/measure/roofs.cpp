#include "measure/roofs.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "halftone/tensor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace halftone {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int kRounds = 400000;  // about 1 ms a repeat

#if defined(__x86_64__)
// Twelve chains of the instruction hide its latency of 4 at two a cycle. In assembly, so that
// nothing is folded.
#define HALFTONE_CHAINS(op, reg, a, b)                                                         \
  op " %%" reg a ", %%" reg b ", %%" reg "0\n" op " %%" reg a ", %%" reg b ", %%" reg "1\n" op \
     " %%" reg a ", %%" reg b ", %%" reg "2\n" op " %%" reg a ", %%" reg b ", %%" reg "3\n" op \
     " %%" reg a ", %%" reg b ", %%" reg "4\n" op " %%" reg a ", %%" reg b ", %%" reg "5\n" op \
     " %%" reg a ", %%" reg b ", %%" reg "6\n" op " %%" reg a ", %%" reg b ", %%" reg "7\n" op \
     " %%" reg a ", %%" reg b ", %%" reg "8\n" op " %%" reg a ", %%" reg b ", %%" reg "9\n" op \
     " %%" reg a ", %%" reg b ", %%" reg "10\n" op " %%" reg a ", %%" reg b ", %%" reg "11\n"
#define HALFTONE_CLOBBERS                                                                  \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13"
constexpr int kChains = 12;

// VDPBF16PS takes 6 cycles: twelve chains would leave nothing to spare, twelve more do.
#define HALFTONE_UPPER_CHAINS(op, a, b)                                                          \
  op " %%zmm" a ", %%zmm" b ", %%zmm14\n" op " %%zmm" a ", %%zmm" b ", %%zmm15\n" op " %%zmm" a  \
     ", %%zmm" b ", %%zmm16\n" op " %%zmm" a ", %%zmm" b ", %%zmm17\n" op " %%zmm" a ", %%zmm" b \
     ", %%zmm18\n" op " %%zmm" a ", %%zmm" b ", %%zmm19\n" op " %%zmm" a ", %%zmm" b             \
     ", %%zmm20\n" op " %%zmm" a ", %%zmm" b ", %%zmm21\n" op " %%zmm" a ", %%zmm" b             \
     ", %%zmm22\n" op " %%zmm" a ", %%zmm" b ", %%zmm23\n" op " %%zmm" a ", %%zmm" b             \
     ", %%zmm24\n" op " %%zmm" a ", %%zmm" b ", %%zmm25\n"
__attribute__((target("avx512f,avx512bf16"))) void dot_bf16_512() {
  asm volatile("vpxord %%zmm12, %%zmm12, %%zmm12\n vpxord %%zmm13, %%zmm13, %%zmm13\n" ::
                   : "xmm12", "xmm13");
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(HALFTONE_CHAINS("vdpbf16ps", "zmm", "12", "13")
                     HALFTONE_UPPER_CHAINS("vdpbf16ps", "12", "13")::
                         : HALFTONE_CLOBBERS, "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19",
                           "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25");
  }
}
__attribute__((target("avx512f,avx512vnni"))) void dot_int8_512() {
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(HALFTONE_CHAINS("vpdpbusd", "zmm", "12", "13")::: HALFTONE_CLOBBERS);
  }
}
__attribute__((target("avx512f"))) void fma_512() {
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(HALFTONE_CHAINS("vfmadd231ps", "zmm", "12", "13")::: HALFTONE_CLOBBERS);
  }
}
__attribute__((target("avx2,fma"))) void fma_256() {
  for (int i = 0; i < kRounds; ++i) {
    asm volatile(HALFTONE_CHAINS("vfmadd231ps", "ymm", "12", "13")::: HALFTONE_CLOBBERS);
  }
}
#endif

// FLOP/s of `f`, which does `flops` a call, on every thread; the best of a few.
double rate(Stream& stream, void (*f)(), double flops) {
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto start = Clock::now();
    stream.pool().run([&](int) { f(); });
    best = std::max(best, flops * stream.threads() / seconds_since(start));
  }
  return best;
}

// Four lanes of multiply and add in the compiler's hands, for other levels and processors.
void multiply_add_128() {
  typedef float f32x4 __attribute__((vector_size(16)));
  f32x4 acc[8] = {};
  for (int i = 0; i < kRounds; ++i) {
    for (f32x4& x : acc) {
      x = x * 0.5f + 1.0f;
      asm volatile("" : "+m"(x));
    }
  }
}

}  // namespace

double f32_roof(Stream& stream) {
#if defined(__x86_64__)
  const CpuLevel level = cpu_level();
  if (level >= CpuLevel::avx512) return rate(stream, fma_512, 2.0 * 16 * kChains * kRounds);
  if (level >= CpuLevel::avx2) return rate(stream, fma_256, 2.0 * 8 * kChains * kRounds);
#endif
  return rate(stream, multiply_add_128, 2.0 * 4 * 8 * kRounds);
}

double bf16_roof(Stream& stream) {
#if defined(__x86_64__)
  if (cpu_level() >= CpuLevel::avx512_bf16) {
    return rate(stream, dot_bf16_512, 4.0 * 16 * 2 * kChains * kRounds);
  }
#endif
  return f32_roof(stream);
}

double int8_roof(Stream& stream) {
#if defined(__x86_64__)
  if (cpu_level() >= CpuLevel::avx512_bf16) {
    return rate(stream, dot_int8_512, 8.0 * 16 * kChains * kRounds);
  }
#endif
  (void)stream;
  return 0;
}

namespace {

// Four streams of eight words: enough requests in flight for the memory's latency. Always inline,
// so that each caller compiles it with its own registers.
typedef uint64_t u64x8 __attribute__((vector_size(64), aligned(8), may_alias));
__attribute__((always_inline)) inline uint64_t read_streams(const uint64_t* p, int64_t quarter) {
  u64x8 sum[4] = {};
  for (int64_t i = 0; i < quarter; i += 8) {
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) sum[s] ^= *reinterpret_cast<const u64x8*>(p + s * quarter + i);
  }
  const u64x8 all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  return all[0];
}
uint64_t read_any(const uint64_t* p, int64_t quarter) { return read_streams(p, quarter); }
#if defined(__x86_64__)
// Registers of 128 bits make the reading itself the limit, below what memory gives.
__attribute__((target("avx512f"))) uint64_t read_512(const uint64_t* p, int64_t quarter) {
  return read_streams(p, quarter);
}
#endif

}  // namespace

int64_t beyond_caches(int64_t least) {
#if defined(_SC_LEVEL3_CACHE_SIZE)
  return std::max<int64_t>(least, 2 * sysconf(_SC_LEVEL3_CACHE_SIZE));
#else
  return least;
#endif
}

double read_roof(Stream& stream, int64_t bytes) {
  const Tensor data = Tensor::zeros({bytes / 8}, Format::i64);
  const auto* words = data.data<uint64_t>();
  const int64_t part = bytes / 8 / stream.threads() / 64 * 64;
  auto* read_all = read_any;
#if defined(__x86_64__)
  if (cpu_level() >= CpuLevel::avx512) read_all = read_512;
#endif
  std::vector<uint64_t> sums(static_cast<size_t>(stream.threads()) * 8);
  std::vector<double> rates;
  for (int repeat = 0; repeat < 7; ++repeat) {
    const auto start = Clock::now();
    stream.pool().run([&](int thread) {
      sums[static_cast<size_t>(thread) * 8] ^= read_all(words + thread * part, part / 4 / 8 * 8);
    });
    const double read = static_cast<double>(part / 4 / 8 * 8 * 4 * 8 * stream.threads());
    rates.push_back(read / seconds_since(start));
  }
  std::sort(rates.begin(), rates.end());
  // The sums decide nothing but keep the reads.
  return rates[rates.size() - 2] + (sums[0] == 1 ? 1e-9 : 0.0);
}

double copy_roof(Stream& stream, int64_t bytes, int repeats) {
  const int64_t half = bytes / 2 / 4096 * 4096;
  const Tensor from = Tensor::zeros({half}, Format::u8), to = Tensor::zeros({half}, Format::u8);
  const double seconds = median_seconds(repeats, [&](int) {
    stream.pool().parallel_for(
        half / 4096, std::max<int64_t>(1, half / 4096 / 64), [&](int64_t begin, int64_t end) {
          std::memcpy(to.data<char>() + begin * 4096, from.data<char>() + begin * 4096,
                      static_cast<size_t>(end - begin) * 4096);
        });
  });
  return 2.0 * static_cast<double>(half) / seconds;
}

Timing median_seconds(int repeats, const std::function<void(int)>& f) {
  f(0);
  std::vector<double> times;
  for (int i = 1; i <= repeats; ++i) {
    const auto start = Clock::now();
    f(i);
    times.push_back(seconds_since(start));
  }
  return timing_of(std::move(times));
}

Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  Timing timing(seconds[seconds.size() / 2]);
  timing.low = seconds[seconds.size() / 4];
  timing.high = seconds[seconds.size() - 1 - seconds.size() / 4];
  timing.repeats = static_cast<int>(seconds.size());
  return timing;
}

}  // namespace halftone
