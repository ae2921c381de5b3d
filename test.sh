#!/bin/sh
# Installs what is missing, builds, and runs every test but those labelled slow. Arguments go to ctest.
set -eu
cd "$(dirname "$0")"
tools/build.sh build -DHOGNOSE_TESTS=ON
exec ctest --test-dir build --output-on-failure --label-exclude slow "$@"
