// Problems in layouts of their own for the attention kernels of GPUs: sequences of several lengths,
// packed or padded, pages, gaps between rows; and the reference of each sequence alone.
#pragma once
#include <algorithm>
#include <random>
#include <string>

#include "attention/sm90/cases.h"

namespace halftone::test {

enum class Keys { padded, packed, paged };

// What is laid out how. Everything that belongs to no sequence is NaN.
struct LayoutCase {
  Sm90Case base;                                   // its lengths are the largest
  std::vector<int64_t> queries = {}, keys = {};    // of each sequence; empty: all the same
  Keys layout = Keys::padded;                      //
  int64_t page_size = 16;                          //
  int64_t gap = 0;                                 // elements between rows, and before the first
  std::optional<Format> mask = {};                 //
  std::vector<int64_t> mask_shape = {0, 0, 0, 0};  // 1: shared by all; 0: its own
  float softcap = 0;
  std::optional<float> scale = {};
  bool batch_invariant = false;
};

inline Tensor i32(const std::vector<int32_t>& values) {
  return Tensor::from<int32_t>(values, {static_cast<int64_t>(values.size())}, Format::i32);
}

// 16-bit rows [first, second, heads, dim], a gap of elements after each head, all NaN so far.
class Canvas {
 public:
  Canvas(int64_t first, int64_t second, int64_t heads, int64_t dim, int64_t gap, Format format)
      : gap_(gap), dim_(dim), data_(Tensor::empty({first, second, heads, dim + gap}, format)) {
    std::fill_n(data_.data<uint16_t>(), data_.numel(), uint16_t{0x7fff});
  }
  // Row (a, i) becomes row (b, j) of `t`.
  void set(int64_t a, int64_t i, const Tensor& t, int64_t b, int64_t j) {
    for (int64_t h = 0; h < t.size(2); ++h) {
      const uint16_t* from = t.data<uint16_t>() + ((b * t.size(1) + j) * t.size(2) + h) * dim_;
      uint16_t* to =
          data_.data<uint16_t>() + ((a * data_.size(1) + i) * t.size(2) + h) * (dim_ + gap_) + gap_;
      std::copy_n(from, dim_, to);
    }
  }
  Tensor on(const Device& device, bool packed) const { return rows(data_.to(device), packed); }
  // The rows of such a tensor, without its first dimension where they are packed.
  Tensor rows(const Tensor& data, bool packed) const {
    const Tensor all = data.slice(3, gap_, gap_ + dim_);
    if (!packed) return all;
    return Tensor::share(
        std::make_shared<Tensor>(all), all.data(), {all.size(1), all.size(2), all.size(3)},
        {all.stride(1), all.stride(2), all.stride(3)}, all.format(), data.device());
  }
  const Tensor& data() const { return data_; }

 private:
  int64_t gap_, dim_;
  Tensor data_;
};

// The operands of a case, contiguous, and what makes its sequences.
struct LaidOut {
  Case whole;
  LayoutCase how;
  Tensor out_on_device;

  LaidOut(const LayoutCase& l, uint64_t seed) : LaidOut(l, seed, make_case(l.base, seed)) {}
  // Of operands that are given.
  LaidOut(const LayoutCase& l, uint64_t seed, Case given) : whole(std::move(given)), how(l) {
    AttentionProblem& p = whole.problem;
    if (how.queries.empty()) how.queries.assign(static_cast<size_t>(p.batch), p.query_length);
    if (how.keys.empty()) how.keys.assign(static_cast<size_t>(p.batch), p.key_length);
    p.softcap = l.softcap, p.softmax_scale = l.scale, p.mask = l.mask;
    p.batch_invariant = l.batch_invariant;
    if (l.layout == Keys::paged) p.page_size = l.page_size;
    p.variable_length = l.layout == Keys::packed || !l.keys.empty() || !l.queries.empty();
    if (!l.mask) return;
    Shape shape{p.batch, p.heads, p.query_length, p.key_length};
    for (int i = 0; i < 4; ++i) {
      if (l.mask_shape[static_cast<size_t>(i)] == 1) shape[i] = 1;
    }
    const Tensor noise = random_tensor(shape, Format::f32, seed + 5);
    for (int64_t i = 0; i < noise.numel(); ++i) {
      float& x = noise.data<float>()[i];
      if (x < -0.8f) x = *l.mask == Format::u8 ? 0 : -INFINITY;
    }
    if (*l.mask != Format::u8) {
      whole.tensors.mask = *l.mask == Format::f32 ? noise : convert(noise, *l.mask);
      return;
    }
    whole.tensors.mask = Tensor::empty(shape, Format::u8);
    for (int64_t i = 0; i < noise.numel(); ++i) {
      whole.tensors.mask.data<uint8_t>()[i] = noise.data<float>()[i] != 0;
    }
  }

