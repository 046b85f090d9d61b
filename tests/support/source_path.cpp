#include "support/source_path.h"

namespace halftone::test {

std::string source_path(const std::string& path) { return HALFTONE_SOURCE_DIR "/" + path; }

}  // namespace halftone::test
