package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// BenchmarkServer measures what a script costs one server. So many requests are in flight on one connection that they
// wait for the server only. server-µs is what the server itself says of each call (commandstats), without reading the
// request and writing the reply.
func BenchmarkServer(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{Nodes: 1, Unix: true})
	conn, err := f.Nodes()[0].Dial(b.Context(), 10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	id, err := f.Nodes()[0].RunID(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	admitted := marker(id, "0123456789abcdef")
	if _, err := conn.Do("SET", markerKey, admitted); err != nil {
		b.Fatal(err)
	}
	const token = "0123456789abcdef0123456789abcdef"
	nothing := newScript("nothing", "return 1")
	acquire := func(s *script, ballot func(i int) string) func(i int) (*script, []any) {
		return func(i int) (*script, []any) {
			args := []any{1, "k" + strconv.Itoa(i), admitted, "0", "", token, "60000", ballot(i)}
			if args[7] != "0" {
				args = append(args, "17")
			}
			return s, args
		}
	}
	ballot := time.Now().UnixMicro()
	growing := func(int) string { ballot++; return strconv.FormatInt(ballot, 10) }
	none := func(int) string { return "0" }
	release := func(i int) (*script, []any) {
		return standard.release, []any{1, "k" + strconv.Itoa(i), token, "100"}
	}
	for _, c := range []struct {
		name string
		call func(i int) (*script, []any)
	}{
		{"nothing", acquire(nothing, growing)},
		{"acquire", acquire(standard.acquire, growing)},
		{"acquire without fence", acquire(standard.acquire, none)},
		{"release", release},
	} {
		b.Run(c.name, func(b *testing.B) { measureScript(b, conn, c.call, strings.HasPrefix(c.name, "release")) })
	}
}

func measureScript(b *testing.B, conn redis.Conn, call func(i int) (*script, []any), prepare bool) {
	for i := range b.N { // whatever an earlier run left
		if prepare {
			_ = conn.Send("SET", "k"+strconv.Itoa(i), "0123456789abcdef0123456789abcdef")
		} else {
			_ = conn.Send("DEL", "k"+strconv.Itoa(i))
		}
	}
	s, _ := call(0)
	_ = conn.Send("SCRIPT", "LOAD", s.source)
	if _, err := conn.Do(""); err != nil {
		b.Fatal(err)
	}
	if _, err := conn.Do("CONFIG", "RESETSTAT"); err != nil {
		b.Fatal(err)
	}
	const depth = 128
	b.ResetTimer()
	for sent, received := 0, 0; received < b.N; {
		for ; sent < b.N && sent-received < depth; sent++ {
			s, args := call(sent)
			_ = conn.Send("EVALSHA", append([]any{s.sha}, args...)...)
		}
		if err := conn.Flush(); err != nil {
			b.Fatal(err)
		}
		for until := received + (sent-received+1)/2; received < until; received++ {
			if reply, err := redis.Int64(conn.Receive()); err != nil || reply == 0 {
				b.Fatal(reply, err)
			}
		}
	}
	b.StopTimer()
	b.ReportMetric(serverMicros(b, conn), "server-µs")
}

// serverMicros is what the server says of the average EVALSHA since CONFIG RESETSTAT.
func serverMicros(b *testing.B, conn redis.Conn) (micros float64) {
	stats, err := redis.String(conn.Do("INFO", "commandstats"))
	if err != nil {
		b.Fatal(err)
	}
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:")
	_, stats, _ = strings.Cut(stats, "usec_per_call=")
	if _, err := fmt.Sscanf(stats, "%f", &micros); err != nil {
		b.Fatal(err)
	}
	return micros
}

// BenchmarkRenewals measures for how long one command with the most renewals keeps a server from everything else: the
// leases have their keys, or take them.
func BenchmarkRenewals(b *testing.B) {
	f := fleettest.Start(b, fleet.Process, fleet.Options{Nodes: 1, Unix: true})
	conn, err := f.Nodes()[0].Dial(b.Context(), 10*time.Second)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	const admitted = "run digest"
	for _, c := range []struct{ name, ballot string }{{"extend", "-"}, {"take", "1700000000000001"}} {
		b.Run(fmt.Sprintf("%s/leases=%d", c.name, maxRenewed), func(b *testing.B) {
			args := []any{standard.extend.sha, maxRenewed + 2, markerKey, fenceKey}
			rest := []any{admitted}
			var keys []any
			for i := range maxRenewed {
				keys = append(keys, "k"+strconv.Itoa(i))
				rest = append(rest, 1, "0123456789abcdef0123456789abcdef", 60_000+i, c.ballot)
				if c.ballot != "-" {
					rest = append(rest, strconv.Itoa(i))
				}
			}
			args = append(append(args, keys...), rest...)
			if _, err := conn.Do("SCRIPT", "LOAD", standard.extend.source); err != nil {
				b.Fatal(err)
			}
			if _, err := conn.Do("SET", markerKey, admitted); err != nil {
				b.Fatal(err)
			}
			if _, err := conn.Do("CONFIG", "RESETSTAT"); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if c.ballot == "-" {
					for i, key := range keys { // with a time to live that has to be made longer
						_ = conn.Send("SET", key, "0123456789abcdef0123456789abcdef", "PX", 30_000+i)
					}
				} else {
					_ = conn.Send("DEL", keys...)
				}
				replies, err := redis.Values(conn.Do("EVALSHA", args...))
				if err != nil || len(replies) != maxRenewed+1 {
					b.Fatal(len(replies), err)
				}
			}
			b.ReportMetric(serverMicros(b, conn), "server-µs")
		})
	}
}
