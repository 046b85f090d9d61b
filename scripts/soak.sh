#!/bin/sh
# Generates 100,000 tokens in some hundreds of sessions and fails when memory grows.
#   scripts/soak.sh [BUILD_FOLDER [TOKENS]]
set -e
cd "$(dirname "$0")/.."
build=${1:-build/release}
HALFTONE_SOAK_TOKENS=${2:-100000} exec "$build/tests/soak/soak_test"
