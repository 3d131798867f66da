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

// The simulation is only as good as miniredis. Here miniredis and Redis run the same random programs, script by script.
// Their replies must be the same except for times, and so must the keys at the end.
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
		for _, s := range standard.scripts() {
			_, err := conn.Do("SCRIPT", "LOAD", s.source)
			require.NoError(t, err)
		}
		conns[i] = conn
	}
	_, err := conns[0].Do("ZADD", "k", "GT", "CH", 1, "m")
	light := err == nil // not before Redis 6.2, where clients do not use it
	operations := 0
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var told []string
		for _, conn := range conns {
			_, err := conn.Do("FLUSHALL")
			require.NoError(t, err)
		}
		for range 30 {
			name, args := operation(r)
			if name == "ZADD" && !light {
				continue
			}
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

// L1, R3, D5: A script that may not read a key does not know whose it is. That is an error, so the vote is unknown and a
// release or an undo is owed. It is not the answer that another has the key.
func TestAScriptThatMayNotReadAKeySaysSo(t *testing.T) {
	conn := serverConn(t)
	require.NoError(t, do(conn, "SET", markerKey, "m"))
	mutex, reader := []any{"x"}, []any{"r"}
	for _, c := range []struct {
		right string
		call  call
	}{
		{"get", standard.swapCall(standard.undo, mutex, "mine", "next", 0)},
		{"get", standard.releaseCall(mutex, "mine", 0, 0)},
		{"get", call{standard.plant, behindFence(mutex...), []any{"mine", 1000, 0}}},
		{"get", call{standard.inspect, behindFence(mutex...), []any{1}}},
		{"get", call{standard.extend, []any{markerKey, fenceKey, "x"}, []any{"", 1, "mine", 1000, "-"}}},
		{"get", call{standard.extend, []any{markerKey, fenceKey, "x"}, []any{"", 1, "reader mine", 1000, "-"}}},
		{"get", call{standard.plant, behindFence(mutex...), []any{"reader mine", 1000, 0}}},
		{"get", call{standard.unshare, mutex, []any{"reader mine", 0}}},
		{"get", call{standard.adopt, []any{markerKey, fenceKey, "x"}, []any{"m", "mine", "next", 1000, 0}}},
		{"get", call{standard.acquire, mutex, []any{"m", "0", "", "next", 1000, 0}}},
		{"zrange", call{standard.extend, []any{markerKey, fenceKey, "r"}, []any{"", 1, "reader mine", 1000, "-"}}},
		{"zrange", call{standard.plant, behindFence(reader...), []any{"reader mine", 1000, 0}}},
		{"zrange", call{standard.unshare, reader, []any{"reader mine", 0}}},
		{"zrange", call{standard.inspect, behindFence(reader...), []any{1}}},
		{"zrange", call{standard.share, shareKeys("r"), []any{"m", "0", "", "reader next", 1000, 0}}},
	} {
		require.NoError(t, do(conn, "SET", "x", "mine"))
		require.NoError(t, do(conn, "ZADD", "r", 9e15, "reader mine"))
		fleettest.SetUserBy(t, conn, "default", "-"+c.right)
		args := append([]any{c.call.script.source, len(c.call.keys)}, c.call.keys...)
		reply, err := conn.Do("EVAL", append(args, c.call.args...)...)
		fleettest.SetUserBy(t, conn, "default", "+"+c.right)
		if replies, ok := reply.([]any); ok && c.call.script == standard.extend { // each lease has its own reply
			err, _ = replies[1].(redis.Error)
		}
		require.Error(t, err, "%s without %s: %v", c.call.script.name, c.right, reply)
		require.NotContains(t, err.Error(), "WRONGTYPE")
		after, err := redis.String(conn.Do("GET", "x"))
		require.NoError(t, err)
		require.Equal(t, "mine", after)
		entries, err := redis.Strings(conn.Do("ZRANGE", "r", 0, -1))
		require.NoError(t, err)
		require.Equal(t, []string{"reader mine"}, entries)
	}
}

// D5: Who gives a ticket back leaves the keys' time as it is, also if an operator made them stay.
func TestWhatIsGivenBackStaysIfItWasMadeToStay(t *testing.T) {
	conn := serverConn(t)
	c := standard.swapCall(standard.undo, []any{"x", "y"}, "mine", "ticket's", int64(0))
	require.NoError(t, do(conn, "SET", "x", "mine"))
	require.NoError(t, do(conn, "SET", "y", "mine", "PX", 60_000))
	swapped, err := redis.Int(conn.Do("EVAL", append([]any{c.script.source, len(c.keys)}, append(c.keys, c.args...)...)...))
	require.NoError(t, err)
	require.Equal(t, 2, swapped)
	for _, key := range c.keys {
		owner, err := redis.String(conn.Do("GET", key))
		require.NoError(t, err)
		require.Equal(t, "ticket's", owner)
	}
	left, err := redis.Int(conn.Do("PTTL", "x"))
	require.NoError(t, err)
	require.Equal(t, -1, left)
	left, err = redis.Int(conn.Do("PTTL", "y"))
	require.NoError(t, err)
	require.InDelta(t, 60_000, left, 30_000)
}

// serverConn is a connection to a real server.
func serverConn(t *testing.T) redis.Conn {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	conn, err := f.Nodes()[0].Dial(t.Context(), 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func do(conn redis.Conn, command string, args ...any) error {
	_, err := conn.Do(command, args...)
	return err
}

// operation is one that a client or an operator might send. It uses few names, so that operations meet.
func operation(r *rand.Rand) (command string, args []any) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	names := []string{"a", "b", "c"}[:1+r.IntN(3)]
	token, ttl := pick("t1", "t2", "T3"), pick("60000", "90000")
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
	eval := func(s *script, keys []any, args ...any) (string, []any) { // by hash, as the client sends it, or by source
		how, text := "EVALSHA", s.sha
		if r.IntN(4) == 0 {
			how, text = "EVAL", s.source
		}
		return how, append(append([]any{text, len(keys)}, keys...), args...)
	}
	switch r.IntN(26) {
	case 23, 24:
		args := append([]any{pick("run1 digest", "run1 digest", "run2 digest"), pick("0", "1700000000000001", "1700000000000002"),
			pick("fair:1", "fair:2", "fair:3"), token, ttl, "60000"}, ballot...)
		res := newResource("", names[0], names[1:])
		return eval(standard.fair, fairKeys(res), args...)
	case 25:
		c := standard.leavePlaceCall(newResource("", names[0], names[1:]).keys, pick("fair:1", "fair:2", "fair:3"), 60000)
		return eval(standard.leave, c.keys, c.args...)
	case 0, 1, 2, 3:
		args := append([]any{pick("run1 digest", "run1 digest", "run1 other", "run2 digest"), pick("0", "1", "-1", "1700000000000001", "-1700000000000002"),
			pick("next:1", "next:2"), token, ttl}, ballot...)
		return eval(standard.acquire, keys, args...)
	case 4:
		all, args := []any{markerKey, fenceKey}, []any{pick("run1 digest", "run2 digest", "")}
		for _, name := range names { // a lease of one key each, or one of all
			all = append(all, name)
			if together := len(ballot) == 1 || names[0] != name; !together {
				args = append(args, len(keys), token, ttl)
				args = append(args, ballot...)
			}
		}
		if len(ballot) == 1 {
			for range names {
				args = append(args, 1, token, ttl, pick("0", "-"))
			}
		}
		return eval(standard.extend, all, args...)
	case 5:
		return eval(standard.plant, behindFence(keys...), append([]any{token, ttl}, ballot...)...)
	case 6, 7:
		args := []any{pick(token, token, "next:1", "next:2"), pick("0", "60000")}
		if r.IntN(3) == 0 { // a minimum hold
			args = append(args, pick("0", "20000", "80000"))
		}
		return eval(standard.release, keys, args...)
	case 8, 9:
		digest, config, maxTTL := "digest", "MaxTTL 60000ms\n", "60000"
		if r.IntN(4) == 0 {
			digest, config, maxTTL = "other", "MaxTTL 90000ms\n", "90000"
		}
		return eval(standard.ready, readyKeys, pick("run1", "run1", "run2"), "0", digest, config, maxTTL, "750",
			pick("", "", "enroll", "enroll", "durable", "look", "new", "change"), "0", "0", "500000",
			pick("0", "9000000000000000", "9000000000000000"), // a question of 1970 that may be late
			pick("0", "1"), pick("", " run1", " run3 run2"))
	case 10:
		return eval(standard.inspect, behindFence(keys[0]), fmt.Sprint(names[0][0]%2))
	case 15:
		return eval(standard.swap, keys, pick("t1", "t2"), pick("t1", "t2", "T3"), pick("0", "60000", "90000"))
	case 16, 17:
		args := append([]any{pick("run1 digest", "run1 digest", "run2 digest"), pick("t1", "t2"), pick("t1", "t2", "T3"), ttl}, ballot...)
		return eval(standard.adopt, append([]any{markerKey, fenceKey}, keys...), args...)
	case 13, 14:
		call := standard.leaveCall(keys, pick("next:1", "next:2"), time.Minute)
		return eval(standard.leave, call.keys, call.args...)
	case 18, 19, 20, 21, 22:
		entry := pick("reader t1", "reader t2", "reader T3", "permit 0/2 t1", "permit 1/2 t2", "permit 0,1/3 T3", "permit 2/3 t1", "permit 1/3 next:1", "permit 0/3 next:2")
		ballot = ballot[:min(len(ballot), 2)]
		switch r.IntN(8) {
		case 0:
			return eval(standard.plant, behindFence(keys[0]), append([]any{entry, ttl}, ballot...)...)
		case 1:
			return eval(standard.extend, []any{markerKey, fenceKey, names[0]}, append([]any{pick("run1 digest", "run2 digest", ""), 1, entry, ttl}, ballot...)...)
		case 2, 3:
			return eval(standard.unshare, keys[:1], entry, pick("0", "60000"))
		}
		args := append([]any{pick("run1 digest", "run1 digest", "run2 digest"), pick("0", "1", "-1", "1700000000000001", "-1700000000000002", "=1700000000000001"),
			pick("next:1", "next:2"), entry, ttl}, ballot...)
		return eval(standard.share, shareKeys(names[0]), args...)
	case 11:
		switch r.IntN(3) {
		case 0: // the light form of an acquire
			return "SET", []any{names[0], token, "NX", "PX", ttl}
		case 1:
			return "ZADD", []any{fenceKey, "GT", "CH", fmt.Sprint(1_700_000_000_000_000 + r.Int64N(6)), fmt.Sprint(names[0][0] % 2)}
		}
		return "DEL", []any{pick("a", "b", markerKey, quarantineKey, configKey, fenceKey)}
	default:
		switch r.IntN(3) {
		case 0:
			return "SET", []any{"b", "another's, without expiry"}
		case 1:
			return "HSET", []any{"c", "no", "lock"} // a key that is not a string
		}
		return "DEL", []any{"c"}
	}
}

// say prints an operation, with a script's name instead of its source.
func say(name string, args []any) string {
	for _, s := range standard.scripts() {
		if strings.HasPrefix(name, "EVAL") && (args[0] == any(s.source) || args[0] == s.sha) {
			return fmt.Sprint(s.name, " ", args[1:])
		}
	}
	return fmt.Sprint(name, " ", args)
}

// plain prints a reply without what differs between servers: times, and times to live.
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
		if reply > 2_000 && reply < 200_000 { // milliseconds left
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

// contents prints all keys, their values, and whether they expire. All questions of one kind go out together.
func contents(t *testing.T, conn redis.Conn) string {
	keys := []string{"a", "b", "c", fenceKey, markerKey, quarantineKey, configKey, waitPrefix + "a", waitPrefix + "b",
		sharedPrefix + "a", sharedPrefix + "b", intentPrefix + "a", intentPrefix + "b",
		fairTicketPrefix + "a", fairTicketPrefix + "b", fairUntilPrefix + "a"}
	for _, key := range keys {
		require.NoError(t, conn.Send("TYPE", key))
		require.NoError(t, conn.Send("PTTL", key))
	}
	require.NoError(t, conn.Flush())
	kinds, lefts := make([]string, len(keys)), make([]int64, len(keys))
	for i := range keys {
		var err error
		kinds[i], err = redis.String(conn.Receive())
		require.NoError(t, err)
		lefts[i], err = redis.Int64(conn.Receive())
		require.NoError(t, err)
	}
	slots := []string{"0", "1", "no"}
	for i, key := range keys {
		switch kinds[i] {
		case "string":
			require.NoError(t, conn.Send("GET", key))
		case "zset": // in the order of the queue
			require.NoError(t, conn.Send("ZRANGE", key, 0, -1))
		case "hash":
			for _, slot := range slots {
				require.NoError(t, conn.Send("HGET", key, slot))
			}
		}
	}
	require.NoError(t, conn.Flush())
	var b strings.Builder
	for i, key := range keys {
		value := ""
		var err error
		switch kinds[i] {
		case "string":
			value, err = redis.String(conn.Receive())
			if fields := strings.Fields(value); key == markerKey && len(fields) == 3 {
				fields[2] = "till" // by its own clock
				value = strings.Join(fields, " ")
			}
			if strings.HasPrefix(key, intentPrefix) {
				value, _, _ = strings.Cut(value, " ") // without since when, by its own clock
			}
		case "zset":
			var who []string
			who, err = redis.Strings(conn.Receive())
			value = strings.Join(who, " ")
		case "hash":
			for _, slot := range slots {
				v, e := redis.String(conn.Receive())
				if e == nil {
					value += slot + "=" + v + " "
				}
			}
		}
		require.NoError(t, err)
		fmt.Fprintf(&b, "%s %s %q %s\n", key, kinds[i], value, plain(lefts[i], nil))
	}
	return b.String()
}
