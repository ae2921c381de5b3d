#!/bin/sh
# Checks the arrows of DEVELOPERS.md: which folder of src/ may include which, and that Highway and intrinsics
# are seen only in src/kernels. Prints every line that breaks a rule and exits 1 if there is one.
set -eu
cd "$(dirname "$0")/.."

# folder: folders that its files may include
rules="
core: core
codecs: codecs core
kernels: kernels codecs core
io: io codecs core
nn: nn kernels codecs core
models: models nn kernels codecs core
train: train models nn kernels io codecs core
runtime: runtime models nn kernels io codecs core hognose
cli: cli train runtime models nn kernels io codecs core
"

bad=$(
  echo "$rules" | while IFS=: read -r folder allowed; do
    [ -n "$folder" ] || continue
    pattern=$(echo $allowed tests | sed 's/ /|/g')
    grep -rnE '^#include "[a-z]+/' "src/$folder" --include='*.h' --include='*.cc' |
      grep -vE ":#include \"($pattern|hwy)/" || true
    [ "$folder" = kernels ] ||
      grep -rnE '^#include [<"](hwy/|immintrin|arm_neon)' "src/$folder" \
        --include='*.h' --include='*.cc' || true
  done
)
[ -z "$bad" ] && exit 0
echo "$bad"
exit 1
