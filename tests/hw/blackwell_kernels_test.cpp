// Whole kernels of sm_100a and sm_120a on the simulator: clean under strict rules and twenty seeds
// of the adversarial schedule, and right against FP64.
#include <cmath>
#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include "formats/codec.h"
#include "hw/entry.h"
#include "hw/kernels/product_bf16_pair_sm100.h"
#include "hw/kernels/product_bf16_sm100.h"
#include "hw/kernels/product_nvfp4_sm100.h"
#include "hw/kernels/product_scaled_sm120.h"
#include "pipe/tensor_map.h"
#include "sim/kernels.h"
#include "sim/memory/device_memory.h"

namespace halftone::test {
namespace {

// Memory of a simulated device.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Arch arch, const std::vector<T>& values) : size_(values.size()) {
    data_ = static_cast<T*>(sim::allocate(arch, size_ * sizeof(T)));
    std::memcpy(data_, values.data(), size_ * sizeof(T));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { sim::deallocate(data_); }
  T* data() const { return data_; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
  size_t size_;
};

// Rows of A and B as FP64 values, the product they must give, and its largest error in units of the
// bound: each instruction of `step` elements cuts step + 1 terms off at 2^-25 of the largest and
// its sum at 2^-23.
struct Reference {
  int m, n, k, step;
  std::vector<double> a, b;
  double scale = 1;

  double worst_error(const float* d) const {
    double worst = 0;
    for (int row = 0; row < m; ++row) {
      for (int column = 0; column < n; ++column) {
        double exact = 0, size = 0;
        for (int at = 0; at < k; ++at) {
          const double term = scale * a[static_cast<size_t>(row * k + at)] *
                              b[static_cast<size_t>(column * k + at)];
          exact += term, size += std::fabs(term);
        }
        const double steps = static_cast<double>(k) / step;
        const double bound = (steps * ((step + 1) * 0x1p-25 + 0x1p-23) + 0x1p-24) * size;
        const double error = std::fabs(static_cast<double>(d[row * n + column]) - exact);
        if (!(error <= worst * bound)) worst = error / bound;
      }
    }
    return worst;
  }
};

template <class Kernel>
KernelImage image(const char* name, Arch arch) {
  return {name,
          arch,
          nullptr,
          hw::sim_body<Kernel>,
          sizeof(typename Kernel::Params),
          Kernel::kThreads,
          Kernel::kMinBlocks};
}

// Runs it under twenty seeds, most of them with plain FP32 arithmetic, which is faster; D of the
// others is compared.
template <class Kernel>
void run_clean(const char* name, Arch arch, const typename Kernel::Params& params,
               const Reference& reference, const DeviceArray<float>& d, uint32_t blocks = 1) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const bool exact = seed % 10 == 0;
    Stream stream = simulated(
        arch,
        {.severity = SimulatorOptions::Severity::strict,
         .numerics = exact ? SimulatorOptions::Numerics::exact : SimulatorOptions::Numerics::fast,
         .schedule = SimulatorOptions::Schedule::adversarial,
         .seed = seed,
         .throws = false},
        1);
    launch(image<Kernel>(name, arch),
           {.grid = {blocks},
            .block = {Kernel::kThreads},
            .cluster = {blocks},
            .shared_bytes = Kernel::kSharedBytes},
           params, stream);
    const SimulatorReport report = simulator_report(stream);
    ASSERT_TRUE(report.clean()) << to_string(report, false);
    if (exact) {
      EXPECT_LE(reference.worst_error(d.data()), 1.0);
    }
  }
  Reference wrong = reference;  // the bound is narrow enough to see one element
  wrong.a[static_cast<size_t>(wrong.k) + 5] += 0.25;
  EXPECT_GT(wrong.worst_error(d.data()), 10.0);
}

// Normal numbers in BF16 on the device, and their values.
DeviceArray<uint16_t> random_bf16(std::mt19937& random, int count, std::vector<double>& values) {
  std::normal_distribution<float> normal;
  std::vector<uint16_t> codes;
  for (int i = 0; i < count; ++i) {
    codes.push_back(encode_bf16(normal(random)));
    values.push_back(decode_bf16(codes.back()));
  }
  return {Arch::sm_100a, codes};
}
hw::TensorMap bf16_map(const DeviceArray<uint16_t>& data, uint32_t rows, uint32_t k,
                       uint32_t box_rows) {
  return pipe::make_tensor_map(pipe::matrix_box(hw::Type::bf16, data.data(), rows, k, k * 2,
                                                box_rows, 64, tile::Swizzle::b128),
                               Device::simulator(Arch::sm_100a));
}

TEST(BlackwellKernels, Bf16OnSm100) {
  constexpr uint32_t k = 256;
  std::mt19937 random(1);
  Reference reference{128, 128, k, 16, {}, {}};
  const auto a = random_bf16(random, 128 * k, reference.a);
  const auto b = random_bf16(random, 128 * k, reference.b);
  const DeviceArray<float> d(Arch::sm_100a, std::vector<float>(128 * 128, NAN));
  run_clean<ProductBf16Sm100>("product_bf16_sm100", Arch::sm_100a,
                              {bf16_map(a, 128, k, 128), bf16_map(b, 128, k, 128), d.data(), k},
                              reference, d);
}

