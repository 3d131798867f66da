package redlock

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// everyScript is a call of each script about the key "x", with all that it may be asked for, to a node with this identity.
func everyScript(identity string) map[string]call {
	x, marker := []any{"x"}, identity+" digest"
	const token, reader, permit = "0123456789abcdef0123456789abcdef:01234567:me", "reader " + "t", "permit 0/2 t"
	waiter := "fair:00000000000000000000000000000001:0000000000000001"
	id := "next:00000000000000000000000000000001"
	res := newResource("", "x", nil)
	leavePlace := standard.leavePlaceCall(x, waiter, 100)
	leave := standard.leaveCall(x, id, 100*time.Millisecond)
	extended := []any{markerKey, fenceKey, "x"}
	return map[string]call{
		"acquire":        {standard.acquire, x, []any{marker, 1, id, token, 1000, 0}},
		"fair":           {standard.fair, fairKeys(res), []any{marker, 1, waiter, token, 1000, 1000, 0}},
		"fair try":       {standard.fair, fairKeys(res), []any{marker, 0, waiter, token, 1000, 1000, 0}},
		"share, reader":  {standard.share, shareKeys("x"), []any{marker, 1, id, reader, 1000, 0}},
		"share, permit":  {standard.share, shareKeys("x"), []any{marker, 1, id, permit, 1000, 0}},
		"vouch":          {standard.vouch, []any{markerKey}, []any{marker}},
		"extend":         {standard.extend, extended, []any{marker, 1, token, 1000, "-"}},
		"extend, reader": {standard.extend, extended, []any{marker, 1, reader, 1000, "-"}},
		"extend, permit": {standard.extend, extended, []any{marker, 1, permit, 1000, "-"}},
		"plant":          standard.plantCall(res, token, 1000, 0),
		"plant, permit":  standard.plantCall(res, permit, 1000, 0),
		"swap":           {standard.swap, x, []any{token, "t", 1000}},
		"adopt":          {standard.adopt, extended, []any{marker, token, "t", 1000, 0}},
		"inspect":        standard.inspectCall(res),
		"release":        {standard.release, x, []any{token, 100}},
		"unshare":        {standard.unshare, x, []any{reader, 100}},
		"leave":          leave,
		"leave, fair":    leavePlace,
		"ready":          {standard.ready, readyKeys, []any{identity, 0, "digest", "config", 1000, 750, "", 0, 0, 500000, 0, 1}},
	}
}

// evaluate runs the call.
func evaluate(conn redis.Conn, c call) (any, error) {
	return conn.Do("EVAL", append(append([]any{c.script.source, len(c.keys)}, c.keys...), c.args...)...)
}

