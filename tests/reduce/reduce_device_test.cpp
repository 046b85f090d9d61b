// Reductions on GPUs.
#include "halftone/reduce.h"

#include "formats/row_reader.h"
#include "support/devices.h"
#include "support/sanitized.h"

namespace halftone {
namespace {

using test::OnDevice;

class ReduceOnDevice : public OnDevice {
 protected:
  // Eight terms are added in f32 by at most eight roundings, everything else in f64: with u = 2^-24
  // 8 u of the sum of magnitudes, and the last rounding.
  void expect_reduced(Reduction operation, const Tensor& x, int axis, const Tensor& y = {}) const {
    SCOPED_TRACE(std::string(name(operation)) + " of " + to_string(x) + " along " +
                 std::to_string(axis));
    Stream s = stream();
    const Tensor out =
        y.defined() ? dot(x.to(device), y.to(device), s) : reduce(operation, x.to(device), axis, s);
    const Tensor host = out.to(Device::cpu());
    const Tensor reference = reduce_reference(operation, x, axis, y);
    if (out.format() == Format::i64) {
      EXPECT_TRUE(test::same_bits(host, reference));
      return;
    }
    const auto magnitudes = [](const Tensor& t) {
      if (!t.defined()) return t;
      const RowReader reader(t);
      const int64_t columns = t.size(-1);
      std::vector<float> values(static_cast<size_t>(t.numel()));
      for (int64_t row = 0; row < t.numel() / columns; ++row) {
        for (int64_t i = 0; i < columns; i += RowReader::kMost) {
          const int64_t n = std::min(RowReader::kMost, columns - i);
          float* to = values.data() + row * columns + i;
          std::copy_n(reader.read(row, i, n, to), n, to);
        }
      }
      for (float& v : values) v = std::abs(v);
      return Tensor::from<float>(values, t.shape(), Format::f32);
    };
    const bool exact = operation == Reduction::max || operation == Reduction::min;
    const std::vector<float> sums =
        test::to_floats(reduce_reference(operation, magnitudes(x), axis, magnitudes(y)));
    const std::vector<float> expected = test::to_floats(reference);
    std::vector<double> bound;
    for (size_t i = 0; i < sums.size(); ++i) {
      bound.push_back(exact ? 0
                            : test::rounded_bound(Format::f32, expected[i], 0) +
                                  8.01 * test::kF32Roundoff * sums[i]);
    }
    EXPECT_TRUE(test::within(test::to_floats(host), expected, bound));
  }
};

TEST_P(ReduceOnDevice, EveryOperationAlongEveryDimension) {
  uint64_t seed = 0;
  for (int i = 0; i < kReductionCount; ++i) {
    const auto operation = static_cast<Reduction>(i);
    for (const Shape& shape : {Shape{1}, Shape{3, 7}, Shape{2, 900}, Shape{1, 9001}}) {
      const Format format = test::kPlainFormats[++seed % 3];
      const Tensor x = test::random_tensor(shape, format, seed);
      const Tensor y = operation == Reduction::dot
                           ? test::random_tensor(shape, Format::bf16, seed + 100)
                           : Tensor();
      expect_reduced(operation, x, -1, y);
    }
    if (operation == Reduction::dot) continue;
    const Tensor x = test::random_tensor({3, 37, 5, 4}, Format::bf16, ++seed);
    for (int axis = 0; axis < 4; ++axis) expect_reduced(operation, x, axis);
  }
}

TEST_P(ReduceOnDevice, TiesNansAndInfinities) {
  const Tensor x =
      Tensor::from({1, 3, 3, 1, NAN, 2, NAN, 0, -INFINITY, INFINITY, -0.0f, 0}, {3, 4});
  for (const Reduction r : {Reduction::max, Reduction::min, Reduction::argmax, Reduction::argmin}) {
    expect_reduced(r, x, 1);
    expect_reduced(r, x, 0);
  }
}

// Rows that are read by 16 bytes, with the extreme at each place of them and once more behind it.
TEST_P(ReduceOnDevice, ExtremesAtEveryPlace) {
  constexpr int64_t kRows = 48, kColumns = 64;
  for (const Format format : test::kPlainFormats) {
    for (const float extreme : {5.0f, -5.0f, NAN}) {
      std::vector<float> x(kRows * kColumns, 1);
      for (int64_t row = 0; row < kRows; ++row) {
        x[row * kColumns + row] = extreme;
        x[row * kColumns + row + row % 3 * 7] = extreme;
      }
      const Tensor rows = convert(Tensor::from<float>(x, {kRows, kColumns}, Format::f32), format);
      for (const Reduction r : {Reduction::max, Reduction::argmax, Reduction::argmin}) {
        expect_reduced(r, rows, 1);
      }
    }
  }
}

TEST_P(ReduceOnDevice, SameBitsInAnyOrder) {
  const Tensor rows = test::random_tensor({3, 2000}, Format::f32, 1).to(device);
  const Tensor columns = test::random_tensor({600, 264}, Format::bf16, 2).to(device);
  for (const Tensor& x : {rows, columns}) {
    ReduceProblem problem{.operation = Reduction::sum, .shape = x.shape()};
    problem.x = x.format(), problem.axis = x.size(0) == 3 ? 1 : 0;
    const Tensor out = Tensor::empty({x.size(1 - problem.axis)}, Format::f32, device);
    const ReducePlan p = plan(problem, device);
    expect_any_order(out, [&](Stream& s) { run(p, {x, {}, out}, s); });
  }
}

TEST_P(ReduceOnDevice, TheBoundSeesAnElementLeftOut) {
  const Tensor x = test::random_tensor({1, 4096}, Format::f32, 2);
  Stream s = stream();
  const float whole = reduce(Reduction::sum, x.to(device), -1, s).to(Device::cpu()).at({0});
  const Tensor shorter = x.slice(1, 0, 4095).contiguous_copy();
  const float less = reduce(Reduction::sum, shorter.to(device), -1, s).to(Device::cpu()).at({0});
  double magnitude = 0;
  for (const float v : test::to_floats(x)) magnitude += std::abs(v);
  EXPECT_GT(std::abs(whole - less), 8.01 * test::kF32Roundoff * magnitude);
}

// Formats that GPUs decode while they reduce: the CPU's numbers.
std::vector<Tensor> coded(const Shape& shape, uint64_t seed) {
  std::vector<Tensor> all;
  const Tensor x = test::random_tensor(shape, Format::f32, seed, test::Data::outliers);
  for (const char* text : {"fp8", "fp8_row", "fp8_e5m2", "mxfp8", "mxfp4", "nvfp4", "int8",
                           "int8_g32", "int4", "int4_g64_asym"}) {
    all.push_back(quantize(x, parse_quantization(text)));
  }
  std::mt19937_64 engine(seed);
  for (const Format f : {Format::i32, Format::i64, Format::u8, Format::int8, Format::fp8_e4m3}) {
    const Tensor t = Tensor::empty(shape, f);
    for (int64_t i = 0; i < t.bytes(); ++i) {
      // Of E4M3 no NaN, of integers all values.
      t.data<uint8_t>()[i] = static_cast<uint8_t>(engine() & (is_fp8(f) ? 0xf7 : 0xff));
    }
    all.push_back(t);
  }
  return all;
}

TEST_P(ReduceOnDevice, EveryFormatAlongEveryDimension) {
  for (const Shape& shape : test::some(std::vector<Shape>{{5, 320}, {2, 37, 96}}, 1)) {
    for (const Tensor& x : coded(shape, 11)) {
      for (int i = 0; i < kReductionCount; ++i) {
        const auto operation = static_cast<Reduction>(i);
        if (operation == Reduction::dot) continue;
        for (int axis = 0; axis < x.rank(); ++axis) expect_reduced(operation, x, axis);
      }
      expect_reduced(Reduction::dot, x, -1, test::random_tensor(shape, Format::f32, 12));
      expect_reduced(Reduction::dot, test::random_tensor(shape, Format::bf16, 13), -1, x);
    }
  }
}

TEST_P(ReduceOnDevice, ChunksOfLongRowsAndColumns) {
  for (const Reduction r : {Reduction::mean, Reduction::min, Reduction::argmax}) {
    for (const Format f : {Format::f32, Format::bf16}) {
      expect_reduced(r, test::random_tensor({2, 40000}, f, 20), 1);
      expect_reduced(r, test::random_tensor({2, 600, 264}, f, 21), 1);
      expect_reduced(r, test::random_tensor({700, 9}, f, 22), 0);
    }
  }
  const Tensor equal = Tensor::zeros({600, 16}, Format::bf16);
  expect_reduced(Reduction::argmax, equal, 0);
  expect_reduced(Reduction::argmin, equal.reshape({1, 9600}), 1);
}

TEST_P(ReduceOnDevice, AnyStrides) {
  const Tensor x = test::random_tensor({4, 6, 40, 24}, Format::bf16, 30), there = x.to(device);
  const auto expect_view = [&](const auto& view) {
    Stream s = stream();
    for (int axis = 0; axis < 4; ++axis) {
      const Tensor y = reduce(Reduction::argmax, view(there), axis, s).to(Device::cpu());
      EXPECT_TRUE(test::same_bits(y, reduce_reference(Reduction::argmax, view(x), axis)))
          << to_string(view(x)) << " along " << axis;
    }
  };
  expect_view([](const Tensor& t) { return t.transpose(1, 3); });
  expect_view([](const Tensor& t) { return t.transpose(0, 2).slice(3, 3, 20); });
  expect_view([](const Tensor& t) { return t.slice(2, 5, 6).slice(1, 0, 4); });
}

TEST_P(ReduceOnDevice, RandomProblems) {
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const auto operation = static_cast<Reduction>(draw.below(kReductionCount));
    const Shape shape{draw.extent(20), draw.extent(20), draw.extent(2000)};
    const bool dot = operation == Reduction::dot;
    const Tensor plain = test::random_tensor(shape, draw.plain_format(), seed);
    const Tensor x =
        draw.one_in(3)
            ? draw.of(coded({draw.extent(4), draw.extent(9), 32 * draw.extent(25)}, seed))
            : plain;
    const Tensor y =
        dot ? test::random_tensor(x.shape(), draw.plain_format(), seed + 5000) : Tensor();
    expect_reduced(operation, x, dot ? -1 : static_cast<int>(draw.below(3)), y);
  });
}

HALFTONE_ON_DEVICES(ReduceOnDevice);

}  // namespace
}  // namespace halftone
