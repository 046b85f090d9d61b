// Chat templates are Jinja templates. This is the part of Jinja that they use, with the settings of
// Transformers (trim_blocks, lstrip_blocks, no way to change values); anything else is an Error
// that names the line and the feature.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "engine/jinja/ast.h"
#include "engine/jinja/interpreter.h"

namespace halftone::jinja {

class Template {
 public:
  // `where` names the template in errors.
  Template(std::string_view source, std::string where);
  // `context`: the variables; `clock`: the time that strftime_now tells (Unix, UTC), else now.
  std::string render(const Members& context, std::optional<int64_t> clock = {},
                     const Limits& = {}) const;

 private:
  std::string where_;
  Block block_;
};

}  // namespace halftone::jinja
