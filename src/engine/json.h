// JSON of untrusted files: limits on size and nesting, no duplicate keys, and fields read with
// their rule, so that each message names file, field, value and rule.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/message.h"

namespace halftone {

struct JsonLimits {
  size_t bytes = size_t{16} << 20;
  int depth = 32;
  size_t values = size_t{1} << 20;  // bounds the memory: a value takes about 50 bytes
};

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;  // sorted by key
  using Value = std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object>;

  // Errors are malformed_file and start with `file`.
  static Json parse(std::string_view text, const std::string& file, const JsonLimits& = {});
  static Json read(const std::string& path, const JsonLimits& = {});

  template <class T>
  const T* get() const {
    return std::get_if<T>(&value);
  }
  bool is_null() const { return std::holds_alternative<std::monostate>(value); }
  // The member of an object, or null.
  const Json* find(std::string_view key) const;
  // "an object", "the number 3", "\"text\"": for messages.
  std::string describe() const;

  Value value;
};

struct Json::Member {
  std::string key;
  Json value;
};

// Text of a file inside a message: quoted, control characters escaped, clipped.
std::string quote(std::string_view text);
// The same without quotes.
std::string clipped(std::string_view text);

// A value at a place in a file; the value may be absent. The Json and the file name must outlive
// it. JSON null counts as absent.
class JsonField {
 public:
  JsonField(const Json* value, const std::string& file, std::string path = "")
      : value_(value != nullptr && value->is_null() ? nullptr : value),
        file_(&file),
        path_(std::move(path)) {}

  bool present() const { return value_ != nullptr; }
  const std::string& path() const { return path_; }
  const std::string& file() const { return *file_; }

  // Member of an object; an absent object has absent members.
  JsonField operator[](std::string_view key) const;
  std::vector<JsonField> items() const;  // of an array; empty when absent
  const Json::Array& elements() const;   // of an array that must be there, for long arrays
  const Json::Object& members() const;   // of an object that must be there

  int64_t integer(int64_t low, int64_t high) const;
  int64_t integer_or(int64_t otherwise, int64_t low, int64_t high) const {
    return present() ? integer(low, high) : otherwise;
  }
  double number(double low, double high) const;
  double number_or(double otherwise, double low, double high) const {
    return present() ? number(low, high) : otherwise;
  }
  bool boolean_or(bool otherwise) const;
  const std::string& text() const;
  std::string text_or(std::string_view otherwise) const {
    return present() ? text() : std::string(otherwise);
  }
  bool is_text() const { return present() && value_->get<std::string>() != nullptr; }
  bool is_object() const { return present() && value_->get<Json::Object>() != nullptr; }
  bool is_array() const { return present() && value_->get<Json::Array>() != nullptr; }

  // "FILE: FIELD" + `parts`.
  template <class... Parts>
  [[noreturn]] void malformed(const Parts&... parts) const {
    fail(ErrorCode::malformed_file, *file_, ": ", label(), parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail(ErrorCode::unsupported, *file_, ": ", label(), parts...);
  }
  // "is VALUE; it must be RULE"
  [[noreturn]] void expected(const std::string& rule) const;

 private:
  std::string label() const { return path_.empty() ? "the file" : path_; }

  const Json* value_;
  const std::string* file_;
  std::string path_;
};

}  // namespace halftone
