#!/usr/bin/env bash
# Text of both bundled models in every format, with speed, memory and quality, and the accuracy of
# every attention mode. Usage: demo.sh PATH_OF_THE_COMMAND
set -euo pipefail
command=${1:?usage: scripts/demo.sh PATH_OF_THE_COMMAND}
exec "$command" demo --models "$(dirname "$0")/../examples/models"
