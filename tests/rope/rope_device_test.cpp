// Rotary embedding on GPUs.
#include "halftone/rope.h"

#include <utility>

#include "support/devices.h"

namespace halftone {
namespace {

using test::OnDevice;

class RopeOnDevice : public OnDevice {};

Tensor positions_of(std::initializer_list<int64_t> values) {
  return Tensor::from<int64_t>(std::span(values.begin(), values.size()),
                               {static_cast<int64_t>(values.size())}, Format::i64);
}

// The CPU's kernel is held to the reference; the GPU does the same operations in the same order.
TEST_P(RopeOnDevice, EqualsTheCpuToTheBit) {
  RopeOptions plain, llama3, yarn, dynamic;
  llama3.theta = 500000;
  llama3.llama3 = Llama3Scaling{};
  yarn.yarn = YarnScaling{.factor = 40};
  dynamic.dynamic = DynamicNtkScaling{};
  dynamic.dynamic->factor = 2, dynamic.dynamic->original_max_position = 2048;
  const Tensor positions = positions_of({0, 1, 7, 1000, 131071, int64_t{1} << 31});
  int turn = 0;
  for (RopeOptions options : {plain, llama3, yarn, dynamic}) {
    for (const auto style : {RopeStyle::half_split, RopeStyle::interleaved}) {
      options.style = style;
      for (const int64_t dim : {4, 6, 30, 64, 80, 128, 1030}) {
        const Format format = test::kPlainFormats[turn++ % 3];
        Tensor expected = test::random_tensor({6, dim == 1030 ? 1 : 5, dim}, format, 1);
        Tensor y = expected.to(device).to(Device::cpu()).contiguous_copy().to(device);
        Stream s = stream();
        rope(y, positions.to(device), options, s);
        s.synchronize();
        rope(expected, positions, options);
        EXPECT_TRUE(test::same_bits(y.to(Device::cpu()), expected))
            << name(format) << " " << dim
            << (style == RopeStyle::half_split ? " halves" : " pairs");
      }
    }
  }
}

// More heads than a block has under way, of pairs that divide its threads, at any address.
TEST_P(RopeOnDevice, ManyHeadsEqualTheCpuToTheBit) {
  const Tensor positions = positions_of({3, 70000});
  for (const Format format : test::kPlainFormats) {
    for (const auto& [heads, dim] : {std::pair{70, 16}, {41, 128}, {3, 1024}}) {
      for (const int64_t gap : {0, 3}) {
        const Tensor before = test::random_tensor({2, heads * dim}, format, 6);
        const Tensor x = test::shifted(before, device, gap, gap);
        Tensor y = Tensor::view(x.data(), {2, heads, dim}, {x.stride(0), dim, 1}, format, device);
        Tensor expected = before.reshape({2, heads, dim});
        Stream s = stream();
        rope(y, positions.to(device), {}, s);
        s.synchronize();
        rope(expected, positions, {});
        EXPECT_TRUE(test::same_bits(test::gathered(x).reshape({2, heads, dim}), expected))
            << name(format) << " " << heads << " heads of " << dim << ", " << gap << " apart";
      }
    }
  }
}

TEST_P(RopeOnDevice, PartOfAHeadOfAStridedSlice) {
  RopeOptions options;
  options.rotary_dim = 20;
  const Tensor fused = test::random_tensor({3, 6, 33}, Format::bf16, 2);
  const Tensor positions = positions_of({5, 6, 70});
  const Tensor there = fused.to(device);
  Tensor queries = there.slice(1, 1, 4), expected = fused.slice(1, 1, 4).contiguous_copy();
  Stream s = stream();
  rope(queries, positions.to(device), options, s);
  s.synchronize();
  rope(expected, positions, options);
  const Tensor back = there.to(Device::cpu());
  EXPECT_TRUE(test::same_bits(back.slice(1, 1, 4).contiguous_copy(), expected));
  EXPECT_TRUE(test::same_bits(back.slice(1, 0, 1).contiguous_copy(),
                              fused.slice(1, 0, 1).contiguous_copy()));
}

TEST_P(RopeOnDevice, SameBitsInAnyOrder) {
  const Tensor before = test::random_tensor({4, 3, 128}, Format::bf16, 3);
  const Tensor x = before.to(device);
  const RopePlan p = plan(RopeProblem{4, 3, 128}, device);
  const Tensor positions = positions_of({1, 2, 3, 4}).to(device);
  expect_any_order(x, [&](Stream& s) {
    copy(before, x, s);
    run(p, {x, positions}, s);
  });
}

TEST_P(RopeOnDevice, APositionOutOfRangeIsReported) {
  const Tensor before = test::random_tensor({2, 1, 8}, Format::f32, 4);
  for (const int64_t bad : {int64_t{-3}, (int64_t{1} << 31) + 1}) {
    Tensor x = before.to(device).to(Device::cpu()).contiguous_copy().to(device);
    Stream s = stream();
    rope(x, positions_of({2, bad}).to(device), {}, s);
    test::expect_error([&] { s.synchronize(); }, {"positions[1]", std::to_string(bad)});
    EXPECT_TRUE(test::same_bits(x.to(Device::cpu()).slice(0, 1, 2), before.slice(0, 1, 2)));
  }
}

TEST_P(RopeOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const int64_t tokens = draw.extent(40), dim = 2 * draw.extent(150);
    RopeOptions options;
    options.style = draw.one_in(2) ? RopeStyle::interleaved : RopeStyle::half_split;
    options.theta = draw.one_in(2) ? 10000 : 500000;
    if (draw.one_in(3)) options.rotary_dim = 2 * (1 + draw.below(dim / 2));
    if (draw.one_in(4))
      options.llama3 = Llama3Scaling{};
    else if (draw.one_in(4))
      options.yarn = YarnScaling{.factor = 1 + double(draw.below(40))};
    else if (draw.one_in(4))
      options.linear = LinearScaling{4};
    std::vector<int64_t> at;
    for (int64_t i = 0; i < tokens; ++i) at.push_back(draw.extent(int64_t{1} << 31) - 1);
    const Tensor positions = Tensor::from<int64_t>(at, {tokens}, Format::i64);
    Tensor expected =
        test::random_tensor({tokens, draw.extent(12), dim}, draw.plain_format(), seed);
    Tensor y = expected.to(device).to(Device::cpu()).contiguous_copy().to(device);
    Stream s = stream();
    rope(y, positions.to(device), options, s);
    s.synchronize();
    rope(expected, positions, options);
    EXPECT_TRUE(test::same_bits(y.to(Device::cpu()), expected)) << to_string(expected);
  });
}

HALFTONE_ON_DEVICES(RopeOnDevice);

}  // namespace
}  // namespace halftone
