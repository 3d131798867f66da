#!/usr/bin/env bash
# prepare: see to the servers that the tests use, and say what is missing. summary: say it again at the end. runs-386: does this
# machine run programs of 32 bits?
# REDLOCK_REQUIRE=redis,docker,chromium,postgres,mariadb,prometheus,python,systemd,clocks,root makes a missing one an error.
set -euo pipefail

missing=()

have_redis() { command -v redis-server >/dev/null; }
have_docker() { command -v docker >/dev/null && timeout 10 docker version >/dev/null 2>&1; }

have_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null

# Debian has these two where only root looks, or nobody.
find_postgres() { command -v postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres' | tail -n 1; }
find_mariadb() { PATH=$PATH:/usr/sbin:/usr/libexec command -v mariadbd; }
have_postgres() { [ -n "$(find_postgres)" ]; }
have_mariadb() { find_mariadb >/dev/null; }
have_prometheus() { command -v promtool && command -v prometheus; } >/dev/null
have_python() { command -v python3 >/dev/null; }
have_systemd() { command -v systemd-analyze >/dev/null; }
have_clocks() { [ "$(uname)" = Linux ] && { command -v cc || command -v gcc || command -v clang; } >/dev/null; }
have_root() { [ "$(id -u)" = 0 ] && command -v unshare && command -v nsenter && command -v iptables; } >/dev/null

is_amd64() { [ "$(go env GOHOSTOS GOHOSTARCH | xargs)" = "linux amd64" ]; }
# A kernel can be without the emulation of 32 bits, which nothing here can install. No other system is asked for it.
have_386() { ! is_amd64 || [[ "$(GOARCH=386 go run cmd/test2json </dev/null 2>&1 || true)" != *'exec format error'* ]]; }

if [ "$1" = runs-386 ]; then is_amd64 && have_386; exit; fi

install() { # package
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
	echo "$1 is missing: installing it"
	# A policy that refuses keeps the package from starting a server of its own.
	local policy=/usr/sbin/policy-rc.d made=
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1
	fi
	(apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1") >/dev/null ||
		echo "apt-get could not install $1"
	[ -z "$made" ] || rm -f "$policy"
}

if [ "${1:-}" = prepare ]; then
	have_redis || install redis-server
	have_chromium || install chromium
	have_postgres || install postgresql
	have_mariadb || install mariadb-server-core
	have_prometheus || install prometheus
	have_python || install python3
	have_systemd || install systemd
	have_clocks || install gcc
	have_root || install iptables
fi
have_redis || missing+=("redis: no redis-server on PATH; the tests on real servers are left out (Debian: apt-get install redis-server)")
have_docker || missing+=("docker: no engine answers; the tests on containers are left out")
have_chromium || missing+=("chromium: no browser; the test that opens a report is left out (Debian: apt-get install chromium)")
have_postgres || missing+=("postgres: no PostgreSQL; the tests of package fence on it are left out (Debian: apt-get install postgresql)")
have_mariadb || missing+=("mariadb: no mariadbd; the tests of package fence on it are left out (Debian: apt-get install mariadb-server-core)")
have_prometheus || missing+=("prometheus: no promtool; the tests of the alert rules and the dashboard on it are left out (Debian: apt-get install prometheus)")
have_python || missing+=("python: no python3; the tests of a lock in Python are left out (Debian: apt-get install python3)")
have_systemd || missing+=("systemd: no systemd-analyze; the test of the units in deploy is left out (Debian: apt-get install systemd)")
have_clocks || missing+=("clocks: not Linux, or no C compiler; the tests with wrong clocks are left out (Debian: apt-get install gcc)")
have_root || missing+=("root: not root, or no unshare, nsenter or iptables; the tests of packet rules and of process ids are left out (Debian: apt-get install util-linux iptables)")
have_386 || missing+=("386: this kernel runs no program of 32 bits; the tests of one are left out, and its types are checked all the same")

if [ ${#missing[@]} = 0 ]; then
	echo "fleets: embedded, process ($(redis-server --version | cut -d' ' -f3)), docker; chromium," \
		"PostgreSQL $("$(find_postgres)" --version | cut -d' ' -f3), MariaDB $("$(find_mariadb)" --version | cut -d' ' -f4)," \
		"$(promtool --version | head -n 1 | cut -d' ' -f1,3), $(python3 --version): nothing is left out"
	exit 0
fi
for m in "${missing[@]}"; do
	echo "LEFT OUT: $m" >&2
	case ",${REDLOCK_REQUIRE:-}," in
	*",${m%%:*},"*) echo "REDLOCK_REQUIRE=$REDLOCK_REQUIRE makes that an error" >&2; exit 1 ;;
	esac
done
