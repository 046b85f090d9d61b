// Norms on GPUs.
#include "halftone/norm.h"

#include <numeric>
#include <span>
#include <utility>

#include "support/devices.h"

namespace halftone {
namespace {

using test::gathered;
using test::OnDevice;
using test::shifted;

class NormOnDevice : public OnDevice {
 protected:
  struct Case {
    NormProblem problem;
    int64_t shift = 0, gap = 0;  // of x and out
  };
  // x, weight, bias and, with a residual, the two sums. The result on the device.
  NormTensors tensors(const Case& c, uint64_t seed) const {
    const NormProblem& p = c.problem;
    const auto rows = [&](uint64_t s) {
      return shifted(test::random_tensor({p.rows, p.columns}, p.x, s), device, c.shift, c.gap);
    };
    NormTensors t{rows(seed), {}, rows(seed + 1), {}};
    if (p.weighted) t.weight = test::random_tensor({p.columns}, p.weight, seed + 2).to(device);
    if (p.bias) t.bias = test::random_tensor({p.columns}, p.weight, seed + 3).to(device);
    if (p.residual) t.residual = rows(seed + 4);
    return t;
  }
  // With u = 2^-24: a thread adds at most 16 or columns / 64 squares and five warps' width of
  // lanes twice; that is S additions. The sum of squares is off by S u, which the root halves; the
  // mean by S u max|x|. Mean, eps, root, reciprocal, products and sums add 8 u.
  static std::vector<double> bounds(const NormProblem& p, const Tensor& x, const Tensor& weight,
                                    const Tensor& bias, const std::vector<float>& y) {
    const std::vector<float> in = test::to_floats(x);
    const std::vector<float> w = p.weighted ? test::to_floats(weight) : std::vector<float>();
    const std::vector<float> b = p.bias ? test::to_floats(bias) : std::vector<float>();
    const double columns = static_cast<double>(p.columns);
    const double u = test::kF32Roundoff, chain = std::max(16.0, columns / 64) + 10;
    std::vector<double> bound;
    for (size_t first = 0; first < y.size(); first += static_cast<size_t>(p.columns)) {
      const std::span row(in.data() + first, static_cast<size_t>(p.columns));
      double mean = 0, squares = 0, largest = 0;
      if (p.kind == NormKind::layer) mean = std::accumulate(row.begin(), row.end(), 0.0) / columns;
      for (const float v : row) {
        squares += (v - mean) * (v - mean);
        largest = std::max(largest, std::abs(double{v}));
      }
      const double scale = 1 / std::sqrt(squares / columns + p.eps);
      const double shift = p.kind == NormKind::layer ? (chain + 1) * u * largest * scale : 0;
      for (size_t i = 0; i < row.size(); ++i) {
        const double weigh = p.weighted ? std::abs(w[i] + double{p.weight_offset}) : 1;
        const double normal = std::abs(row[i] - mean) * scale;
        const double error = (normal * (chain / 2 + 8) * u + shift + shift * shift) * weigh +
                             (normal * weigh + (p.bias ? std::abs(double{b[i]}) : 0)) * 2 * u;
        bound.push_back(test::rounded_bound(p.x, y[first + i], 0) + error * (1 + 0x1p-7));
      }
    }
    return bound;
  }

  void expect_norm(const Case& c, uint64_t seed) const {
    const NormProblem& p = c.problem;
    SCOPED_TRACE(describe(plan(p, device)));
    Stream s = stream();
    const NormTensors t = tensors(c, seed);
    Tensor x = gathered(t.x);
    if (p.residual) {
      std::vector<float> sum = test::to_floats(x);
      const std::vector<float> add = test::to_floats(gathered(t.residual));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += add[i];
      x = convert(Tensor::from<float>(sum, {p.rows, p.columns}, Format::f32), p.x);
    }
    run(plan(p, device), t, s);
    s.synchronize();
    if (p.residual) {
      EXPECT_TRUE(test::same_bits(gathered(t.residual), x));
    }
    const Tensor weight = p.weighted ? t.weight.to(Device::cpu()) : Tensor();
    const Tensor bias = p.bias ? t.bias.to(Device::cpu()) : Tensor();
    const std::vector<float> reference = test::to_floats(norm_reference(p, x, weight, bias));
    EXPECT_TRUE(test::within(test::to_floats(gathered(t.out)), reference,
                             bounds(p, x, weight, bias, reference)));
  }
};

TEST_P(NormOnDevice, EqualsTheReference) {
  uint64_t seed = 0;
  for (const Format format : test::kPlainFormats) {
    for (const int64_t columns : {1, 7, 8, 63, 128, 1000, 4097, 9000}) {
      NormProblem p{3, columns, format, test::kPlainFormats[++seed % 3]};
      p.kind = seed % 2 == 0 ? NormKind::layer : NormKind::rms;
      p.residual = seed % 3 == 0;
      p.weighted = seed % 5 != 0;
      p.bias = seed % 4 == 0;
      p.weight_offset = seed % 4 == 1 ? 1 : 0;
      expect_norm({p}, seed * 10);
      if (columns < 1000) expect_norm({p, 3, 5}, seed * 10);  // unaligned
    }
  }
}

TEST_P(NormOnDevice, SameBitsInAnyOrderAndAnyBatch) {
  NormProblem p{5, 1100};
  p.kind = NormKind::layer;
  const NormTensors t = tensors({p}, 1);
  expect_any_order(t.out, [&](Stream& s) { run(plan(p, device), t, s); });
  const Tensor whole = gathered(t.out);
  p.rows = 1;
  Stream s = stream();
  run(plan(p, device), {t.x.slice(0, 3, 4), t.weight, t.out.slice(0, 0, 1), {}}, s);
  s.synchronize();
  EXPECT_TRUE(test::same_bits(gathered(t.out.slice(0, 0, 1)), whole.slice(0, 3, 4)));
}

TEST_P(NormOnDevice, SameBitsAtAnyAddress) {
  uint64_t seed = 40;
  for (const Format format : test::kPlainFormats) {
    for (const int64_t columns : {64, 128, 5120, 9000, 20000, 33000}) {
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        NormProblem p{2, columns, format, test::kPlainFormats[++seed % 3]};
        p.kind = kind;
        p.residual = seed % 2 == 0;
        p.bias = seed % 3 != 0;
        SCOPED_TRACE(describe(plan(p, device)));
        Stream s = stream();
        const NormTensors t = tensors({p}, seed), apart = tensors({p, 3, 5}, seed);
        run(plan(p, device), t, s);
        run(plan(p, device), apart, s);
        s.synchronize();
        EXPECT_TRUE(test::same_bits(gathered(t.out), gathered(apart.out)));
      }
    }
  }
}

// Where there are many rows, fewer threads keep one.
TEST_P(NormOnDevice, SameBitsAmongManyRows) {
  for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
    NormProblem p{600, 4096, kind == NormKind::rms ? Format::f16 : Format::bf16};
    p.kind = kind;
    p.bias = kind == NormKind::layer;
    const NormTensors t = tensors({p}, 60);
    Stream s = stream();
    run(plan(p, device), t, s);
    s.synchronize();
    const Tensor many = gathered(t.out.slice(0, 590, 593));
    p.rows = 3;
    run(plan(p, device), {t.x.slice(0, 590, 593), t.weight, t.out.slice(0, 0, 3), {}, t.bias}, s);
    s.synchronize();
    EXPECT_TRUE(test::same_bits(gathered(t.out.slice(0, 0, 3)), many)) << describe(plan(p, device));
  }
}

