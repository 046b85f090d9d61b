// Writing safetensors files.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "halftone/tensor.h"

namespace halftone {

// Collects tensors and writes one file, the same bytes for the same tensors in any order of adding.
class SafetensorsWriter {
 public:
  // The elements of `tensor`, any strides. Scales of a quantised tensor are tensors of their own;
  // codes of 4 bits are stored as U8 with half the last extent, mxfp8 codes as F8_E4M3.
  void add(const std::string& name, const Tensor& tensor);
  // `produce` is called once, while the file is written, so that a large model need not be in
  // memory; its result must have this format and shape. Calls come in the order of the names
  // wherever that leaves all elements aligned.
  void add(const std::string& name, Format format, const Shape& shape,
           std::function<Tensor()> produce);
  void add_metadata(const std::string& key, const std::string& value);

  // Bytes of tensor data: "total_size" of an index.
  int64_t total_bytes() const;
  // The file appears whole or not at all. `progress` receives the share of bytes written.
  void write(const std::string& path, const std::function<void(double)>& progress = {}) const;

 private:
  struct Entry {
    Format format;
    Shape shape;  // of the tensor, in elements
    std::function<Tensor()> produce;
  };
  using Item = std::pair<const std::string, Entry>;
  // By name, so that a weight and its scales are written one after the other; by width of element
  // where the order by name would leave elements unaligned.
  std::vector<const Item*> file_order() const;

  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace halftone
