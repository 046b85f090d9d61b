#include "halftone/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "embedding/tables.h"
#include "support/compare.h"
#include "support/tolerance.h"

namespace halftone {
namespace {

using test::ids_of;
using test::random_bytes;
using test::random_table;
using test::table_cases;
using test::TableCase;

// Code times scale and times tensor scale are rounded to f32: 2 u.
std::vector<double> bounds(const std::vector<float>& reference, Format out) {
  std::vector<double> bound;
  for (const float r : reference) {
    bound.push_back(test::rounded_bound(out, r, 2 * test::kF32Roundoff) + 2 * 0x1p-150);
  }
  return bound;
}

// Values that f16 cannot hold become infinite, as the rounding rule says.
std::vector<float> saturated(std::vector<float> values, Format out) {
  if (out != Format::f16) return values;
  for (float& v : values) {
    if (std::abs(v) >= 65520) v = std::copysign(INFINITY, v);
  }
  return values;
}

TEST(Embedding, QuantisedTablesEqualTheReference) {
  test::at_every_level([] {
    for (const TableCase& c : table_cases()) {
      for (const int64_t columns : {2, 16, 30, 32, 130, 256, 300}) {
        const Tensor table = random_table(c, 140, columns);
        const Tensor ids = ids_of({0, 139, 5, 128, 127, 5});
        const std::vector<float> reference = test::to_floats(embedding_reference(ids, table));
        for (const Format out : test::kPlainFormats) {
          const std::vector<float> expected = saturated(reference, out);
          EXPECT_TRUE(test::within(test::to_floats(embedding(ids, table, out)), expected,
                                   bounds(expected, out)))
              << to_string(table) << " to " << name(out);
        }
      }
    }
  });
}

TEST(Embedding, PlainTablesAreCopiedOrRoundedOnce) {
  test::at_every_level([] {
    for (const Format in : test::kPlainFormats) {
      for (const int64_t columns : {1, 15, 16, 33, 257}) {
        const Tensor wide = test::random_tensor({9, columns + 3}, in, 6);
        const Tensor table = wide.slice(1, 2, columns + 2);
        const Tensor ids = ids_of({8, 0, 3, 3});
        for (const Format out : test::kPlainFormats) {
          const Tensor expected = convert(embedding_reference(ids, table), out);
          EXPECT_TRUE(test::same_bits(embedding(ids, table, out), expected));
        }
      }
    }
  });
}

TEST(Embedding, EveryCodeOfTheSmallFormats) {
  test::at_every_level([] {
    for (const Format format : {Format::fp8_e4m3, Format::fp8_e5m2, Format::int8}) {
      Tensor codes = Tensor::zeros({1, 256}, format);
      for (int i = 0; i < 256; ++i) codes.data<uint8_t>()[i] = static_cast<uint8_t>(i);
      const Tensor ids = ids_of({0});
      const std::vector<float> reference = test::to_floats(embedding_reference(ids, codes));
      EXPECT_TRUE(test::within(test::to_floats(embedding(ids, codes, Format::f32)), reference,
                               std::vector<double>(256, 0.0)))
          << name(format);
    }
  });
}

TEST(Embedding, ThreadsAndStrides) {
  test::at_every_level([] {
    const std::vector<TableCase> cases = table_cases();
    const auto nvfp4 = std::find_if(cases.begin(), cases.end(),
                                    [](const TableCase& c) { return c.format == Format::nvfp4; });
    const Tensor table = random_table(*nvfp4, 64, 512);
    std::vector<int64_t> ids(400);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 31 % 64);
    const Tensor index = Tensor::from<int64_t>(ids, {200, 2}, Format::i64);
    const Tensor every_second = Tensor::view(index.data(), {200}, {2}, Format::i64);
    Stream one(Device::cpu(), 1), three(Device::cpu(), 3);
    const Tensor y = embedding(every_second, table, Format::bf16, one);
    EXPECT_TRUE(test::same_bits(y, embedding(every_second, table, Format::bf16, three)));
    const Tensor wide = Tensor::zeros({200, 600}, Format::bf16);
    const Tensor out = wide.slice(1, 40, 552);
    const EmbeddingPlan p = plan(
        EmbeddingProblem{200, 64, 512, Format::nvfp4, table.scaling(), true, Format::bf16}, {});
    run(p, {every_second, table, out}, three);
    EXPECT_TRUE(test::same_bits(y, out.contiguous_copy()));
    EXPECT_EQ(wide.at({3, 39}), 0);
    EXPECT_EQ(wide.at({3, 552}), 0);
  });
}

TEST(Embedding, TheToleranceSeesSmallErrors) {
  for (const TableCase& c : table_cases()) {
    const Tensor table = random_table(c, 140, 256);
    const Tensor ids = ids_of({0, 139, 5, 128});
    const std::vector<float> reference = test::to_floats(embedding_reference(ids, table));
    const std::vector<double> bound = bounds(reference, Format::f32);
    const auto breaks = [&](const Tensor& i, const Tensor& t) {
      return !test::within(test::to_floats(embedding(i, t, Format::f32)), reference, bound);
    };
    EXPECT_FALSE(breaks(ids, table));
    EXPECT_TRUE(breaks(ids_of({0, 139, 5, 127}), table)) << "one row wrong";
    // One scale off by its last bit; in f32 by 16 of them, as one is within the rounding.
    const Tensor scales = table.scales().contiguous_copy();
    scales.data<uint8_t>()[0] ^= c.scaling.format == Format::f32 ? 16 : 1;
    EXPECT_TRUE(
        breaks(ids, table.quantized(c.scaling, scales, table.tensor_scale(), table.zero_points())))
        << "one scale slightly off: " << to_string(table);
  }
}

TEST(Embedding, WrongArgumentsAreNamed) {
  const Tensor table = Tensor::zeros({4, 8}, Format::f32);
  test::expect_error([&] { embedding(ids_of({0, 4}), table); }, {"ids[1] is 4", "4 rows"});
  test::expect_error([&] { embedding(ids_of({-1}), table); }, {"ids[0] is -1"});
  test::expect_error([&] { embedding(Tensor::zeros({1}, Format::f32), table); }, {"ids", "i32"});
  test::expect_error(
      [&] {
        embedding(ids_of({0}), Tensor::zeros({4, 16}, Format::nvfp4));
      },
      {"nvfp4", "needs scales"});
  test::expect_error([&] { embedding(ids_of({0}), table, Format::i32); }, {"out is i32"});
  test::expect_error([&] { embedding(ids_of({0}), Tensor()); }, {"table", "[vocabulary"});
  EmbeddingProblem problem{1, 4, 32, Format::mxfp8, default_scaling(Format::mxfp8), true};
  EXPECT_TRUE(can_run(problem, Device::cpu()).ok);
  problem.scaling.layout = ScaleLayout::tiled_128x4;
  EXPECT_NE(can_run(problem, Device::cpu()).reason.find("128x4"), std::string::npos);
  EXPECT_NE(describe(plan(EmbeddingProblem{1, 4, 32}, {})).find("embedding_"), std::string::npos);
}

}  // namespace
}  // namespace halftone
