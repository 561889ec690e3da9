#!/usr/bin/env bash
# The HTML page in headless Chromium: what it draws, how it is used, and that nothing of a log runs in it.
#
# Chromium is the one on the path, else Debian's, which apt-get installs (as root); playwright drives it and axe-core
# looks for barriers. Both are kept in build/browser; the tests run in the environment of the others, .venv or PYTHON.
# PREFIXLINT_CHROMIUM names another Chromium, PREFIXLINT_SCREENSHOTS a folder for pictures of the pages.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
home="$PWD/build/browser"
python="${PYTHON:-.venv/bin/python}"
mkdir -p "$home"

find_chromium() {
  local name
  for name in "${PREFIXLINT_CHROMIUM:-}" chromium chromium-browser google-chrome-stable google-chrome; do
    if [[ -n "$name" ]] && command -v "$name"; then return; fi
  done
  return 1
}

if ! chromium="$(find_chromium)"; then
  if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >"$home/apt.log" 2>&1; then
    tail -n 3 "$home/apt.log"
    echo "skipped: there is no Chromium, and apt-get cannot install it"
    exit 0
  fi
  chromium="$(find_chromium)"
fi

# beside the environment of the tests and not in it: all its other tests must pass without
wanted="playwright>=1.50,<2"
if [[ "$(cat "$home/.ready" 2>/dev/null)" != "$wanted" ]]; then
  rm -rf "$home/site"
  if ! "$python" -m pip install --quiet --disable-pip-version-check --target "$home/site" "$wanted"; then
    echo "skipped: PyPI cannot be reached, and playwright comes from there"
    exit 0
  fi
  echo "$wanted" >"$home/.ready"
fi

axe="$home/node_modules/axe-core/axe.min.js"
if [[ ! -f "$axe" ]] && ! npm install --silent --no-audit --no-fund --prefix "$home" axe-core@4 >"$home/npm.log" 2>&1; then
  echo "without axe-core: npm cannot install it"
  axe=
fi

PREFIXLINT_CHROMIUM="$chromium" PREFIXLINT_AXE="$axe" PYTHONPATH="$home/site" "$python" -m pytest -q -p no:cacheprovider tests/browser "$@"
