// Names of instructions and of their parts as template arguments. The "C" constraint of inline
// assembly takes them, so that one function covers every variant of an instruction:
//   asm volatile("%2.u32 %0, [%1];" : "=r"(v) : "r"(a), "C"(Mnemonic<"ld.shared">::text) :
//   "memory");
#pragma once
#include <cstddef>
#include <utility>

namespace halftone::hw {

template <size_t kSize>
struct Text {
  char at[kSize];
  constexpr Text() : at{} {}
  constexpr Text(const char (&text)[kSize]) {
    for (size_t i = 0; i < kSize; i++) at[i] = text[i];
  }
};
template <size_t kLeft, size_t kRight>
constexpr Text<kLeft + kRight - 1> operator+(const Text<kLeft>& left, const Text<kRight>& right) {
  Text<kLeft + kRight - 1> sum;
  for (size_t i = 0; i < kLeft - 1; i++) sum.at[i] = left.at[i];
  for (size_t i = 0; i < kRight; i++) sum.at[kLeft - 1 + i] = right.at[i];
  return sum;
}
template <size_t kLeft, size_t kRight>
constexpr auto operator+(const Text<kLeft>& left, const char (&right)[kRight]) {
  return left + Text<kRight>(right);
}

// The constraint wants a variable of type const char[]: a Text spread out into one.
template <char... kLetters>
struct Letters {
  static constexpr char text[] = {kLetters...};
};
template <Text kText, size_t... kAt>
Letters<kText.at[kAt]...> letters_of(std::index_sequence<kAt...>);
template <Text kText>
using Mnemonic = decltype(letters_of<kText>(std::make_index_sequence<sizeof(kText.at)>{}));

}  // namespace halftone::hw
