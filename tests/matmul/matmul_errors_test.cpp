// Wrong calls and empty ones.
#include "halftone/matmul.h"
#include "matmul/weights.h"

namespace halftone {
namespace {

using namespace test;

MatmulProblem small() {
  MatmulProblem p;
  p.m = 2, p.n = 3, p.k = 4;
  return p;
}

TEST(MatmulErrors, ProblemsThatAreRefused) {
  struct Case {
    MatmulProblem problem;
    std::vector<std::string> words;
  };
  std::vector<Case> cases;
  const auto add = [&](auto change, std::vector<std::string> words) {
    MatmulProblem p = small();
    change(p);
    cases.push_back({p, std::move(words)});
  };
  add([](auto& p) { p.m = -1; }, {"m is -1"});
  add([](auto& p) { p.k = 0; }, {"[3, 0]", "at least 1"});
  add([](auto& p) { p.n = 0; }, {"[0, 4]"});
  add([](auto& p) { p.tf32 = true; }, {"tf32", "x is bf16"});
  add([](auto& p) { p.library = MatmulLibrary::cublaslt; }, {"cublaslt", "cpu", "CUDA device"});
  add([](auto& p) { p.x = Format::int4; }, {"x is int4"});
  add([](auto& p) { p.out = Format::nvfp4; }, {"out is nvfp4"});
  add([](auto& p) { p.weight = Format::i32; }, {"weight format is i32"});
  add([](auto& p) { p.weight = Format::int4, p.k = 5; }, {"K = 5", "even"});
  add([](auto& p) { p.weight = Format::nvfp4; }, {"nvfp4", "no scales"});
  add(
      [](auto& p) {
        p.weight = Format::nvfp4, p.k = 24, p.scaled = true;
        p.scaling = {Format::fp8_e4m3, 1, 16};
      },
      {"K = 24", "multiple of the group, 16"});
  add(
      [](auto& p) {
        p.weight = Format::fp8_e4m3, p.scaled = true, p.scaling = {Format::i32, 1, 128};
      },
      {"scales are i32"});
  add(
      [](auto& p) {
        p.weight = Format::mxfp8, p.k = 64, p.scaled = true;
        p.scaling = {Format::ue8m0, 2, 32, ScaleLayout::tiled_128x4};
      },
      {"128x4", "single rows"});
  add(
      [](auto& p) {
        p.weight = Format::int8, p.scaled = true;
        p.scaling = {Format::f32, 1, 0, ScaleLayout::linear, true};
      },
      {"zero points", "int4"});
  add(
      [](auto& p) {
        p.weight = Format::fp8_e4m3, p.scaled = true, p.scaling = {Format::f32, -1, 128};
      },
      {"-1x128"});
  for (const Case& c : cases) {
    const Support support = can_run(c.problem, Device::cpu());
    EXPECT_FALSE(support.ok);
    for (const std::string& word : c.words) {
      EXPECT_NE(support.reason.find(word), std::string::npos) << support.reason;
    }
    expect_error([&] { plan(c.problem, Device::cpu()); }, c.words);
  }
  EXPECT_TRUE(can_run(small(), Device::cpu()).ok);
}

TEST(MatmulErrors, TensorsThatDoNotFitThePlan) {
  MatmulProblem problem = small();
  const MatmulPlan p = plan(problem, Device::cpu());
  const Tensor x = Tensor::zeros({2, 4}, Format::bf16), w = Tensor::zeros({3, 4}, Format::bf16);
  const Tensor y = Tensor::zeros({2, 3}, Format::bf16);
  Stream& stream = Stream::default_stream();
  const auto fails = [&](const MatmulTensors& t, const std::vector<std::string>& words) {
    expect_error([&] { run(p, t, stream); }, words);
  };
  run(p, {x, w, y, {}, {}}, stream);
  fails({{}, w, y, {}, {}}, {"x is undefined"});
  fails({Tensor::zeros({2, 5}, Format::bf16), w, y, {}, {}}, {"x is [2, 5]", "[2, 4]"});
  fails({Tensor::zeros({2, 4}, Format::f32), w, y, {}, {}}, {"x is f32", "bf16"});
  fails({x, Tensor::zeros({4, 3}, Format::bf16), y, {}, {}}, {"weight is [4, 3]"});
  fails({Tensor::zeros({4, 2}, Format::bf16).transpose(0, 1), w, y, {}, {}}, {"x has strides"});
  fails({x, w, y, Tensor::zeros({3}, Format::f32), {}}, {"bias is given"});
  fails({x, w, y, {}, y}, {"residual is given"});
  expect_error([&] { run(MatmulPlan{}, {x, w, y, {}, {}}, stream); }, {"plan is empty"});
  expect_error([&] { matmul(x, Tensor::zeros({3, 5}, Format::bf16)); }, {"[2, 4]", "[3, 5]", "K"});
  expect_error([&] { matmul(x, Tensor::zeros({5}, Format::bf16)); }, {"two dimensions"});

  const Tensor squarish = Tensor::zeros({4, 4}, Format::bf16);
  problem.m = problem.n = 4;
  expect_error(
      [&] {
        run(plan(problem, Device::cpu()), {squarish, squarish, squarish, {}, {}}, stream);
      },
      {"out is x itself"});
}

TEST(MatmulErrors, NoRowsIsFine) {
  const Tensor y = matmul(Tensor::empty({0, 4}, Format::f32), Tensor::zeros({3, 4}, Format::bf16));
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
}

TEST(MatmulErrors, AnyRank) {
  const Weight w = random_weight({Format::bf16}, 5, 8, 1);
  const Tensor x = random_tensor({2, 3, 8}, Format::f32, 2);
  const Tensor y = matmul(x, w.tensor);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5}));
  EXPECT_EQ(to_floats(y), to_floats(matmul(x.reshape({6, 8}), w.tensor)));
  const Tensor vector = random_tensor({8}, Format::f32, 3);
  EXPECT_EQ(matmul(vector, w.tensor).shape(), (Shape{5}));
}

TEST(MatmulErrors, NotANumberSpreadsAlongItsRow) {
  at_every_level([] {
    for (Format format : {Format::f32, Format::bf16}) {
      const Weight w = random_weight({Format::bf16}, 6, 40, 1);
      const Tensor x = random_tensor({4, 40}, format, 2).contiguous_copy();
      if (format == Format::f32) {
        x.data<float>()[40 + 3] = NAN;
      } else {
        x.data<uint16_t>()[40 + 3] = 0x7fc0;
      }
      const Tensor y = matmul(x, w.tensor);
      for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 6; ++j) EXPECT_EQ(std::isnan(y.at({i, j})), i == 1);
      }
    }
  });
}

}  // namespace
}  // namespace halftone
