// Methods of texts, dicts and lists.
#include <map>

#include "engine/jinja/interpreter.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

namespace {

using Method = Value (*)(Interpreter&, const Value&, const Arguments&);
using Table = std::map<std::string, Method, std::less<>>;

Value text_list(Interpreter& in, const std::vector<std::string_view>& parts) {
  Values items;
  for (const std::string_view part : parts) items.push_back(in.text(std::string(part)));
  return in.list(std::move(items));
}

template <bool kLeft, bool kRight>
Value strip(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "strip", a, {"chars"});
  const std::string* drop =
      p[0] == nullptr || p[0]->is_none() ? nullptr : &in.string_of(*p[0], "strip");
  return in.text(std::string(stripped(v.string(), drop, kLeft, kRight)));
}

// White space splits differently from a given text: runs count once, and nothing empty remains.
std::vector<std::string_view> split_at_spaces(Interpreter& in, std::string_view text,
                                              int64_t most) {
  std::vector<std::string_view> parts;
  text = stripped(text, nullptr, true, false);
  while (!text.empty()) {
    in.spend_steps(1);
    size_t end = 0;
    const auto is_white = [&](size_t i) {
      const auto length = static_cast<size_t>(decode_utf8(text, i).length);
      return stripped(text.substr(i, length), nullptr, true, false).empty();
    };
    if (most == 0) {
      parts.push_back(text);
      return parts;
    }
    while (end < text.size() && !is_white(end)) {
      end += static_cast<size_t>(decode_utf8(text, end).length);
    }
    parts.push_back(text.substr(0, end));
    text = stripped(text.substr(end), nullptr, true, false);
    --most;
  }
  return parts;
}

template <bool kRight>
Value split(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "split", a, {"sep", "maxsplit"});
  int64_t most = p[1] == nullptr ? -1 : in.integer_of(*p[1], "split");
  std::string_view text = v.string();
  in.spend_steps(text.size() / 16);  // bounds the parts
  std::vector<std::string_view> parts;
  if (p[0] == nullptr || p[0]->is_none()) {
    if (kRight && most >= 0) in.error("rsplit at white space with maxsplit is not implemented");
    return text_list(in, split_at_spaces(in, text, most));
  }
  const std::string& by = in.string_of(*p[0], "split");
  if (by.empty()) in.error("split needs a separator that is not empty");
  for (;; --most) {
    const size_t at = most == 0 ? std::string_view::npos : kRight ? text.rfind(by) : text.find(by);
    if (at == std::string_view::npos) break;
    in.spend_steps(1);
    parts.push_back(kRight ? text.substr(at + by.size()) : text.substr(0, at));
    text = kRight ? text.substr(0, at) : text.substr(at + by.size());
  }
  parts.push_back(text);
  if (kRight) std::reverse(parts.begin(), parts.end());
  return text_list(in, parts);
}

template <bool kEnd>
Value affix(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, kEnd ? "endswith" : "startswith", a, {"text"});
  if (p[0] == nullptr) in.error("startswith and endswith need a text");
  const auto fits = [&](const Value& text) {
    const std::string& part = in.string_of(text, kEnd ? "endswith" : "startswith");
    return kEnd ? v.string().ends_with(part) : v.string().starts_with(part);
  };
  if (!p[0]->is_tuple()) return fits(*p[0]);
  const Values& choices = p[0]->items();
  return std::any_of(choices.begin(), choices.end(), fits);
}

template <bool kEnd>
Value remove_affix(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "removeprefix", a, {"text"});
  if (p[0] == nullptr) in.error("removeprefix and removesuffix need a text");
  const std::string& part = in.string_of(*p[0], "removeprefix");
  std::string_view text = v.string();
  if (kEnd && text.ends_with(part)) text.remove_suffix(part.size());
  if (!kEnd && text.starts_with(part)) text.remove_prefix(part.size());
  return in.text(std::string(text));
}

// The place of a text in characters; -1 when it is not there.
template <bool kRight>
int64_t place_of(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "find", a, {"text"});
  if (p[0] == nullptr) in.error("find needs a text");
  const std::string& part = in.string_of(*p[0], "find");
  const size_t at = kRight ? v.string().rfind(part) : v.string().find(part);
  if (at == std::string::npos) return -1;
  return static_cast<int64_t>(characters(std::string_view(v.string()).substr(0, at)).size());
}
template <bool kRight>
Value find(Interpreter& in, const Value& v, const Arguments& a) {
  return place_of<kRight>(in, v, a);
}
Value string_index(Interpreter& in, const Value& v, const Arguments& a) {
  const int64_t at = place_of<false>(in, v, a);
  if (at < 0) in.error("index: the text is not found");
  return at;
}

