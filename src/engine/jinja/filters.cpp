// Filters: `value | name(arguments)`.
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <map>

#include "engine/jinja/interpreter.h"
#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

namespace {

using Filter = Value (*)(Interpreter&, const Value&, const Arguments&);

bool flag(const Value* v, bool otherwise) { return v == nullptr ? otherwise : v->truth(); }

// "a.b.0" of a value.
Value path_of(Interpreter& in, Value value, const Value& path) {
  if (path.is_integer()) return in.item(value, path);
  const std::string& names = in.string_of(path, "attribute");
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find('.', at), names.size());
    const std::string name = names.substr(at, end - at);
    const bool number = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    value = in.item(value, number ? Value(int64_t{std::stoi(name)}) : Value(name));
    at = end + 1;
  }
  return value;
}

Value case_folded(const Value& v) {
  return v.is_string() ? Value(change_case(v.string(), Case::lower)) : v;
}

// What elements are compared by: an attribute, without case unless asked.
Values keys_of(Interpreter& in, const Values& items, const Value* attribute, bool case_sensitive) {
  Values keys;
  for (const Value& item : items) {
    Value key =
        attribute != nullptr && !attribute->is_none() ? path_of(in, item, *attribute) : item;
    keys.push_back(case_sensitive ? std::move(key) : case_folded(key));
  }
  return keys;
}

std::vector<size_t> sorted_order(Interpreter& in, const Values& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? in.order(keys[b], keys[a]) < 0 : in.order(keys[a], keys[b]) < 0;
  });
  return order;
}

Value sort(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "sort", a, {"reverse", "case_sensitive", "attribute"});
  const Values items = in.elements(v);
  const Values keys = keys_of(in, items, p[2], flag(p[1], false));
  Values result;
  for (const size_t i : sorted_order(in, keys, flag(p[0], false))) result.push_back(items[i]);
  return in.list(std::move(result));
}

Value dict_sort(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "dictsort", a, {"case_sensitive", "by", "reverse"});
  if (!v.is_dict()) in.error("dictsort needs a dict, not a ", v.type());
  const std::string by = p[1] == nullptr ? "key" : in.string_of(*p[1], "dictsort");
  if (by != "key" && by != "value")
    in.error("dictsort by ", quote(by), "; it must be key or value");
  Values pairs, keys;
  for (const auto& [key, value] : v.members()) {
    pairs.push_back(Value::tuple({key, value}));
    keys.push_back(by == "key" ? key : value);
  }
  keys = keys_of(in, keys, nullptr, flag(p[0], false));
  Values result;
  for (const size_t i : sorted_order(in, keys, flag(p[2], false))) result.push_back(pairs[i]);
  return in.list(std::move(result));
}

template <int kSign>
Value extreme(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "min", a, {"case_sensitive", "attribute"});
  const Values items = in.elements(v);
  if (items.empty()) return Value::undefined("the extreme of nothing");
  const Values keys = keys_of(in, items, p[1], flag(p[0], false));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    if (in.order(keys[i], keys[best]) * kSign > 0) best = i;
  }
  return items[best];
}

Value unique(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "unique", a, {"case_sensitive", "attribute"});
  const Values items = in.elements(v);
  const Values keys = keys_of(in, items, p[1], flag(p[0], false));
  Values result, seen;
  for (size_t i = 0; i < items.size(); ++i) {
    const Value all = Value::list(seen);
    in.spend_steps(seen.size());
    if (in.contains(all, keys[i])) continue;
    seen.push_back(keys[i]);
    result.push_back(items[i]);
  }
  return Value::list(std::move(result));
}

Value group_by(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "groupby", a, {"attribute", "default", "case_sensitive"});
  if (p[0] == nullptr) in.error("groupby needs an attribute");
  const Values items = in.elements(v);
  Values keys;
  for (const Value& item : items) {
    Value key = path_of(in, item, *p[0]);
    if (key.is_undefined() && p[1] != nullptr) key = *p[1];
    keys.push_back(flag(p[2], false) ? key : case_folded(key));
  }
  Values groups, group;
  const std::vector<size_t> order = sorted_order(in, keys, false);
  for (size_t n = 0; n < order.size(); ++n) {
    group.push_back(items[order[n]]);
    if (n + 1 < order.size() && keys[order[n]].equals(keys[order[n + 1]])) continue;
    const Value name = path_of(in, group.front(), *p[0]);
    groups.push_back(Value::tuple({name, Value::list(std::move(group))}));
    group.clear();
  }
  return in.list(std::move(groups));
}

