#!/usr/bin/env bash
# Fetches servers to be compatible with out of Debian's suites, and prints a line for each: name version path. The path
# is a program that takes the arguments of redis-server; REDLOCK_SERVER=PATH makes the tests use it.
#
#	.ci/servers.sh [--dir DIR] [--mirror URL] [--fresh] [--allow-missing] [NAME...]
#
# Nothing of this machine's packages or of its apt configuration changes: apt has directories of its own here. It checks
# what it fetches with Debian's keys. A server that is in DIR already is not fetched again, unless --fresh says so. One
# that cannot be fetched is an error, unless --allow-missing says otherwise: then it is only named.
set -euo pipefail

# name, package with the program, suites; the package is taken from the first of them
servers="
redis-bullseye redis-tools bullseye
redis-bookworm redis-tools bookworm
redis-trixie redis-tools trixie
redis-experimental redis-tools experimental sid
redict-sid redict-tools sid
valkey-bookworm-backports valkey-tools bookworm-backports bookworm
valkey-trixie valkey-tools trixie
valkey-sid valkey-tools sid
"
dir=${XDG_CACHE_HOME:-$HOME/.cache}/redlock/servers
mirror=http://deb.debian.org/debian
keys=/usr/share/keyrings/debian-archive-keyring.gpg
fresh='' allow_missing='' names=()

say() { echo "servers: $*" >&2; }
usage() { sed -n 's/^#\t//p' "$0" >&2; exit 64; }

while [ $# -gt 0 ]; do
	case $1 in
	--dir) dir=${2:?a directory is missing after --dir}; shift ;;
	--mirror) mirror=${2:?a URL is missing after --mirror}; shift ;;
	--fresh) fresh=1 ;;
	--allow-missing) allow_missing=1 ;;
	-*) usage ;;
	*) grep -q "^$1 " <<<"$servers" || { say "no server is called $1; there are:" \
		"$(awk 'NF {printf "%s ", $1}' <<<"$servers")"; exit 64; }
		names+=("$1") ;;
	esac
	shift
done

needs() { # program or file, Debian package
	command -v "$1" >/dev/null || [ -e "$1" ] || { say "$1 is missing; install the package $2"; return 1; }
}

# apt with directories of its own: the state of one server in $1
private_apt() {
	local at=$1 command=$2
	shift 2
	timeout 300 "$command" -q -o Dir::Etc::sourcelist="$at/apt/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::Etc::preferences=- -o Dir::Etc::preferencesparts=- \
		-o Dir::State="$at/apt/state" -o Dir::State::status="$at/apt/status" -o Dir::Cache="$at/apt/cache" \
		-o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=30 \
		-o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false "$@"
}

fetch() { # directory, package, suites
	local at=$1 package=$2 suite=$3 s deb
	shift 2
	mkdir -p "$at"/apt/state/lists/partial "$at"/apt/cache/archives/partial "$at/root"
	: >"$at/apt/status" # nothing is installed, so what the program needs is fetched too
	for s in "$@"; do echo "deb [signed-by=$keys] $mirror $s main"; done >"$at/apt/sources.list"
	private_apt "$at" apt-get update >"$at/log" 2>&1 || return 1
	# apt-get update is content with an old or an empty list if it cannot reach a mirror.
	! grep -qE '^(Err:|E:|W:.*(Failed|could not|GPG))' "$at/log" || return 1
	private_apt "$at" apt-get install --download-only -y --no-install-recommends "$package/$suite" >>"$at/log" 2>&1 || return 1
	for deb in "$at"/apt/cache/archives/*.deb; do
		case ${deb##*/} in lib* | lua* | "$package"*) dpkg-deb -x "$deb" "$at/root" >>"$at/log" 2>&1 || return 1 ;; esac
	done
	rm -rf "$at/apt"
}

# A program that runs the server with the loader and the libraries of its own suite. The kind of program it is comes from
# its name, and the packages hold it under the name of the one that checks files.
wrap() { # directory, package
	local at=$1 family=${2%-tools} loader libraries modules
	loader=$(find "$at/root" -name 'ld-linux*.so.*' -print -quit)
	[ -n "$loader" ] || { echo "no loader was unpacked" >>"$at/log"; return 1; }
	libraries=$(find "$at/root" -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
	cp "$at/root/usr/bin/$family-check-rdb" "$at/$family-server" || return 1
	{
		echo '#!/bin/sh'
		modules=$(find "$at/root/usr/lib" -name cjson.so -path '*5.1*' -printf '%h\n' -quit)
		# Redis of bullseye finds parts of its Lua by their paths.
		[ -z "$modules" ] || echo "export LUA_PATH=\"$at/root/usr/share/lua/5.1/?.lua\" LUA_CPATH=\"$modules/?.so\""
		echo "exec \"$loader\" --library-path \"$libraries\" \"$at/$family-server\" \"\$@\""
	} >"$at/server"
	chmod +x "$at/server"
}

version() { timeout 20 "$1" --version 2>&1 | sed -n 's/.* v=\([^ ]*\).*/\1/p'; }

needs apt-get apt && needs dpkg-deb dpkg && needs "$keys" debian-archive-keyring || exit 1
mkdir -p "$dir"
missing=0
while read -r name package suites; do
	[ -n "$name" ] || continue
	[ ${#names[@]} = 0 ] || [[ " ${names[*]} " == *" $name "* ]] || continue
	at=$dir/$name
	if [ -n "$fresh" ] || [ ! -x "$at/server" ]; then
		say "$name: fetching $package from ${suites%% *}"
		rm -rf "$at.part" && mkdir -p "$at.part"
		# What has a path in it is made where it will be.
		# shellcheck disable=SC2086 # suites are words
		if fetch "$at.part" "$package" $suites && rm -rf "$at" && mv "$at.part" "$at" && wrap "$at" "$package"; then :; else
			say "MISSING: $name cannot be fetched; the end of what apt said:"
			cat "$at.part/log" "$at/log" 2>/dev/null | tail -n 5 | sed 's/^/  /' >&2 || true
			missing=$((missing + 1))
			continue
		fi
	fi
	v=$(version "$at/server")
	if [ -z "$v" ]; then
		say "MISSING: $name does not run: $("$at/server" --version 2>&1 | head -n 2)"
		missing=$((missing + 1))
		continue
	fi
	echo "$name $v $at/server"
done <<<"$servers"
if [ $missing -gt 0 ] && [ -z "$allow_missing" ]; then
	say "$missing servers are missing; --allow-missing goes on without them"
	exit 1
fi
