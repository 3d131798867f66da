#!/usr/bin/env bash
# Compares the exported API of every module that is released with that of the last release. From v1 on, a change that
# breaks users is an error. Before, it is listed: CHANGELOG.md must have it.
set -euo pipefail
cd "$(dirname "$0")/.."
APIDIFF=${APIDIFF:?a version, from the Makefile}

last=$(git describe --tags --abbrev=0 --match 'v[0-9]*' "${1:-HEAD}^" 2>/dev/null) || {
	echo "api: nothing was released before ${1:-HEAD}, so there is nothing to compare with"
	exit 0
}
work=$(mktemp -d)
trap 'git worktree remove --force "$work/last" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add --quiet --detach "$work/last" "$last"
GOBIN=$work go install "$APIDIFF"
broken=
for dir in . adapters/*; do
	[ -f "$dir/go.mod" ] && [ -f "$work/last/$dir/go.mod" ] || continue # a new module breaks nobody
	module=$(cd "$dir" && go list -m)
	(cd "$work/last/$dir" && "$work/apidiff" -m -w "$work/old" "$module" >/dev/null)
	(cd "$dir" && "$work/apidiff" -m -w "$work/new" "$module" >/dev/null)
	"$work/apidiff" -m -incompatible "$work/old" "$work/new" >"$work/diff"
	grep -v '/internal' "$work/diff" >"$work/public" || true
	if [ -s "$work/public" ]; then
		broken=1
		echo "api: $module breaks users of $last:"
		cat "$work/public"
	fi
done
case $broken$last in
1v0.*) echo "api: before v1 that is allowed; CHANGELOG.md must name it" ;;
1*) exit 1 ;;
*) echo "api: nothing breaks users of $last" ;;
esac
