#include "engine/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/mapped_file.h"

namespace halftone {

std::string clipped(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string result;
  for (size_t i = 0; i < text.size() && i < kLongest; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) {
      constexpr char kDigits[] = "0123456789abcdef";
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      result += text[i];
    }
  }
  // A cut UTF-8 sequence is dropped whole.
  if (text.size() > kLongest) {
    while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xc0) == 0x80) {
      result.pop_back();
    }
    if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xc0) result.pop_back();
    result += "...";
  }
  return result;
}

std::string quote(std::string_view text) { return concat('"', clipped(text), '"'); }

namespace {

// Receives the events of the parser and builds the tree.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const std::string& file, const JsonLimits& limits) : file_(file), limits_(limits) {}

  bool null() override { return add(Json{}); }
  bool boolean(bool value) override { return add(Json{Json::Value(value)}); }
  bool number_integer(int64_t value) override { return add(Json{Json::Value(value)}); }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return add(Json{Json::Value(static_cast<double>(value))});
    }
    return add(Json{Json::Value(static_cast<int64_t>(value))});
  }
  bool number_float(double value, const std::string&) override {
    return add(Json{Json::Value(value)});
  }
  bool string(std::string& value) override { return add(Json{Json::Value(std::move(value))}); }
  bool binary(nlohmann::json::binary_t&) override { return false; }  // not in JSON text

  bool start_object(size_t) override { return open(Json{Json::Value(Json::Object())}); }
  bool key(std::string& value) override {
    keys_.back() = std::move(value);
    return true;
  }
  bool end_object() override {
    auto& members = std::get<Json::Object>(open_.back().value);
    const auto before = [](const Json::Member& a, const Json::Member& b) { return a.key < b.key; };
    if (!std::is_sorted(members.begin(), members.end(), before)) {
      std::sort(members.begin(), members.end(), before);
    }
    const auto twice = std::adjacent_find(
        members.begin(), members.end(),
        [](const Json::Member& a, const Json::Member& b) { return a.key == b.key; });
    if (twice != members.end()) {
      fail(ErrorCode::malformed_file, file_, ": the key ", quote(twice->key),
           " is given twice in one object");
    }
    return close();
  }
  bool start_array(size_t) override { return open(Json{Json::Value(Json::Array())}); }
  bool end_array() override { return close(); }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception&) override {
    fail(ErrorCode::malformed_file, file_, ": not valid JSON at byte ", position, " near ",
         quote(token));
  }

  Json take() { return std::move(root_); }

 private:
  bool add(Json value) {
    if (++count_ > limits_.values) {
      fail(ErrorCode::malformed_file, file_, ": more than ", limits_.values,
           " JSON values, which is the limit for this kind of file");
    }
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (auto* array = std::get_if<Json::Array>(&open_.back().value)) {
      array->push_back(std::move(value));
    } else {
      std::get<Json::Object>(open_.back().value)
          .push_back({std::move(keys_.back()), std::move(value)});
    }
    return true;
  }
  bool open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth) {
      fail(ErrorCode::malformed_file, file_, ": JSON nested deeper than ", limits_.depth,
           " levels, which is the limit");
    }
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    return add(std::move(done));
  }

  const std::string& file_;
  const JsonLimits& limits_;
  Json root_;
  std::vector<Json> open_;
  std::vector<std::string> keys_;  // of the member under construction, one per open container
  size_t count_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, const std::string& file, const JsonLimits& limits) {
  if (text.size() > limits.bytes) {
    fail(ErrorCode::malformed_file, file, ": ", text.size(), " bytes of JSON; at most ",
         limits.bytes, " are read");
  }
  Builder builder(file, limits);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

Json Json::read(const std::string& path, const JsonLimits& limits) {
  return parse(MappedFile::open(path)->bytes(), path, limits);
}

const Json* Json::find(std::string_view key) const {
  const auto* object = get<Object>();
  if (object == nullptr) return nullptr;
  const auto place =
      std::lower_bound(object->begin(), object->end(), key,
                       [](const Member& m, std::string_view wanted) { return m.key < wanted; });
  return place != object->end() && place->key == key ? &place->value : nullptr;
}

std::string Json::describe() const {
  if (is_null()) return "null";
  if (const auto* b = get<bool>()) return *b ? "true" : "false";
  if (const auto* i = get<int64_t>()) return std::to_string(*i);
  if (const auto* d = get<double>()) return concat(*d);
  if (const auto* s = get<std::string>()) return quote(*s);
  if (const auto* a = get<Array>()) return concat("an array of ", a->size());
  return "an object";
}

void JsonField::expected(const std::string& rule) const {
  if (!present()) malformed(" is missing; it must be ", rule);
  malformed(" is ", value_->describe(), "; it must be ", rule);
}

JsonField JsonField::operator[](std::string_view key) const {
  if (present() && !is_object()) expected("an object");
  std::string path = path_.empty() ? clipped(key) : concat(path_, ".", clipped(key));
  return {present() ? value_->find(key) : nullptr, *file_, std::move(path)};
}

std::vector<JsonField> JsonField::items() const {
  std::vector<JsonField> result;
  if (!present()) return result;
  const auto* array = value_->get<Json::Array>();
  if (array == nullptr) expected("an array");
  result.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    result.emplace_back(&(*array)[i], *file_, concat(path_, "[", i, "]"));
  }
  return result;
}

const Json::Array& JsonField::elements() const {
  if (!is_array()) expected("an array");
  return *value_->get<Json::Array>();
}

const Json::Object& JsonField::members() const {
  if (!is_object()) expected("an object");
  return *value_->get<Json::Object>();
}

int64_t JsonField::integer(int64_t low, int64_t high) const {
  const auto* value = present() ? value_->get<int64_t>() : nullptr;
  if (value == nullptr || *value < low || *value > high) {
    expected(concat("an integer from ", low, " to ", high));
  }
  return *value;
}

double JsonField::number(double low, double high) const {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (present()) {
    if (const auto* d = value_->get<double>()) value = *d;
    if (const auto* i = value_->get<int64_t>()) value = static_cast<double>(*i);
  }
  if (!(value >= low && value <= high)) expected(concat("a number from ", low, " to ", high));
  return value;
}

bool JsonField::boolean_or(bool otherwise) const {
  if (!present()) return otherwise;
  const auto* value = value_->get<bool>();
  if (value == nullptr) expected("true or false");
  return *value;
}

const std::string& JsonField::text() const {
  const auto* value = present() ? value_->get<std::string>() : nullptr;
  if (value == nullptr) expected("a string");
  return *value;
}

}  // namespace halftone
