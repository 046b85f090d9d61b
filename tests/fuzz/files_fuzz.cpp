// libFuzzer entry: the first byte picks a reader, the rest is its file.
#include <cstddef>
#include <cstdint>

#include "engine_files/file_readers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto readers = halftone::test::file_readers();
  static const halftone::test::TempDirectory directory;
  if (size == 0) return 0;
  const auto& reader = readers[data[0] % readers.size()];
  try {
    reader.read(directory, std::string(reinterpret_cast<const char*>(data) + 1, size - 1));
  } catch (const halftone::Error&) {  // the only thing that may come out
  }
  return 0;
}
