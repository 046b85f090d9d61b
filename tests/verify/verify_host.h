// The host half of the verifying tests: devices, buffers, launches, the line a table shows.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/device_memory.h"
#include "base/launch.h"
#include "halftone/error.h"
#include "verify.h"

namespace halftone::verify {

// The simulated chip, and the GPU where there is one of that kind.
inline Device device_named(const std::string& name) {
  return name == "cuda" ? Device::cuda(0) : Device::simulator(Arch::sm_90a);
}
// Why tests on this device cannot run, or "".
inline std::string missing(const std::string& name) {
  std::string reason;
  if (name == "cuda") {
    if (cuda_device_count(&reason) == 0) return "no GPU: " + reason;
    return Device::cuda(0).arch() == Arch::sm_90a ? "" : "the GPU is no sm_90a";
  }
  try {
    device_named(name);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Bytes on a device.
class Buffer {
 public:
  Buffer(const Device& device, const void* from, size_t bytes) : device_(device), bytes_(bytes) {
    owner_ = allocate_memory(device, bytes, &data_);
    copy_memory(device, data_, Device::cpu(), from, bytes);
  }
  template <class T>
  Buffer(const Device& device, const std::vector<T>& from)
      : Buffer(device, from.data(), from.size() * sizeof(T)) {}
  uint32_t* words() const { return static_cast<uint32_t*>(data_); }
  template <class T>
  std::vector<T> read() const {
    std::vector<T> to(bytes_ / sizeof(T));
    copy_memory(Device::cpu(), to.data(), device_, data_, bytes_);
    return to;
  }

 private:
  Device device_;
  size_t bytes_;
  void* data_ = nullptr;
  std::shared_ptr<const void> owner_;
};

inline void run(const Entries& entries, size_t index, const char* name, uint32_t threads,
                uint32_t shared_bytes, uint32_t blocks, const Params& params, Stream& stream) {
  const KernelImage image{name,
                          Arch::sm_90a,
                          entries.gpu != nullptr ? entries.gpu[index] : nullptr,
                          entries.sim[index],
                          sizeof(Params),
                          threads};
  LaunchShape shape;
  shape.grid = {blocks};
  shape.block = {threads};
  shape.shared_bytes = shared_bytes;
  launch(image, shape, params, stream);
  stream.synchronize();
}

// One line of the table of docs/findings/tensor-core-arithmetic.md.
inline void report(const std::string& device, const std::string& instruction, size_t cases,
                   size_t mismatches) {
  std::printf("%-5s %-58s %9zu cases %7zu mismatches\n", device.c_str(), instruction.c_str(), cases,
              mismatches);
}

// Words that are numbers near each other, halves, special values or just bits.
inline std::vector<uint32_t> operands(size_t n, uint32_t seed) {
  constexpr uint32_t kSpecial[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00001,
                                   0xff812345, 0x00000001, 0x807fffff, 0x00800000, 0x7f7fffff,
                                   0xffffffff, 0x7c007c00, 0xfc01fc00, 0x03ff8001, 0x7bfffbff,
                                   0x3c003c00, 0x7f807f80, 0x00010080, 0x3f800000, 0xbf800000};
  std::mt19937 random(seed);
  std::vector<uint32_t> words(n);
  for (uint32_t& word : words) {
    const auto r = static_cast<uint32_t>(random());
    switch (random() % 4) {
      case 0:
        word = kSpecial[r % std::size(kSpecial)];
        break;
      case 1:
        word = r;
        break;
      case 2:  // of a few octaves
        word = (r & 0x807fffffu) | (120 + (r >> 23) % 16) << 23;
        break;
      default:  // halves of a few octaves
        word = (r & 0x83ff83ffu) | (10 + (r >> 10) % 8) << 10 | (10 + (r >> 26) % 8) << 26;
    }
  }
  return words;
}

// TEST_P over "sim" and "cuda"; skips with the reason.
class OnDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string why = missing(GetParam());
    if (!why.empty()) GTEST_SKIP() << why;
    device_ = device_named(GetParam());
  }
  bool on_gpu() const { return std::string(GetParam()) == "cuda"; }
  Device device_;
};
#define HT_ON_DEVICES(suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::Values("sim", "cuda"), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace halftone::verify
