package redlock_test

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// One server of three is broken, or somebody else's, and says what no server says. The locks go on with the other two.

// beside is a client of two servers and a proxy, which leads to the third and lies.
func beside(t *testing.T, change ...func(*redlock.Config)) (*fleet.Fleet, *proxy, *redlock.Client) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	p := newProxy(t, f.Nodes()[2])
	nodes := redlock.Nodes(f.Nodes()[0].URL(), f.Nodes()[1].URL(), p.url())
	return f, p, open(t, f, append(change, func(cfg *redlock.Config) { cfg.Nodes = nodes })...)
}

// Each of these ended the process: redigo makes room for whatever a server announces, and calls itself for a list in a list.
func TestAServerThatAnnouncesTooMuchLosesItsConnection(t *testing.T) {
	t.Parallel()
	_, p, c := beside(t, patient)
	for name, said := range map[string]string{
		"a text":         fmt.Sprintf("$%d\r\n", int64(math.MaxInt64)),
		"a list":         fmt.Sprintf("*%d\r\n", int64(math.MaxInt64)),
		"lists in lists": strings.Repeat("*1\r\n", 10e6),
	} {
		p.lies(func(_ string, reply []byte) []byte { return []byte(said) })
		require.Eventually(t, func() bool {
			s := c.Status(soon(t))[2]
			return !s.Connected && strings.Contains(fmt.Sprint(s.Err), "it is no Redis server, so check the port")
		}, 10*time.Second, time.Millisecond, name)
		lease, err := c.Mutex("x").TryAcquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, lease.Release(soon(t)))
		p.lies(nil)
		require.Eventually(t, func() bool { return c.Status(soon(t))[2].Err == nil }, 10*time.Second, time.Millisecond)
	}
}

// C1: The light form reads the clock before and after the key is written. If somebody set it in between, all between the two
// readings counted as where it may be, and agreed with every clock; and the winner waited for as long as it was set by (C2).
func TestAClockThatIsSetDuringALightAcquireHoldsUpNobody(t *testing.T) {
	t.Parallel()
	_, p, c := beside(t, patient, redlock.AlwaysLight)
	for _, set := range []time.Duration{time.Hour, -time.Hour, 100 * 365 * 24 * time.Hour} {
		var lies atomic.Int64
		p.lies(func(command string, reply []byte) []byte {
			micros, err := strconv.ParseInt(strings.Trim(string(reply), ":\r\n"), 10, 64)
			if command != "vouch" || err != nil {
				return reply
			}
			lies.Add(1)
			return fmt.Appendf(nil, ":%d\r\n", micros+set.Microseconds())
		})
		for i, begun := 0, time.Now(); lies.Load() == 0; i++ {
			require.Less(t, time.Since(begun), 20*time.Second, "some locks have that node in the quorum that is asked first")
			lease, err := c.Mutex(fmt.Sprint("x", i)).Acquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, lease.Release(soon(t)))
		}
		p.lies(nil)
		require.Eventually(t, func() bool { return c.Status(soon(t))[2].Err == nil }, 10*time.Second, time.Millisecond)
	}
}

// A slot below zero ended the process, in the call of whoever wanted a permit.
func TestAServerThatNamesSlotsThatNoSemaphoreHas(t *testing.T) {
	t.Parallel()
	_, p, c := beside(t, patient)
	s := c.Semaphore("x", 2)
	for range 2 {
		lease, err := s.Acquire(soon(t))
		require.NoError(t, err)
		defer lease.Release(soon(t))
	}
	for _, free := range []string{"-1", "2", "-9223372036854775808,9223372036854775807,0x1"} {
		var lies atomic.Int64
		p.lies(func(command string, reply []byte) []byte {
			if command != "acquire" {
				return reply
			}
			lies.Add(1)
			return fmt.Appendf(nil, "*7\r\n$4\r\nheld\r\n:%d\r\n:1000\r\n$0\r\n\r\n:0\r\n$%d\r\n%s\r\n:2\r\n",
				time.Now().UnixMicro(), len(free), free)
		})
		// The two honest answers suffice, so a try may end before the lie is told.
		for begun := time.Now(); lies.Load() < 3; {
			require.Less(t, time.Since(begun), 20*time.Second)
			_, err := s.TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrHeld, free)
		}
	}
}

// A proxy that knows only some commands ends each connection at the first one that it does not know, once the connection is
// open. Each client asked it a hundred times a second, and each time the log had several lines.
func TestAServerThatEndsEachConnectionIsNotAskedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		var log journal
		var dials atomic.Int64
		c := w.connect(t, 0, log.to, func(cfg *redlock.Config) {
			dial := cfg.Nodes[2].Dial
			cfg.Nodes[2].Dial = func(ctx context.Context) (redis.Conn, error) {
				conn, err := dial(ctx)
				if err == nil {
					dials.Add(1)
					time.AfterFunc(time.Millisecond, func() { conn.Close() })
				}
				return conn, err
			}
		})
		_ = c.Enroll(t.Context())
		time.Sleep(time.Minute)
		require.Greater(t, dials.Load(), int64(40), "it is asked again every second")
		require.Less(t, dials.Load(), int64(150))
		require.Less(t, log.count("\n"), 600)
	})
}