// The name of another filter or test and its arguments, from those of map, select and the like.
struct Delegate {
  std::string name;
  Arguments arguments;
};
Delegate delegate(Interpreter& in, const Arguments& a, size_t skip, const char* function) {
  Delegate result;
  if (a.positional.size() <= skip) in.error(function, " needs the name of a filter or test");
  result.name = in.string_of(a.positional[skip], function);
  result.arguments.positional.assign(a.positional.begin() + static_cast<ptrdiff_t>(skip) + 1,
                                     a.positional.end());
  result.arguments.named = a.named;
  return result;
}

Value map(Interpreter& in, const Value& v, const Arguments& a) {
  Values result;
  const Values items = in.elements(v);
  if (a.positional.empty()) {
    const auto p = bind(in, "map", a, {"attribute", "default"});
    if (p[0] == nullptr) in.error("map needs a filter or an attribute");
    for (const Value& item : items) {
      Value member = path_of(in, item, *p[0]);
      result.push_back(member.is_undefined() && p[1] != nullptr ? *p[1] : std::move(member));
    }
  } else {
    const Delegate d = delegate(in, a, 0, "map");
    if (!is_filter(d.name)) in.error("the filter '", d.name, "' is not implemented");
    for (const Value& item : items) {
      result.push_back(apply_filter(in, d.name, item, d.arguments));
    }
  }
  return in.list(std::move(result));
}

template <bool kAttribute, bool kKeep>
Value select(Interpreter& in, const Value& v, const Arguments& a) {
  const size_t skip = kAttribute ? 1 : 0;
  if (kAttribute && a.positional.empty()) in.error("selectattr needs an attribute");
  const bool tests = a.positional.size() > skip;
  Delegate d;
  if (tests) {
    d = delegate(in, a, skip, "select");
    if (!is_test(d.name)) in.error("the test '", d.name, "' is not implemented");
  }
  Values result;
  for (const Value& item : in.elements(v)) {
    const Value value = kAttribute ? path_of(in, item, a.positional[0]) : item;
    const bool holds = tests ? apply_test(in, d.name, value, d.arguments) : value.truth();
    if (holds == kKeep) result.push_back(item);
  }
  return in.list(std::move(result));
}

Value default_value(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "default", a, {"default_value", "boolean"});
  const bool missing = v.is_undefined() || (flag(p[1], false) && !v.truth());
  if (!missing) return v;
  return p[0] == nullptr ? Value("") : *p[0];
}

Value join(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "join", a, {"d", "attribute"});
  const std::string between = p[0] == nullptr ? "" : in.shown(*p[0]);
  std::string result;
  bool first = true;
  for (const Value& item : in.elements(v)) {
    if (!first) result += between;
    in.spend_bytes(between.size());
    first = false;
    result += in.shown(p[1] == nullptr || p[1]->is_none() ? item : path_of(in, item, *p[1]));
  }
  return result;
}

template <bool kLast>
Value end_of(Interpreter& in, const Value& v, const Arguments&) {
  const Values items = in.elements(v);
  if (items.empty()) return Value::undefined("an element of nothing");
  return kLast ? items.back() : items.front();
}

Value reverse(Interpreter& in, const Value& v, const Arguments&) {
  Values items = in.elements(v);
  std::reverse(items.begin(), items.end());
  if (!v.is_string()) return Value::list(std::move(items));
  std::string result;
  for (const Value& item : items) result += item.string();
  return in.text(std::move(result));
}

Value batch(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "batch", a, {"linecount", "fill_with"});
  const int64_t size = p[0] == nullptr ? 0 : in.integer_of(*p[0], "batch");
  if (size < 1) in.error("batch needs a positive size");
  Values rows, row;
  for (const Value& item : in.elements(v)) {
    row.push_back(item);
    if (static_cast<int64_t>(row.size()) < size) continue;
    rows.push_back(Value::list(std::move(row)));
    row.clear();
  }
  if (!row.empty()) {
    while (p[1] != nullptr && static_cast<int64_t>(row.size()) < size) {
      in.spend_steps(1);
      row.push_back(*p[1]);
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return in.list(std::move(rows));
}

Value sum(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "sum", a, {"attribute", "start"});
  double total = 0;
  int64_t whole = 0;
  bool real = false;
  const auto add = [&](const Value& value) {
    if (!value.is_number()) in.error("sum needs numbers, not a ", value.type());
    real = real || value.is_real();
    total += value.real();
    if (!value.is_real() && __builtin_add_overflow(whole, value.integer(), &whole)) {
      in.error("the sum does not fit 64 bits");
    }
  };
  if (p[1] != nullptr) add(*p[1]);
  for (const Value& item : in.elements(v)) {
    add(p[0] == nullptr || p[0]->is_none() ? item : path_of(in, item, *p[0]));
  }
  return real ? Value(total) : Value(whole);
}

