// Attention over quantised keys on the simulated sm_90a.
#include "attention/sm90/dequant_cases.h"
#include "attention/sm90/simulated.h"
#include "formats/codec.h"
#include "ops/attention/sm90/launch.h"
#include "ops/attention/sm90/nvfp4/softmax.cuh"

namespace halftone::test {
namespace {

TEST(AttentionSm90Dequant, EveryModeAndInstanceWithinTheBound) {
  Stream stream = hopper();
  uint64_t number = 0;
  for (const Case& c : dequant_cases()) {
    ++number;
#if defined(HALFTONE_SANITIZED)
    if (number % 5 != 0) continue;
#endif
    EXPECT_EQ(attention_sm90_dequant_error(c.problem), "");
    expect_dequant(stream, c);
  }
}

// The form for any lengths: keys in pages and sequences one after the other give the bits of padded
// ones; what is not in use is NaN.
TEST(AttentionSm90Dequant, EveryLayoutGivesTheSameBits) {
  Stream stream = hopper();
  for (const AttentionMode& mode : dequant_modes()) {
    // An odd number of scales lies before what is behind them.
    const Format v = mode.pv == Format::bf16 ? mode.qk : mode.pv;
    Case c = make_case({3, 66, 151, 2, 1, 128}, mode, mode.qk, mode.qk, v, 5);
    AttentionProblem& p = c.problem;
    p.causal = true, p.out = Format::bf16, p.variable_length = true;
    c.tensors.seqused_k = i32({151, 151, 151}, {3});
    expect_dequant(stream, c);
    run_on(stream, &c);
    for (const int64_t page_size : {16, 100}) {
      Case other = paged(c, page_size);
      run_on(stream, &other);
      expect_same(c, other);
    }
    Case packed = c;
    AttentionTensors& t = packed.tensors;
    const auto one_after_the_other = [](const Tensor& x) {
      std::vector<int64_t> rows(static_cast<size_t>(x.size(0) * x.size(1)));
      std::iota(rows.begin(), rows.end(), 0);
      return rearrange(x, -1, x.size(0) * x.size(1), rows);
    };
    for (Tensor* each : {&t.q, &t.k, &t.v}) *each = one_after_the_other(*each);
    t.seqused_k = {};
    t.cu_seqlens_q = i32({0, 66, 132, 198}, {4}), t.cu_seqlens_k = i32({0, 151, 302, 453}, {4});
    run_on(stream, &packed);
    packed.tensors.out = packed.tensors.out.reshape(c.tensors.out.shape());
    expect_same(c, packed);
  }
}

// A sequence's unused rows and a page that is not there are zeros, whatever was in their memory.
TEST(AttentionSm90Dequant, RowsBeyondASequenceAreNotRead) {
  Stream stream = hopper();
  const AttentionMode mode{Format::fp8_e4m3, Format::bf16};
  Case c = make_case({2, 66, 150, 1, 1, 64}, mode, mode.qk, mode.qk, mode.qk, 5);
  c.problem.out = Format::bf16, c.problem.variable_length = true;
  c.tensors.seqused_k = i32({140, 100}, {2});
  run_on(stream, &c);
  for (const Tensor* each : {&c.tensors.k, &c.tensors.v}) {
    auto* codes = const_cast<uint8_t*>(each->data<uint8_t>());
    std::memset(codes + 140 * 64, 0x7f, 10 * 64);
    std::memset(codes + 250 * 64, 0x7f, 50 * 64);
  }
  Case other = c;
  run_on(stream, &other);
  expect_same(c, other);
}

// The bound would notice a block scale of another block.
TEST(AttentionSm90Dequant, AWrongScaleBreaksTheBound) {
  Stream stream = hopper();
  Case c = make_case({1, 64, 70, 1, 1, 64}, {Format::mxfp8, Format::bf16}, 3);
  c.problem.out = Format::bf16;
  const Bounded reference = bounded(c);
  auto* scales = const_cast<uint8_t*>(std::as_const(c.tensors.k).scales().data<uint8_t>());
  scales[3] += 1;
  run_on(stream, &c);
  EXPECT_FALSE(within(to_floats(c.tensors.out), reference.out, reference.out_bound));
}

// Nor would keys of other tiles that share a second-level scale of P go unnoticed.
TEST(AttentionSm90Dequant, ATileSharesTheSecondLevelScale) {
  Stream stream = hopper();
  Case c = make_case({1, 64, 500, 1, 1, 128}, {Format::nvfp4, Format::nvfp4}, 3);
  c.problem.out = Format::bf16;
  run_on(stream, &c);
  HopperTiles tiles = dequant_tiles(c.problem);
  const auto keeps = [&] {
    const Bounded reference = bounded(c, tiles);
    return bool{within(to_floats(c.tensors.out), reference.out, reference.out_bound)};
  };
  EXPECT_TRUE(keeps());
  for (const int64_t keys : {64, 256}) {
    tiles.nvfp4_keys = keys;
    EXPECT_FALSE(keeps()) << keys;
  }
}

// Against the codec: all ties, and what lies beside them; and the quotients of all scales.
TEST(AttentionSm90Dequant, RoundsToNvfp4AsTheCodecDoes) {
  using namespace attention_sm90;
  for (int eighth = 0; eighth <= 80; ++eighth) {
    const float x = static_cast<float>(eighth) / 8;
    for (const float near : {std::nextafter(x, 0.0f), x, std::nextafter(x, 10.0f)}) {
      EXPECT_EQ(round_to_e2m1(near), decode_e2m1(encode_e2m1(near))) << near;
    }
  }
  EXPECT_EQ(round_to_e2m1(0x1p-140f), 0);
  for (uint8_t code = 1; code < 0x7f; ++code) {
    const auto scale = static_cast<float>(decode_e4m3(code));
    EXPECT_EQ(nvfp4_inverse(scale), 2688 / scale) << scale;
  }
  EXPECT_EQ(nvfp4_inverse(0), 0);
}

// The dense form, by itself and in clusters, and the general one.
TEST(AttentionSm90Dequant, StrictUnderAdversarialSchedules) {
  struct Order {
    Sizes sizes;
    AttentionMode mode;
    Format v;
    bool causal;
    float softcap = 0;
    bool powers = false;
    Shared of_v = Shared::none;  // what shares a scale of V; none: as the format has it
  };
  const Format fp8 = Format::fp8_e4m3, nvfp4 = Format::nvfp4, bf16 = Format::bf16;
  for (const Order& o :
       {Order{{1, 130, 390, 1, 1, 128}, {fp8, bf16}, fp8, true},
        Order{{1, 130, 390, 1, 1, 64}, {fp8, bf16}, fp8, false, 0, true},
        Order{{1, 130, 250, 1, 1, 256}, {fp8, bf16}, fp8, false},
        Order{{1, 130, 300, 1, 1, 64}, {nvfp4, fp8}, fp8, true},
        Order{{1, 130, 600, 1, 1, 128}, {nvfp4, fp8}, fp8, false},
        Order{{1, 130, 300, 1, 1, 192, 128}, {nvfp4, fp8}, fp8, false},
        Order{{1, 130, 390, 1, 1, 64}, {nvfp4, fp8}, fp8, false, 0, false, Shared::head},
        Order{{1, 130, 390, 1, 1, 64}, {nvfp4, fp8}, fp8, false, 0, false, Shared::block},
        Order{{1, 130, 390, 1, 1, 128}, {nvfp4, fp8}, fp8, true, 0, false, Shared::head},
        Order{{1, 130, 390, 1, 1, 128}, {nvfp4, fp8}, fp8, false, 0, false, Shared::block},
        Order{{1, 66, 200, 1, 1, 256}, {nvfp4, fp8}, fp8, true},
        Order{{1, 130, 300, 1, 1, 128}, {nvfp4, fp8}, fp8, true, 20},
        Order{{1, 130, 300, 1, 1, 128}, {nvfp4, bf16}, nvfp4, true, 20},
        Order{{1, 130, 300, 1, 1, 64}, {nvfp4, nvfp4}, nvfp4, true},
        Order{{1, 130, 390, 1, 1, 128}, {nvfp4, nvfp4}, nvfp4, false},
        Order{{1, 130, 300, 1, 1, 128}, {nvfp4, nvfp4}, nvfp4, true, 20}}) {
    expect_strict_in_any_order([&](Stream& stream) {
      Case c = make_case(o.sizes, o.mode, o.mode.qk, o.mode.qk, o.v, 5);
      if (o.powers) c = with_power_of_two_scales(c);
      if (o.of_v != Shared::none) {
        c.tensors.v = fp8_operand(c.tensors.v.shape(), o.of_v, 6, Data::normal).tensor;
      }
      c.problem.causal = o.causal, c.problem.softcap = o.softcap, c.problem.out = Format::bf16;
      run_on(stream, &c);
      return to_floats(c.tensors.out);
    });
  }
}

// E4M3 values at addresses that TMA does not take are dequantised, as other formats are.
TEST(AttentionSm90Dequant, ValuesThatTmaDoesNotReach) {
  Stream stream = hopper();
  const Device& device = stream.device();
  const int64_t keys = 150, dim = 64, pitch = 72;
  const Format fp8 = Format::fp8_e4m3;
  const auto moved = [&](const Tensor& there, const Tensor& here) {
    const Tensor host = Tensor::zeros({keys * pitch}, fp8);
    for (int64_t i = 0; i < keys; ++i) {
      std::memcpy(host.data<char>() + i * pitch, here.data<char>() + i * dim, dim);
    }
    const auto memory = std::make_shared<Tensor>(host.to(device));
    return Tensor::share(memory, memory->data<char>(), {1, keys, 1, dim},
                         {keys * pitch, pitch, dim, 1}, fp8, device)
        .quantized(there.scaling(), there.scales());
  };
  for (const AttentionMode& mode :
       {AttentionMode{Format::nvfp4, fp8}, AttentionMode{fp8, Format::bf16}}) {
    Case c = make_case({1, 66, keys, 1, 1, dim}, mode, 3);
    c.problem.out = Format::bf16;
    AttentionTensors t = on(device, c);
    (mode.pv == fp8 ? t.v : t.k) =
        mode.pv == fp8 ? moved(t.v, c.tensors.v) : moved(t.k, c.tensors.k);
    run(planned(c.problem, device), t, stream);
    stream.synchronize();
    const Bounded reference = bounded(c);
    EXPECT_TRUE(within(to_floats(t.out.to(Device::cpu())), reference.out, reference.out_bound));
  }
}

TEST(AttentionSm90Dequant, RefusesWithTheReason) {
  const auto reason = [&](auto change) {
    AttentionProblem p = make_case({1, 64, 64, 1, 1, 64}, {Format::nvfp4, Format::bf16}).problem;
    p.out = Format::bf16;
    change(p);
    return attention_sm90_dequant_error(p);
  };
  EXPECT_EQ(reason([](AttentionProblem&) {}), "");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.query_length = 8; }),
            "query_length is 8; attention_sm90_dequant takes 64 and more");
  EXPECT_EQ(reason([](AttentionProblem& p) { p.mask = Format::u8; }),
            "mask is given; attention_sm90_dequant takes no mask tensor");
}

}  // namespace
}  // namespace halftone::test
