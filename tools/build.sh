#!/bin/sh
# Builds Hognose into build/ (or $1), after installing what is missing. Further arguments go to CMake.
set -eu
cd "$(dirname "$0")/.."
tools/install-deps.sh
folder="${1:-build}"
[ $# -gt 0 ] && shift
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "$@" >&2
cmake --build "$folder" >&2
