// Sparse attention over selected tokens: every cache layout against FP64 and the bound of
// attention, lists, sinks, a second cache, invariance, writers to the bit, wrong calls.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "attention/attention_fixture.h"
#include "halftone/sparse_attention.h"

namespace halftone {
namespace {

using namespace test;

constexpr LatentFormat kFormats[] = {LatentFormat::bf16, LatentFormat::fp8, LatentFormat::fp8_656,
                                     LatentFormat::fp8_584};

LatentLayout layout_of(LatentFormat format, int64_t page_size = 8) {
  return {format, page_size, format == LatentFormat::fp8_584 ? 512 : 576};
}

Tensor ints(const std::vector<int32_t>& x, const Shape& shape) {
  return Tensor::copy_of(x.data(), x.size() * 4, shape, Format::i32);
}

// A cache of random tokens in which every slot is written.
Tensor filled_cache(const LatentLayout& layout, int64_t pages, uint64_t seed) {
  const Tensor cache = latent_cache(layout, pages);
  const int64_t tokens = pages * layout.page_size;
  std::vector<int32_t> slots(static_cast<size_t>(tokens));
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i);
  latent_write(layout, cache, random_tensor({tokens, layout.dim}, Format::f32, seed),
               ints(slots, {tokens}));
  return cache;
}

struct SparseCase {
  SparseAttentionProblem p;
  SparseAttentionTensors t;
};

std::vector<int32_t> random_list(int64_t count, int64_t tokens, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> list(static_cast<size_t>(count));
  for (int32_t& slot : list) {
    slot = engine() % 5 == 0 ? -1 : static_cast<int32_t>(engine() % static_cast<uint64_t>(tokens));
  }
  return list;
}

SparseCase make_sparse(LatentFormat format, int64_t heads, int64_t entries, bool extra,
                       uint64_t seed = 1) {
  SparseCase c;
  c.p.batch = 2, c.p.query_length = 2, c.p.heads = heads;
  c.p.cache = layout_of(format), c.p.indices = entries;
  c.p.out = Format::f32, c.p.lse = true;
  c.t.cache = filled_cache(c.p.cache, 5, seed + 1);
  c.t.indices = ints(random_list(4 * entries, 40, seed), {2, 2, entries});
  if (extra) {
    c.p.extra = layout_of(format, 2), c.p.extra_indices = 13;
    c.t.extra_cache = filled_cache(*c.p.extra, 9, seed + 2);
    c.t.extra_indices = ints(random_list(4 * 13, 18, seed + 3), {2, 2, 13});
  }
  c.t.q = random_tensor({2, 2, heads, c.p.cache.dim}, Format::bf16, seed + 4);
  return c;
}

void run_sparse(SparseCase* c, int threads = 2) {
  Stream stream(Device::cpu(), threads);
  const SparseAttentionProblem& p = c->p;
  c->t.out = Tensor::empty({p.batch, p.query_length, p.heads, p.value_dim}, p.out);
  c->t.lse = Tensor::zeros({p.batch, p.heads, p.query_length}, Format::f32);
  run(plan(p, Device::cpu()), c->t, stream);
}

// The reference with the bound of attention_bound.h, from the selected rows.
struct Expected {
  std::vector<float> out;
  std::vector<double> bound;
};
Expected expected_of(const SparseCase& c) {
  Expected e;
  e.out = to_floats(sparse_attention_reference(c.p, c.t));
  const std::vector<float> q = to_floats(c.t.q);
  const auto dim = static_cast<size_t>(c.p.cache.dim), values = static_cast<size_t>(c.p.value_dim);
  for (int64_t query = 0; query < c.p.batch * c.p.query_length; ++query) {
    std::vector<float> k, v;
    const auto add = [&](const LatentLayout& layout, const Tensor& cache, const Tensor& indices) {
      const int64_t entries = indices.size(2);
      const int32_t* slot = indices.data<int32_t>() + query * entries;
      const Tensor rows = latent_read(layout, cache, ints({slot, slot + entries}, {entries}));
      for (int64_t j = 0; j < entries; ++j) {
        const float* row = rows.data<float>() + j * layout.dim;
        if (slot[j] < 0) continue;
        k.insert(k.end(), row, row + dim);
        v.insert(v.end(), row, row + values);
      }
    };
    add(c.p.cache, c.t.cache, c.t.indices);
    if (c.p.extra) add(*c.p.extra, c.t.extra_cache, c.t.extra_indices);
    AttentionProblem p;
    p.batch = 1, p.query_length = 1, p.key_length = static_cast<int64_t>(k.size() / dim);
    p.heads = c.p.heads, p.kv_heads = 1, p.head_dim = c.p.cache.dim, p.value_dim = c.p.value_dim;
    p.out = c.p.out;
    // P times a scale of a token is rounded once more: the bound of a quantised V.
    if (c.p.cache.format == LatentFormat::fp8) p.k = p.v = Format::fp8_e4m3;
    const size_t row = static_cast<size_t>(c.p.heads) * dim;
    const auto begin = q.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(query) * row);
    const Bounded one =
        bounded_attention(p, {begin, begin + static_cast<std::ptrdiff_t>(row)}, k, v);
    e.bound.insert(e.bound.end(), one.out_bound.begin(), one.out_bound.end());
  }
  return e;
}