// Whoever may publish can send any message. The client answered each one about a key that it does not want with that key, four
// times over, on the connection on which its votes go too.
func TestALongMessageIsNotAnswered(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f, patient)
	lease, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	lease.Wanted() // so the client listens
	node := f.Nodes()[0]
	var channel string
	require.Eventually(t, func() bool {
		channels, err := redis.Strings(tell(t, node, "PUBSUB", "CHANNELS", "redlock:released:next:*"), nil)
		require.NoError(t, err)
		if len(channels) > 0 {
			channel = channels[0]
		}
		return channel != ""
	}, 5*time.Second, time.Millisecond)
	received := func() int { // bytes that came to the server, without what this test sends
		text, err := redis.String(tell(t, node, "INFO", "stats"), nil)
		require.NoError(t, err)
		n, err := strconv.Atoi(regexp.MustCompile(`total_net_input_bytes:(\d+)`).FindStringSubmatch(text)[1])
		require.NoError(t, err)
		return n
	}
	left := func() bool { // the client has answered the last message, which is not too long
		text, err := redis.String(tell(t, node, "INFO", "commandstats"), nil)
		require.NoError(t, err)
		return regexp.MustCompile(`cmdstat_zrem`).MatchString(text)
	}
	require.False(t, left())
	before := received()
	const messages, size = 10, 1 << 20
	for range messages {
		tell(t, node, "PUBLISH", channel, strings.Repeat("x", size))
	}
	tell(t, node, "PUBLISH", channel, strings.Repeat("x", 1024)) // as long as the longest name
	require.Eventually(t, left, 5*time.Second, time.Millisecond)
	require.Less(t, received()-before, (messages+1)*size)
	require.NoError(t, lease.Release(soon(t)))
}

// What such a server says is in errors and in the log, but not all of it, and nothing that controls a terminal.
func TestNonsenseIsToldInBrief(t *testing.T) {
	t.Parallel()
	nonsense := strings.Repeat("\x1b[31m\nx", 1<<17)
	text := fmt.Sprintf("$%d\r\n%s\r\n", len(nonsense), nonsense)
	for _, lie := range []struct{ said, told string }{
		{text, `none of its replies`},
		{"*2\r\n" + text + text, `none of its replies`},
		{"-ERR " + strings.Repeat("\x1b[31m", 1000) + "\r\n", `ERR `},
	} {
		var log journal
		_, p, c := beside(t, patient, log.to)
		p.lies(func(command string, reply []byte) []byte {
			if command != "ready" {
				return reply
			}
			return []byte(lie.said)
		})
		for range 2 {
			for _, s := range c.Status(soon(t)) {
				require.Less(t, len(fmt.Sprint(s)), 20000)
			}
			lease, err := c.Mutex("x").TryAcquire(soon(t))
			require.NoError(t, err)
			require.NoError(t, lease.Release(soon(t)))
		}
		require.NoError(t, c.Close())
		require.NotZero(t, log.count(lie.told))
		require.Zero(t, log.count("\x1b"))
		require.Less(t, log.size(), 100000)
	}
}

// O2: A waiter drew its ticket above whatever any node named, and wrote it on all. Far above 2^53, what the other nodes then
// said of their queues was no number to anybody: while that waiter waited, all who came later were told of an outage.
func TestAServerThatNamesATicketFarAheadSpoilsNoQueue(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	all, urls := proxies(t, f)
	through := func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(urls...) }
	c, second := open(t, f, patient, through), open(t, f, patient, through)
	p := all[2]
	longAhead := time.Now().Add(1000 * time.Hour).UnixMicro()
	for _, largest := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 60, 1 << 53, 1<<53 - 2, longAhead} {
		held, err := c.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		told := make(chan struct{})
		isTold := sync.OnceFunc(func() { close(told) })
		for _, honest := range all[:2] { // but slow, so the lie is heard in time
			honest.lies(func(command string, reply []byte) []byte {
				if command == "acquire" { // that of fair.lua is named so too
					select {
					case <-told:
					case <-t.Context().Done():
					}
					time.Sleep(20 * time.Millisecond)
				}
				return reply
			})
		}
		p.lies(func(command string, reply []byte) []byte {
			if command != "acquire" {
				return reply
			}
			isTold()
			return fmt.Appendf(nil, "*7\r\n$5\r\ntaken\r\n:%d\r\n:1000\r\n$1\r\nx\r\n:0\r\n:%d\r\n:0\r\n", time.Now().UnixMicro(), largest)
		})
		r := &roll{t: t}
		first := r.join(0, c.Mutex("x").Fair())
		for _, node := range f.Nodes()[:2] { // which are looked at below
			require.Eventually(t, func() bool { return len(places(t, node, "x")) == 1 }, 15*time.Second, time.Millisecond)
		}
		select {
		case <-told:
		case <-soon(t).Done():
			require.Fail(t, "the lie was not told")
		}
		p.lies(nil)
		_, err = second.Mutex("x").Fair().TryAcquire(soon(t))
		require.ErrorIs(t, err, redlock.ErrHeld, "%d", largest)
		for i, node := range f.Nodes()[:2] {
			tickets, err := redis.Strings(tell(t, node, "ZRANGE", "redlock:fair:ticket:x", "0", "-1", "WITHSCORES"), nil)
			require.NoError(t, err)
			ticket, err := strconv.ParseInt(tickets[1], 10, 64)
			require.NoError(t, err, "%s on node %d", tickets[1], i)
			require.Less(t, ticket, time.Now().Add(2*time.Hour).UnixMicro(), "%d", largest)
		}
		require.NoError(t, held.Release(soon(t)))
		require.NoError(t, <-first.ended)
	}
}
