// Prints the rows of bench_formats: the speed of quantisation against the memory's.
#include <cstdio>

#include "bench_formats.h"
#include "halftone/error.h"

int main() try {
  halftone::Stream stream;
  for (const halftone::BenchRow& row : halftone::bench_formats(stream, false)) {
    std::printf("%-40s %8.2f ms %8.1f %s %5.1f %% of %s %.1f\n", row.name.c_str(),
                row.seconds * 1e3, row.value, row.unit.c_str(), 100 * row.value / row.roof,
                row.roof_name.c_str(), row.roof);
  }
  return 0;
} catch (const halftone::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
