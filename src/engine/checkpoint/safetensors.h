// Reading safetensors files, one or a sharded set, without copying.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/mapped_file.h"
#include "halftone/tensor.h"

namespace halftone {

// A dtype name of the container. Without `readable` the size is known (so that the file can be
// checked) but Halftone has no such format.
struct SafetensorsDtype {
  const char* name;
  int bits;
  bool readable;
  Format format;
};
// Null when unknown.
const SafetensorsDtype* find_safetensors_dtype(std::string_view name);
// The dtype that stores elements of `format`; packed 4-bit codes are stored as U8.
const char* safetensors_dtype(Format format);

struct StoredTensor {
  const SafetensorsDtype* dtype = nullptr;
  Shape shape;                  // in elements
  uint64_t begin = 0, end = 0;  // bytes behind the header
  int file = 0;                 // index into the set's files
};

// The tensors of a directory. Everything is checked on opening: header length, JSON, dtypes,
// shape x size against the offsets, offsets contiguous and inside the file, the index against the
// shards.
class Safetensors {
 public:
  // model.safetensors, or model.safetensors.index.json and its shards.
  static Safetensors open_directory(const std::string& directory);
  static Safetensors open_file(const std::string& path);

  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // Null when there is no such tensor.
  const StoredTensor* find(std::string_view name) const;
  // As stored; F4 as bytes (u8) with half the last extent. Copied only when the file does not align
  // the elements.
  Tensor tensor(const std::string& name) const;
  // For messages: the file that holds the tensor.
  const std::string& path_of(const StoredTensor&) const;

 private:
  struct File {
    std::shared_ptr<const MappedFile> mapped;
    size_t data_offset = 0;
  };
  // Adds a file's tensors to `into`.
  void add_file(const std::string& path, std::map<std::string, StoredTensor, std::less<>>& into);
  void add_shards(const std::string& directory, const std::string& index);

  std::vector<File> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace halftone
