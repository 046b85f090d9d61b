// Where the files of this checkout are.
#pragma once

#include <string>

namespace halftone::test {

// The path of a file of the checkout, given from its root. Its root is known to one source alone:
// what else of the tests is compiled is the same in every checkout, and a compiler cache knows it.
std::string source_path(const std::string& path);

}  // namespace halftone::test
