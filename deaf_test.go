package redlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// as makes a user with these rights, and has clients log in as that user.
func as(t testing.TB, f *fleet.Fleet, user string, rights ...string) func(*redlock.Config) {
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, user, append([]string{"on", ">secret", "~*", "+@all"}, rights...)...)
	}
	return func(cfg *redlock.Config) {
		cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword(user, "secret") })...)
	}
}

// A journal is a log that can be read while it is being written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) size() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Len()
}

func (j *journal) count(what string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), what)
}

// W2: Since Redis 7, a new user has no channel rights. Its client must not try to subscribe a hundred times a second.
// The log says once for each node why it is refused.
func TestASubscriberThatIsRefusedBacksOffAndSaysSo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	var log journal
	deaf := as(t, f, "deaf", "resetchannels")
	a := open(t, f, deaf)
	b := open(t, f, deaf, func(cfg *redlock.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	refusals := func() int { return rejected(t, f.Nodes()[0], "subscribe") }
	waiter := begin(t, b, "x")
	require.Eventually(t, func() bool { return refusals() >= 4 }, 8*time.Second, time.Millisecond)
	for i := range f.Nodes() {
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) != nil }, 8*time.Second, time.Millisecond)
		require.ErrorContains(t, redlock.Refusal(b, i), "NOPERM")
		require.ErrorContains(t, redlock.Refusal(b, i), "&redlock:released:*")
	}
	time.Sleep(2 * time.Second)     // without backoff, 180 refusals came in that time
	require.Less(t, refusals(), 20) // each pause is twice the one before
	require.Equal(t, 3, log.count("NOPERM"), "each node's refusal is logged once")

	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "deaf", "allchannels")
	}
	for i := range f.Nodes() { // the client notices that it has the rights now
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) == nil }, 30*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// W2: A client that hears messages, and may not publish, notices by itself that it may: as when the operator has given one
// right after the other, or between the two questions of one connection.
func TestAClientThatMayPublishNowNoticesItself(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f), open(t, f, as(t, f, "mute", "allchannels", "-publish"))
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	for i := range f.Nodes() {
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) != nil }, 8*time.Second, time.Millisecond)
		fleettest.SetUser(t, f.Nodes()[i], "mute", "+publish")
	}
	for i := range f.Nodes() {
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) == nil }, 30*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, held.Release(soon(t)))
	lease := waiter.has(t)
	require.Equal(t, strings.ToLower(lease.Token()[:32]), lease.Token()[:32], "others need not poll")
	require.NoError(t, lease.Release(soon(t)))
}

// W2: A client that may no longer publish notices that by itself: while it waits for another lock and its subscription
// stands, and also if it never waits.
func TestAClientThatMayNoLongerPublishNoticesItself(t *testing.T) {
	for name, waits := range map[string]bool{"while it waits": true, "while it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			a, b := open(t, f), open(t, f, as(t, f, "mute", "allchannels"))
			if waits {
				held, err := a.Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				waiter := begin(t, b, "x")
				for _, n := range f.Nodes() {
					require.Eventually(t, func() bool { return subscribers(t, n) == 1 }, 8*time.Second, time.Millisecond)
				}
				defer func() { // before the clients are closed
					require.NoError(t, held.Release(soon(t)))
					require.NoError(t, waiter.has(t).Release(soon(t)))
				}()
			}
			for i, n := range f.Nodes() {
				require.NoError(t, redlock.Refusal(b, i))
				fleettest.SetUser(t, n, "mute", "-publish")
			}
			for i := range f.Nodes() {
				require.Eventually(t, func() bool { return redlock.Refusal(b, i) != nil }, 30*time.Second, 10*time.Millisecond)
			}
			lease, err := b.Mutex("y").Acquire(soon(t))
			require.NoError(t, err)
			require.NotEqual(t, strings.ToLower(lease.Token()[:32]), lease.Token()[:32], "others must poll")
			require.NoError(t, lease.Release(soon(t)))
		})
	}
}

