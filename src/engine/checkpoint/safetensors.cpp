#include "engine/checkpoint/safetensors.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "engine/json.h"

namespace halftone {

namespace {

constexpr SafetensorsDtype kDtypes[] = {
    {"F32", 32, true, Format::f32},
    {"F16", 16, true, Format::f16},
    {"BF16", 16, true, Format::bf16},
    {"F8_E4M3", 8, true, Format::fp8_e4m3},
    {"F8_E5M2", 8, true, Format::fp8_e5m2},
    {"F8_E8M0", 8, true, Format::ue8m0},
    {"F4", 4, true, Format::u8},  // two codes a byte
    {"I8", 8, true, Format::int8},
    {"I32", 32, true, Format::i32},
    {"I64", 64, true, Format::i64},
    {"U8", 8, true, Format::u8},
    {"BOOL", 8, true, Format::u8},
    {"F64", 64, false, Format::f32},
    {"C64", 64, false, Format::f32},
    {"I16", 16, false, Format::i32},
    {"U16", 16, false, Format::i32},
    {"U32", 32, false, Format::i32},
    {"U64", 64, false, Format::i64},
    {"F6_E2M3", 6, false, Format::u8},
    {"F6_E3M2", 6, false, Format::u8},
};

constexpr uint64_t kLongestHeader = 100'000'000;  // the container's own limit

std::string dtype_names() {
  std::string names;
  for (const SafetensorsDtype& dtype : kDtypes) {
    names += concat(names.empty() ? "" : ", ", dtype.name);
  }
  return names;
}

// {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
StoredTensor read_entry(const JsonField& field, uint64_t data_bytes) {
  StoredTensor entry;
  const JsonField dtype = field["dtype"];
  entry.dtype = find_safetensors_dtype(dtype.text());
  if (entry.dtype == nullptr) dtype.expected("one of " + dtype_names());

  const JsonField shape = field["shape"];
  if (!shape.is_array()) shape.expected("an array of extents");
  const std::vector<JsonField> extents = shape.items();
  if (extents.size() > Dims::kMaxRank) {
    shape.malformed(" has ", extents.size(), " extents; at most ", int{Dims::kMaxRank},
                    " are allowed");
  }
  int64_t dims[Dims::kMaxRank] = {};
  uint64_t bits = static_cast<uint64_t>(entry.dtype->bits);
  bool overflow = false;
  for (size_t i = 0; i < extents.size(); ++i) {
    dims[i] = extents[i].integer(0, std::numeric_limits<int64_t>::max());
  }
  // A zero extent makes any product 0, whatever order the factors come in.
  const bool empty = std::find(dims, dims + extents.size(), 0) != dims + extents.size();
  for (size_t i = 0; i < extents.size() && !empty; ++i) {
    overflow = overflow || __builtin_mul_overflow(bits, static_cast<uint64_t>(dims[i]), &bits);
  }
  if (empty) bits = 0;
  entry.shape = Shape(dims, extents.size());
  if (overflow || bits > (uint64_t{1} << 62)) {
    shape.malformed(" is ", to_string(entry.shape), ": the tensor would exceed 2^59 bytes");
  }
  if (bits % 8 != 0) {
    shape.malformed(" is ", to_string(entry.shape), " of ", entry.dtype->name,
                    ": not a whole number of bytes");
  }

  const JsonField offsets = field["data_offsets"];
  const std::vector<JsonField> ends = offsets.items();
  if (ends.size() != 2) offsets.expected("an array [begin, end]");
  entry.begin = static_cast<uint64_t>(ends[0].integer(0, std::numeric_limits<int64_t>::max()));
  entry.end = static_cast<uint64_t>(ends[1].integer(0, std::numeric_limits<int64_t>::max()));
  if (entry.begin > entry.end || entry.end > data_bytes) {
    offsets.malformed(" is [", entry.begin, ", ", entry.end, "], outside the ", data_bytes,
                      " bytes of data in the file");
  }
  if (entry.end - entry.begin != bits / 8) {
    offsets.malformed(" is [", entry.begin, ", ", entry.end, "], ", entry.end - entry.begin,
                      " bytes; ", entry.dtype->name, " ", to_string(entry.shape), " takes ",
                      bits / 8);
  }
  return entry;
}

}  // namespace

const SafetensorsDtype* find_safetensors_dtype(std::string_view name) {
  for (const SafetensorsDtype& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

const char* safetensors_dtype(Format format) {
  if (bits(format) < 8) return "U8";
  if (format == Format::mxfp8) return "F8_E4M3";
  for (const SafetensorsDtype& dtype : kDtypes) {
    if (dtype.readable && dtype.bits == bits(format) && dtype.format == format) return dtype.name;
  }
  fail(ErrorCode::unsupported, "safetensors has no dtype for ", name(format));
}

void Safetensors::add_file(const std::string& path,
                           std::map<std::string, StoredTensor, std::less<>>& into) {
  const auto mapped = MappedFile::open(path);
  const auto malformed = [&](const auto&... parts) {
    fail(ErrorCode::malformed_file, path, ": ", parts...);
  };
  if (mapped->size() < 8) {
    malformed("the file has ", mapped->size(), " bytes; a safetensors file has at least 8");
  }
  uint64_t header_bytes = 0;  // little-endian, as are the machines this runs on
  std::memcpy(&header_bytes, mapped->data(), 8);
  if (header_bytes > kLongestHeader) {
    malformed("the header length is ", header_bytes, "; at most ", kLongestHeader,
              " bytes are allowed");
  }
  if (header_bytes > mapped->size() - 8) {
    malformed("the header length is ", header_bytes, " but only ", mapped->size() - 8,
              " bytes follow; the file is truncated");
  }
  const JsonLimits limits{kLongestHeader, 8, size_t{1} << 22};
  const Json header = Json::parse(mapped->bytes().substr(8, header_bytes), path, limits);
  const JsonField root(&header, path);
  const uint64_t data_bytes = mapped->size() - 8 - header_bytes;

  struct Range {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  for (const Json::Member& member : root.members()) {
    if (member.key == "__metadata__") {
      const JsonField metadata = root["__metadata__"];
      if (!metadata.present()) continue;
      for (const Json::Member& note : metadata.members()) metadata[note.key].text();
      continue;
    }
    StoredTensor entry = read_entry(root[member.key], data_bytes);
    entry.file = static_cast<int>(files_.size());
    ranges.push_back({entry.begin, entry.end, &member.key});
    into.emplace(member.key, entry);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t reached = 0;
  for (const Range& range : ranges) {
    if (range.begin != reached) {
      malformed("tensor ", quote(*range.name), " begins at byte ", range.begin, " of the data, ",
                range.begin < reached ? "overlapping the tensor before it, which ends at "
                                      : "leaving a gap behind the tensor before it, which ends at ",
                reached);
    }
    reached = range.end;
  }
  if (reached != data_bytes) {
    malformed("the tensors take ", reached, " bytes but the file holds ", data_bytes,
              " bytes of data");
  }
  files_.push_back({mapped, 8 + static_cast<size_t>(header_bytes)});
}

void Safetensors::add_shards(const std::string& directory, const std::string& index) {
  const JsonLimits limits{kLongestHeader, 8, size_t{1} << 22};
  const Json json = Json::read(index, limits);
  const JsonField root(&json, index);
  const JsonField map = root["weight_map"];

  std::map<std::string, std::map<std::string, StoredTensor, std::less<>>> shards;
  for (const Json::Member& member : map.members()) {
    const JsonField field = map[member.key];
    const std::string& shard = field.text();
    // A shard lies beside its index: a name from a file must not lead elsewhere.
    if (shard.empty() || shard.find('/') != std::string::npos || shard == ".." ||
        shard.find('\0') != std::string::npos) {
      field.expected("the name of a file beside the index, without directories");
    }
    shards[shard];
  }
  for (auto& [shard, tensors] : shards) {
    const std::string path = directory + "/" + shard;
    if (access(path.c_str(), F_OK) != 0) {
      fail(ErrorCode::malformed_file, index, ": weight_map names the shard ", quote(shard),
           ", which is missing in ", directory);
    }
    add_file(path, tensors);
  }
  for (const Json::Member& member : map.members()) {
    const std::string& shard = map[member.key].text();
    const auto& tensors = shards[shard];
    const auto place = tensors.find(member.key);
    if (place != tensors.end()) {
      tensors_.emplace(member.key, place->second);
      continue;
    }
    for (const auto& [other, others] : shards) {
      if (others.count(member.key) != 0) {
        map.malformed(" says that tensor ", quote(member.key), " lies in ", quote(shard),
                      "; it lies in ", quote(other));
      }
    }
    map.malformed(" says that tensor ", quote(member.key), " lies in ", quote(shard),
                  ", which does not hold it");
  }
}

Safetensors Safetensors::open_file(const std::string& path) {
  Safetensors result;
  result.add_file(path, result.tensors_);
  return result;
}

Safetensors Safetensors::open_directory(const std::string& directory) {
  const std::string single = directory + "/model.safetensors";
  const std::string index = single + ".index.json";
  if (access(single.c_str(), F_OK) == 0) return open_file(single);
  if (access(index.c_str(), F_OK) != 0) {
    fail(ErrorCode::io, directory,
         " holds neither model.safetensors nor model.safetensors.index.json; weights in other "
         "containers must be converted to safetensors first");
  }
  Safetensors result;
  result.add_shards(directory, index);
  return result;
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

const std::string& Safetensors::path_of(const StoredTensor& entry) const {
  return files_[static_cast<size_t>(entry.file)].mapped->path();
}

Tensor Safetensors::tensor(const std::string& name) const {
  const StoredTensor* entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string> names;
    for (const auto& [known, unused] : tensors_) names.push_back(known);
    const std::string best = nearest(name, names);
    fail(ErrorCode::invalid_argument, "tensor ", quote(name), " is not in the checkpoint",
         best.empty() ? std::string() : "; the nearest is " + quote(best));
  }
  const File& file = files_[static_cast<size_t>(entry->file)];
  if (!entry->dtype->readable) {
    fail(ErrorCode::unsupported, file.mapped->path(), ": tensor ", quote(name), " is ",
         entry->dtype->name, ", which has no Halftone format");
  }
  Shape shape = entry->shape;
  if (entry->dtype->bits == 4 && shape.rank() > 0) {
    const int last = shape.rank() - 1;
    if (shape[last] % 2 != 0) {
      fail(ErrorCode::unsupported, file.mapped->path(), ": tensor ", quote(name), " is F4 ",
           to_string(shape), "; rows must be whole bytes");
    }
    shape[last] /= 2;
  }
  const Format format = entry->dtype->format;
  const char* data = file.mapped->data() + file.data_offset + entry->begin;
  const size_t bytes = static_cast<size_t>(entry->end - entry->begin);
  const size_t element = static_cast<size_t>(bits(format)) / 8;
  if (bytes == 0) return Tensor::empty(shape, format);
  if (reinterpret_cast<uintptr_t>(data) % element != 0) {
    return Tensor::copy_of(data, bytes, shape, format);
  }
  return Tensor::share(file.mapped, const_cast<char*>(data), shape, row_major(shape), format);
}

}  // namespace halftone
