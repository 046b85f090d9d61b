#!/usr/bin/env bash
# Text of both bundled models in six formats, then one screen: speed, memory and quality of each, the
# best and the worst attention mode, and what to try next. The accuracy of every attention mode goes
# to build/demo-attention.txt. Usage: demo.sh PATH_OF_THE_COMMAND
set -euo pipefail
command=$(realpath "${1:?usage: scripts/demo.sh PATH_OF_THE_COMMAND}")
cd "$(dirname "$0")/.."
mkdir -p build
exec "$command" demo --table build/demo-attention.txt
