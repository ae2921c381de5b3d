#!/bin/sh
# Installs what is missing, builds, and runs every test but those labelled slow. Arguments go to ctest.
set -eu
cd "$(dirname "$0")"
tools/build.sh build -DHOGNOSE_TESTS=ON
# Every kernel test forces each of these in turn; the message for an unknown one lists them.
echo "targets of this machine: $(HOGNOSE_TARGET=list build/hognose inspect 2>&1 | sed 's/.*want one of //')"
exec ctest --test-dir build --output-on-failure --label-exclude slow "$@"
