#!/usr/bin/env bash
# Installs the Debian packages that building Halftone needs, saying which, and nothing when all are
# there. With --ci also those of the checks that only continuous integration runs.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config        # the build
  nlohmann-json3-dev libpcre2-dev         # engine: JSON, tokenizer patterns
  libutf8proc-dev                         # engine: Unicode normal forms and classes
  libcli11-dev libfmt-dev                 # command: options, output
  libgtest-dev                            # tests
)
if [ "${1:-}" = "--ci" ]; then
  packages+=(ccache chromium clang-16 libclang-rt-16-dev clang-format-14 python3)
fi

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps: this system has no Debian packages; install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install-deps: as root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "install-deps: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