Value string_count(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "count", a, {"text"});
  if (p[0] == nullptr) in.error("count needs a text");
  const std::string& part = in.string_of(*p[0], "count");
  if (part.empty()) return static_cast<int64_t>(in.length(v)) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = v.string().find(part, at)) != std::string::npos; at += part.size()) {
    ++count;
  }
  return count;
}

template <bool kRight>
Value partition(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "partition", a, {"sep"});
  if (p[0] == nullptr) in.error("partition needs a separator");
  const std::string& by = in.string_of(*p[0], "partition");
  if (by.empty()) in.error("partition needs a separator that is not empty");
  const std::string& text = v.string();
  in.spend_bytes(text.size());
  const size_t at = kRight ? text.rfind(by) : text.find(by);
  if (at != std::string::npos) {
    return Value::tuple({text.substr(0, at), by, text.substr(at + by.size())});
  }
  return kRight ? Value::tuple({"", "", v}) : Value::tuple({v, "", ""});
}

Value join(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "join", a, {"items"});
  if (p[0] == nullptr) in.error("join needs a list");
  std::string result;
  bool first = true;
  for (const Value& item : in.elements(*p[0])) {
    const std::string& part = in.string_of(item, "join");
    in.spend_bytes(part.size() + v.string().size());
    if (!first) result += v.string();
    first = false;
    result += part;
  }
  return result;
}

Value replace(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "replace", a, {"old", "new", "count"});
  if (p[0] == nullptr || p[1] == nullptr) in.error("replace needs two texts");
  const int64_t most = p[2] == nullptr ? -1 : in.integer_of(*p[2], "replace");
  return replaced(in, v.string(), in.string_of(*p[0], "replace"), in.string_of(*p[1], "replace"),
                  most);
}

// Every run of letters begins with a capital.
Value title(Interpreter& in, const Value& v, const Arguments&) {
  std::string result;
  bool inside = false;
  for (const std::string_view c : characters(v.string())) {
    result += change_case(c, inside ? Case::lower : Case::upper);
    inside = char_class(decode_utf8(c, 0).codepoint) == CharClass::letter;
  }
  return in.text(std::move(result));
}

template <Case kCase>
Value cased(Interpreter& in, const Value& v, const Arguments&) {
  return in.text(change_case(v.string(), kCase));
}

// All characters of a class, and at least one.
template <class Predicate>
bool all_characters(const std::string& text, const Predicate& holds) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    if (!holds(step.codepoint)) return false;
    i += static_cast<size_t>(step.length);
  }
  return !text.empty();
}
Value is_digit(Interpreter&, const Value& v, const Arguments&) {
  return all_characters(v.string(), [](int32_t c) { return c >= '0' && c <= '9'; });
}
Value is_alpha(Interpreter&, const Value& v, const Arguments&) {
  return all_characters(v.string(), [](int32_t c) { return char_class(c) == CharClass::letter; });
}
Value is_alnum(Interpreter&, const Value& v, const Arguments&) {
  return all_characters(v.string(), [](int32_t c) {
    return char_class(c) == CharClass::letter || char_class(c) == CharClass::number;
  });
}
Value is_space(Interpreter&, const Value& v, const Arguments&) {
  return !v.string().empty() && stripped(v.string(), nullptr, true, true).empty();
}
template <Case kCase>
Value is_cased(Interpreter&, const Value& v, const Arguments&) {
  constexpr Case kOther = kCase == Case::upper ? Case::lower : Case::upper;
  const std::string& text = v.string();
  return change_case(text, kCase) == text && change_case(text, kOther) != text;
}

template <int kSide>  // -1 left, 0 centre, 1 right
Value justify(Interpreter& in, const Value& v, const Arguments& a) {
  const auto p = bind(in, "ljust", a, {"width", "fillchar"});
  if (p[0] == nullptr) in.error("ljust, rjust and center need a width");
  const int64_t width = in.integer_of(*p[0], "ljust");
  const std::string fill = p[1] == nullptr ? " " : in.string_of(*p[1], "ljust");
  const int64_t missing = std::max<int64_t>(width - static_cast<int64_t>(in.length(v)), 0);
  in.spend_bytes(v.string().size() + static_cast<size_t>(missing) * fill.size());
  const int64_t before = kSide < 0 ? 0 : kSide > 0 ? missing : missing / 2 + (missing & width & 1);
  std::string result;
  for (int64_t i = 0; i < before; ++i) result += fill;
  result += v.string();
  for (int64_t i = before; i < missing; ++i) result += fill;
  return result;
}