TEST(SparseAttention, EveryLayoutIsWithinItsBound) {
  at_every_level([] {
    for (const LatentFormat format : kFormats) {
      for (const bool extra : {false, true}) {
        for (const int64_t heads : {3, 64}) {
          SCOPED_TRACE(std::string(name(format)) + (extra ? ", extra, " : ", ") +
                       std::to_string(heads) + " heads");
          SparseCase c = make_sparse(format, heads, 29, extra);
          const Expected e = expected_of(c);
          run_sparse(&c);
          EXPECT_TRUE(within(to_floats(c.t.out), e.out, e.bound));
        }
      }
    }
  });
}

// The bound notices a token too many, and a scale off by one power.
TEST(SparseAttention, BoundNoticesSmallErrors) {
  for (const LatentFormat format : kFormats) {
    SCOPED_TRACE(name(format));
    const SparseCase c = make_sparse(format, 16, 29, false);
    const Expected e = expected_of(c);
    SparseCase more = c;
    more.t.indices = c.t.indices.contiguous_copy();
    auto* list = more.t.indices.data<int32_t>();
    for (int i = 0; i < 29; ++i) {
      if (list[i] < 0) list[i] = 7;
    }
    run_sparse(&more);
    EXPECT_FALSE(within(to_floats(more.t.out), e.out, e.bound));
    if (format == LatentFormat::bf16) continue;
    SparseCase scaled = c;
    const bool f32 = format == LatentFormat::fp8;
    const Tensor cache = scaled.t.cache;
    for (int64_t slot = 0; slot < 40; ++slot) {
      auto* bytes = cache.data<uint8_t>();
      if (f32) {
        cache.scales().data<float>()[slot] *= 2;
      } else if (format == LatentFormat::fp8_584) {
        bytes[slot / 8 * cache.stride(0) + 8 * 576 + slot % 8 * 8 + 3] += 1;
      } else {
        float scale;
        std::memcpy(&scale, bytes + slot * 656 + 512 + 4, 4);
        scale *= 2;
        std::memcpy(bytes + slot * 656 + 512 + 4, &scale, 4);
      }
    }
    run_sparse(&scaled);
    EXPECT_FALSE(within(to_floats(scaled.t.out), e.out, e.bound));
  }
}

TEST(SparseAttention, LongListsThreadsAndBatchGiveTheSameBits) {
  at_every_level([] {
    for (const int64_t heads : {4, 16}) {
      SparseCase c = make_sparse(LatentFormat::fp8_656, heads, 300, true);
      run_sparse(&c, 1);
      const std::vector<float> expected = to_floats(c.t.out);
      for (const int threads : {2, 3, 9}) {
        run_sparse(&c, threads);
        EXPECT_EQ(to_floats(c.t.out), expected) << threads << " threads";
      }
      SparseCase one = c;
      one.p.batch = one.p.query_length = 1;
      one.t.q = c.t.q.slice(0, 1, 2).slice(1, 1, 2);
      one.t.indices = c.t.indices.slice(0, 1, 2).slice(1, 1, 2);
      one.t.extra_indices = c.t.extra_indices.slice(0, 1, 2).slice(1, 1, 2);
      run_sparse(&one, 2);
      const std::vector<float> got = to_floats(one.t.out);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.end() - heads * 512));
    }
  });
}

TEST(SparseAttention, SinksLengthsAndEmptyLists) {
  at_every_level([] {
    SparseCase c = make_sparse(LatentFormat::fp8_584, 9, 20, false);
    run_sparse(&c);
    const std::vector<float> plain = to_floats(c.t.out), log = to_floats(c.t.lse);
    c.p.sinks = true;
    c.t.sinks = Tensor::from({0, 1, -1, 5, -INFINITY, INFINITY, 2, 100, -100}, {9});
    run_sparse(&c);
    const std::vector<float> with = to_floats(c.t.out);
    EXPECT_EQ(to_floats(c.t.lse), log);  // the sink is not in it
    for (size_t row = 0; row < 4 * 9; ++row) {
      const size_t head = row % 9, at = (row / 18 * 9 + head) * 2 + row / 9 % 2;
      const double keep =
          1 / (1 + std::exp(static_cast<double>(c.t.sinks.data<float>()[head]) - log[at]));
      for (size_t d = 0; d < 512; ++d) {
        EXPECT_NEAR(with[row * 512 + d], keep * plain[row * 512 + d],
                    1e-6 + 3e-6 * std::abs(plain[row * 512 + d]));
      }
    }
    // Entries beyond the length do not count, whatever they are.
    SparseCase cut = make_sparse(LatentFormat::fp8_584, 9, 20, false);
    SparseCase shorter = cut;
    shorter.p.indices = 12;
    shorter.t.indices = cut.t.indices.slice(2, 0, 12);
    run_sparse(&shorter);
    cut.t.indices = cut.t.indices.contiguous_copy();
    for (int i = 0; i < 4; ++i) cut.t.indices.data<int32_t>()[i * 20 + 15] = 1 << 30;
    cut.t.lengths = ints({12, 12}, {2});
    run_sparse(&cut);
    EXPECT_EQ(to_floats(cut.t.out), to_floats(shorter.t.out));
    cut.t.lengths = ints({12, 0, 0, 12}, {2, 2});
    run_sparse(&cut);
    const std::vector<float> out = to_floats(cut.t.out), lse = to_floats(cut.t.lse);
    for (size_t i = 0; i < 9 * 512; ++i) {
      ASSERT_EQ(out[i], to_floats(shorter.t.out)[i]);
      ASSERT_EQ(out[9 * 512 + i], 0.0f);
    }
    EXPECT_EQ(lse[1], -INFINITY);
    const Tensor reference = sparse_attention_reference(cut.p, cut.t);
    EXPECT_EQ(to_floats(reference)[9 * 512 + 3], 0.0f);
  });
}

