// A file that appears whole or not at all.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace halftone {

// Writes beside `path` and renames on `commit`; without it the partial file is removed.
// Failures are Error::io.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void failed(const char* what) const;

  std::string path_, partial_;
  int file_ = -1;
};

}  // namespace halftone
