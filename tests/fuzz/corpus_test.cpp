// Everything that fuzzing found worth keeping, and each reader's own example: read again.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine_files/file_readers.h"
#include "support/source_path.h"

namespace halftone {
namespace {

TEST(FuzzCorpus, EveryFileIsReadOrRefused) {
  const std::string root = test::source_path("tests/fuzz/corpus/");
  const test::TempDirectory directory;
  size_t files = 0, refused = 0;
  for (const test::FileReader& reader : test::file_readers()) {
    SCOPED_TRACE(reader.name);
    ASSERT_TRUE(std::filesystem::is_directory(root + reader.name)) << "no corpus";
    for (const auto& entry : std::filesystem::directory_iterator(root + reader.name)) {
      SCOPED_TRACE(entry.path().string());
      ++files;
      try {
        reader.read(directory, test::read_file(entry.path().string()));
      } catch (const Error& error) {
        ++refused;
        EXPECT_FALSE(std::string(error.what()).empty());
      } catch (const std::exception& other) {
        ADD_FAILURE() << other.what();
      }
    }
  }
  EXPECT_GE(files, 60u);
  EXPECT_GT(refused, 0u);
  EXPECT_LT(refused, files);
}

}  // namespace
}  // namespace halftone