  bool packed_queries() const {
    return !std::all_of(how.queries.begin(), how.queries.end(), [&](int64_t n) {
      return n == whole.problem.query_length;
    }) || how.layout == Keys::packed;
  }
  static std::vector<int32_t> cumulated(const std::vector<int64_t>& lengths, int64_t slack) {
    std::vector<int32_t> sums{0};
    for (const int64_t n : lengths) sums.push_back(sums.back() + static_cast<int32_t>(n + slack));
    return sums;
  }

  Tensor rows_on(const Device& device, const Tensor& t, const std::vector<int64_t>& lengths,
                 Keys layout, int64_t slack) const {
    const int64_t batch = t.size(0), heads = t.size(2), dim = t.size(3);
    const int64_t most = t.size(1), pages = (most + how.page_size - 1) / how.page_size;
    const std::vector<int32_t> begin = cumulated(lengths, slack);
    Canvas canvas = layout == Keys::padded
                        ? Canvas(batch, most + 3, heads, dim, how.gap, t.format())
                    : layout == Keys::packed
                        ? Canvas(1, begin.back() + 3, heads, dim, how.gap, t.format())
                        : Canvas(batch * pages + 1, how.page_size, heads, dim, how.gap, t.format());
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t j = 0; j < lengths[static_cast<size_t>(b)]; ++j) {
        if (layout == Keys::padded) canvas.set(b, j, t, b, j);
        if (layout == Keys::packed) canvas.set(0, begin[static_cast<size_t>(b)] + j, t, b, j);
        if (layout == Keys::paged) {
          canvas.set(page(b, j / how.page_size, pages, batch), j % how.page_size, t, b, j);
        }
      }
    }
    return canvas.on(device, layout == Keys::packed);
  }
  // Pages from the last to the first; page 0 is nobody's.
  static int64_t page(int64_t b, int64_t i, int64_t pages, int64_t batch) {
    return batch * pages - (b * pages + i);
  }

  Canvas canvas_of_out() const {
    const AttentionProblem& p = whole.problem;
    const int64_t total = LaidOut::cumulated(how.queries, 0).back();
    return packed_queries() ? Canvas(1, total, p.heads, p.value_dim, how.gap, p.out)
                            : Canvas(p.batch, p.query_length, p.heads, p.value_dim, how.gap, p.out);
  }
  // The output of a run.
  Tensor out() const {
    return canvas_of_out().rows(out_on_device.to(Device::cpu()), packed_queries());
  }

  AttentionTensors on(const Device& device) {
    const AttentionProblem& p = whole.problem;
    AttentionTensors t;
    const bool packed_q = packed_queries();
    t.q = rows_on(device, whole.tensors.q, how.queries, packed_q ? Keys::packed : Keys::padded, 0);
    t.q = packed_q ? t.q.slice(0, 0, t.q.size(0) - 3) : t.q.slice(1, 0, p.query_length);
    // Packed keys have rows between the sequences that seqused_k leaves out.
    const int64_t slack = how.layout == Keys::packed ? 2 : 0;
    t.k = rows_on(device, whole.tensors.k, how.keys, how.layout, slack);
    t.v = rows_on(device, whole.tensors.v, how.keys, how.layout, slack);
    if (packed_q) t.cu_seqlens_q = i32(cumulated(how.queries, 0)).to(device);
    if (how.layout == Keys::packed) t.cu_seqlens_k = i32(cumulated(how.keys, slack)).to(device);
    if (p.variable_length) {
      t.seqused_k = i32({how.keys.begin(), how.keys.end()}).to(device);
    }
    if (p.page_size) {
      const int64_t pages = (p.key_length + *p.page_size - 1) / *p.page_size;
      std::vector<int32_t> table;
      for (int64_t b = 0; b < p.batch; ++b) {
        for (int64_t i = 0; i < pages; ++i) {
          // What no key needs may be anything.
          const bool used = i * *p.page_size < how.keys[static_cast<size_t>(b)];
          table.push_back(used ? static_cast<int32_t>(page(b, i, pages, p.batch)) : -5);
        }
      }
      t.page_table = Tensor::from<int32_t>(table, {p.batch, pages}, Format::i32).to(device);
    }
    if (p.mask) t.mask = whole.tensors.mask.to(device);
    if (p.sinks) t.sinks = whole.tensors.sinks.to(device);
    out_on_device = canvas_of_out().data().to(device);
    t.out = canvas_of_out().rows(out_on_device, packed_q);
    t.lse = Tensor::zeros({p.batch, p.heads, p.query_length}, Format::f32).to(device);
    return t;
  }

  // Sequence b alone, contiguous.
  Case sequence(int64_t b) const {
    Case c = whole;
    AttentionProblem& p = c.problem;
    p.batch = 1, p.variable_length = false, p.page_size.reset();
    p.query_length = how.queries[static_cast<size_t>(b)];
    p.key_length = how.keys[static_cast<size_t>(b)];
    const auto cut = [&](const Tensor& t, int64_t rows) {
      return t.slice(0, b, b + 1).slice(1, 0, rows).contiguous_copy();
    };
    c.tensors.q = cut(whole.tensors.q, p.query_length);
    c.tensors.k = cut(whole.tensors.k, p.key_length);
    c.tensors.v = cut(whole.tensors.v, p.key_length);
    if (p.mask) {
      Tensor& m = c.tensors.mask;
      if (m.size(0) > 1) m = m.slice(0, b, b + 1);
      if (m.size(2) > 1) m = m.slice(2, 0, p.query_length);
      if (m.size(3) > 1) m = m.slice(3, 0, p.key_length);
      m = m.contiguous_copy();
    }
    return c;
  }
};

