// Embedding lookup on GPUs.
#include "embedding/tables.h"
#include "halftone/embedding.h"
#include "support/devices.h"

namespace halftone {
namespace {

using test::ids_of;
using test::OnDevice;

class EmbeddingOnDevice : public OnDevice {
 protected:
  // The result on the device equals the CPU's to the bit.
  void expect_same(const Tensor& table, const Tensor& ids, Format out) const {
    SCOPED_TRACE(to_string(table) + " to " + name(out));
    Stream s = stream();
    const Tensor y = embedding(ids.to(device), table.to(device), out, s);
    s.synchronize();
    const Tensor expected = embedding(ids, table, out);
    // Tables of every bit pattern hold NaNs, whose payloads differ.
    EXPECT_TRUE(test::within(test::to_floats(y.to(Device::cpu())), test::to_floats(expected),
                             std::vector<double>(static_cast<size_t>(y.numel()), 0.0)));
  }
};

TEST_P(EmbeddingOnDevice, EveryTableEqualsTheCpu) {
  const Tensor ids = ids_of({4, 0, 299, 4, 128, 127});
  for (const test::TableCase& c : test::table_cases()) {
    int turn = 0;
    for (const int64_t columns : {2, 30, 130, 256, 300}) {
      expect_same(test::random_table(c, 300, columns), ids, test::kPlainFormats[turn++ % 3]);
    }
  }
  for (const Format table : test::kPlainFormats) {
    for (const Format out : test::kPlainFormats) {
      for (const int64_t columns : {1, 9, 64, 1023}) {
        expect_same(test::random_tensor({300, columns}, table, 7), ids, out);
      }
    }
  }
}

TEST_P(EmbeddingOnDevice, WideIdsAndStridedRows) {
  const Tensor table = test::shifted(test::random_tensor({9, 77}, Format::bf16, 1), device, 1, 2);
  const int64_t ids[] = {8, 0, 3};
  const Tensor wide = Tensor::from<int64_t>(ids, {3}, Format::i64).to(device);
  Stream s = stream();
  const Tensor y = embedding(wide, table, Format::f32, s).to(Device::cpu());
  const Tensor rows = test::gathered(table);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(test::to_floats(y.slice(0, i, i + 1)),
              test::to_floats(rows.slice(0, ids[i], ids[i] + 1)));
  }
}

TEST_P(EmbeddingOnDevice, AnIdOutsideTheTableIsReportedOnce) {
  const Tensor table = test::random_tensor({10, 40}, Format::f32, 2).to(device);
  for (const int32_t bad : {10, -1}) {
    Stream s = stream();
    const Tensor y = embedding(ids_of({3, bad, 5}).to(device), table, Format::f32, s);
    test::expect_error([&] { s.synchronize(); }, {"ids[1]", std::to_string(bad), "10 rows"});
    s.synchronize();  // the report is gone
    const std::vector<float> rows = test::to_floats(y.to(Device::cpu()));
    EXPECT_EQ(rows[40], 0);
    EXPECT_EQ(rows[79], 0);
    EXPECT_EQ(rows[0], test::to_floats(table.to(Device::cpu()))[120]);
  }
  Stream s = stream();
  embedding(ids_of({99, -5, 77}).to(device), table, Format::f32, s);  // one of them
  test::expect_error([&] { s.synchronize(); }, {"outside the table"});
}

TEST_P(EmbeddingOnDevice, RandomProblems) {
  const std::vector<test::TableCase> tables = test::table_cases();
  random_problems([&](test::Draw& draw, uint64_t seed) {
    const int64_t rows = draw.extent(400), columns = 2 * draw.extent(400), count = draw.extent(50);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(draw.below(rows)));
    expect_same(draw.one_in(3) ? test::random_tensor({rows, columns}, draw.plain_format(), seed)
                               : test::random_table(draw.of(tables), rows, columns),
                Tensor::from<int32_t>(ids, {count}, Format::i32), draw.plain_format());
  });
}

HALFTONE_ON_DEVICES(EmbeddingOnDevice);

}  // namespace
}  // namespace halftone
