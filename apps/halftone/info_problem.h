// A problem as words of the command line: "matmul m=16 n=4096 k=4096 weight=nvfp4".
#pragma once
#include <string>
#include <variant>
#include <vector>

#include "halftone/grouped_matmul.h"
#include "halftone/matmul.h"
#include "halftone/moe.h"

namespace halftone::app {

using GemmQuestion = std::variant<MatmulProblem, GroupedProblem, MoeProblem>;

// Throws an Error that names the word which is wrong, and what is right.
GemmQuestion parse_gemm(const std::vector<std::string>& words);
// For the help.
extern const char* const kGemmWords;

}  // namespace halftone::app
