// A directory for the files of one test, removed at its end.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "base/message.h"

namespace halftone::test {

class TempDirectory {
 public:
  TempDirectory() {
    // In memory where that exists: the fuzz tests write thousands of files.
    for (const std::string& parent :
         {std::string("/dev/shm"), std::filesystem::temp_directory_path().string()}) {
      std::string name = parent + "/halftone-test-XXXXXX";
      if (mkdtemp(name.data()) == nullptr) continue;
      path_ = name;
      return;
    }
    fail(ErrorCode::io, "no temporary directory can be made");
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file(name);
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace halftone::test