// subscribers is how many connections to the server are subscribed.
func subscribers(t *testing.T, n *fleet.Node) int {
	list, err := redis.String(tell(t, n, "CLIENT", "LIST", "TYPE", "pubsub"), nil)
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

// A server that cannot write to its disk answers a PING with MISCONF, and still sends messages: waiters stay subscribed. It
// refuses all locks, so it has no vote.
func TestAServerThatCannotWriteToItsDiskHasNoVoteAndKeepsItsSubscribers(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	a, b := open(t, f), open(t, f)
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	node := f.Nodes()[0]
	subscriptions := func() []string { // the numbers of the subscribed connections
		list, err := redis.String(tell(t, node, "CLIENT", "LIST", "TYPE", "pubsub"), nil)
		require.NoError(t, err)
		return regexp.MustCompile(`(?m)^id=\d+`).FindAllString(list, -1)
	}
	require.Eventually(t, func() bool { return len(subscriptions()) == 1 }, 8*time.Second, time.Millisecond)
	before := subscriptions()

	dir, err := redis.Strings(tell(t, node, "CONFIG", "GET", "dir"), nil)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir[1]))
	tell(t, node, "CONFIG", "SET", "save", "3600 1")
	tell(t, node, "BGSAVE")
	require.Eventually(t, func() bool { return rejected(t, node, "ping") >= 3 }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, before, subscriptions())
	why := b.Status(soon(t))[0].Err
	require.ErrorContains(t, why, "it cannot write to its disk, so it refuses locks and renewals; make room there")
	require.ErrorContains(t, why, "MISCONF")

	tell(t, node, "CONFIG", "SET", "save", "")
	require.NoError(t, b.Status(soon(t))[0].Err)
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// A client that was refused messages, and of which nobody waits any more, notices that it would get them now: Status must
// not warn for ever. Then it needs no connection for them.
func TestAClientThatWouldGetMessagesNowNoticesItselfThoughNobodyWaits(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	clock := &jumpingClock{}
	a := open(t, f)
	b := open(t, f, as(t, f, "deaf", "allchannels", "-subscribe"), func(cfg *redlock.Config) { cfg.Clock = clock })
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	waiter := begin(t, b, "x")
	for i := range f.Nodes() {
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) != nil }, 8*time.Second, time.Millisecond)
	}
	waiter.cancel()
	require.Nil(t, <-waiter.got)
	require.NoError(t, held.Release(soon(t)))
	clock.ahead.Add(int64(time.Minute)) // nobody waited lately
	var before []int
	for _, n := range f.Nodes() {
		before = append(before, rejected(t, n, "subscribe"))
	}
	for i, n := range f.Nodes() { // once more would not show that it goes on
		require.Eventually(t, func() bool { return rejected(t, n, "subscribe") >= before[i]+2 }, 30*time.Second, 10*time.Millisecond)
		require.Error(t, redlock.Refusal(b, i), "it is still refused")
	}
	for _, n := range f.Nodes() {
		fleettest.SetUser(t, n, "deaf", "+subscribe")
	}
	for i, n := range f.Nodes() {
		require.Eventually(t, func() bool { return redlock.Refusal(b, i) == nil }, 60*time.Second, 10*time.Millisecond)
		require.Eventually(t, func() bool { return subscribers(t, n) == 0 }, 10*time.Second, 10*time.Millisecond)
	}
}

// rejected is how many of these commands the server has refused.
func rejected(t *testing.T, n *fleet.Node, command string) (count int) {
	text, err := redis.String(tell(t, n, "INFO", "commandstats"), nil)
	require.NoError(t, err)
	stats := regexp.MustCompile(`cmdstat_` + command + `:.*rejected_calls=(\d+)`).FindStringSubmatch(text)
	if stats != nil {
		count, err = strconv.Atoi(stats[1])
		require.NoError(t, err)
	}
	return count
}

