// The rows of `halftone check`, for a terminal and for programs.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "check/accuracy_row.h"

namespace halftone::app {

std::string accuracy_table(const std::vector<AccuracyRow>&);
nlohmann::json accuracy_json(const AccuracyRow&);

}  // namespace halftone::app