TEST_P(NormOnDevice, InPlaceOnAStridedSlice) {
  const Tensor fused = test::random_tensor({3, 6, 24}, Format::bf16, 8);
  const Tensor weight = test::random_tensor({24}, Format::f32, 9);
  const Tensor expected = rms_norm(fused.slice(1, 1, 4).contiguous_copy(), weight, 1e-6f);
  const Tensor there = fused.to(device);
  Tensor queries = there.slice(1, 1, 4);
  Stream s = stream();
  qk_norm(queries, weight.to(device), 1e-6f, s);
  s.synchronize();
  const Tensor back = there.to(Device::cpu());
  const std::vector<float> reference = test::to_floats(expected);
  std::vector<double> bound;  // two results within a few u of each other before they are rounded
  for (const float r : reference) bound.push_back(std::abs(r) * 0x1p-7);
  EXPECT_TRUE(test::within(test::to_floats(back.slice(1, 1, 4)), reference, bound));
  for (const auto& [begin, end] : {std::pair{0, 1}, {4, 6}}) {
    EXPECT_TRUE(test::same_bits(back.slice(1, begin, end).contiguous_copy(),
                                fused.slice(1, begin, end).contiguous_copy()));
  }
}

TEST_P(NormOnDevice, TheBoundSeesSmallErrors) {
  NormProblem p{2, 256, Format::f32, Format::f32};
  const NormTensors t = tensors({p}, 3);
  Stream s = stream();
  run(plan(p, device), t, s);
  s.synchronize();
  const Tensor x = gathered(t.x), weight = t.weight.to(Device::cpu());
  const std::vector<float> reference = test::to_floats(norm_reference(p, x, weight, {}));
  const std::vector<double> bound = bounds(p, x, weight, {}, reference);
  std::vector<float> y = test::to_floats(gathered(t.out));
  EXPECT_TRUE(test::within(y, reference, bound));
  std::swap(y[8], y[9]);
  EXPECT_FALSE(test::within(y, reference, bound)) << "two elements of a quad swapped";
  std::swap(y[8], y[9]);
  for (float& v : y) v *= 1 + 0x1p-18f;
  EXPECT_FALSE(test::within(y, reference, bound)) << "the scale of a row off by 2^-18";
  const std::vector<float> shorter = test::to_floats(
      norm_reference({2, 255, Format::f32, Format::f32}, x.slice(1, 0, 255).contiguous_copy(),
                     weight.slice(0, 0, 255)));
  EXPECT_GT(std::abs(shorter[0] - reference[0]), bound[0]) << "the last element left out";
}

TEST_P(NormOnDevice, WrongStreamsAreNamed) {
  const NormProblem p{2, 8};
  const NormTensors t = tensors({p}, 1);
  test::expect_error([&] { run(plan(p, device), t, Stream::default_stream()); },
                     {"stream is on cpu", device.name()});
}

TEST_P(NormOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    NormProblem p{draw.extent(60), draw.extent(9000), draw.plain_format(), draw.plain_format()};
    p.kind = draw.one_in(2) ? NormKind::layer : NormKind::rms;
    p.residual = draw.one_in(2);
    p.weighted = !draw.one_in(4);
    p.bias = draw.one_in(3);
    p.weight_offset = draw.one_in(4) ? 1 : 0;
    p.eps = draw.one_in(3) ? 1e-3f : 1e-6f;
    Case c{p};
    if (draw.one_in(3)) c.shift = draw.below(9), c.gap = draw.below(20);
    expect_norm(c, 10 * seed);
  });
}

HALFTONE_ON_DEVICES(NormOnDevice);

}  // namespace
}  // namespace halftone
