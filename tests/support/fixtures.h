// Reference results under tests/fixtures, read without the code under test.
#pragma once
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "halftone/tensor.h"
#include "support/source_path.h"

namespace halftone::test {

// F32 and I64 tensors of a safetensors file.
class Fixture {
 public:
  explicit Fixture(const std::string& file) {
    const std::string path = source_path("tests/fixtures/" + file);
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error(path + " is missing");
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    header_ = nlohmann::json::parse(bytes_.substr(8, length));
    data_ = 8 + static_cast<size_t>(length);
  }
  Tensor tensor(const std::string& name) const {
    const nlohmann::json& entry = header_.at(name);
    const auto extents = entry.at("shape").get<std::vector<int64_t>>();
    const auto begin = entry.at("data_offsets").at(0).get<size_t>();
    const auto end = entry.at("data_offsets").at(1).get<size_t>();
    return Tensor::copy_of(bytes_.data() + data_ + begin, end - begin,
                           Shape(std::span<const int64_t>(extents)),
                           entry.at("dtype") == "I64" ? Format::i64 : Format::f32);
  }

 private:
  std::string bytes_;
  nlohmann::json header_;
  size_t data_ = 0;
};

}  // namespace halftone::test
