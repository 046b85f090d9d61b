#include "weight_names.h"

#include <algorithm>
#include <utility>

#include "command.h"
#include "halftone/quantize.h"

namespace halftone::app {

std::vector<std::string> weight_names() {
  std::vector<std::string> names = {"f32", "f16", "bf16"};
  for (std::string& name : quantization_names()) names.push_back(std::move(name));
  return names;
}

void check_weights(const std::string& option, const std::string& name) {
  const std::vector<std::string> names = weight_names();
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  try {
    parse_quantization(name);
  } catch (const Error&) {
    unknown_choice(option, name, names);
  }
}

}  // namespace halftone::app
