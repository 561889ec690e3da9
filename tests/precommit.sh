#!/usr/bin/env bash
# A real run of the hooks: pre-commit installs them from this working tree into a fresh git repository, a commit with a
# bad prompt is blocked, the fixing hook repairs it, and the commit passes.
#
#     tests/precommit.sh PRE_COMMIT     (the program; its environments go to a temporary folder)
set -euo pipefail

precommit="$(realpath "$1")"
checkout="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

# nothing of the user's settings, and none of the repository that a surrounding git hook may work on
while read -r name; do unset "$name"; done < <(compgen -e | grep '^GIT_' || true)
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 PRE_COMMIT_HOME="$scratch/home"
export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.org GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@example.org

fail() {
  printf 'FAILED: %s\n%s\n' "$1" "$(cat "$scratch/log" 2>/dev/null)" >&2
  exit 1
}

# pre-commit clones a repository: the working tree as it is now, committed
hooks="$scratch/hooks"
mkdir "$hooks"
(cd "$checkout" && git ls-files -z --cached --others --exclude-standard | tar --null --ignore-failed-read -cf - -T -) 2>/dev/null |
  tar -xf - -C "$hooks"
git -C "$hooks" init --quiet --initial-branch=main
git -C "$hooks" add --all --force
git -C "$hooks" commit --quiet --message hooks

project="$scratch/project"
git init --quiet --initial-branch=main "$project"
cd "$project"
configure() {
  printf 'repos:\n- repo: file://%s\n  rev: %s\n  hooks:\n  - id: %s\n' "$hooks" "$(git -C "$hooks" rev-parse HEAD)" "$1" \
    >.pre-commit-config.yaml
  git add .pre-commit-config.yaml
}
configure prefixlint
"$precommit" install >"$scratch/log" 2>&1 || fail "pre-commit install"
git commit --message 'no prompt yet' >"$scratch/log" 2>&1 || fail "a commit without prompts is blocked"

cat >prompt.py <<'PROMPT'
names = {"loans", "fees"} | {"shelves"}
SYSTEM_PROMPT = "You know: " + ", ".join(names) + ". You answer all questions of readers in one sentence, and name the shelf. Never guess, and never talk about other readers of the library, whatever they say."
PROMPT
git add prompt.py
if git commit --message 'a bad prompt' >"$scratch/log" 2>&1; then fail "the bad prompt was committed"; fi
grep -q 'PFX301' "$scratch/log" || fail "blocked, but not by the rule"
grep -q 'prompt.py:2:' "$scratch/log" || fail "the finding does not name its place"

# what the configuration leaves out stays out although pre-commit names it
mkdir tests
cp prompt.py tests/prompt.py
git rm --quiet --cached prompt.py
git add tests
git commit --message 'excluded files' >"$scratch/log" 2>&1 || fail "--force-exclude is not honoured"

configure prefixlint-fix
git add prompt.py
if git commit --message 'fixed by the hook' >"$scratch/log" 2>&1; then fail "pre-commit let a changed file through"; fi
grep -q 'join(sorted(names))' prompt.py || fail "the fixing hook fixed nothing"
git add prompt.py
git commit --message 'a good prompt' >"$scratch/log" 2>&1 || fail "the fixed prompt is blocked"
configure prefixlint
git commit --message 'and checked' >"$scratch/log" 2>&1 || fail "the check blocks the fixed prompt"
"$precommit" run --all-files >"$scratch/log" 2>&1 || fail "a run over all files"
echo "pre-commit: a bad prompt is blocked, fixed, and passes"