// Runs the case on the stream's device and compares each sequence with its reference.
inline void expect_layout(Stream& stream, LaidOut laid) {
  const AttentionProblem& p = laid.whole.problem;
  const AttentionPlan made = planned(p, stream.device());
  SCOPED_TRACE(describe(made));
  AttentionTensors t = laid.on(stream.device());
  run(made, t, stream);
  stream.synchronize();
  const Tensor out = laid.out(), lse = t.lse.to(Device::cpu());
  const std::vector<int32_t> begin = LaidOut::cumulated(laid.how.queries, 0);
  for (int64_t b = 0; b < p.batch; ++b) {
    const Case alone = laid.sequence(b);
    const int64_t rows = alone.problem.query_length;
    if (rows == 0) continue;
    SCOPED_TRACE("sequence " + std::to_string(b) + " of " + std::to_string(rows) + " queries and " +
                 std::to_string(alone.problem.key_length) + " keys");
    const Bounded reference = bounded(alone);
    const int64_t first = begin[static_cast<size_t>(b)];
    const Tensor own = out.rank() == 3 ? out.slice(0, first, first + rows)
                                       : out.slice(0, b, b + 1).slice(1, 0, rows);
    EXPECT_TRUE(within(to_floats(own.contiguous_copy()), reference.out, reference.out_bound));
    const Tensor own_lse = lse.slice(0, b, b + 1).slice(2, 0, rows).contiguous_copy();
    EXPECT_TRUE(within(to_floats(own_lse), reference.lse, reference.lse_bound));
  }
}
inline void expect_layout(Stream& stream, const LayoutCase& l, uint64_t seed) {
  expect_layout(stream, LaidOut(l, seed));
}

