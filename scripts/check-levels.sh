#!/usr/bin/env bash
# Functions compiled for one ISA level must not be merged with another's by the linker: a weak
# symbol in a level object may replace the same function everywhere, and a processor without that
# level would then trap. Usage: check-levels.sh BUILD_FOLDER
set -euo pipefail
found=0
while IFS= read -r object; do
  # Weak functions are W; shared constants (V, u) are the same everywhere.
  weak=$(nm -C "$object" | awk '$2 ~ /^W$/' | grep -v 'halftone::cpu_' || true)
  if [ -n "$weak" ]; then
    echo "$object defines functions the linker may share with other levels:"
    echo "$weak" | head -5
    found=1
  fi
done < <(find "$1/src" -path '*halftone_level_*' -name '*.o' ! -path '*_baseline*')
exit $found
