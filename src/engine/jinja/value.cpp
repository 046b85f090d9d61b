#include "engine/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/message.h"
#include "engine/json.h"
#include "engine/tokenizer/unicode.h"

namespace halftone::jinja {

namespace {

constexpr int kDeepest = 100;

int checked_depth(int depth) {
  require(depth <= kDeepest, "lists and dicts are nested deeper than ", kDeepest,
          " levels, which is the limit");
  return depth;
}

constexpr size_t kScalarWeight = 8;
constexpr size_t kHeaviest = size_t{64} << 20;

size_t checked_weight(size_t weight) {
  require(weight <= kHeaviest, "a list or dict is larger than ", kHeaviest,
          " bytes with all that it holds, which is the limit");
  return weight;
}

Value make_list(Values items, bool tuple) {
  int depth = 0;
  size_t weight = kScalarWeight;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth());
    weight += item.weight();  // each is limited, so the sum of what fits memory does not overflow
  }
  return Value(std::make_shared<const List>(
      List{std::move(items), tuple, checked_depth(depth + 1), checked_weight(weight)}));
}

std::string joined(const Values& items, const char* open, const char* close) {
  std::string text = open;
  for (size_t i = 0; i < items.size(); ++i) text += (i == 0 ? "" : ", ") + items[i].repr();
  return text + close;
}

// A string as Python's repr writes it.
std::string quoted(const std::string& text) {
  const bool apostrophe = text.find('\'') != std::string::npos;
  const char mark = apostrophe && text.find('"') == std::string::npos ? '"' : '\'';
  std::string result(1, mark);
  constexpr char kDigits[] = "0123456789abcdef";
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = decode_utf8(text, i);
    const auto length = static_cast<size_t>(step.length);
    const int32_t c = step.codepoint;
    if (c == mark || c == '\\') {
      result += {'\\', static_cast<char>(c)};
    } else if (c == '\n' || c == '\r' || c == '\t') {
      result += {'\\', c == '\n' ? 'n' : c == '\r' ? 'r' : 't'};
    } else if (c >= 0 && (c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad)) {
      result += {'\\', 'x', kDigits[c >> 4], kDigits[c & 15]};
    } else {
      result.append(text, i, length);
    }
    i += length;
  }
  return result + mark;
}

Value convert(const nlohmann::ordered_json& json) {
  if (json.is_null()) return {};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return json.get<double>();
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get_ref<const std::string&>();
  if (json.is_array()) {
    Values items;
    for (const auto& item : json) items.push_back(convert(item));
    return Value::list(std::move(items));
  }
  Members members;
  for (const auto& [key, value] : json.items()) members.emplace_back(key, convert(value));
  return Value::dict(std::move(members));
}

// Nesting of brackets outside strings, told before anything recursive sees the text.
bool too_deep(std::string_view text) {
  int depth = 0;
  bool string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (string) {
      if (c == '\\') ++i;
      if (c == '"') string = false;
    } else if (c == '"') {
      string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kDeepest) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Value Value::undefined(std::string what) {
  Value result;
  result.value_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return result;
}
Value Value::list(Values items) { return make_list(std::move(items), false); }
Value Value::tuple(Values items) { return make_list(std::move(items), true); }

Value Value::dict(Members members) {
  Members unique;
  int depth = 0;
  for (auto& [key, value] : members) {
    require(key.depth() == 0 || key.is_tuple(), "a ", key.type(), " cannot be the key of a dict");
    depth = std::max({depth, key.depth(), value.depth()});
    const auto same = std::find_if(unique.begin(), unique.end(),
                                   [&](const auto& m) { return m.first.equals(key); });
    if (same != unique.end()) {
      same->second = std::move(value);
    } else {
      unique.emplace_back(std::move(key), std::move(value));
    }
  }
  size_t weight = kScalarWeight;
  for (const auto& [key, value] : unique) weight += key.weight() + value.weight();
  return Value(std::make_shared<const Dict>(
      Dict{std::move(unique), checked_depth(depth + 1), checked_weight(weight)}));
}

Value Value::from_json(std::string_view text, const std::string& what) {
  require(!too_deep(text), what, " is nested deeper than ", kDeepest, " levels, the limit");
  try {
    return convert(nlohmann::ordered_json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorCode::invalid_argument, what, " is not valid JSON: ", clipped(text));
  }
}

bool Value::is_tuple() const {
  return is_sequence() && std::get<std::shared_ptr<const List>>(value_)->tuple;
}
const Values& Value::items() const { return std::get<std::shared_ptr<const List>>(value_)->items; }
const Members& Value::members() const {
  return std::get<std::shared_ptr<const Dict>>(value_)->members;
}

bool Value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_number()) return real() != 0;
  if (is_string()) return !string().empty();
  if (is_sequence()) return !items().empty();
  if (is_dict()) return !members().empty();
  return true;
}

const Value* Value::find(const Value& key) const {
  for (const auto& [name, value] : members()) {
    if (name.equals(key)) return &value;
  }
  return nullptr;
}

bool Value::equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    if (is_real() || other.is_real()) return real() == other.real();
    return integer() == other.integer();
  }
  if (value_.index() != other.value_.index()) return false;
  if (is_string()) return string() == other.string();
  if (is_sequence()) {
    const Values &a = items(), &b = other.items();
    return is_tuple() == other.is_tuple() &&
           std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const Value& x, const Value& y) { return x.equals(y); });
  }
  if (is_dict()) {
    if (members().size() != other.members().size()) return false;
    return std::all_of(members().begin(), members().end(), [&](const auto& member) {
      const Value* found = other.find(member.first);
      return found != nullptr && found->equals(member.second);
    });
  }
  if (is_namespace()) return &space() == &other.space();
  if (is_function()) return &function() == &other.function();
  return true;  // none, undefined
}