// Every feature of the general form, around the edges of its tiles.
inline std::vector<LayoutCase> layout_cases() {
  using S = Sm90Case;
  const auto f16 = Format::f16, bf16 = Format::bf16;
  return {
      // Lengths.
      {S{{3, 70, 150, 2, 1, 64}, bf16, true}, {70, 0, 33}, {150, 5, 0}, Keys::packed},
      {S{{2, 65, 260, 2, 2, 128}, f16}, {}, {260, 129}, Keys::padded},
      {S{{2, 66, 200, 1, 1, 128}, bf16, true, 60, -1, 0, true},
       {66, 20},
       {200, 128},
       Keys::paged,
       64},
      // Pages: boxes of 64, 16 and 8 rows, and none.
      {S{{2, 3, 300, 4, 2, 128}, bf16, true}, {}, {300, 256}, Keys::paged, 16},
      {S{{1, 2, 200, 2, 1, 64}}, {}, {}, Keys::paged, 7},
      {S{{1, 80, 200, 2, 1, 192, 128}, bf16, true}, {}, {}, Keys::paged, 24},
      {S{{1, 70, 140, 1, 1, 256}, f16, true}, {}, {}, Keys::paged, 256},
      // Strides and widths that TMA does not take.
      {S{{1, 67, 130, 2, 1, 64}, bf16, true}, {}, {}, Keys::padded, 16, 3},
      {S{{1, 5, 90, 2, 1, 83, 45}, f16}, {}, {}, Keys::padded, 16, 1},
      {S{{1, 64, 70, 1, 1, 72, 40}, bf16}, {}, {}, Keys::padded, 16, 8},
      // Masks, softcap, scales.
      {S{{2, 65, 140, 2, 2, 64}, bf16, true}, {}, {}, Keys::padded, 16, 0, Format::u8},
      {S{{1, 64, 129, 2, 1, 128}, f16}, {}, {}, Keys::padded, 16, 0, f16, {1, 1, 0, 0}},
      {S{{2, 3, 150, 2, 1, 64}, bf16, true}, {}, {150, 40}, Keys::paged, 16, 0, bf16, {0, 0, 0, 0}},
      {S{{1, 2, 100, 4, 2, 256}, bf16}, {}, {}, Keys::padded, 16, 0, Format::f32, {1, 0, 1, 0}, 30},
      {S{{1, 66, 80, 1, 1, 128}, bf16, true}, {}, {}, Keys::padded, 16, 0, {}, {}, 5},
      {S{{1, 4, 40, 1, 1, 64}, f16}, {}, {}, Keys::padded, 16, 0, {}, {}, 0, -0.2f},
      // Masks loaded by TMA: every kind, what is shared, the last keys and rows of
      // tiles.
      {S{{2, 130, 272, 2, 1, 64}, bf16, true}, {}, {}, Keys::padded, 16, 0, Format::u8},
      {S{{1, 70, 136, 2, 2, 128}, f16}, {}, {}, Keys::padded, 16, 0, f16, {1, 0, 0, 0}, 20},
      {S{{2, 129, 200, 2, 1, 128}, bf16}, {}, {}, Keys::padded, 16, 0, bf16, {0, 1, 0, 0}},
      {S{{2, 65, 264, 2, 2, 72}, bf16}, {}, {}, Keys::padded, 16, 0, bf16, {0, 0, 1, 0}},
      {S{{1, 140, 260, 2, 1, 128}, bf16, true}, {}, {}, Keys::padded, 16, 0, Format::f32},
      {S{{1, 66, 140, 2, 1, 256}, f16}, {}, {}, Keys::padded, 16, 0, Format::f32, {1, 0, 0, 0}},
      {S{{2, 65, 144, 1, 1, 192, 128}, bf16},
       {},
       {},
       Keys::padded,
       16,
       0,
       Format::u8,
       {0, 0, 0, 0}},
      {S{{2, 70, 256, 2, 1, 64}, bf16, true}, {70, 20}, {256, 133}, Keys::packed, 16, 0, bf16},
      {S{{2, 70, 256, 2, 1, 128}, bf16}, {}, {256, 50}, Keys::paged, 7, 0, bf16, {0, 0, 1, 0}},
      // Splits: of 512 keys, of 2048, with a sink, with sequences that end before.
      {S{{1, 2, 1100, 6, 2, 64}, bf16}},
      {S{{2, 2, 1300, 2, 1, 128}, f16, true, -1, -1, 0, true}, {}, {1300, 17}, Keys::paged, 16},
      {S{{1, 3, 2100, 1, 1, 40, 35}, bf16, true}, {}, {}, Keys::padded, 16, 0, {}, {}, 0, {}, true},
  };
}

// Any of it together; the same problem for the same seed.
inline LayoutCase random_layout(uint64_t seed, int64_t most_queries, int64_t most_keys) {
  std::mt19937_64 random(seed);
  const auto upto = [&](int64_t n) { return static_cast<int64_t>(random() % uint64_t(n)); };
  const auto one_in = [&](int64_t n) { return upto(n) == 0; };
  LayoutCase l;
  Sm90Case& s = l.base;
  s.sizes.batch = 1 + upto(3);
  s.sizes.kv_heads = 1 + upto(2);
  s.sizes.heads = s.sizes.kv_heads * (1 + upto(4));
  // Of one query token another kernel is the faster.
  s.sizes.queries = one_in(2) ? 2 + upto(7) : 2 + upto(most_queries - 1);
  s.sizes.keys = 1 + upto(most_keys);
  s.sizes.head_dim = one_in(4) ? 1 + upto(256) : 8 * (1 + upto(32));
  s.sizes.value_dim = one_in(2) ? s.sizes.head_dim : 1 + upto(256);
  s.format = one_in(2) ? Format::bf16 : Format::f16;
  s.causal = one_in(2);
  if (one_in(3)) s.left = upto(200);
  if (one_in(3)) s.right = upto(200);
  if (one_in(4)) s.chunk = 1 + upto(200);
  s.sinks = one_in(3);
  l.layout = static_cast<Keys>(upto(3));
  const int64_t pages[] = {1, 5, 8, 16, 48, 64, 128, 256};
  l.page_size = pages[upto(8)];
  l.gap = one_in(3) ? upto(9) : 0;
  const Format masks[] = {Format::u8, Format::f32, Format::f16, Format::bf16};
  if (one_in(3)) l.mask = masks[upto(4)];
  for (int64_t& extent : l.mask_shape) extent = upto(2);
  if (one_in(4)) l.softcap = 1 + static_cast<float>(upto(50));
  l.batch_invariant = one_in(3);
  for (int64_t b = 0; b < s.sizes.batch; ++b) {
    l.queries.push_back(one_in(2) ? s.sizes.queries : upto(s.sizes.queries + 1));
    l.keys.push_back(one_in(2) ? s.sizes.keys : upto(s.sizes.keys + 1));
  }
  if (one_in(3)) l.queries.clear(), l.keys.clear();
  return l;
}

}  // namespace halftone::test
