// A file mapped read-only into memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace halftone {

// Stays mapped as long as a copy of the pointer lives: tensors keep it as their owner.
class MappedFile {
 public:
  // Error::io when the path is not a readable regular file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  size_t size() const { return size_; }
  const char* data() const { return data_; }
  std::string_view bytes() const { return {data_, size_}; }

 private:
  explicit MappedFile(std::string path);

  std::string path_;
  const char* data_ = nullptr;
  size_t size_ = 0;
  size_t watched_ = SIZE_MAX;  // of watch_mapping
};

// What guard_mapped_files needs to know of a mapping; the index is for forget_mapping.
size_t watch_mapping(const void* data, size_t bytes);
void forget_mapping(size_t index);
// Error::io when the guard met a mapped file that had become shorter. Called behind every pass.
void check_mapped_files();

}  // namespace halftone