Value absolute(Interpreter& in, const Value& v, const Arguments&) {
  if (!v.is_number()) in.error("abs needs a number, not a ", v.type());
  if (v.is_real()) return std::abs(v.real());
  if (v.integer() == INT64_MIN) in.error("abs of the number does not fit 64 bits");
  return std::abs(v.integer());
}

Value rounded(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "round", a, {"precision", "method"});
  if (!v.is_number()) in.error("round needs a number, not a ", v.type());
  const int64_t precision = p[0] == nullptr ? 0 : in.integer_of(*p[0], "round");
  if (precision < -300 || precision > 300) in.error("round to ", precision, " places");
  const std::string method = p[1] == nullptr ? "common" : in.string_of(*p[1], "round");
  const double scale = std::pow(10.0, static_cast<double>(precision)), x = v.real() * scale;
  if (method == "ceil") return std::ceil(x) / scale;
  if (method == "floor") return std::floor(x) / scale;
  if (method != "common") in.error("round ", quote(method), "; it must be common, ceil or floor");
  return std::nearbyint(x) / scale;  // halves to even, as Python rounds
}

// A number at the beginning and end of a text, else nothing.
std::optional<double> number_in(const std::string& text) {
  const std::string_view core = stripped(text, nullptr, true, true);
  if (core.empty() || core.find_first_not_of("+-.0123456789eE") != std::string_view::npos)
    return {};
  const std::string copy(core);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (*end != '\0') return {};
  return value;
}

Value to_integer(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "int", a, {"default", "base"});
  if (p[1] != nullptr && in.integer_of(*p[1], "int") != 10) {
    in.error("int of base ", p[1]->repr(), " is not implemented");
  }
  const Value otherwise = p[0] == nullptr ? Value(int64_t{0}) : *p[0];
  if (v.is_integer() || v.is_bool()) return v.integer();
  double number = 0;
  if (v.is_real()) {
    number = v.real();
  } else if (v.is_string()) {
    const std::string core(stripped(v.string(), nullptr, true, true));
    if (!core.empty() &&
        core.find_first_not_of("0123456789", core[0] == '-' ? 1 : 0) == std::string::npos &&
        core != "-") {
      errno = 0;
      const int64_t whole = std::strtoll(core.c_str(), nullptr, 10);
      if (errno == 0) return whole;
    }
    const std::optional<double> found = number_in(core);
    if (!found) return otherwise;
    number = *found;
  } else {
    return otherwise;
  }
  if (!(std::abs(number) < 9.2e18)) return otherwise;
  return static_cast<int64_t>(number);
}

Value to_real(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "float", a, {"default"});
  if (v.is_number()) return v.real();
  const std::optional<double> found = v.is_string() ? number_in(v.string()) : std::nullopt;
  if (found) return *found;
  return p[0] == nullptr ? Value(0.0) : *p[0];
}

Value trim(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "trim", a, {"chars"});
  const std::string* drop =
      p[0] == nullptr || p[0]->is_none() ? nullptr : &in.string_of(*p[0], "trim");
  return in.text(std::string(stripped(in.shown(v), drop, true, true)));
}

Value replace(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "replace", a, {"old", "new", "count"});
  if (p[0] == nullptr || p[1] == nullptr) in.error("replace needs two texts");
  const int64_t most = p[2] == nullptr || p[2]->is_none() ? -1 : in.integer_of(*p[2], "replace");
  return replaced(in, in.shown(v), in.shown(*p[0]), in.shown(*p[1]), most);
}

Value indent(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "indent", a, {"width", "first", "blank"});
  std::string space(4, ' ');
  if (p[0] != nullptr && p[0]->is_string()) {
    space = p[0]->string();
  } else if (p[0] != nullptr) {
    const int64_t width = in.integer_of(*p[0], "indent");
    if (width > 10000) in.error("indent by ", width, "; at most 10000 are allowed");
    space.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  std::string source = in.string_of(v, "indent");
  source += '\n';
  const bool first = flag(p[1], false), blank = flag(p[2], false);
  std::string result;
  bool begun = false;
  for (const std::string_view line : split_lines(source, false)) {
    const bool indents = begun ? blank || !line.empty() : first;
    in.spend_bytes(line.size() + space.size() + 1);
    if (begun) result += '\n';
    if (indents) result += space;
    result += line;
    begun = true;
  }
  return result;
}

