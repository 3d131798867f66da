package redlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// The simulation is worth what miniredis is worth. Here both are told the same, script by script: the
// replies must be the same, but for the time, and so must the keys that result.
func TestScriptsDoTheSameOnMiniredisAsOnRedis(t *testing.T) {
	real := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	mini := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var conns [2]redis.Conn
	for i, f := range []*fleet.Fleet{real, mini} {
		conn, err := f.Nodes()[0].Dial(ctx, 5*time.Second)
		require.NoError(t, err)
		defer conn.Close()
		conns[i] = conn
	}
	operations := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 7))
		var told []string
		for _, conn := range conns {
			_, err := conn.Do("FLUSHALL")
			require.NoError(t, err)
		}
		for range 30 {
			name, args := operation(r)
			told = append(told, say(name, args))
			var replies, keys [2]string
			for i, conn := range conns {
				reply, err := conn.Do(name, args...)
				replies[i] = plain(reply, err)
				keys[i] = contents(t, conn)
			}
			operations++
			program := strings.Join(told, "\n")
			require.Equal(t, replies[0], replies[1], "seed %d: the last of\n%s", seed, program)
			require.Equal(t, keys[0], keys[1], "seed %d: keys after\n%s", seed, program)
		}
	}
	t.Logf("%d operations on both, the same replies and keys", operations)
}

// operation is one that a client might send, or an operator: few names, so that they meet.
func operation(r *rand.Rand) (command string, args []any) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	names := []string{"a", "b", "c"}[:1+r.IntN(3)]
	token, ttl := pick("t1", "t2", "t3"), pick("60000", "90000")
	var keys []any
	for _, name := range names {
		keys = append(keys, name)
	}
	var ballot []any
	if n := r.IntN(5); n == 0 {
		ballot = []any{"0"}
	} else {
		ballot = []any{fmt.Sprint(1_700_000_000_000_000 + r.Int64N(6))} // sixteen digits, as real ones have
		for _, name := range names {
			ballot = append(ballot, fmt.Sprint(name[0]%2))
		}
	}
	eval := func(s *script, keys []any, args ...any) (string, []any) {
		all := append([]any{s.source, len(keys)}, keys...)
		return "EVAL", append(all, args...)
	}
	switch r.IntN(13) {
	case 0, 1, 2, 3:
		args := append([]any{pick("run1 60000", "run1 60000", "run1 90000", "run2 60000"), pick("0", "1"),
			pick("next:1", "next:2"), token, ttl}, ballot...)
		return eval(standard.acquire, keys, args...)
	case 4:
		return eval(standard.extend, keys, token, ttl)
	case 5:
		return eval(standard.plant, keys, append([]any{token, ttl}, ballot...)...)
	case 6, 7:
		return eval(standard.release, keys, pick(token, token, "next:1", "next:2"), pick("0", "60000"))
	case 8, 9:
		return eval(standard.ready, nil, pick("run1", "run1", "run2"), pick("60000", "90000"), "750",
			pick("", "", "enroll", "enroll", "durable"), pick("0", "1"))
	case 10:
		return eval(standard.inspect, keys[:1], fmt.Sprint(names[0][0]%2))
	case 11:
		return "DEL", []any{pick("a", "b", markerKey, quarantineKey, fenceKey)}
	default:
		switch r.IntN(3) {
		case 0:
			return "SET", []any{"b", "another's, without expiry"}
		case 1:
			return "HSET", []any{"c", "no", "lock"} // a key that is no string
		}
		return "DEL", []any{"c"}
	}
}

// say prints an operation, with a script's name for its source.
func say(name string, args []any) string {
	for _, s := range standard.scripts() {
		if name == "EVAL" && args[0] == any(s.source) {
			return fmt.Sprint(s.name, " ", args[1:])
		}
	}
	return fmt.Sprint(name, " ", args)
}

// plain prints a reply without what differs from server to server: times, and what is left of them.
func plain(reply any, err error) string {
	switch reply := reply.(type) {
	case nil:
		if err != nil {
			return "error " + strings.Fields(err.Error())[0]
		}
		return "nil"
	case []byte:
		return fmt.Sprintf("%q", reply)
	case int64:
		if reply > 1_750_000_000_000_000 { // a TIME, and not a ballot
			return "now"
		}
		if reply > 5_000 && reply < 200_000 { // milliseconds left
			return fmt.Sprintf("about %d0s", (reply+5_000)/10_000)
		}
		return fmt.Sprint(reply)
	case []any:
		parts := make([]string, len(reply))
		for i, r := range reply {
			parts[i] = plain(r, nil)
		}
		return "[" + strings.Join(parts, " ") + "]"
	default:
		return fmt.Sprint(reply)
	}
}

// contents prints all keys with their values and whether they expire.
func contents(t *testing.T, conn redis.Conn) string {
	var b strings.Builder
	for _, key := range []string{"a", "b", "c", fenceKey, markerKey, quarantineKey, waitPrefix + "a", waitPrefix + "b"} {
		kind, err := redis.String(conn.Do("TYPE", key))
		require.NoError(t, err)
		left, err := redis.Int64(conn.Do("PTTL", key))
		require.NoError(t, err)
		value := ""
		switch kind {
		case "string":
			value, err = redis.String(conn.Do("GET", key))
			if fields := strings.Fields(value); key == markerKey && len(fields) == 3 {
				fields[2] = "till" // by its own clock
				value = strings.Join(fields, " ")
			}
		case "zset": // in the order in which they came
			var who []string
			who, err = redis.Strings(conn.Do("ZRANGE", key, 0, -1))
			value = strings.Join(who, " ")
		case "hash":
			for _, slot := range []string{"0", "1", "no"} {
				v, e := redis.String(conn.Do("HGET", key, slot))
				if e == nil {
					value += slot + "=" + v + " "
				}
			}
		}
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s %s %q %s\n", key, kind, value, plain(left, nil))
	}
	return b.String()
}
