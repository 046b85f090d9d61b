// Decode attention on simulated GPUs: formats, rules, layouts, orders.
#include "attention/decode/decode_cases.h"

namespace halftone::test {
namespace {

using Options = SimulatorOptions;

Stream chip(Arch arch = Arch::sm_90a, Options options = {}) {
  Stream stream(Device::simulator(arch));
  configure(stream, options);
  return stream;
}

TEST(AttentionDecode, EveryFormatRuleAndLengthWithinTheBound) {
  Stream stream = chip();
  for (const Case& c : decode_cases()) expect_decode(stream, c);
}

TEST(AttentionDecode, EveryArchitecture) {
  for (const Arch arch : {Arch::sm_80, Arch::sm_89, Arch::sm_100a, Arch::sm_120a}) {
    Stream stream = chip(arch);
    for (const DecodeFormats& f : kDecodeFormats) {
      if (arch < Arch::sm_90a && !is_plain_float(f.kv)) continue;
      expect_decode(stream, decode_case({1, 1, 600, 4, 2, 64}, f, 3));
    }
  }
}

// A wrong scale, a key too few, a sink: each leaves the bound.
TEST(AttentionDecode, SmallErrorsBreakTheBound) {
  Stream stream = chip();
  for (const DecodeFormats& f : kDecodeFormats) {
    SCOPED_TRACE(to_string(f.mode));
    const Case good = decode_case({1, 1, 6, 2, 1, 64}, f, 4);
    const Bounded reference = bounded(good);
    const auto breaks = [&](const std::function<void(Case&)>& change) {
      Case wrong = good;
      change(wrong);
      run_on(stream, &wrong);
      EXPECT_FALSE(within(to_floats(wrong.tensors.out), reference.out, reference.out_bound));
      EXPECT_FALSE(within(to_floats(wrong.tensors.lse), reference.lse, reference.lse_bound));
    };
    breaks([](Case& c) { c.problem.window_left = 4; });
    breaks([](Case& c) { c.problem.softmax_scale = 0.25f; });
    breaks([](Case& c) { set_sinks(&c, Tensor::from({1, 1}, {2})); });
  }
}

// Quantised values of every kind, NaN among them: the row is NaN, and no other.
TEST(AttentionDecode, NotANumberReachesItsHeadAlone) {
  Stream stream = chip();
  for (const bool in_keys : {true, false}) {
    Case c = decode_case({1, 1, 40, 4, 2, 128}, kDecodeFormats[2], 5);
    (in_keys ? c.tensors.k : c.tensors.v).data<uint8_t>()[(17 * 2 + 1) * 128 + 3] = 0x7f;
    run_on(stream, &c);
    const std::vector<float> out = to_floats(c.tensors.out);
    for (size_t i = 0; i < out.size(); ++i) {
      const bool hit = i / 128 >= 2 && (in_keys || i % 128 == 3);
      EXPECT_EQ(std::isnan(out[i]), hit) << i;
    }
  }
}

// Scales of rows of V far apart, and masked keys beside those at the end.
TEST(AttentionDecode, ScalesOfManyOctavesWithinTheBound) {
  Stream stream = chip();
  for (const DecodeFormats& f : {kDecodeFormats[2], kDecodeFormats[3]}) {
    Case c = decode_case({1, 1, 300, 4, 2, 64}, f, 6);
    Tensor scales = c.tensors.v.scales();
    for (int64_t i = 0; i < scales.numel(); ++i) {
      scales.data<float>()[i] *= std::ldexp(1.0f, static_cast<int>(i * 7 % 41 - 20));
    }
    expect_decode(stream, c);
    c = decode_case({1, 1, 300, 4, 2, 64}, f, 7);
    for (int64_t i = 0; i < 600; ++i) {
      c.tensors.v.scales().data<float>()[i] *= std::ldexp(1.0f, static_cast<int>(i / 4 - 75));
    }
    expect_decode(stream, c);
  }
}

// An element of Q far above the others, which meets zeros alone: nothing of the others is lost.
TEST(AttentionDecode, QueriesOfManyOctavesWithinTheBound) {
  Stream stream = chip();
  for (const DecodeFormats& f : kDecodeFormats) {
    if (is_plain_float(f.kv)) continue;
    Case c = decode_case({1, 1, 40, 4, 2, 128}, f, 11);
    for (int64_t head = 0; head < 4; ++head) {
      c.tensors.q.data<uint16_t>()[head * 128] = 0x4e80;  // 2^30
    }
    const int64_t row = 128 * bits(f.kv) / 8;
    for (int64_t i = 0; i < 80; ++i) c.tensors.k.data<char>()[i * row] = 0;
    expect_decode(stream, c);
  }
}

TEST(AttentionDecode, PagesGiveTheBitsOfContiguousKeys) {
  Stream stream = chip();
  for (const DecodeFormats& f : kDecodeFormats) {
    Case c = decode_case({2, 1, 700, 4, 2, 64}, f, 5);
    c.problem.causal = true;
    run_on(stream, &c);
    for (const int64_t page_size : {1, 7, 64, 1024}) {
      SCOPED_TRACE(to_string(f.mode) + " pages of " + std::to_string(page_size));
      Case other = paged(c, page_size);
      run_on(stream, &other);
      expect_same(c, other);
    }
  }
}

// Lengths that the device knows, from nothing to more than there is; pages that do not exist.
TEST(AttentionDecode, LengthsOnTheDevice) {
  Stream stream = chip();
  for (const DecodeFormats& f : kDecodeFormats) {
    SCOPED_TRACE(to_string(f.mode));
    const Case whole = decode_case({4, 1, 600, 4, 2, 64}, f, 8);
    Case c = paged(whole, 16);
    c.problem.variable_length = c.problem.causal = true;
    c.tensors.seqused_k = i32({0, 33, 599, 1 << 30}, {4});
    run_on(stream, &c);
    const std::vector<float> out = to_floats(c.tensors.out), lse = to_floats(c.tensors.lse);
    const int64_t used[] = {0, 33, 599, 600};
    for (size_t b = 0; b < 4; ++b) {
      Case one = decode_case({1, 1, 600, 4, 2, 64}, f, 8);
      one.problem.key_length = used[b];
      const auto cut = [&](const Tensor& t, int64_t begin, int64_t count) {
        std::vector<int64_t> rows(static_cast<size_t>(count));
        std::iota(rows.begin(), rows.end(), begin);
        return rearrange(t, 1, count, rows);
      };
      const auto from = static_cast<int64_t>(b);
      one.tensors.q = cut(whole.tensors.q, from, 1);
      if (used[b] == 0) {
        for (size_t i = 0; i < 256; ++i) EXPECT_EQ(out[256 * b + i], 0);
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(lse[4 * b + i], -INFINITY);
        continue;
      }
      one.tensors.k = cut(whole.tensors.k, from * 600, used[b]);
      one.tensors.v = cut(whole.tensors.v, from * 600, used[b]);
      const Bounded reference = bounded(one);
      const auto part = [](const std::vector<float>& x, size_t at, size_t n) {
        return std::vector<float>(x.begin() + static_cast<int64_t>(at),
                                  x.begin() + static_cast<int64_t>(at + n));
      };
      EXPECT_TRUE(within(part(out, 256 * b, 256), reference.out, reference.out_bound));
      EXPECT_TRUE(within(part(lse, 4 * b, 4), reference.lse, reference.lse_bound));
    }
    for (int64_t i = 0; i < c.tensors.page_table.numel(); ++i) {
      c.tensors.page_table.data<int32_t>()[i] = i % 2 == 0 ? -1 : 1 << 30;
    }
    run_on(stream, &c);
    for (const float x : to_floats(c.tensors.out)) ASSERT_EQ(x, 0);
  }
}

// Rows that do not follow one another at one distance go to the general kernel.
TEST(AttentionDecode, OtherStridesWithinTheBound) {
  Stream stream = chip();
  Case c = decode_case({2, 1, 80, 4, 2, 64}, kDecodeFormats[0], 9);
  Case apart = c;
  for (Tensor* t : {&apart.tensors.k, &apart.tensors.v}) {
    Tensor wide = Tensor::zeros({2, 90, 2, 64}, t->format());
    for (int64_t b = 0; b < 2; ++b) {
      std::memcpy(wide.data<char>() + b * 90 * 256, t->data<char>() + b * 80 * 256, 80 * 256);
    }
    *t = wide.slice(1, 0, 80);
  }
  const Bounded reference = bounded(c);
  AttentionTensors on_chip = on(stream.device(), c);
  Tensor* const to[] = {&on_chip.k, &on_chip.v};
  const Tensor from[] = {apart.tensors.k, apart.tensors.v};
  for (size_t i = 0; i < 2; ++i) {
    Tensor wide = Tensor::view(const_cast<void*>(from[i].data()), {2, 90, 2, 64}, from[i].format());
    *to[i] = wide.to(stream.device()).slice(1, 0, 80);
  }
  run(planned(c.problem, stream.device()), on_chip, stream);
  stream.synchronize();
  EXPECT_TRUE(within(to_floats(on_chip.out.to(Device::cpu())), reference.out, reference.out_bound));
}

TEST(AttentionDecode, RowsDoNotKnowTheBatch) {
  Stream stream = chip();
  for (const DecodeFormats& f : kDecodeFormats) {
    Case whole = decode_case({3, 1, 700, 4, 2, 64}, f, 9);
    whole.problem.batch_invariant = true;
    run_on(stream, &whole);
    Case alone = whole;
    alone.problem.batch = 1;
    const auto cut = [](const Tensor& t, int64_t begin, int64_t count) {
      std::vector<int64_t> rows(static_cast<size_t>(count));
      std::iota(rows.begin(), rows.end(), begin);
      return rearrange(t, 1, count, rows);
    };
    alone.tensors.q = cut(whole.tensors.q, 1, 1);
    alone.tensors.k = cut(whole.tensors.k, 700, 700);
    alone.tensors.v = cut(whole.tensors.v, 700, 700);
    run_on(stream, &alone);
    EXPECT_EQ(to_floats(alone.tensors.out), to_floats(whole.tensors.out.slice(0, 1, 2)));
  }
}

// No race, missing wait or bank conflict under any schedule; and the same bits, though
// any CTA may be the last.
TEST(AttentionDecode, StrictUnderAdversarialSchedules) {
#if defined(HALFTONE_SANITIZED)
  constexpr uint64_t kSeeds = 2;
#else
  constexpr uint64_t kSeeds = 20;
#endif
  for (const DecodeFormats& f : kDecodeFormats) {
    SCOPED_TRACE(to_string(f.mode));
    const Case c = decode_case({1, 1, 600, 8, 1, 64}, f, 10);
    std::vector<float> first;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Stream stream = chip(Arch::sm_90a, {.severity = Options::Severity::strict,
                                          .numerics = Options::Numerics::fast,
                                          .schedule = Options::Schedule::adversarial,
                                          .seed = seed,
                                          .throws = false});
      Case run = c;
      run_on(stream, &run);
      const SimulatorReport report = simulator_report(stream);
      ASSERT_TRUE(report.clean()) << "seed " << seed << "\n" << to_string(report);
      EXPECT_EQ(report.counters.shared_wavefronts, report.counters.shared_ideal)
          << to_string(report);
      const std::vector<float> values = to_floats(run.tensors.out);
      if (first.empty()) first = values;
      ASSERT_EQ(values, first) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace halftone::test
