#include "console.h"

#include <gtest/gtest.h>

#include <cmath>

#include "check/accuracy_data.h"

namespace halftone::app {
namespace {

TEST(Console, NumbersKeepTheirDigits) {
  EXPECT_EQ(significant(0), "0");
  EXPECT_EQ(significant(0.0012346), "0.001235");
  EXPECT_EQ(significant(56.789), "56.79");
  EXPECT_EQ(significant(123456), "123456");
  EXPECT_EQ(significant(-2.5, 2), "-2.5");
  EXPECT_EQ(significant(1.23e-9, 3), "1.2e-09");
  EXPECT_EQ(significant(INFINITY), "inf");
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(999), "999 B");
  EXPECT_EQ(bytes(3938864), "3.9 MB");
  EXPECT_EQ(bytes(999999), "1.0 MB");
  EXPECT_EQ(duration(1.5e-6), "1.5 us");
  EXPECT_EQ(duration(0.0123), "12.30 ms");
  EXPECT_EQ(duration(61), "61.00 s");
}

TEST(Console, TablesAlignByColumn) {
  Table table({"format", "tok/s", "note"});
  table.add({"bf16", "9", "–"});
  table.add({"nvfp4", "1234", "naïve"});
  table.add({"x"});  // cells left out are empty
  EXPECT_EQ(table.text(-1),
            "format  tok/s  note\n"
            "bf16    9      –\n"
            "nvfp4   1234   naïve\n"
            "x\n");
  Table numbers({"a", "n"});
  numbers.add({"x", "9"});
  numbers.add({"y", "123"});
  EXPECT_EQ(numbers.text(-1), "a    n\nx    9\ny  123\n");
  EXPECT_EQ(numbers.markdown(), "| a | n |\n| --- | --- |\n| x | 9 |\n| y | 123 |\n");
}

// `halftone check --repeat`: a bit that differs in one run of four is seen.
TEST(Check, RunsWithOtherBitsAreCounted) {
  AccuracyRow row;
  int calls = 0;
  const auto once = [&] {
    const Tensor y = Tensor::zeros({2, 3}, Format::bf16);
    if (calls++ == 2) y.data<uint16_t>()[5] = 1;
    return y;
  };
  EXPECT_EQ(repeated(4, once, &row).data<uint16_t>()[5], 0);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(row.runs, 4);
  EXPECT_EQ(row.differing_runs, 1);
}

}  // namespace
}  // namespace halftone::app
