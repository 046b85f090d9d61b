// Runs the tree of a template.
#pragma once
#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/message.h"
#include "engine/jinja/ast.h"

namespace halftone::jinja {

// What a hostile template may use; each is far above what known templates need.
struct Limits {
  int64_t steps = 2'000'000;        // statements, operations, elements walked
  size_t bytes = size_t{64} << 20;  // of all texts made, not only of those printed
  int depth = 600;                  // statements, operations and calls inside each other
};

struct Scope {
  std::unordered_map<std::string, Value> variables;
  std::shared_ptr<Scope> parent;
};

class Interpreter {
 public:
  // `clock`: what strftime_now tells, in seconds of Unix time (UTC); without it the local time.
  Interpreter(const std::string& where, const Limits& limits, std::optional<int64_t> clock)
      : where_(where), limits_(limits), clock_(clock) {}
  ~Interpreter();

  std::string run(const Block& block, const Members& context);

  // --- for filters, tests and methods --------------------------------------------------------
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(ErrorCode::invalid_argument, where_, ", line ", line_, ": ", parts...);
  }
  void spend_steps(size_t steps);
  // Before a text of this length is made.
  void spend_bytes(size_t bytes);
  Value text(std::string s) { return spend_bytes(s.size()), Value(std::move(s)); }
  std::string shown(const Value& value) { return spend_bytes(value.weight()), value.text(); }
  bool same(const Value& a, const Value& b) {
    spend_steps(std::min(a.weight(), b.weight()) / 64);
    return a.equals(b);
  }
  Value list(Values items) { return spend_steps(items.size()), Value::list(std::move(items)); }

  Value call(const Value& function, const Arguments& arguments);
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  // What a loop goes through: elements, characters, keys; nothing of what is undefined.
  Values elements(const Value& value);
  size_t length(const Value& value);
  const std::string& string_of(const Value& value, const char* what);
  int64_t integer_of(const Value& value, const char* what);
  // < 0, 0, > 0; what has no order is an error.
  int order(const Value& a, const Value& b);
  bool contains(const Value& container, const Value& element);
  Value namespace_of(const Arguments& arguments);
  Value time_now(const std::string& format);
  bool require_defined(const Value& value) const;

 private:
  enum class Flow : uint8_t { next, break_, continue_ };
  class Nested;

  Flow execute(const Block& block);
  Flow execute(const Statement& s);
  Flow loop(const Statement& s);
  void assign(const std::vector<Statement::Target>& targets, Value value);
  void set(const std::string& name, Value value);
  void define_globals(const Members& context);
  Value make_macro(const std::shared_ptr<const Macro>& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& defined, const Arguments&);
  std::string captured(const Block& block);
  void print(const std::string& text);

  Value evaluate(const Expression& e);
  Value lookup(const std::string& name) const;
  Value call(const Expression& e, const Value* caller);
  Arguments arguments(const Expression& e);
  Value filter(const Expression& e, const Value& value);
  Value slice(const Expression& e);
  Value unary(const Expression& e);
  Value binary(const Expression& e);
  Value arithmetic(const std::string& sign, const Value& a, const Value& b);
  Value integers(const std::string& sign, int64_t a, int64_t b);
  Value compare(const Expression& e);

  const std::string& where_;
  const Limits limits_;
  const std::optional<int64_t> clock_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  std::string out_;
  std::shared_ptr<Scope> scope_;
  std::deque<Namespace> namespaces_;
  // Scopes that macros keep; emptied at the end, since a macro can be a variable of its own scope.
  std::vector<std::shared_ptr<Scope>> kept_;
};

// The parameters of a function in order: positional, then by name; null where not given.
std::vector<const Value*> bind(const Interpreter& in, const char* function, const Arguments& given,
                               std::initializer_list<const char*> names);

Value apply_filter(Interpreter&, const std::string& name, const Value&, const Arguments&);
bool apply_test(Interpreter&, const std::string& name, const Value&, const Arguments&);
bool has_method(const Value& object, const std::string& name);
Value call_method(Interpreter&, const Value& object, const std::string& name, const Arguments&);

// Characters of a text as views.
std::vector<std::string_view> characters(std::string_view text);
enum class Case : uint8_t { upper, lower };
std::string change_case(std::string_view text, Case to);
std::string capitalized(std::string_view text);
// Without white space, or the characters of `drop`, at the chosen ends.
std::string_view stripped(std::string_view text, const std::string* drop, bool left, bool right);
std::string replaced(Interpreter&, const std::string& text, const std::string& from,
                     const std::string& to, int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);

}  // namespace halftone::jinja
