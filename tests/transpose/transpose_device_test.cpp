// Permutations on GPUs: the CPU's bytes.
#include <utility>

#include "halftone/transpose.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;
using test::same_bits;

class PermuteOnDevice : public OnDevice {};

Tensor random_bytes(const Shape& shape, Format format, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const Tensor t = Tensor::empty(shape, format);
  for (int64_t i = 0; i < t.bytes(); ++i) t.data<uint8_t>()[i] = static_cast<uint8_t>(engine());
  return t;
}

TEST_P(PermuteOnDevice, EveryElementAndOrder) {
  Stream s = stream();
  for (const Format format : {Format::u8, Format::bf16, Format::f32, Format::i64}) {
    for (const Shape& shape : {Shape{1, 1}, Shape{33, 65}, Shape{130, 70}, Shape{64, 3}}) {
      const Tensor x = random_bytes(shape, format, 1);
      EXPECT_TRUE(same_bits(transpose(x.to(device), s).to(Device::cpu()), transpose(x)))
          << to_string(x);
    }
    const Tensor x = random_bytes({3, 5, 34, 7}, format, 2);
    for (const Dims& order : {Dims{0, 2, 1, 3}, Dims{3, 2, 1, 0}, Dims{1, 0, 3, 2},
                              Dims{2, 3, 0, 1}, Dims{0, 1, 2, 3}}) {
      EXPECT_TRUE(same_bits(permute(x.to(device), order, s).to(Device::cpu()), permute(x, order)))
          << to_string(order);
    }
  }
}

TEST_P(PermuteOnDevice, StridesInAnyOrder) {
  for (const Format format : {Format::u8, Format::f16, Format::f32, Format::i64}) {
    const Tensor x = random_bytes({70, 90}, format, 3), there = x.to(device);
    const Tensor out = Tensor::empty({50, 70}, format, device);
    const PermutePlan p = plan(PermuteProblem{{70, 50}, {1, 0}, format}, device);
    expect_any_order(out, [&](Stream& s) { run(p, {there.slice(1, 11, 61), out}, s); });
    EXPECT_TRUE(same_bits(out.to(Device::cpu()), transpose(x.slice(1, 11, 61))));
  }
}

// Lines of whole pieces of 16 bytes, on both sides or along one.
TEST_P(PermuteOnDevice, WholePieces) {
  for (const Format format : {Format::u8, Format::f16, Format::f32, Format::i64}) {
    for (const Shape& shape : {Shape{128, 144}, Shape{16, 160}, Shape{304, 16}}) {
      const Tensor x = random_bytes(shape, format, 4), there = x.to(device);
      const Tensor out = Tensor::empty({shape[1], shape[0]}, format, device);
      const PermutePlan p = plan(PermuteProblem{shape, {1, 0}, format}, device);
      expect_any_order(out, [&](Stream& s) { run(p, {there, out}, s); });
      EXPECT_TRUE(same_bits(out.to(Device::cpu()), transpose(x))) << to_string(x);
    }
    Stream s = stream();
    const Tensor x = random_bytes({2, 48, 3, 64}, format, 5), there = x.to(device);
    for (const Dims& order : {Dims{0, 2, 1, 3}, Dims{2, 0, 3, 1}, Dims{1, 0, 2, 3}}) {
      EXPECT_TRUE(same_bits(permute(there, order, s).to(Device::cpu()), permute(x, order)));
      const Tensor part = there.slice(3, 16, 48);
      EXPECT_TRUE(
          same_bits(permute(part, order, s).to(Device::cpu()), permute(x.slice(3, 16, 48), order)))
          << to_string(order);
    }
  }
}

TEST_P(PermuteOnDevice, RandomProblems) {
  const Format formats[] = {Format::u8, Format::int8, Format::bf16, Format::f32, Format::i64};
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const Shape shape{draw.extent(12), draw.extent(12), draw.extent(70), draw.extent(70)};
    std::vector<int> order{0, 1, 2, 3};
    for (int i = 3; i > 0; --i) std::swap(order[size_t(i)], order[size_t(draw.below(i + 1))]);
    const Dims dims{order[0], order[1], order[2], order[3]};
    const Tensor x = random_bytes(shape, draw.of(formats), seed);
    Stream s = stream();
    EXPECT_TRUE(same_bits(permute(x.to(device), dims, s).to(Device::cpu()), permute(x, dims)))
        << to_string(x) << " to " << to_string(dims);
  });
}

HALFTONE_ON_DEVICES(PermuteOnDevice);

}  // namespace
}  // namespace halftone
