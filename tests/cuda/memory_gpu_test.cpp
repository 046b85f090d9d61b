// Memory of CUDA devices: tensors, copies, exchange.
#include <cstdio>
#include <cstring>

#include "cuda/gpu.h"
#include "halftone/dlpack.h"
#include "halftone/matmul.h"
#include "halftone/quantize.h"

namespace halftone {
namespace {

using test::counting;
using test::Gpu;
using test::values_of;

TEST_F(Gpu, SaysWhatItIs) {
  const DeviceProperties& p = properties(device);
  EXPECT_EQ(device.name(), "cuda:0");
  EXPECT_EQ(Device::parse("cuda:0"), device);
  EXPECT_EQ(p.arch, device.arch());
  EXPECT_FALSE(p.name.empty());
  EXPECT_GT(p.memory_bytes, int64_t{1} << 30);
  EXPECT_GE(p.shared_per_block, 99 * 1024);
  EXPECT_EQ(p.threads_per_block, 1024);
  EXPECT_EQ(p.cluster_size, device.arch() >= Arch::sm_90a ? 8 : 1);
  std::printf("%s: %s, %d multiprocessors, %.1f GB, driver for %s\n", p.name.c_str(), name(p.arch),
              p.sm_count, static_cast<double>(p.memory_bytes) * 1e-9, p.driver.c_str());
}

TEST_F(Gpu, TensorsGoThereAndBack) {
  const Tensor host = counting(1000003);
  const Tensor there = host.to(device);
  EXPECT_EQ(there.device(), device);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(there.data()) % 256, 0u);
  EXPECT_EQ(values_of<int32_t>(there), values_of<int32_t>(host));
  const Tensor again = there.contiguous_copy();
  EXPECT_NE(again.data(), there.data());
  EXPECT_EQ(values_of<int32_t>(again), values_of<int32_t>(host));
  EXPECT_EQ(there.to(device).data(), there.data());  // already there
}

TEST_F(Gpu, ZerosAndNothing) {
  for (const int32_t v : values_of<int32_t>(Tensor::zeros({4097}, Format::i32, device))) {
    ASSERT_EQ(v, 0);
  }
  const Tensor nothing = Tensor::empty({0, 5}, Format::f32, device);
  EXPECT_EQ(nothing.numel(), 0);
  EXPECT_EQ(values_of<float>(nothing).size(), 0u);
}

TEST_F(Gpu, StridedTensorsArePackedOnTheWay) {
  const Tensor square = counting(12).reshape({3, 4});
  const Tensor there = square.transpose(0, 1).to(device);
  EXPECT_EQ(values_of<int32_t>(there),
            (std::vector<int32_t>{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
  const Tensor strided = square.to(device).transpose(0, 1);
  test::expect_error([&] { strided.to(Device::cpu()); }, {"contiguous_copy", "cuda:0"});
}

TEST_F(Gpu, ScalesTravelWithTheTensor) {
  Tensor x = Tensor::empty({64, 128}, Format::f32);
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i % 97) - 48;
  const Tensor q = quantize(x, parse_quantization("nvfp4"));
  const Tensor there = q.to(device);
  EXPECT_EQ(there.scales().device(), device);
  EXPECT_EQ(there.tensor_scale().device(), device);
  test::expect_error([&] { there.tensor_scale_value(); }, {"host memory", "cuda:0"});
  const Tensor back = there.to(Device::cpu());
  EXPECT_EQ(back.tensor_scale_value(), q.tensor_scale_value());
  EXPECT_EQ(0, std::memcmp(back.data(), q.data(), static_cast<size_t>(q.numel() / 2)));
  EXPECT_EQ(0, std::memcmp(back.scales().data(), q.scales().data(),
                           static_cast<size_t>(q.scales().numel())));
}

TEST_F(Gpu, HostFunctionsRefuseItsMemory) {
  const Tensor there = counting(4).to(device);
  test::expect_error([&] { there.at({0}); }, {"cuda:0", "to(Device::cpu())"});
  const Tensor x = Tensor::zeros({16, 16}, Format::f32, device);
  test::expect_error([&] { quantize(x, parse_quantization("int8")); }, {"cuda:0"});
  test::expect_error([&] { matmul(x, x); }, {"cuda:0"});
}

TEST_F(Gpu, TooMuchIsRefusedAndLeavesTheRestUsable) {
  const int64_t most = properties(device).memory_bytes;
  const std::string bytes = std::to_string(4 * most);
  try {
    Tensor::empty({most}, Format::f32, device);
    FAIL() << "four times the device's memory was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(error.what()).find(bytes), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("cuda:0"), std::string::npos) << error.what();
  }
  EXPECT_EQ(values_of<int32_t>(counting(10).to(device)).size(), 10u);
}

TEST_F(Gpu, AsynchronousCopiesKeepTheOrderOfTheStream) {
  Stream stream(device);
  constexpr int64_t kCount = 1 << 20;
  const Tensor from = Tensor::empty_pinned({kCount}, Format::i32);
  const Tensor back = Tensor::empty_pinned({kCount}, Format::i32);
  for (int64_t i = 0; i < kCount; ++i) from.data<int32_t>()[i] = static_cast<int32_t>(i * 7);
  const Tensor a = Tensor::empty({kCount}, Format::i32, device);
  const Tensor b = Tensor::zeros({kCount}, Format::i32, device);
  copy(from, a, stream);
  copy(a, b, stream);
  copy(b, back, stream);
  stream.synchronize();
  EXPECT_EQ(0, std::memcmp(from.data(), back.data(), 4 * kCount));
  Stream cpu;
  test::expect_error([&] { copy(a, b, cpu); }, {"cpu", "neither's device"});
  test::expect_error([&] { copy(a, counting(3), stream); }, {"shapes and formats"});
}

TEST_F(Gpu, BetweenTwoDevices) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "this machine has one GPU";
  const Device other = Device::cuda(1);
  const Tensor host = counting(100000);
  const Tensor there = host.to(device).to(other);
  EXPECT_EQ(there.device(), other);
  EXPECT_EQ(values_of<int32_t>(there), values_of<int32_t>(host));
}

TEST_F(Gpu, DlpackCarriesTheDevice) {
  const Tensor there = counting(6).reshape({2, 3}).to(device);
  DLManagedTensor* managed = there.to_dlpack();
  EXPECT_EQ(managed->dl_tensor.device.device_type, 2);
  EXPECT_EQ(managed->dl_tensor.device.device_id, 0);
  const Tensor back = Tensor::from_dlpack(managed);
  EXPECT_EQ(back.device(), device);
  EXPECT_EQ(back.data(), there.data());
  EXPECT_EQ(values_of<int32_t>(back), values_of<int32_t>(there));
}

}  // namespace
}  // namespace halftone
