#!/usr/bin/env bash
# Installs a build into a temporary prefix and builds and runs a program against it with
# find_package. Usage: check-install.sh BUILD_FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/prefix" >/dev/null
cat >"$work/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(consumer CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(halftone 0.1 REQUIRED)
add_executable(consumer main.cpp)
target_link_libraries(consumer halftone::engine)
CMAKE
cat >"$work/main.cpp" <<'CPP'
#include <cstdio>

#include "halftone/engine.h"
#include "halftone/halftone.h"

int main() {
  const auto x = halftone::Tensor::from({1, 2, 3, 4}, {2, 2});
  const auto y = halftone::matmul(x, x);
  halftone::Utf8Stream stream;
  std::printf("%g %s\n", y.at({1, 1}), stream.push("ok").c_str());
  return y.at({1, 1}) == 25 ? 0 : 1;
}
CPP
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build" >/dev/null
"$work/build/consumer"
"$work/prefix/bin/halftone" --version