// processorTime is for how long the server has computed since it was started. How busy the machine is does not count.
func processorTime(t *testing.T, conn redis.Conn) (sum time.Duration) {
	info, err := redis.String(conn.Do("INFO", "cpu"))
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		var seconds float64
		for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
			if text, ok := strings.CutPrefix(line, name+":"); ok {
				_, err := fmt.Sscan(text, &seconds)
				require.NoError(t, err)
				sum += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return sum
}

// Another program may write a long text under any of our keys. A server runs one script at a time, so one that takes the
// length squared to read it keeps all locks of the node from being renewed. Here that would be seconds for each call.
func TestALongTextOfAnotherProgramHoldsUpNoNode(t *testing.T) {
	const length = 40_000
	const most = time.Second // of the processor; with one such pattern, some of the texts take several
	long := map[string]string{
		"a line":                    strings.Repeat("a", length) + "\n",
		"a word behind another":     "x " + strings.Repeat("a", length) + " b c",
		"an entry that is none":     "permit 0/2 " + strings.Repeat("f", length) + " end",
		"an entry with a long name": "reader " + strings.Repeat("F", length),
		"an entry with many slots":  "permit 0" + strings.Repeat(",1", length/2) + "/2 t",
		"digits":                    "MaxTTL " + strings.Repeat("1/", length/2),
	}
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	conn, err := f.Nodes()[0].Dial(t.Context(), time.Minute)
	require.NoError(t, err)
	defer conn.Close()
	identity, err := f.Nodes()[0].RunID(t.Context())
	require.NoError(t, err)
	for what, text := range long {
		for _, key := range []string{"x", markerKey, configKey, waitPrefix + "x", intentPrefix + "x"} {
			for _, kind := range []string{"SET", "ZADD"} {
				before := processorTime(t, conn)
				for name, c := range everyScript(identity) {
					require.NoError(t, do(conn, "FLUSHALL"))
					require.NoError(t, do(conn, "SET", markerKey, identity+" digest"))
					require.NoError(t, do(conn, "DEL", key))
					args := []any{key, text}
					if kind == "ZADD" {
						args = []any{key, 9e15, text}
					}
					require.NoError(t, do(conn, kind, args...))
					_, err := evaluate(conn, c)
					if err != nil { // a key of another type, mostly
						require.NotContains(t, err.Error(), "attempt to", "%s with %s under %s", name, what, key)
					}
					require.Less(t, processorTime(t, conn)-before, most, "%s with %s under %s by %s", name, what, key, kind)
				}
			}
		}
	}
}

// What ends a text is its owner token, or all of it; the same as the pattern '%S*$' finds, which is slow.
func TestTheOwnerInAnEntryIsWhatFollowsTheLastWhiteSpace(t *testing.T) {
	conn := serverConn(t)
	script := commonSource + `
		for i = 1, #ARGV do
		  local text = ARGV[i]
		  local mute = string.find(string.match(text, ' (%x+)%S*$') or '', '%u') ~= nil
		  local isEntry = string.find(text, ' %S+$') -- only of entries the answer is used
		  if ownerOf(text) ~= string.match(text, '%S*$') or isEntry and isMute(text) ~= mute then return text .. '|' .. ownerOf(text) end
		end
		return redis.call('PING')`
	texts := []string{""}
	for of := texts; len(of[0]) < 5; {
		var longer []string
		for _, text := range of {
			for _, c := range "aAgG: \n" {
				longer = append(longer, text+string(c))
			}
		}
		texts, of = append(texts, longer...), longer
	}
	texts = append(texts, "reader 0123456789ABCDEF:a:b", "permit 0,1/2 0123456789abcdef:A:B", "permit 0/2 next:00", "a\x00 b\x00", " \t\v\f\r",
		"reader x\x80\xa0\xff")
	for len(texts) > 0 {
		part := texts[:min(len(texts), 5000)]
		texts = texts[len(part):]
		args := []any{script, 0}
		for _, text := range part {
			args = append(args, text)
		}
		reply, err := redis.String(conn.Do("EVAL", args...))
		require.NoError(t, err)
		require.Equal(t, "PONG", reply)
	}
}

// size is how many bytes of text the reply has.
func size(reply any) (bytes int) {
	switch reply := reply.(type) {
	case []byte:
		return len(reply)
	case []any:
		for _, r := range reply {
			bytes += size(r)
		}
	}
	return bytes
}

// A2: A waiter for a lock that is none of this library asks a hundred times a second. Each refusal names the owner, and that
// may be anything.
func TestARefusalIsShortWhateverTheKeyHas(t *testing.T) {
	conn := serverConn(t)
	text := strings.Repeat("word ", 100_000) + "end"
	for _, kind := range [][]any{{"SET", "x", text}, {"ZADD", "x", 9e15, text}, {"ZADD", "x", 9e15, "reader " + strings.Repeat("a", len(text))},
		{"ZADD", "x", 9e15, "permit 0/2 " + strings.Repeat("a", len(text))}} {
		for name, c := range everyScript("run1") {
			if name == "inspect" {
				continue
			}
			require.NoError(t, do(conn, "FLUSHALL"))
			require.NoError(t, do(conn, "SET", markerKey, "run1 digest"))
			require.NoError(t, do(conn, kind[0].(string), kind[1:]...))
			reply, err := evaluate(conn, c)
			if name != "ready" { // it is of another server than it says
				require.NoError(t, err, name)
			}
			require.Less(t, size(reply), 4000, "%s of %.20q", name, kind[len(kind)-1])
		}
	}
}

// The longest owner token there is comes back whole: others read in it who has the lock.
func TestARefusalHasAllOfAnOwnerToken(t *testing.T) {
	conn := serverConn(t)
	name := strings.Repeat("\n", maxOwnerBytes)
	require.NoError(t, checkOwner("Owner", name))
	token := newToken(withLabel(ownerSuffix("01234567", name), name))
	for kind, calls := range map[string]struct {
		args []any
		tell []string
	}{
		"SET": {[]any{"x", token}, []string{"acquire", "adopt", "extend", "extend, permit", "extend, reader", "fair", "fair try", "inspect",
			"plant", "plant, permit", "share, permit", "share, reader"}},
		"ZADD": {[]any{"x", 9e15, "permit 0,1/2 " + token}, []string{"extend, permit", "inspect", "plant, permit", "share, permit"}},
	} {
		var told []string
		for name, c := range everyScript("run1") {
			require.NoError(t, do(conn, "FLUSHALL"))
			require.NoError(t, do(conn, "SET", markerKey, "run1 digest"))
			require.NoError(t, do(conn, kind, calls.args...))
			reply, err := evaluate(conn, c)
			if err == nil && strings.Contains(fmt.Sprintf("%s", reply), token) {
				told = append(told, name)
			}
		}
		require.ElementsMatch(t, calls.tell, told, kind)
	}
}

// R2: On a node where the lease may take its key, it takes one that is reserved for a waiter, for its own time. It takes
// nothing that somebody has, and no text of another program that only begins like a reservation.
func TestARenewalTakesAKeyThatIsReserved(t *testing.T) {
	conn := serverConn(t)
	const reserved = "next:0123456789abcdef0123456789abcdef"
	for _, token := range []string{"token", "reader token"} {
		for _, c := range []struct {
			there, ballot string
			takes         bool
		}{{reserved, "0", true}, {reserved, "-", false}, {"next:/home", "0", false}, {reserved + "0", "0", false}, {"another", "0", false}} {
			require.NoError(t, do(conn, "FLUSHALL"))
			require.NoError(t, do(conn, "SET", markerKey, "marker"))
			require.NoError(t, do(conn, "SET", "x", c.there, "PX", 100_000))
			extend := call{standard.extend, []any{markerKey, fenceKey, "x"}, []any{"marker", 1, token, 5_000, c.ballot}}
			replies, err := redis.Values(evaluate(conn, extend))
			require.NoError(t, err)
			left, err := redis.Int(conn.Do("PTTL", "x"))
			require.NoError(t, err)
			if c.takes {
				require.EqualValues(t, 2, replies[1], "%+v %s", c, token)
				require.Less(t, left, 50_000)
			} else {
				require.IsType(t, []any{}, replies[1], "%+v %s", c, token)
				require.Greater(t, left, 50_000)
			}
		}
	}
}

// W2: A waiter of a fair lock that leaves passes on what is free, whatever other programs have made of the queue's keys.
func TestAFairWaiterPassesOnAlsoWhereItsQueueIsOfAnotherType(t *testing.T) {
	conn := serverConn(t)
	const waiter, next = "fair:00000000000000000000000000000001:0000000000000001", "next:00000000000000000000000000000002"
	leave := standard.leavePlaceCall([]any{"x"}, waiter, 60_000)
	for _, foreign := range []string{fairTicketPrefix, fairUntilPrefix} {
		require.NoError(t, do(conn, "FLUSHALL"))
		for _, own := range []string{fairTicketPrefix, fairUntilPrefix} {
			require.NoError(t, do(conn, "ZADD", own+"x", 1, waiter, 2, waiter+"0"))
		}
		require.NoError(t, do(conn, "SET", foreign+"x", "something else"))
		require.NoError(t, do(conn, "SET", intentPrefix+"x", waiter+" 1"))
		require.NoError(t, do(conn, "ZADD", waitPrefix+"x", 1, waiter, 2, next+":poll"))
		_, err := evaluate(conn, leave)
		require.NoError(t, err, foreign)
		owner, err := redis.String(conn.Do("GET", "x"))
		require.NoError(t, err, foreign)
		require.Equal(t, next, owner)
	}
}

// Redis wants scripts to declare their keys, and some servers refuse others. Where that would cost too much,
// docs/managed-redis.md names the keys.
func TestTheDocumentsNameTheKeysThatScriptsDoNotDeclare(t *testing.T) {
	doc, err := os.ReadFile("docs/managed-redis.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| run scripts that touch keys which are not among their KEYS:.*$`).FindString(string(doc))
	named := map[string][]string{} // by script
	for _, part := range regexp.MustCompile(`([^(]*)\(([^)]*)\)`).FindAllStringSubmatch(row, -1) {
		for _, script := range regexp.MustCompile(`(\w+)\.lua`).FindAllStringSubmatch(part[1], -1) {
			named[script[1]] = regexp.MustCompile(`redlock:\w+`).FindAllString(part[2], -1)
		}
	}
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	conn, err := f.Nodes()[0].Dial(t.Context(), 5*time.Second)
	require.NoError(t, err)
	defer conn.Close()
	watcher, err := f.Nodes()[0].Dial(t.Context(), 5*time.Second)
	require.NoError(t, err)
	defer watcher.Close()
	require.NoError(t, do(watcher, "MONITOR"))

	calls := everyScript("run1")
	calls["plant, fence"] = standard.plantCall(newResource("", "x", nil), "t", 1000, 5)
	for name, c := range calls {
		for _, there := range [][]any{nil, {"SET", "x", "other"}, {"ZADD", "x", 9e15, "reader other"}, {"ZADD", "x", 9e15, "reader t"}} {
			require.NoError(t, do(conn, "FLUSHALL"))
			require.NoError(t, do(conn, "SET", markerKey, "run1 digest"))
			require.NoError(t, do(conn, "ZADD", waitPrefix+"x", 1, "next:2"))
			if there != nil {
				require.NoError(t, do(conn, there[0].(string), there[1:]...))
			}
			_, _ = evaluate(conn, c)
			require.NoError(t, do(conn, "ECHO", name))
			for said := ""; !strings.HasSuffix(said, fmt.Sprintf(`"ECHO" %q`, name)); {
				said, err = redis.String(watcher.Receive())
				require.NoError(t, err)
				words := strings.Split(said, `"`)
				if !strings.Contains(said, " lua] ") || len(words) < 4 || strings.EqualFold(words[1], "PUBLISH") || slices.Contains(c.keys, any(words[3])) {
					continue
				}
				if key := regexp.MustCompile(`^redlock:\w+`).FindString(words[3]); key != "" {
					file := regexp.MustCompile(`^\w+`).FindString(name)
					require.Contains(t, named[file], key, "%s: %s", name, said)
				}
			}
		}
	}
}