TEST(BlackwellKernels, Bf16ByAPairOnSm100) {
  constexpr uint32_t k = 320;
  std::mt19937 random(4);
  Reference reference{256, 128, k, 16, {}, {}};
  const auto a = random_bf16(random, 256 * k, reference.a);
  const auto b = random_bf16(random, 128 * k, reference.b);
  const DeviceArray<float> d(Arch::sm_100a, std::vector<float>(256 * 128, NAN));
  run_clean<ProductBf16PairSm100>("product_bf16_pair_sm100", Arch::sm_100a,
                                  {bf16_map(a, 256, k, 128), bf16_map(b, 128, k, 64), d.data(), k},
                                  reference, d, 2);
}

// Codes in pairs, scales of blocks of 16 as 128x4 atoms; the values into `values`.
void random_nvfp4(std::mt19937& random, std::vector<uint8_t>& codes, std::vector<uint8_t>& scales,
                  std::vector<double>& values) {
  codes.resize(128 * 128), scales.resize(128 * 16), values.resize(128 * 256);
  for (uint8_t& pair : codes) pair = static_cast<uint8_t>(random());
  for (int row = 0; row < 128; ++row) {
    for (int block = 0; block < 16; ++block) {
      const auto scale = static_cast<uint8_t>(0x20 + random() % 0x30);
      scales[static_cast<size_t>(tile::scale_offset_128x4(row, block, 16))] = scale;
      for (int i = 0; i < 16; ++i) {
        const int at = row * 256 + block * 16 + i;
        const uint8_t pair = codes[static_cast<size_t>(at / 2)];
        values[static_cast<size_t>(at)] =
            double{decode_e2m1(at % 2 == 0 ? pair & 15 : pair >> 4)} * double{decode_e4m3(scale)};
      }
    }
  }
}

TEST(BlackwellKernels, Nvfp4OnSm100) {
  std::mt19937 random(2);
  Reference reference{128, 128, 256, 64, {}, {}, 0.125};
  std::vector<uint8_t> a, b, a_scales, b_scales;
  random_nvfp4(random, a, a_scales, reference.a);
  random_nvfp4(random, b, b_scales, reference.b);
  const Arch arch = Arch::sm_100a;
  const DeviceArray<uint8_t> a_device(arch, a), b_device(arch, b);
  const DeviceArray<uint8_t> a_scales_device(arch, a_scales), b_scales_device(arch, b_scales);
  const DeviceArray<float> d(arch, std::vector<float>(128 * 128, NAN));
  const auto map = [&](uint8_t* data) {
    return pipe::make_tensor_map(
        pipe::matrix_box(hw::Type::e2m1, data, 128, 256, 128, 128, 256, tile::Swizzle::b128),
        Device::simulator(arch));
  };
  run_clean<ProductNvfp4Sm100>("product_nvfp4_sm100", arch,
                               {map(a_device.data()), map(b_device.data()), a_scales_device.data(),
                                b_scales_device.data(), 0.125f, d.data()},
                               reference, d);
}

template <bool fp4>
void scaled_on_sm120() {
  constexpr int k = fp4 ? 256 : 128, blocks = fp4 ? 16 : 4;
  const Arch arch = Arch::sm_120a;
  std::mt19937 random(3);
  Reference reference{64, 32, k, fp4 ? 64 : 32, {}, {}};
  const auto fill = [&](int rows, std::vector<uint8_t>& codes, std::vector<uint32_t>& words,
                        std::vector<double>& values) {
    codes.resize(static_cast<size_t>(rows * 128));
    words.assign(static_cast<size_t>(rows * blocks / 4), 0);
    for (uint8_t& code : codes) {
      do {
        code = static_cast<uint8_t>(random());
      } while (!fp4 && (code & 0x7f) == 0x7f);
    }
    std::vector<double> scales;
    for (int i = 0; i < rows * blocks; ++i) {
      const auto code = static_cast<uint8_t>(fp4 ? 0x20 + random() % 0x30 : 122 + random() % 11);
      words[static_cast<size_t>(i / 4)] |= uint32_t{code} << 8 * (i % 4);
      scales.push_back(fp4 ? double{decode_e4m3(code)} : double{decode_ue8m0(code)});
    }
    for (int i = 0; i < rows * k; ++i) {
      const uint8_t byte = codes[static_cast<size_t>(fp4 ? i / 2 : i)];
      const double value = !fp4         ? double{decode_e4m3(byte)}
                           : i % 2 == 0 ? double{decode_e2m1(byte & 15)}
                                        : double{decode_e2m1(byte >> 4)};
      values.push_back(value * scales[static_cast<size_t>(i / (k / blocks))]);
    }
  };
  std::vector<uint8_t> a, b;
  std::vector<uint32_t> a_words, b_words;
  fill(64, a, a_words, reference.a);
  fill(32, b, b_words, reference.b);
  const DeviceArray<uint8_t> a_device(arch, a), b_device(arch, b);
  const DeviceArray<uint32_t> a_scales(arch, a_words), b_scales(arch, b_words);
  const DeviceArray<float> d(arch, std::vector<float>(64 * 32, NAN));
  run_clean<ProductScaledSm120<fp4>>(
      fp4 ? "product_nvfp4_sm120" : "product_mxfp8_sm120", arch,
      {a_device.data(), b_device.data(), a_scales.data(), b_scales.data(), d.data()}, reference, d);
}

TEST(BlackwellKernels, Mxfp8OnSm120) { scaled_on_sm120<false>(); }
TEST(BlackwellKernels, Nvfp4OnSm120) { scaled_on_sm120<true>(); }

}  // namespace
}  // namespace halftone::test
