#!/bin/sh
# The clients from npm that tests talk to, from their lock file, into build/node. Names what is missing and goes on
# (the tests that need them are skipped, or fail when HEADRACE_NO_SKIP=1).
set -eu
cd "$(dirname "$0")/.."
from=tests/plugins/forward/node
into=build/node
if ! command -v npm >/dev/null; then
    echo "not installed (needs npm): fluent-logger for node" >&2
    exit 0
fi
mkdir -p "$into"
cmp -s "$from/package-lock.json" "$into/package-lock.json" && [ -d "$into/node_modules/fluent-logger" ] && exit 0
cp "$from/package.json" "$from/package-lock.json" "$into/"
npm ci --prefix "$into" --no-audit --no-fund --ignore-scripts --loglevel=error