TEST(LatentCache, BytesOfTheLayouts) {
  for (const auto& [format, bytes] :
       {std::pair{LatentFormat::fp8_656, 656}, {LatentFormat::fp8_584, 576}}) {
    const LatentLayout layout = layout_of(format, 3);
    const Tensor cache = latent_cache(layout, 2);
    std::vector<float> row(static_cast<size_t>(layout.dim), 0.0f);
    row[0] = 448 * 4;  // its scale is 4 exactly
    row[1] = -4 * 0.0625f;
    row[static_cast<size_t>(layout.dim) - 1] = 1.5f;
    latent_write(layout, cache, Tensor::from<float>(row, {1, layout.dim}, Format::f32),
                 ints({4}, {1}));  // page 1, place 1
    const auto* page = cache.data<uint8_t>() + cache.stride(0);
    EXPECT_EQ(page[bytes], 0x7e);
    EXPECT_EQ(page[bytes + 1], 0x98);
    const bool v3 = format == LatentFormat::fp8_656;
    if (v3) {
      float scale[2];
      std::memcpy(scale, page + bytes + 512, 8);
      EXPECT_EQ(scale[0], 4.0f);
      EXPECT_EQ(scale[1], 0x1p-13f);  // 1e-4 up to a power of two
    } else {
      EXPECT_EQ(cache.size(1), 1 * 576 * 4);  // 3 * 584 up to a multiple of 576
      EXPECT_EQ(page[3 * 576 + 8], 129);
      EXPECT_EQ(page[3 * 576 + 9], 127 - 13);
    }
    uint16_t last;
    std::memcpy(&last, page + bytes + (v3 ? 656 : 576) - 2, 2);
    EXPECT_EQ(last, 0x3fc0);
    EXPECT_EQ(to_floats(latent_read(layout, cache,
                                    ints({-1, 4}, {2})))[static_cast<size_t>(layout.dim) + 1],
              -0.25f);
  }
}

TEST(SparseAttention, WrongCallsAreNamed) {
  const SparseCase c = make_sparse(LatentFormat::fp8_656, 4, 6, true);
  const auto wrong = [&](const auto& change, const std::vector<std::string>& words) {
    SparseCase bad = c;
    bad.t.indices = c.t.indices.contiguous_copy();
    change(&bad);
    expect_error([&] { run_sparse(&bad); }, words);
  };
  wrong([](SparseCase* x) { x->t.indices.data<int32_t>()[6 + 3] = 40; },
        {"indices[0, 1, 3]", "40", "40 tokens"});
  wrong([](SparseCase* x) { x->t.lengths = ints({7, 2}, {2}); }, {"lengths", "7", "6 entries"});
  wrong([](SparseCase* x) { x->p.cache.dim = 512; }, {"cache.dim", "512", "576"});
  wrong([](SparseCase* x) { x->p.value_dim = 577; }, {"value_dim", "577"});
  wrong([](SparseCase* x) { x->p.sinks = true; }, {"sinks", "missing"});
  wrong([](SparseCase* x) { x->t.cache = Tensor(); }, {"cache", "missing"});
  wrong([](SparseCase* x) { x->p.extra = layout_of(LatentFormat::fp8_584, 2); }, {"extra.dim"});
  wrong([](SparseCase* x) { x->p.cache.page_size = 0; }, {"page_size", "0"});
  expect_error(
      [&] {
        latent_write(c.p.cache, c.t.cache, random_tensor({1, 576}, Format::f32, 1),
                     ints({40}, {1}));
      },
      {"slots[0]", "40"});
  EXPECT_FALSE(can_run(LatentLayout{LatentFormat::fp8_584, 64, 576}, Device::cpu()));
}

TEST(SparseAttention, OneLiner) {
  SparseCase c = make_sparse(LatentFormat::fp8, 5, 17, false);
  c.p.out = Format::bf16;
  run_sparse(&c);
  const Tensor out = sparse_attention(c.t.q, c.p.cache, c.t.cache, c.t.indices);
  EXPECT_EQ(to_floats(out), to_floats(c.t.out));
}

}  // namespace
}  // namespace halftone