// Status warns of missing channel rights before there is any waiter, and no longer once the user has them.
func TestStatusWarnsOfMissingChannelRights(t *testing.T) {
	for name, c := range map[string]struct {
		rights, remedy []string
		waits          bool
	}{
		"no channels":                      {rights: []string{"resetchannels"}, remedy: []string{"allchannels"}},
		"no PUBLISH":                       {rights: []string{"allchannels", "-publish"}, remedy: []string{"+publish"}},
		"no SUBSCRIBE, and somebody waits": {rights: []string{"allchannels", "-subscribe"}, remedy: []string{"+subscribe"}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			client := open(t, f, as(t, f, "deaf", c.rights...), patient)
			warned := func() (count int) {
				for _, n := range client.Status(soon(t)) {
					require.NoError(t, n.Err)
					for _, w := range n.Warnings {
						if strings.Contains(w, "NOPERM") && strings.Contains(w, "&redlock:released:*") {
							count++
						}
					}
				}
				return count
			}
			if c.waits {
				held, err := open(t, f, patient).Mutex("x").Acquire(soon(t))
				require.NoError(t, err)
				waiter := begin(t, client, "x")
				defer func() { // before the clients are closed
					require.NoError(t, held.Release(soon(t)))
					require.NoError(t, waiter.has(t).Release(soon(t)))
				}()
				require.Eventually(t, func() bool { return warned() == 3 }, 10*time.Second, 10*time.Millisecond)
			} else {
				require.Equal(t, 3, warned())
			}
			for _, n := range f.Nodes() {
				fleettest.SetUser(t, n, "deaf", c.remedy...)
			}
			if c.waits { // its subscriber tries again by itself
				require.Eventually(t, func() bool { return warned() == 0 }, 30*time.Second, 10*time.Millisecond)
			} else {
				require.Zero(t, warned())
			}
		})
	}
}

// W2: A client that may not subscribe, or may not publish either, gets its turn beside others that want the same lock
// all the time. The others get theirs too.
func TestAClientWithoutChannelRightsHasItsTurn(t *testing.T) {
	for name, rights := range map[string][]string{
		"may not subscribe":            {"allchannels", "-subscribe"},
		"may not subscribe or publish": {"resetchannels"},
	} {
		t.Run(name, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			stop, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			turns := make(chan int, 1000)
			clients := []*redlock.Client{open(t, f, as(t, f, "deaf", rights...)), open(t, f), open(t, f), open(t, f)}
			for i, c := range clients {
				wg.Go(func() {
					for stop.Err() == nil {
						if l, err := c.Mutex("x").Acquire(stop); err == nil {
							time.Sleep(2 * time.Millisecond)
							_ = l.Release(context.Background())
							select {
							case turns <- i:
							case <-stop.Done():
							}
						}
					}
				})
			}
			counts := make([]int, len(clients))
			patience := time.After(30 * time.Second)
			for counts[0] < 40 || min(counts[1], counts[2], counts[3]) < 40 {
				select {
				case i := <-turns:
					counts[i]++
				case <-patience:
					require.Fail(t, "somebody starves", "turns of the one without rights, and of the others: %v", counts)
				}
			}
			t.Logf("turns of the one without rights, and of the others: %v", counts)
		})
	}
}