const Table& string_methods() {
  static const Table table = {
      {"strip", strip<true, true>},
      {"lstrip", strip<true, false>},
      {"rstrip", strip<false, true>},
      {"split", split<false>},
      {"rsplit", split<true>},
      {"splitlines",
       [](Interpreter& in, const Value& v, const Arguments& a) {
         const auto p = bind(in, "splitlines", a, {"keepends"});
         return text_list(in, split_lines(v.string(), p[0] != nullptr && p[0]->truth()));
       }},
      {"startswith", affix<false>},
      {"endswith", affix<true>},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"find", find<false>},
      {"rfind", find<true>},
      {"index", string_index},
      {"count", string_count},
      {"partition", partition<false>},
      {"rpartition", partition<true>},
      {"join", join},
      {"replace", replace},
      {"upper", cased<Case::upper>},
      {"lower", cased<Case::lower>},
      {"title", title},
      {"capitalize", [](Interpreter& in, const Value& v,
                        const Arguments&) { return in.text(capitalized(v.string())); }},
      {"isdigit", is_digit},
      {"isnumeric", is_digit},
      {"isdecimal", is_digit},
      {"isalpha", is_alpha},
      {"isalnum", is_alnum},
      {"isspace", is_space},
      {"isupper", is_cased<Case::upper>},
      {"islower", is_cased<Case::lower>},
      {"ljust", justify<-1>},
      {"center", justify<0>},
      {"rjust", justify<1>},
  };
  return table;
}

Value pairs(Interpreter& in, const Value& v, const Arguments&) {
  Values items;
  for (const auto& [key, value] : v.members()) items.push_back(Value::tuple({key, value}));
  return in.list(std::move(items));
}

const Table& dict_methods() {
  static const Table table = {
      {"items", pairs},
      {"keys",
       [](Interpreter& in, const Value& v, const Arguments&) { return in.list(in.elements(v)); }},
      {"values",
       [](Interpreter& in, const Value& v, const Arguments&) {
         Values items;
         for (const auto& [key, value] : v.members()) items.push_back(value);
         return in.list(std::move(items));
       }},
      {"get",
       [](Interpreter& in, const Value& v, const Arguments& a) {
         const auto p = bind(in, "get", a, {"key", "default"});
         if (p[0] == nullptr) in.error("get needs a key");
         in.spend_steps(v.members().size() / 8);
         const Value* found = v.find(*p[0]);
         return found != nullptr ? *found : p[1] != nullptr ? *p[1] : Value();
       }},
      {"copy", [](Interpreter&, const Value& v, const Arguments&) { return v; }},
  };
  return table;
}

const Table& list_methods() {
  static const Table table = {
      {"index",
       [](Interpreter& in, const Value& v, const Arguments& a) -> Value {
         const auto p = bind(in, "index", a, {"value"});
         if (p[0] == nullptr) in.error("index needs a value");
         for (size_t i = 0; i < v.items().size(); ++i) {
           in.spend_steps(1);
           if (in.same(v.items()[i], *p[0])) return static_cast<int64_t>(i);
         }
         in.error("index: the value is not in the list");
       }},
      {"count",
       [](Interpreter& in, const Value& v, const Arguments& a) -> Value {
         const auto p = bind(in, "count", a, {"value"});
         if (p[0] == nullptr) in.error("count needs a value");
         int64_t count = 0;
         for (const Value& item : v.items()) {
           in.spend_steps(1);
           count += in.same(item, *p[0]) ? 1 : 0;
         }
         return count;
       }},
      {"copy", [](Interpreter&, const Value& v, const Arguments&) { return v; }},
  };
  return table;
}

// Transformers runs templates where values cannot be changed.
Value refuse_change(Interpreter& in, const Value& v, const Arguments&) {
  in.error("a template must not change a ", v.type(), "; make a new one, or use a namespace");
}
const Table& changing_methods() {
  static const Table table = {
      {"append", refuse_change},     {"extend", refuse_change},  {"insert", refuse_change},
      {"remove", refuse_change},     {"pop", refuse_change},     {"clear", refuse_change},
      {"sort", refuse_change},       {"reverse", refuse_change}, {"update", refuse_change},
      {"setdefault", refuse_change}, {"popitem", refuse_change},
  };
  return table;
}

Method method_of(const Value& object, const std::string& name) {
  const auto in = [&](const Table& table) -> Method {
    const auto place = table.find(name);
    return place == table.end() ? nullptr : place->second;
  };
  if (object.is_string()) return in(string_methods());
  if (!object.is_dict() && !object.is_sequence()) return nullptr;
  const Method method = in(object.is_dict() ? dict_methods() : list_methods());
  if (method != nullptr) return method;
  // A member of that name comes first where it would be a plain dict's.
  if (object.is_dict() && object.find(Value(name)) != nullptr) return nullptr;
  return in(changing_methods());
}

}  // namespace

bool has_method(const Value& object, const std::string& name) {
  return method_of(object, name) != nullptr;
}

Value call_method(Interpreter& in, const Value& object, const std::string& name,
                  const Arguments& given) {
  return method_of(object, name)(in, object, given);
}

}  // namespace halftone::jinja
