// Expressions.
#include <algorithm>
#include <cmath>

#include "engine/jinja/interpreter.h"
#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

using Kind = Expression::Kind;

bool Interpreter::require_defined(const Value& value) const {
  if (value.is_undefined()) error(value.undefined_name(), " is undefined");
  return true;
}

const std::string& Interpreter::string_of(const Value& value, const char* what) {
  require_defined(value);
  if (!value.is_string()) error("'", what, "' needs a text, not a ", value.type());
  return value.string();
}

int64_t Interpreter::integer_of(const Value& value, const char* what) {
  require_defined(value);
  if (!value.is_integer() && !value.is_bool()) {
    error("'", what, "' needs a whole number, not a ", value.type());
  }
  return value.integer();
}

Value Interpreter::evaluate(const Expression& e) {
  spend_steps(1);
  if (++depth_ > limits_.depth) {
    --depth_;
    error("calls and blocks nest deeper than ", limits_.depth, " levels");
  }
  struct Leave {
    int& depth;
    ~Leave() { --depth; }
  } const leave{depth_};
  line_ = e.line;
  const auto operand = [&](size_t i) { return evaluate(*e.operands[i]); };
  switch (e.kind) {
    case Kind::constant:
      return e.value;
    case Kind::name:
      return lookup(e.text);
    case Kind::list:
    case Kind::tuple: {
      Values items;
      for (const ExpressionPtr& item : e.operands) items.push_back(evaluate(*item));
      return e.kind == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Kind::dict: {
      Members members;
      for (size_t i = 0; i < e.operands.size(); i += 2) {
        Value key = operand(i);
        spend_steps(members.size());
        members.emplace_back(std::move(key), operand(i + 1));
      }
      return Value::dict(std::move(members));
    }
    case Kind::attribute: {
      const Value object = operand(0);
      line_ = e.line;
      return attribute(object, e.text);
    }
    case Kind::subscript: {
      const Value object = operand(0);
      const Value key = operand(1);
      line_ = e.line;
      return item(object, key);
    }
    case Kind::slice:
      return slice(e);
    case Kind::call:
      return call(e, nullptr);
    case Kind::filter:
      return filter(e, operand(0));
    case Kind::test: {
      const Value value = operand(0);
      const Arguments given = arguments(e);
      line_ = e.line;
      return apply_test(*this, e.text, value, given);
    }
    case Kind::unary:
      return unary(e);
    case Kind::binary:
      return binary(e);
    case Kind::concat: {
      std::string all;
      for (const ExpressionPtr& part : e.operands) {
        all += shown(evaluate(*part));
      }
      return text(std::move(all));
    }
    case Kind::compare:
      return compare(e);
    case Kind::conditional:
      if (operand(1).truth()) return operand(0);
      return e.operands[2] ? operand(2) : Value::undefined("the value of an 'if' without 'else'");
  }
  return {};
}

Arguments Interpreter::arguments(const Expression& e) {
  Arguments result;
  for (size_t i = 1; i < e.operands.size(); ++i) {
    result.positional.push_back(evaluate(*e.operands[i]));
  }
  for (const auto& [name, value] : e.named) result.named.emplace_back(name, evaluate(*value));
  return result;
}

Value Interpreter::filter(const Expression& e, const Value& value) {
  // In a filter block, filters stand inside each other around the block's text.
  const bool inner = e.operands[0] && e.operands[0]->kind == Kind::filter;
  const bool block = !e.operands[0] || (inner && !e.operands[0]->operands[0]);
  const Value input = block && inner ? filter(*e.operands[0], value) : value;
  const Arguments given = arguments(e);
  line_ = e.line;
  return apply_filter(*this, e.text, input, given);
}

Value Interpreter::call(const Expression& e, const Value* caller) {
  const Expression& callee = *e.operands[0];
  if (callee.kind == Kind::attribute) {
    const Value object = evaluate(*callee.operands[0]);
    Arguments given = arguments(e);
    line_ = e.line;
    require_defined(object);
    if (has_method(object, callee.text)) return call_method(*this, object, callee.text, given);
    const Value member = attribute(object, callee.text);
    if (!member.is_function()) {
      error("a ", object.type(), " has no method '", callee.text, "' that is implemented");
    }
    if (caller != nullptr) given.named.emplace_back("caller", *caller);
    return call(member, given);
  }
  const Value function = evaluate(callee);
  Arguments given = arguments(e);
  if (caller != nullptr) given.named.emplace_back("caller", *caller);
  line_ = e.line;
  return call(function, given);
}

Value Interpreter::attribute(const Value& object, const std::string& name) {
  require_defined(object);
  if (object.is_namespace()) {
    const auto place = object.space().members.find(name);
    if (place != object.space().members.end()) return place->second;
  } else if (has_method(object, name)) {
    return Value(std::make_shared<const Function>(
        Function{name, [object, name](Interpreter& in, const Arguments& given) {
                   return call_method(in, object, name, given);
                 }}));
  } else if (object.is_dict()) {
    spend_steps(object.members().size() / 8);
    if (const Value* found = object.find(Value(name))) return *found;
  }
  return Value::undefined("the attribute '" + name + "' of a " + object.type());
}

Value Interpreter::item(const Value& object, const Value& key) {
  require_defined(object);
  if (object.is_dict()) {
    spend_steps(object.members().size() / 8);
    if (const Value* found = object.find(key)) return *found;
  } else if (object.is_sequence() && (key.is_integer() || key.is_bool())) {
    const auto count = static_cast<int64_t>(object.items().size());
    const int64_t i = key.integer() < 0 ? key.integer() + count : key.integer();
    if (i >= 0 && i < count) return object.items()[static_cast<size_t>(i)];
  } else if (object.is_string() && (key.is_integer() || key.is_bool())) {
    spend_steps(object.string().size() / 64);
    const auto all = characters(object.string());
    const auto count = static_cast<int64_t>(all.size());
    const int64_t i = key.integer() < 0 ? key.integer() + count : key.integer();
    if (i >= 0 && i < count) return Value(all[static_cast<size_t>(i)]);
  }
  if (key.is_string()) return attribute(object, key.string());
  return Value::undefined("the element " + key.repr() + " of a " + object.type());
}

Value Interpreter::slice(const Expression& e) {
  const Value object = evaluate(*e.operands[0]);
  require_defined(object);
  if (!object.is_string() && !object.is_sequence()) error("a ", object.type(), " cannot be sliced");
  const auto part = [&](size_t i) { return e.operands[i] ? evaluate(*e.operands[i]) : Value(); };
  const Value first = part(1), last = part(2), by = part(3);
  std::vector<std::string_view> letters;
  if (object.is_string()) letters = characters(object.string());
  const auto count =
      static_cast<int64_t>(object.is_string() ? letters.size() : object.items().size());
  spend_steps(static_cast<size_t>(count) / 8);
  const int64_t step = by.is_none() ? 1 : integer_of(by, "[:]");
  if (step == 0) error("the step of a slice is 0");
  // Python's rule: negative counts from the end, and everything is cut to the length.
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
  const auto bound = [&](const Value& v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    const int64_t i = integer_of(v, "[:]");
    if (i < 0) return i < -count ? low : std::max(i + count, low);
    return std::min(i, high);
  };
  const int64_t begin = bound(first, step > 0 ? low : high);
  const int64_t end = bound(last, step > 0 ? high : low);
  Values items;
  std::string joined;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (object.is_string()) {
      joined += letters[static_cast<size_t>(i)];
    } else {
      items.push_back(object.items()[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (object.is_string()) return text(std::move(joined));
  return object.is_tuple() ? Value::tuple(std::move(items)) : list(std::move(items));
}

Value Interpreter::unary(const Expression& e) {
  const Value value = evaluate(*e.operands[0]);
  if (e.text == "not") return !value.truth();
  require_defined(value);
  if (!value.is_number()) error("the sign ", e.text, " needs a number, not a ", value.type());
  if (e.text == "+") return value;
  if (value.is_real()) return -value.real();
  return integers("-", 0, value.integer());
}

Value Interpreter::binary(const Expression& e) {
  const Value left = evaluate(*e.operands[0]);
  if (e.text == "and") return left.truth() ? evaluate(*e.operands[1]) : left;
  if (e.text == "or") return left.truth() ? left : evaluate(*e.operands[1]);
  const Value right = evaluate(*e.operands[1]);
  line_ = e.line;
  return arithmetic(e.text, left, right);
}

Value Interpreter::integers(const std::string& sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (sign == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (sign == "**") {
    result = 1;
    for (int64_t i = 0; i < b && !overflow; ++i) {
      if (i > 64 && (a == 0 || a == 1 || a == -1)) {
        result = a == -1 && b % 2 != 0 ? -1 : a * a;
        break;
      }
      overflow = __builtin_mul_overflow(result, a, &result);
    }
  } else {  // // and %, rounded down as Python does
    if (b == 0) error("a division by zero");
    if (b == -1) return sign == "%" ? Value(int64_t{0}) : integers("-", 0, a);
    const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
    result = sign == "//" ? quotient : a - quotient * b;
  }
  if (overflow) error("the result of ", a, " ", sign, " ", b, " does not fit 64 bits");
  return result;
}

Value Interpreter::arithmetic(const std::string& sign, const Value& a, const Value& b) {
  require_defined(a), require_defined(b);
  if (a.is_number() && b.is_number()) {
    const bool whole = !a.is_real() && !b.is_real();
    if (whole && sign != "/" && !(sign == "**" && b.integer() < 0)) {
      return integers(sign, a.integer(), b.integer());
    }
    const double x = a.real(), y = b.real();
    if (sign == "+") return x + y;
    if (sign == "-") return x - y;
    if (sign == "*") return x * y;
    if (sign == "**") return std::pow(x, y);
    if (y == 0) error("a division by zero");
    if (sign == "/") return x / y;
    if (sign == "//") return std::floor(x / y);
    const double rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
  if (sign == "+" && a.is_string() && b.is_string()) {
    spend_bytes(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  if (sign == "+" && a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    spend_steps(items.size());
    return a.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
  }
  if (sign == "*" && (b.is_integer() || a.is_integer()) && (!a.is_number() || !b.is_number())) {
    const Value& many = a.is_number() ? b : a;
    const int64_t times = std::max<int64_t>((a.is_number() ? a : b).integer(), 0);
    const size_t size = many.is_string() ? many.string().size() : length(many);
    const auto most = static_cast<int64_t>(limits_.bytes);
    if (size > 0 && times > most / static_cast<int64_t>(size)) {
      error("the template made more than ", limits_.bytes, " bytes of text");
    }
    if (many.is_string()) {
      spend_bytes(size * static_cast<size_t>(times));
      std::string result;
      for (int64_t i = 0; i < times && size > 0; ++i) result += many.string();
      return result;
    }
    if (many.is_sequence()) {
      spend_steps(size * static_cast<size_t>(times));
      Values items;
      for (int64_t i = 0; i < times && size > 0; ++i) {
        items.insert(items.end(), many.items().begin(), many.items().end());
      }
      return many.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
    }
  }
  if (sign == "%" && a.is_string()) error("formatting with % is not implemented; use ~");
  error("the sign ", sign, " does not go with ", a.type(), " and ", b.type());
}

int Interpreter::order(const Value& a, const Value& b) {
  require_defined(a), require_defined(b);
  spend_steps(1 + std::min(a.weight(), b.weight()) / 64);
  if (a.is_number() && b.is_number()) {
    if (!a.is_real() && !b.is_real()) {
      return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
    }
    return a.real() < b.real() ? -1 : a.real() > b.real() ? 1 : 0;
  }
  if (a.is_string() && b.is_string()) {  // UTF-8 keeps the order of the characters
    const int result = a.string().compare(b.string());
    return result < 0 ? -1 : result > 0 ? 1 : 0;
  }
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    const size_t shared = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shared; ++i) {
      if (!a.items()[i].equals(b.items()[i])) return order(a.items()[i], b.items()[i]);
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
  }
  error("a ", a.type(), " and a ", b.type(), " have no order");
}

bool Interpreter::contains(const Value& container, const Value& element) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    spend_steps(container.string().size() / 64);
    return container.string().find(string_of(element, "in")) != std::string::npos;
  }
  if (container.is_dict()) {
    spend_steps(container.members().size() / 8);
    return container.find(element) != nullptr;
  }
  if (!container.is_sequence()) error("'in' cannot search a ", container.type());
  spend_steps(container.items().size() * (8 + element.weight() / 8) / 64);
  return std::any_of(container.items().begin(), container.items().end(),
                     [&](const Value& item) { return item.equals(element); });
}

Value Interpreter::compare(const Expression& e) {
  Value left = evaluate(*e.operands[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    const Value right = evaluate(*e.operands[i + 1]);
    line_ = e.line;
    const std::string& sign = e.operators[i];
    bool holds;
    if (sign == "==" || sign == "!=") {
      holds = same(left, right) == (sign == "==");
    } else if (sign == "in" || sign == "not in") {
      holds = contains(right, left) == (sign == "in");
    } else {
      const int result = order(left, right);
      holds = sign == "<"    ? result < 0
              : sign == "<=" ? result <= 0
              : sign == ">"  ? result > 0
                             : result >= 0;
    }
    if (!holds) return false;
    left = right;
  }
  return true;
}

Values Interpreter::elements(const Value& value) {
  Values result;
  if (value.is_undefined()) return result;
  if (value.is_sequence()) {
    result = value.items();
  } else if (value.is_dict()) {
    for (const auto& [key, member] : value.members()) result.push_back(key);
  } else if (value.is_string()) {
    spend_steps(value.string().size());
    for (const std::string_view c : characters(value.string())) result.emplace_back(c);
  } else {
    error("a ", value.type(), " has no elements to go through");
  }
  spend_steps(result.size());
  return result;
}

size_t Interpreter::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_sequence()) return value.items().size();
  if (value.is_dict()) return value.members().size();
  if (!value.is_string()) error("a ", value.type(), " has no length");
  spend_steps(value.string().size() / 64);
  return characters(value.string()).size();
}

}  // namespace halftone::jinja
