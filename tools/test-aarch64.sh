#!/bin/sh
# Builds Hognose for AArch64 into build-aarch64/ (or $1) with Debian 12's cross compiler and runs its tests under
# qemu-user, after installing what is missing. Further arguments choose tests (they go to ctest); without, all but
# those of the command line, which take half an hour there. Run as root, or with sudo present.
set -eu
cd "$(dirname "$0")/.."
tools/install-deps.sh
folder="${1:-build-aarch64}"
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- --exclude-regex '^cli_'

packages="g++-aarch64-linux-gnu qemu-user
libhwy-dev:arm64 libboost1.81-dev:arm64 libboost-json1.81-dev:arm64 libpcre2-dev:arm64 libutf8proc-dev:arm64
libfmt-dev:arm64 libxxhash-dev:arm64 libgtest-dev:arm64"

missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing="$missing $package"
done
if [ -n "$missing" ]; then
  as_root=""
  [ "$(id -u)" -eq 0 ] || as_root="sudo"
  export DEBIAN_FRONTEND=noninteractive
  echo "installing:$missing" >&2
  $as_root dpkg --add-architecture arm64
  $as_root apt-get update -q >&2
  # Word splitting is wanted: one argument a package.
  # shellcheck disable=SC2086
  $as_root apt-get install -y -q --no-install-recommends $missing >&2
fi

cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHOGNOSE_TESTS=ON \
  -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux.cmake >&2
cmake --build "$folder" >&2
ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)" --label-exclude 'slow|fuzz' "$@"
# Every kernel test runs on all of these; the message for an unknown one lists them.
echo "kernel tests ran on: $(HOGNOSE_TARGET=list "$folder/hognose-emulated" inspect 2>&1 | sed 's/.*want one of //')"
