// The weight formats that options name.
#pragma once
#include <string>
#include <vector>

namespace halftone::app {

// Names that --weights takes.
std::vector<std::string> weight_names();
// Ends in wrong_input with the nearest valid choice.
void check_weights(const std::string& option, const std::string& name);

}  // namespace halftone::app
