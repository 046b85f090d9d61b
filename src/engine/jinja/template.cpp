#include "engine/jinja/template.h"

namespace halftone::jinja {

namespace {
constexpr size_t kLongest = size_t{1} << 20;  // known templates stay below 20 kB

Block parse_limited(std::string_view source, const std::string& where) {
  if (source.size() > kLongest) {
    fail(ErrorCode::malformed_file, where, " has ", source.size(), " bytes; at most ", kLongest,
         " are read");
  }
  return parse(source, where);
}
}  // namespace

Template::Template(std::string_view source, std::string where)
    : where_(std::move(where)), block_(parse_limited(source, where_)) {}

std::string Template::render(const Members& context, std::optional<int64_t> clock,
                             const Limits& limits) const {
  Interpreter interpreter(where_, limits, clock);
  try {
    return interpreter.run(block_, context);
  } catch (const std::bad_variant_access&) {  // a kind that no check above expected
    interpreter.error("a value has the wrong type");
  }
}

}  // namespace halftone::jinja