// W2: A client that polled and died costs the other waiters one reservation, no more.
func TestADeadClientThatPolledIsPassedOver(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	a, b, node := open(t, f, unasked), open(t, f, unasked), f.Nodes()[0]
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	tell(t, node, "ZADD", "redlock:wait:x", 1, "next:0123456789abcdef0123456789abcdef:poll")
	waiter := begin(t, b, "x")
	queues(t, node, "x", 2)
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// A server that has too many clients refuses the connection of a subscriber. That does not say that its client may not
// publish: other clients would then poll for every lock of this one.
func TestAServerWithTooManyClientsDoesNotMakeAClientMute(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	var log journal
	a, b := open(t, f), open(t, f, func(cfg *redlock.Config) { cfg.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	server, err := f.Nodes()[0].DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	defer server.Close()
	list, err := redis.String(server.Do("CLIENT", "LIST"))
	require.NoError(t, err)
	_, err = server.Do("CONFIG", "SET", "maxclients", strings.Count(list, "\n"))
	require.NoError(t, err)

	waiter := begin(t, b, "x")
	require.Eventually(t, func() bool { return log.count("redlock: waiters of a node poll") > 0 }, 8*time.Second, time.Millisecond)
	require.NotZero(t, log.count("max number of clients"))
	l, err := b.Mutex("y").Acquire(soon(t))
	require.NoError(t, err)
	require.Equal(t, strings.ToLower(l.Token()[:32]), l.Token()[:32], "capitals say that the client may not publish")
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}

// While a script runs for long, a server answers BUSY to everything. That does not say that a client may not publish.
func TestABusyServerDoesNotMakeAClientMute(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := open(t, f, patient)
	server, _ := loop(t, f.Nodes()[0])
	require.ErrorContains(t, c.Status(soon(t))[0].Err, "BUSY")
	require.NoError(t, redlock.Refusal(c, 0))
	_, err := server.Do("SCRIPT", "KILL")
	require.NoError(t, err)
	l, err := c.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	require.Equal(t, strings.ToLower(l.Token()[:32]), l.Token()[:32], "capitals say that the client may not publish")
}

// What a server answers while a script runs for long is no reason not to ask it afterwards.
func TestABusyServerIsAskedAsSoonAsItsScriptIsOver(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	c := open(t, f, patient)
	server, over := loop(t, f.Nodes()[0])
	require.ErrorContains(t, c.Status(soon(t))[0].Err, "BUSY")
	_, err := server.Do("SCRIPT", "KILL")
	require.NoError(t, err)
	over()
	l, err := c.Mutex("x").TryAcquire(soon(t))
	require.NoError(t, err)
	require.NoError(t, l.Release(soon(t)))
}

// loop has the server run a script that does not end by itself, and returns when it answers BUSY, with a connection that can
// end it. over waits until it has ended.
func loop(t *testing.T, n *fleet.Node) (server redis.Conn, over func()) {
	server, err := n.DialDirect(soon(t), 5*time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { server.Close() })
	_, err = server.Do("CONFIG", "SET", "lua-time-limit", 1)
	require.NoError(t, err)
	var script sync.WaitGroup
	script.Go(func() { tellQuiet(n, "EVAL", "while true do end", 0) })
	t.Cleanup(script.Wait)
	t.Cleanup(func() { _, _ = server.Do("SCRIPT", "KILL") })
	require.Eventually(t, func() bool {
		_, err := server.Do("PUBLISH", "x", "")
		return err != nil && strings.HasPrefix(err.Error(), "BUSY")
	}, 8*time.Second, time.Millisecond)
	return server, script.Wait
}

// A server that wants a login refuses the subscriber. Rights would not help.
func TestWaitersThatPollForWantOfALoginAreToldToLogIn(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	var log journal
	a, b := open(t, f), open(t, f, log.to)
	held, err := a.Mutex("x").Acquire(soon(t))
	require.NoError(t, err)
	tell(t, f.Nodes()[0], "CONFIG", "SET", "requirepass", "secret")
	waiter := begin(t, b, "x")
	const polls = `level=WARN msg="redlock: waiters of a node poll" [^\n]*`
	require.Eventually(t, func() bool { return len(log.found(polls)) > 0 }, 8*time.Second, time.Millisecond)
	require.Contains(t, log.found(polls)[0], "it demands a login: NOAUTH Authentication required.; give the user and the password")
	require.NotContains(t, log.found(polls)[0], "SUBSCRIBE")
	require.NoError(t, held.Release(soon(t)))
	require.NoError(t, waiter.has(t).Release(soon(t)))
}
