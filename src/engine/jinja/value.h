// Values of templates, with the meaning that Python gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace halftone::jinja {

class Interpreter;
class Value;
struct List;
struct Dict;
struct Namespace;
struct Function;

using Values = std::vector<Value>;
using Members = std::vector<std::pair<Value, Value>>;  // in the order of insertion

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> what;  // for the message of what needs it
  };
  struct None {};

  Value() : value_(None()) {}
  Value(bool b) : value_(b) {}
  Value(int64_t i) : value_(i) {}
  Value(double d) : value_(d) {}
  Value(std::string s) : value_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(Namespace* n) : value_(n) {}
  Value(std::shared_ptr<const Function> f) : value_(std::move(f)) {}
  Value(std::shared_ptr<const List> l) : value_(std::move(l)) {}
  Value(std::shared_ptr<const Dict> d) : value_(std::move(d)) {}
  static Value undefined(std::string what);
  // Containers that are nested too deep or too large are an Error: nothing that walks them
  // overflows or takes for ever.
  static Value list(Values items);
  static Value tuple(Values items);
  static Value dict(Members members);  // a key given twice keeps the last value
  // Members keep their order. Text that is not JSON is an Error that names `what`.
  static Value from_json(std::string_view text, const std::string& what);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }  // not bool
  bool is_real() const { return holds<double>(); }
  bool is_number() const { return is_bool() || is_integer() || is_real(); }
  bool is_string() const { return holds<std::shared_ptr<const std::string>>(); }
  bool is_sequence() const { return holds<std::shared_ptr<const List>>(); }  // list or tuple
  bool is_tuple() const;
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return holds<Namespace*>(); }
  bool is_function() const { return holds<std::shared_ptr<const Function>>(); }

  // Of the kind that was asked for, else std::bad_variant_access.
  bool boolean() const { return std::get<bool>(value_); }
  int64_t integer() const { return is_bool() ? int64_t{boolean()} : std::get<int64_t>(value_); }
  double real() const {
    return is_real() ? std::get<double>(value_) : static_cast<double>(integer());
  }
  const std::string& string() const {
    return *std::get<std::shared_ptr<const std::string>>(value_);
  }
  const Values& items() const;
  const Members& members() const;
  Namespace& space() const { return *std::get<Namespace*>(value_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(value_); }
  const std::string& undefined_name() const { return *std::get<Undefined>(value_).what; }

  bool truth() const;
  const Value* find(const Value& key) const;  // in a dict; null when absent
  bool equals(const Value& other) const;
  std::string type() const;  // "str", "int", ...
  std::string text() const;  // as printed
  std::string repr() const;  // as in a printed list
  int depth() const;         // 0: no container
  // About the bytes that walking or printing it takes; what a list shares counts each time.
  size_t weight() const;

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
               std::shared_ptr<const Function>>
      value_;
};

struct List {
  Values items;
  bool tuple = false;
  int depth = 1;
  size_t weight = 0;
};
struct Dict {
  Members members;
  int depth = 1;
  size_t weight = 0;
};
// What `namespace()` makes: the one value that can be changed. The interpreter owns them all.
struct Namespace {
  std::map<std::string, Value> members;
};

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};
struct Function {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
};

struct JsonStyle {
  int indent = -1;  // < 0: one line
  bool ascii = false, sort = false;
  std::string item_separator = ", ", key_separator = ": ";
};
// As Python's json.dumps; what JSON has no form for is an Error.
std::string to_json(const Value&, const JsonStyle& = {});
// The shortest text that reads back as the number, as Python writes it.
std::string real_text(double);

}  // namespace halftone::jinja
