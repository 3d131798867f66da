package redlock_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// What clients leave on the nodes, send to each other, or compute alike. Clients of two versions of the library share nodes
// if they have the same version of the protocol (README.md, Versions), so each reads what the other writes. If one of these
// tests fails because a form has changed, clients of before do not understand it: keep the form, or raise protocolVersion.
// A form that is new, and does no harm to those who do not know it, is added here.

// varying is what differs from run to run, and what stands for it. The first that matches is replaced first.
var varying = []struct {
	text *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\b[0-9a-f]{40}\b`), "<run id>"},
	{regexp.MustCompile(`:0{32}\b`), ":<nobody>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<id>"},
	{regexp.MustCompile(`\b[0-9A-F]{32}\b`), "<ID>"},
	{regexp.MustCompile(`:[0-9a-f]{16}\b`), ":<number>"},
	{regexp.MustCompile(`:[0-9a-f]{8}\b`), ":<client>"},
	{regexp.MustCompile(`\b\d{16}\b`), "<µs>"},
}

func formOf(text string) string {
	for _, v := range varying {
		text = v.text.ReplaceAllString(text, v.by)
	}
	return text
}

// A spy reads what clients leave on a node, and hears all that they send.
type spy struct {
	node *fleet.Node

	mu    sync.Mutex
	heard map[string]bool // the forms of the messages
	seen  map[string]bool // the keys that were ever there
}

func spyOn(t *testing.T, n *fleet.Node) *spy {
	s := &spy{node: n, heard: map[string]bool{}, seen: map[string]bool{}}
	conn, err := n.DialDirect(soon(t), 0)
	require.NoError(t, err)
	messages := redis.PubSubConn{Conn: conn}
	require.NoError(t, messages.PSubscribe("*"))
	require.IsType(t, redis.Subscription{}, messages.Receive())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for conn.Err() == nil {
			if m, ok := messages.Receive().(redis.Message); ok {
				s.mu.Lock()
				s.heard[formOf(fmt.Sprintf("%s %s", m.Channel, m.Data))] = true
				s.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-ended })
	return s
}

// stored is the form of what the key has: a string, or the members of a sorted set, each with its score.
func (s *spy) stored(t *testing.T, key string) string {
	for _, k := range tell(t, s.node, "KEYS", "*").([]any) {
		s.seen[stringOf(k)] = true
	}
	const read = `if redis.call('TYPE', KEYS[1]).ok == 'zset' then return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') end
return redis.call('GET', KEYS[1])`
	value := tell(t, s.node, "EVAL", read, 1, key)
	pairs, isSet := value.([]any)
	if !isSet {
		return formOf(stringOf(value))
	}
	var members []string
	for i := 0; i < len(pairs); i += 2 {
		members = append(members, formOf(stringOf(pairs[i])+" → "+stringOf(pairs[i+1])))
	}
	return strings.Join(members, ", ")
}

// finds waits until the key has this form.
func (s *spy) finds(t *testing.T, key, form string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, form, s.stored(t, key), key)
	}, 10*time.Second, time.Millisecond)
}

// hears waits for a message of this form. It may have come already.
func (s *spy) hears(t *testing.T, channel, form string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		s.mu.Lock()
		defer s.mu.Unlock()
		assert.Contains(c, s.heard, channel+" "+form)
	}, 10*time.Second, time.Millisecond)
}

func TestWhatIsStoredAndSentKeepsItsForm(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	owned := func(cfg *redlock.Config) { cfg.Owner = "web-3/4711" }
	a, b, c := open(t, f, patient, owned), open(t, f, patient, owned), open(t, f, patient, owned)
	deaf := open(t, f, patient, owned, as(t, f, "deaf", "resetchannels"))
	s := spyOn(t, f.Nodes()[0])
	const token = "<id>:<client>:web-3/4711"
	acquire := func(t *testing.T, l redlock.Lock) *redlock.Lease {
		lease, err := l.Acquire(ctx)
		require.NoError(t, err)
		return lease
	}

	release := func(t *testing.T, got <-chan *redlock.Lease) {
		t.Helper()
		select {
		case lease := <-got:
			require.NotNil(t, lease)
			require.NoError(t, lease.Release(ctx))
		case <-time.After(20 * time.Second):
			require.Fail(t, "the waiter did not understand what is reserved for it")
		}
	}

	t.Run("the node", func(t *testing.T) {
		s.finds(t, "redlock:config", "Protocol 3\nMaxTTL 30000ms\nMaxClockSkew 500ms\nClockBand 100ms\nNodes 1\nQuorum 1\n"+
			"Durable false\nNoFence false\nPrefix \"\"\n")
		s.finds(t, "redlock:node", "<run id> 25971a1a4b85dced")
		s.finds(t, "redlock:fence", strings.Repeat("-", 80)+" → 0")
	})

	t.Run("a mutex", func(t *testing.T) {
		held := acquire(t, a.Mutex("mutex").WithOwner("nightly report"))
		s.finds(t, "mutex", token+":nightly%20report")
		s.finds(t, "redlock:fence", strings.Repeat("-", 80)+" → 0, 1188 → <µs>")
		stop := waits(t, b, "mutex")
		defer stop()
		s.finds(t, "redlock:wait:mutex", "next:<id> → <µs>")
		s.hears(t, "redlock:released:wanted:<client>", "mutex")
		require.NoError(t, held.Release(ctx))
		s.hears(t, "redlock:released:next:<id>", "mutex")
	})

	t.Run("who gets no messages and sends none", func(t *testing.T) {
		held := acquire(t, a.Mutex("deaf"))
		stop := waits(t, deaf, "deaf")
		defer stop()
		s.finds(t, "redlock:wait:deaf", "next:<id>:poll → <µs>")
		stopBehind := waits(t, b, "deaf")
		defer stopBehind()
		s.finds(t, "redlock:wait:deaf", "next:<id>:poll → <µs>, next:<id> → <µs>")
		require.NoError(t, held.Release(ctx))
		s.hears(t, "redlock:released:next:<id>", "next:<id> deaf")
		require.Eventually(t, func() bool {
			lease := acquire(t, deaf.Mutex("mute"))
			defer func() { require.NoError(t, lease.Release(ctx)) }()
			return s.stored(t, "mute") == "<ID>:<client>:web-3/4711"
		}, 10*time.Second, time.Millisecond)
	})

	t.Run("a reservation", func(t *testing.T) {
		tell(t, s.node, "SET", "reserved", "another program's")
		got := waitsFor(t, ctx, b, b.Mutex("reserved"), 1)
		s.finds(t, "redlock:wait:reserved", "next:<id> → <µs>")
		id := stringOf(tell(t, s.node, "ZRANGE", "redlock:wait:reserved", 0, 0).([]any)[0])
		tell(t, s.node, "SET", "reserved", id, "PX", time.Hour.Milliseconds())
		release(t, got)
	})

	t.Run("in order of arrival", func(t *testing.T) {
		held := acquire(t, a.Mutex("fair").Fair())
		stop := waitsToGet(t, b.Mutex("fair").Fair())
		defer stop()
		for _, key := range []string{"redlock:fair:ticket:fair", "redlock:fair:until:fair", "redlock:wait:fair"} {
			s.finds(t, key, "fair:<id>:<number> → <µs>")
		}
		score := func(key string) string {
			return stringOf(tell(t, s.node, "ZRANGE", key, 0, 0, "WITHSCORES").([]any)[1])
		}
		require.Greater(t, score("redlock:fair:until:fair"), score("redlock:fair:ticket:fair"), "both have 16 digits")
		require.NoError(t, held.Release(ctx))
		s.hears(t, "redlock:released:next:<id>", "fair:<id>:<number> fair")
	})

	t.Run("readers and writers", func(t *testing.T) {
		held := acquire(t, a.RWMutex("rw").Reader())
		s.finds(t, "rw", "reader "+token+" → <µs>")
		stop := waits(t, b, "rw")
		defer stop()
		s.finds(t, "redlock:rw:rw", "next:<id> <µs>")
		stopSecond := waits(t, c, "rw")
		defer stopSecond()
		s.finds(t, "redlock:rw:rw", "next:<nobody> <µs>")
		require.NoError(t, held.Release(ctx))
		s.hears(t, "redlock:released:next:<id>", "rw")
	})

	t.Run("readers and writers in order of arrival", func(t *testing.T) {
		held := acquire(t, a.RWMutex("fairrw").Reader())
		stop := waitsToGet(t, b.Mutex("fairrw").Fair())
		defer stop()
		s.finds(t, "redlock:rw:fairrw", "fair:<id>:<number> <µs>")
		stopSecond := waits(t, c, "fairrw")
		defer stopSecond()
		s.finds(t, "redlock:rw:fairrw", "fair:<nobody> <µs>")
		require.NoError(t, held.Release(ctx))
	})

	t.Run("permits", func(t *testing.T) {
		held := acquire(t, a.Semaphore("permits", 2).WithPermits(2))
		s.finds(t, "permits", "permit 0,1/2 "+token+" → <µs>")
		got := waitsFor(t, ctx, b, b.Semaphore("permits", 2), 1)
		for _, key := range []string{"redlock:wait:permits", "redlock:shared:permits"} {
			s.finds(t, key, "next:<id> → <µs>")
		}
		require.NoError(t, held.Release(ctx))
		s.hears(t, "redlock:released:next:<id>", "permit 0 permits")
		s.finds(t, "permits", "permit 0/2 "+token+" → <µs>")
		release(t, got)
	})

	t.Run("a permit that is reserved", func(t *testing.T) {
		end := time.Now().Add(time.Hour).UnixMicro()
		tell(t, s.node, "ZADD", "slot", end, "permit 0/1 0123456789abcdef0123456789abcdef:01234567:other")
		got := waitsFor(t, ctx, b, b.Semaphore("slot", 1), 1)
		s.finds(t, "redlock:shared:slot", "next:<id> → <µs>")
		id := stringOf(tell(t, s.node, "ZRANGE", "redlock:shared:slot", 0, 0).([]any)[0])
		tell(t, s.node, "ZADD", "slot", end, "permit 0/1 "+id)
		tell(t, s.node, "ZREM", "slot", "permit 0/1 0123456789abcdef0123456789abcdef:01234567:other")
		release(t, got)
	})

	t.Run("a lock that is taken away", func(t *testing.T) {
		acquire(t, a.Mutex("forced"))
		require.NoError(t, b.ForceRelease(ctx, "forced"))
		s.hears(t, "redlock:released:taken:<client>", "forced")
	})

	t.Run("an election", func(t *testing.T) {
		term, err := election.New(a, "elected", election.Options{Label: "the first"}).Campaign(ctx)
		require.NoError(t, err)
		s.finds(t, "redlock:leader:elected", token+" <µs> the first")
		s.hears(t, "redlock:leader:elected", "leads "+token+" <µs> the first")
		require.NoError(t, term.Resign(ctx))
		s.hears(t, "redlock:leader:elected", "ended <µs>")
	})

	t.Run("a quarantine", func(t *testing.T) {
		tell(t, s.node, "DEL", "redlock:node")
		_, err := a.Mutex("quarantine").TryAcquire(ctx)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		s.finds(t, "redlock:node", "<run id> 25971a1a4b85dced <µs>/0/30000")
		s.finds(t, "redlock:quarantine", "<run id>")
	})

	t.Run("nothing else", func(t *testing.T) {
		known := regexp.MustCompile(`^(redlock:(node|config|fence|quarantine` +
			`|(wait|shared|rw|fair:ticket|fair:until|leader):\w+)|\w+)$`)
		for key := range s.seen {
			require.True(t, known.MatchString(key), "%q is a key of another form", key)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		known = regexp.MustCompile(`^redlock:(released:(wanted|taken):<client> \w+` +
			`|released:next:<id> ((next:<id> |fair:<id>:<number> |permit \d )?\w+)?|leader:elected .*)$`)
		for _, message := range slices.Sorted(maps.Keys(s.heard)) {
			require.True(t, known.MatchString(message), "%q is a message of another form", message)
		}
	})
}

// D1: A ticket that one version made is read by another, and the other way round.
func TestATicketKeepsItsForm(t *testing.T) {
	const text = "redlock-ticket-1.AgF4AXk6MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY6M" +
		"DEyMzQ1Njc6d2ViLTMvNDcxMTpsYWJlbIDIr6AlgLTEwyEQOyyMreh2QA"
	var ticket redlock.Ticket
	require.NoError(t, ticket.UnmarshalText([]byte(text)))
	require.Equal(t, []string{"x", "y"}, ticket.Names())
	require.Equal(t, "0123456789abcdef0123456789abcdef:01234567:web-3/4711:label", ticket.Token())
	require.Equal(t, 9*time.Second, ticket.Expires())
	again, err := ticket.MarshalText()
	require.NoError(t, err)
	require.Equal(t, text, string(again))
}

// Q3: Clients of all versions take a name to the same group, and the nodes hold the groups as this text.
func TestGroupsKeepTheirFormAndTheirNames(t *testing.T) {
	var configs []redlock.Config
	var nodes []*fleet.Node
	for _, name := range []string{"a", "b", "c"} {
		f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
		configs = append(configs, redlock.Config{Nodes: []redlock.Node{{Name: name, URL: f.URLs()[0]}}})
		patient(&configs[len(configs)-1])
		nodes = append(nodes, f.Nodes()...)
	}
	s := shardedOf(t, configs...)
	require.NoError(t, s.Enroll(soon(t)))
	require.Contains(t, stringOf(tell(t, nodes[1], "GET", "redlock:config")), "Prefix \"\"\nGroups \"b\\n\\na\\n\\nc\"\n")
	var groups []int
	for i := range 12 {
		groups = append(groups, slices.Index(s.Groups(), s.Group(fmt.Sprint("order/", i))))
	}
	require.Equal(t, []int{0, 0, 2, 2, 2, 1, 0, 0, 2, 1, 2, 0}, groups)
}
