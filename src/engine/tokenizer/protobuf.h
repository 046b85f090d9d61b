// The wire format of protocol buffers, as far as reading a message field by field needs it.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/message.h"

namespace halftone {

// Fields are views into `bytes`. Errors are malformed_file with the file, the message and the
// field.
class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, const std::string& file, std::string message)
      : rest_(bytes), file_(file), message_(std::move(message)) {}

  // Steps to the next field; false at the end of the message.
  bool next();
  uint32_t number() const { return number_; }

  // The value of the field stepped to; another wire type than the one asked for is an error.
  uint64_t integer() const { return expect(Wire::varint), value_; }
  bool boolean() const { return integer() != 0; }
  int32_t int32() const { return static_cast<int32_t>(integer()); }
  float float32() const {
    return expect(Wire::fixed32), std::bit_cast<float>(static_cast<uint32_t>(value_));
  }
  std::string_view text() const { return expect(Wire::bytes), text_; }

 private:
  enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  void expect(Wire wire) const;
  uint64_t read_varint();
  uint64_t read_fixed(size_t bytes);
  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, file_, ": ", message_, ", field ", number_, ": ", parts...);
  }

  std::string_view rest_;
  const std::string& file_;
  std::string message_;
  uint32_t number_ = 0;
  Wire wire_ = Wire::varint;
  uint64_t value_ = 0;
  std::string_view text_;
};

}  // namespace halftone
