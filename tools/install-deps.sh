#!/bin/sh
# Installs what building Hognose needs on Debian 12, and nothing else. Run as root, or with sudo present.
set -eu

packages="g++ cmake ninja-build pkg-config
libhwy-dev libboost1.81-dev libboost-json1.81-dev libcli11-dev libpcre2-dev libutf8proc-dev libfmt-dev
libxxhash-dev libgtest-dev libbenchmark-dev xz-utils"

missing=""
for package in $packages; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
    missing="$missing $package"
done
[ -z "$missing" ] && exit 0

as_root=""
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || {
    echo "install-deps.sh: not root and no sudo; install as root:$missing" >&2
    exit 1
  }
  as_root="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing:$missing" >&2
$as_root apt-get update -q >&2
# Word splitting is wanted: one argument a package.
# shellcheck disable=SC2086
$as_root apt-get install -y -q --no-install-recommends $missing >&2
