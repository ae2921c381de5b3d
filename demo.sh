#!/bin/sh
# Installs what is missing, builds, and streams text from the bundled model. Arguments go to `hognose run`.
set -eu
cd "$(dirname "$0")"
tools/build.sh build -DHOGNOSE_TESTS=OFF
[ $# -gt 0 ] || set -- -p "It is a truth universally acknowledged" -n 120 --seed 1 --echo
exec build/hognose run "$@"
