// Which entries of kernels a build with HALFTONE_CUDA_SAMPLE compiles: the first of each kernel
// template in a file. Entries are numbered by __COUNTER__; each keeps the name of its template and
// of its file as a hash, and compares it with those before it.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>

namespace halftone::hw {

// Of the entry `kNumber`.
template <int kNumber>
inline constexpr uint64_t kSampled = 0;

constexpr uint64_t hash_of(std::string_view text, uint64_t hash = 14695981039346656037u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// What follows "Kernel = " in the name of this function, up to the arguments of the template.
template <class Kernel>
constexpr uint64_t template_in_file(std::string_view file) {
  std::string_view name = __PRETTY_FUNCTION__;
  name.remove_prefix(name.rfind("Kernel", name.find("halftone::", name.find("with "))));
  return hash_of(name.substr(0, name.find_first_of("<;,]")), hash_of(file));
}

template <int kNumber>
constexpr bool is_first_of_template() {
  return []<int... kBefore>(std::integer_sequence<int, kBefore...>) {
    return ((kSampled<kBefore> != kSampled<kNumber>)&&...);
  }
  (std::make_integer_sequence<int, kNumber>());
}

}  // namespace halftone::hw
