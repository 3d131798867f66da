#!/usr/bin/env bash
# Releases: this module and the modules of adapters/ have one version and one commit, and a tag each.
#   set VERSION          have the adapters require this version of the library (a replace in their go.mod is for this repository;
#                        importers do not see it)
#   check VERSION        whether this commit can be released as that version
#   tags VERSION         make the tags, and say how to push them
#   notes VERSION        what CHANGELOG.md says of it
#   build VERSION DIR    programs, their SBOM and checksums
set -euo pipefail
cd "$(dirname "$0")/.."

module=github.com/quorumlock/redlock
adapters() { for f in adapters/*/go.mod; do dirname "$f"; done; }
fail() { echo "release: $*" >&2; exit 1; }

command=${1:-} version=${2:-}
[[ $version =~ ^v(0|1)\.[0-9]+\.[0-9]+(-[0-9a-z.]+)?$ ]] ||
	fail "usage: $0 set|check|tags|notes|build VERSION [DIR]; VERSION is like v1.2.3, and v0 or v1: v2 needs another module path"

notes() {
	awk -v heading="## ${version#v}" 'index($0, heading) == 1 && substr($0, length(heading) + 1) ~ /^( |$)/ { on = 1; next }
		/^## / { on = 0 } on' CHANGELOG.md
}

check() {
	local dir required
	for dir in $(adapters); do
		required=$(cd "$dir" && go list -m -f '{{.Version}}' "$module")
		[ "$required" = "$version" ] || fail "$dir/go.mod requires $module $required; run: $0 set $version"
	done
	[ -n "$(notes | tr -d '[:space:]')" ] || fail "CHANGELOG.md has nothing under \"## ${version#v}\""
	[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
	for dir in $(adapters); do # last, as this takes long
		(cd "$dir" && go mod verify >/dev/null && go mod tidy -diff >/dev/null) || fail "$dir: go mod tidy changes something"
	done
	go mod tidy -diff >/dev/null || fail "go mod tidy changes something"
}

case $command in
set)
	for dir in $(adapters); do (cd "$dir" && go mod edit -require="$module@$version"); done
	;;
check) check ;;
tags)
	check
	names=("$version")
	for dir in $(adapters); do names+=("$dir/$version"); done
	for name in "${names[@]}"; do git tag -a "$name" -m "$name"; done
	echo "now: git push --atomic origin ${names[*]}"
	;;
notes) notes ;;
build)
	out=${3:?a directory}
	mkdir -p "$out"
	for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
		os=${target%/*} arch=${target#*/} suffix=
		[ "$os" = windows ] && suffix=.exe
		program=$out/redlock_${version}_${os}_${arch}$suffix
		# Nothing of this machine goes in, so whoever builds the same commit gets the same bytes.
		CGO_ENABLED=0 GOOS=$os GOARCH=$arch GOFLAGS= go build -trimpath -buildvcs=false \
			-ldflags "-s -w -buildid=" -o "$program" ./cmd/redlock
		go run ./internal/sbom "$program" "$version" >"$program.cdx.json"
	done
	(cd "$out" && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS)
	;;
*) fail "unknown command: $command" ;;
esac
