#pragma once
#include <string>
#include <vector>

#include "check/accuracy_row.h"

namespace halftone::app {

// The table of `halftone check`, for a terminal.
std::string accuracy_table(const std::vector<AccuracyRow>&);

}  // namespace halftone::app