std::string Value::type() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "undefined";
  if (is_bool()) return "bool";
  if (is_integer()) return "int";
  if (is_real()) return "float";
  if (is_string()) return "str";
  if (is_sequence()) return is_tuple() ? "tuple" : "list";
  return is_dict() ? "dict" : is_namespace() ? "namespace" : "function";
}

std::string Value::text() const { return is_string() ? string() : repr(); }

std::string Value::repr() const {
  if (is_none()) return "None";
  if (is_undefined()) return "";
  if (is_bool()) return boolean() ? "True" : "False";
  if (is_integer()) return std::to_string(integer());
  if (is_real()) return real_text(real());
  if (is_string()) return quoted(string());
  if (is_tuple()) return joined(items(), "(", items().size() == 1 ? ",)" : ")");
  if (is_sequence()) return joined(items(), "[", "]");
  if (is_dict()) {
    std::string text = "{";
    for (const auto& [key, value] : members()) {
      text += (text.size() > 1 ? ", " : "") + key.repr() + ": " + value.repr();
    }
    return text + "}";
  }
  return is_namespace() ? "<Namespace>" : "<function " + function().name + ">";
}

int Value::depth() const {
  if (is_sequence()) return std::get<std::shared_ptr<const List>>(value_)->depth;
  if (is_dict()) return std::get<std::shared_ptr<const Dict>>(value_)->depth;
  return 0;
}

size_t Value::weight() const {
  if (is_string()) return string().size() + kScalarWeight;
  if (is_sequence()) return std::get<std::shared_ptr<const List>>(value_)->weight;
  if (is_dict()) return std::get<std::shared_ptr<const Dict>>(value_)->weight;
  return kScalarWeight;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  // The shortest digits, from which Python chooses the form itself.
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  int exponent = 0;
  const char* digits = buffer + text.find('e') + 1;
  std::from_chars(*digits == '+' ? digits + 1 : digits, end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  char plain[400];
  const auto stop = std::to_chars(plain, plain + sizeof plain, value, std::chars_format::fixed).ptr;
  std::string result(plain, static_cast<size_t>(stop - plain));
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

namespace {

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value, int level) {
    if (value.is_none()) {
      out += "null";
    } else if (value.is_bool()) {
      out += value.boolean() ? "true" : "false";
    } else if (value.is_real() && !std::isfinite(value.real())) {
      out += std::isnan(value.real()) ? "NaN" : value.real() < 0 ? "-Infinity" : "Infinity";
    } else if (value.is_number()) {
      out += value.repr();
    } else if (value.is_string()) {
      string(value.string());
    } else if (value.is_sequence()) {
      container('[', ']', value.items().size(), level,
                [&](size_t i) { write(value.items()[i], level + 1); });
    } else if (value.is_dict()) {
      dict(value.members(), level);
    } else {
      fail(ErrorCode::invalid_argument, "tojson: a value of type ", value.type(),
           value.is_undefined() ? " (" + value.undefined_name() + ")" : "", " has no form in JSON");
    }
  }

  std::string out;

 private:
  template <class Write>
  void container(char open, char close, size_t count, int level, const Write& write_item) {
    out += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      new_line(level + 1);
      write_item(i);
    }
    if (count > 0) new_line(level);
    out += close;
  }
  void new_line(int level) {
    if (style_.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(style_.indent * level), ' ');
  }
  static std::string key_text(const Value& key) {
    if (key.is_string()) return key.string();
    if (key.is_none()) return "null";
    if (key.is_bool()) return key.boolean() ? "true" : "false";
    require(key.is_number(), "tojson: a ", key.type(), " cannot be a key in JSON");
    return key.repr();
  }
  void dict(const Members& members, int level) {
    std::vector<std::pair<std::string, const Value*>> entries;
    for (const auto& [key, value] : members) entries.emplace_back(key_text(key), &value);
    if (style_.sort) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    container('{', '}', entries.size(), level, [&](size_t i) {
      string(entries[i].first);
      out += style_.key_separator;
      write(*entries[i].second, level + 1);
    });
  }
  void escape(uint32_t unit) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kDigits[unit >> shift & 15];
  }
  void string(const std::string& text) {
    out += '"';
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = decode_utf8(text, i);
      const int32_t c = step.codepoint;
      constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
      const size_t named =
          c < 0 || c >= 0x80 ? std::string_view::npos : kNamed.find(static_cast<char>(c));
      if (named != std::string_view::npos) {
        out += {'\\', kLetters[named]};
      } else if (c >= 0 && (c < 0x20 || (style_.ascii && c >= 0x7f && c < 0x10000))) {
        if (c == 0x7f) {
          out += '\x7f';
        } else {
          escape(static_cast<uint32_t>(c));
        }
      } else if (style_.ascii && c >= 0x10000) {
        const auto rest = static_cast<uint32_t>(c - 0x10000);
        escape(0xd800 + (rest >> 10));
        escape(0xdc00 + (rest & 0x3ff));
      } else {
        out.append(text, i, static_cast<size_t>(step.length));
      }
      i += static_cast<size_t>(step.length);
    }
    out += '"';
  }

  const JsonStyle& style_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace halftone::jinja
