// The machine and the build, as `info` and benchmark results state them.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace halftone::app {

std::string version();  // "halftone 0.1.0 (commit 0123456789ab)"
std::string commit();   // empty when the build is from no repository
int64_t total_memory();
const char* bf16_products();  // how bf16 is multiplied: "dot" or "f32", as HALFTONE_BF16 says it
// Processor, levels, threads, memory, build.
nlohmann::json machine(int threads);

}  // namespace halftone::app
