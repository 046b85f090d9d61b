// A broken file and what the message about it must say.
#pragma once
#include <string>
#include <vector>

namespace halftone::test {

struct Case {
  const char* name;
  std::string bytes;
  std::vector<std::string> words;  // that the message must hold
};

}  // namespace halftone::test
