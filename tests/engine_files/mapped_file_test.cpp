// Files that shrink while they are mapped.
#include "engine/checkpoint/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "engine/checkpoint/checkpoint.h"
#include "engine_files/temp_directory.h"
#include "halftone/mapped_files.h"
#include "support/compare.h"

namespace halftone {
namespace {

TEST(MappedFile, BecomesShorterWhileItIsInUse) {
  guard_mapped_files();
  const test::TempDirectory directory;
  const std::string path = directory.write("model.bin", std::string(1 << 20, 'x'));
  {
    const auto file = MappedFile::open(path);
    EXPECT_EQ(file->data()[1 << 19], 'x');
    EXPECT_NO_THROW(check_mapped_files());
    ASSERT_EQ(truncate(path.c_str(), 4096), 0);
    const volatile char* data = file->data();
    EXPECT_EQ(data[100], 'x');
    EXPECT_NO_THROW(check_mapped_files());  // nothing that is gone was touched
    EXPECT_EQ(data[1 << 19], '\0');
    test::expect_error([] { check_mapped_files(); }, {"1048576 bytes", "became shorter"});
  }
  // With the mapping, the fault is gone.
  EXPECT_NO_THROW(check_mapped_files());
  EXPECT_NO_THROW(MappedFile::open(path));
}

TEST(MappedFile, WhatIsNoFile) {
  const test::TempDirectory directory;
  test::expect_error([&] { MappedFile::open(directory.path()); }, {directory.path(), "regular"});
  test::expect_error([&] { MappedFile::open(directory.file("no")); }, {"cannot be opened"});
  EXPECT_EQ(MappedFile::open(directory.write("empty", ""))->size(), 0u);
}

}  // namespace
}  // namespace halftone
