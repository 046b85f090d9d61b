// What the tests of a GPU share.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "halftone/stream.h"
#include "halftone/tensor.h"
#include "support/compare.h"

namespace halftone::test {

// A test on cuda:0; skipped with the reason where there is none.
class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    if (cuda_device_count(&reason) == 0) GTEST_SKIP() << reason;
    device = Device::cuda(0);
  }
  Device device;
};

template <class T>
std::vector<T> values_of(const Tensor& t) {
  const Tensor host = t.to(Device::cpu());
  return {host.data<T>(), host.data<T>() + host.numel()};
}

inline Tensor counting(int64_t count) {
  Tensor t = Tensor::empty({count}, Format::i32);
  for (int64_t i = 0; i < count; ++i) t.data<int32_t>()[i] = static_cast<int32_t>(i);
  return t;
}

}  // namespace halftone::test
