#include "engine/checkpoint/safetensors_writer.h"

#include <algorithm>

#include "base/format_traits.h"
#include "engine/checkpoint/atomic_file.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone {

namespace {

std::string json_string(const std::string& text) {
  std::string result = "\"";
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      result += "\\u00";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    } else {
      result += c;
    }
  }
  return result += '"';
}

}  // namespace

void SafetensorsWriter::add(const std::string& name, const Tensor& tensor) {
  require(tensor.defined(), "tensor ", quote(name), " is undefined");
  add(name, tensor.format(), tensor.shape(), [tensor] { return tensor; });
}

void SafetensorsWriter::add(const std::string& name, Format format, const Shape& shape,
                            std::function<Tensor()> produce) {
  require(!name.empty() && name != "__metadata__", "tensor name ", quote(name),
          " is reserved by the container");
  require(valid_utf8(name) == name, "tensor name ", quote(name), " is not UTF-8");
  require(elements_of_unit(format) == 1 ||
              (shape.rank() > 0 && shape[shape.rank() - 1] % elements_of_unit(format) == 0),
          "tensor ", quote(name), " is ", halftone::name(format), " ", to_string(shape),
          "; packed rows must be whole bytes");
  element_count(shape);  // checks the extents
  const bool added = entries_.emplace(name, Entry{format, shape, std::move(produce)}).second;
  require(added, "tensor ", quote(name), " was added before");
}

void SafetensorsWriter::add_metadata(const std::string& key, const std::string& value) {
  metadata_[key] = value;
}

int64_t SafetensorsWriter::total_bytes() const {
  int64_t total = 0;
  for (const auto& [name, entry] : entries_) {
    total += packed_bytes(entry.format, element_count(entry.shape));
  }
  return total;
}

std::vector<const SafetensorsWriter::Item*> SafetensorsWriter::file_order() const {
  std::vector<const Item*> order;
  bool aligned = true;
  int64_t offset = 0;
  for (const Item& item : entries_) {
    const Format format = item.second.format;
    aligned = aligned && offset % std::max(bits(format) / 8, 1) == 0;
    offset += packed_bytes(format, element_count(item.second.shape));
    order.push_back(&item);
  }
  // Tensors follow each other without gaps: wide elements first keeps every one aligned.
  if (!aligned) {
    std::stable_sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
      return bits(a->second.format) > bits(b->second.format);
    });
  }
  return order;
}

void SafetensorsWriter::write(const std::string& path,
                              const std::function<void(double)>& progress) const {
  const std::vector<const Item*> order = file_order();
  std::string header = "{";
  if (!metadata_.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata_) {
      header += concat(header.back() == '{' ? "" : ",", json_string(key), ":", json_string(value));
    }
    header += "}";
  }
  int64_t offset = 0;
  for (const Item* item : order) {
    const auto& [format, shape, produce] = item->second;
    Shape stored = shape;
    if (is_packed(format)) {
      stored[stored.rank() - 1] = packed_bytes(format, stored[stored.rank() - 1]);
    }
    const int64_t end = offset + packed_bytes(format, element_count(shape));
    std::string extents;
    for (const int64_t extent : stored) extents += concat(extents.empty() ? "" : ",", extent);
    header += concat(header.size() == 1 ? "" : ",", json_string(item->first), ":{\"dtype\":\"",
                     safetensors_dtype(format), "\",\"shape\":[", extents, "],\"data_offsets\":[",
                     offset, ",", end, "]}");
    offset = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');

  AtomicFile file(path);
  const uint64_t header_bytes = header.size();
  file.write(&header_bytes, sizeof header_bytes);
  file.write(header);
  int64_t written = 0;
  for (const Item* item : order) {
    const Entry& entry = item->second;
    Tensor tensor = entry.produce();
    require(tensor.defined() && tensor.format() == entry.format && tensor.shape() == entry.shape,
            "tensor ", quote(item->first), " was announced as ", name(entry.format), " ",
            to_string(entry.shape), " and came as ", to_string(tensor));
    if (!tensor.contiguous()) tensor = tensor.contiguous_copy();
    const int64_t bytes = packed_bytes(entry.format, tensor.numel());
    file.write(tensor.data(), static_cast<size_t>(bytes));
    written += bytes;
    if (progress && offset > 0) {
      progress(static_cast<double>(written) / static_cast<double>(offset));
    }
  }
  file.commit();
}

}  // namespace halftone
