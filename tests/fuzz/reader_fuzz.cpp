// libFuzzer entry of every reader of untrusted files: HALFTONE_FUZZ_READER in the environment
// chooses one, tests/fuzz/corpus/<reader> are its seeds.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "engine_files/file_readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using halftone::test::FileReader;
  static const FileReader reader = [] {
    const char* const name = std::getenv("HALFTONE_FUZZ_READER");
    const auto all = halftone::test::file_readers();
    const auto place = std::find_if(all.begin(), all.end(), [&](const FileReader& r) {
      return name != nullptr && std::string_view(r.name) == name;
    });
    if (place != all.end()) return *place;
    std::fprintf(stderr, "HALFTONE_FUZZ_READER must be one of:");
    for (const FileReader& r : all) std::fprintf(stderr, " %s", r.name);
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  static const halftone::test::TempDirectory directory;
  try {
    reader.read(directory, std::string(reinterpret_cast<const char*>(data), size));
  } catch (const halftone::Error&) {  // the only thing that may come out
  }
  return 0;
}