Value title(Interpreter& in, const Value& v, const Arguments&) {
  const std::string source = in.shown(v);
  std::string result, word;
  const auto flush = [&] { result += capitalized(word), word.clear(); };
  for (const std::string_view c : characters(source)) {
    const bool between = c.size() == 1 && std::string_view("-({[<").find(c[0]) != std::string::npos;
    if (between || stripped(c, nullptr, true, false).empty()) {
      flush();
      result += c;
    } else {
      word += c;
    }
  }
  flush();
  return in.text(std::move(result));
}

Value escape(Interpreter& in, const Value& v, const Arguments&) {
  std::string result;
  for (const char c : in.shown(v)) {
    const char* entity = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '\'' ? "&#39;"
                         : c == '"'  ? "&#34;"
                                     : nullptr;
    if (entity != nullptr) {
      result += entity;
    } else {
      result += c;
    }
  }
  return in.text(std::move(result));
}

Value tojson(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  // Jinja's own filter has the indent as its first argument, and templates write tojson(4).
  style.ascii = flag(p[0], false) && p[0]->is_bool();
  const Value* indent = p[1] != nullptr                         ? p[1]
                        : p[0] != nullptr && p[0]->is_integer() ? p[0]
                                                                : nullptr;
  if (indent != nullptr && !indent->is_none()) {
    const int64_t width = in.integer_of(*indent, "tojson");
    if (width < 0 || width > 100) in.error("tojson indents by ", width, "; it must be 0 to 100");
    style.indent = static_cast<int>(width);
    style.item_separator.assign(1, ',');
  }
  if (p[2] != nullptr && !p[2]->is_none()) {
    if (!p[2]->is_sequence() || p[2]->items().size() != 2) in.error("tojson needs two separators");
    style.item_separator = in.string_of(p[2]->items()[0], "tojson");
    style.key_separator = in.string_of(p[2]->items()[1], "tojson");
  }
  style.sort = flag(p[3], false);
  in.spend_bytes(v.weight() * (style.indent > 0 ? static_cast<size_t>(style.indent) : 1));
  return in.text(to_json(v, style));
}

Value length(Interpreter& in, const Value& v, const Arguments&) {
  return static_cast<int64_t>(in.length(v));
}
Value list(Interpreter& in, const Value& v, const Arguments&) { return in.list(in.elements(v)); }
Value string(Interpreter& in, const Value& v, const Arguments&) { return in.text(in.shown(v)); }

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> table = {
      {"abs", absolute},
      {"attr",
       [](Interpreter& in, const Value& v, const Arguments& a) {
         const auto p = bind(in, "attr", a, {"name"});
         if (p[0] == nullptr) in.error("attr needs a name");
         return in.attribute(v, in.string_of(*p[0], "attr"));
       }},
      {"batch", batch},
      {"capitalize", [](Interpreter& in, const Value& v,
                        const Arguments&) { return in.text(capitalized(in.shown(v))); }},
      {"count", length},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dict_sort},
      {"e", escape},
      {"escape", escape},
      {"first", end_of<false>},
      {"float", to_real},
      {"groupby", group_by},
      {"indent", indent},
      {"int", to_integer},
      {"items",
       [](Interpreter& in, const Value& v, const Arguments& a) {
         if (v.is_undefined()) return Value::list({});
         if (!v.is_dict()) in.error("items needs a dict, not a ", v.type());
         return call_method(in, v, "items", a);
       }},
      {"join", join},
      {"last", end_of<true>},
      {"length", length},
      {"list", list},
      {"lower", [](Interpreter& in, const Value& v,
                   const Arguments&) { return in.text(change_case(in.shown(v), Case::lower)); }},
      {"map", map},
      {"max", extreme<1>},
      {"min", extreme<-1>},
      {"reject", select<false, false>},
      {"rejectattr", select<true, false>},
      {"replace", replace},
      {"reverse", reverse},
      {"round", rounded},
      {"safe", string},
      {"select", select<false, true>},
      {"selectattr", select<true, true>},
      {"sort", sort},
      {"string", string},
      {"sum", sum},
      {"title", title},
      {"tojson", tojson},
      {"trim", trim},
      {"unique", unique},
      {"upper", [](Interpreter& in, const Value& v,
                   const Arguments&) { return in.text(change_case(in.shown(v), Case::upper)); }},
      {"wordcount",
       [](Interpreter& in, const Value& v, const Arguments&) {
         return length(in, call_method(in, Value(in.shown(v)), "split", {}), {});
       }},
  };
  return table;
}

