#include "engine/tokenizer/protobuf.h"

namespace halftone {

uint64_t ProtoReader::read_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) malformed("the message ends inside a number");
    const auto byte = static_cast<unsigned char>(rest_.front());
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  malformed("a number of more than 10 bytes");
}

uint64_t ProtoReader::read_fixed(size_t bytes) {
  if (rest_.size() < bytes) malformed("the message ends inside a number of ", bytes, " bytes");
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(bytes);
  return value;
}

bool ProtoReader::next() {
  if (rest_.empty()) return false;
  const uint64_t key = read_varint();
  if (key >> 3 == 0 || key >> 3 >= (uint64_t{1} << 29)) malformed("the next field is ", key >> 3);
  number_ = static_cast<uint32_t>(key >> 3);
  switch (const auto wire = static_cast<unsigned>(key & 7)) {
    case 0:
      value_ = read_varint();
      break;
    case 1:
      value_ = read_fixed(8);
      break;
    case 2: {
      const uint64_t length = read_varint();
      if (length > rest_.size()) {
        malformed("its length is ", length, "; the message has ", rest_.size(), " bytes more");
      }
      text_ = rest_.substr(0, static_cast<size_t>(length));
      rest_.remove_prefix(static_cast<size_t>(length));
      break;
    }
    case 5:
      value_ = read_fixed(4);
      break;
    default:
      malformed("the wire type ", wire, "; 0, 1, 2 and 5 are known");
  }
  wire_ = static_cast<Wire>(key & 7);
  return true;
}

void ProtoReader::expect(Wire wire) const {
  if (wire_ == wire) return;
  malformed("the wire type is ", static_cast<int>(wire_), "; it must be ", static_cast<int>(wire));
}

}  // namespace halftone
