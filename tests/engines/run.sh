#!/usr/bin/env bash
# `prefixlint verify` against real engines on a machine without a GPU: installs them where that was not done, and
# compares every prediction with what the servers measure. Arguments are passed to pytest: `run.sh -k vllm`.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export PREFIXLINT_ORACLE_HOME="${PREFIXLINT_ORACLE_HOME:-$PWD/build/engines}"
tests/engines/install.sh
# in the order of the file, so that the next server starts while the one before it is measured
PREFIXLINT_ENGINES=1 exec "${PYTHON:-python3}" -m pytest -q -p no:randomly -p no:cacheprovider --durations=0 \
  tests/engines "$@"