using Test = bool (*)(Interpreter&, const Value&, const Arguments&);

const Value& argument(Interpreter& in, const Arguments& a) {
  if (a.positional.size() != 1 || !a.named.empty()) in.error("the test needs one argument");
  return a.positional[0];
}

template <int kRelation>  // 0 ==, 1 !=, 2 <, 3 <=, 4 >, 5 >=
bool relation(Interpreter& in, const Value& v, const Arguments& a) {
  const Value& other = argument(in, a);
  if (kRelation < 2) return in.same(v, other) == (kRelation == 0);
  const int order = in.order(v, other);
  return kRelation == 2   ? order < 0
         : kRelation == 3 ? order <= 0
         : kRelation == 4 ? order > 0
                          : order >= 0;
}

bool remainder_is(Interpreter& in, const Value& v, int64_t by, int64_t rest) {
  const int64_t n = in.integer_of(v, "the test");
  if (by == 0) in.error("a division by zero");
  return by == -1 ? rest == 0 : n % by == rest || n % by == -rest;
}

const std::map<std::string, Test, std::less<>>& tests() {
  using In = Interpreter&;
  using V = const Value&;
  using A = const Arguments&;
  static const std::map<std::string, Test, std::less<>> table = {
      {"defined", [](In, V v, A) { return !v.is_undefined(); }},
      {"undefined", [](In, V v, A) { return v.is_undefined(); }},
      {"none", [](In, V v, A) { return v.is_none(); }},
      {"boolean", [](In, V v, A) { return v.is_bool(); }},
      {"true", [](In, V v, A) { return v.is_bool() && v.boolean(); }},
      {"false", [](In, V v, A) { return v.is_bool() && !v.boolean(); }},
      {"integer", [](In, V v, A) { return v.is_integer(); }},
      {"float", [](In, V v, A) { return v.is_real(); }},
      {"number", [](In, V v, A) { return v.is_number(); }},
      {"string", [](In, V v, A) { return v.is_string(); }},
      {"mapping", [](In, V v, A) { return v.is_dict(); }},
      {"sequence", [](In, V v, A) { return v.is_sequence() || v.is_string() || v.is_dict(); }},
      {"iterable",
       [](In, V v, A) {
         return v.is_sequence() || v.is_string() || v.is_dict() || v.is_undefined();
       }},
      {"callable", [](In, V v, A) { return v.is_function(); }},
      {"lower", [](In in, V v, A a) { return call_method(in, v.text(), "islower", a).truth(); }},
      {"upper", [](In in, V v, A a) { return call_method(in, v.text(), "isupper", a).truth(); }},
      {"odd", [](In in, V v, A) { return remainder_is(in, v, 2, 1); }},
      {"even", [](In in, V v, A) { return remainder_is(in, v, 2, 0); }},
      {"divisibleby",
       [](In in, V v, A a) {
         return remainder_is(in, v, in.integer_of(argument(in, a), "divisibleby"), 0);
       }},
      {"in", [](In in, V v, A a) { return in.contains(argument(in, a), v); }},
      {"sameas",
       [](In in, V v, A a) {
         const Value& other = argument(in, a);
         return v.type() == other.type() && in.same(v, other);
       }},
      {"eq", relation<0>},
      {"equalto", relation<0>},
      {"==", relation<0>},
      {"ne", relation<1>},
      {"!=", relation<1>},
      {"lt", relation<2>},
      {"lessthan", relation<2>},
      {"<", relation<2>},
      {"le", relation<3>},
      {"<=", relation<3>},
      {"gt", relation<4>},
      {"greaterthan", relation<4>},
      {">", relation<4>},
      {"ge", relation<5>},
      {">=", relation<5>},
  };
  return table;
}

}  // namespace

bool is_filter(const std::string& name) { return filters().count(name) != 0; }
bool is_test(const std::string& name) { return tests().count(name) != 0; }

Value apply_filter(Interpreter& in, const std::string& name, const Value& value,
                   const Arguments& given) {
  in.spend_steps(1);
  return filters().find(name)->second(in, value, given);
}

bool apply_test(Interpreter& in, const std::string& name, const Value& value,
                const Arguments& given) {
  in.spend_steps(1);
  return tests().find(name)->second(in, value, given);
}

}  // namespace halftone::jinja
