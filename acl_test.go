package redlock_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// The rights that docs/operations.md gives to a Redis user are enough, also under contention and on a server that
// forgot its scripts.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	doc, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^user locker on >SECRET (.*)$`).FindSubmatch(doc)
	require.NotNil(t, line, "docs/operations.md has no line that begins with: user locker on >SECRET")
	for prefix, keys := range map[string]string{"": "~*", "lock:": "~lock:* ~redlock:*"} {
		f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
		for _, n := range f.Nodes() {
			rules := strings.Fields(strings.Replace(string(line[1]), "~*", keys, 1))
			fleettest.SetUser(t, n, "locker", append([]string{"on", ">SECRET"}, rules...)...)
		}
		asLocker := func(cfg *redlock.Config) {
			cfg.Nodes = redlock.Nodes(urls(f, func(u *url.URL) { u.User = url.UserPassword("locker", "SECRET") })...)
			cfg.Prefix = prefix
		}
		a, b, ctx := open(t, f, asLocker, patient), open(t, f, asLocker, patient), soon(t)
		held, err := a.Mutex("x", "y").Acquire(ctx)
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() {
			done <- b.Mutex("y").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
		}()
		require.NoError(t, held.Extend(ctx))
		state, err := b.Inspect(ctx, "x")
		require.NoError(t, err)
		require.Equal(t, held.Token(), state.Token)
		require.NoError(t, held.Release(ctx))
		require.NoError(t, <-done)
		least, err := a.Mutex("m").WithMinHold(time.Second).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, least.Release(ctx))
		_, err = a.Mutex("y").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, b.ForceRelease(ctx, "y"))

		for _, lock := range []func(c *redlock.Client) redlock.Lock{
			func(c *redlock.Client) redlock.Lock { return c.Semaphore("s", 1) },
			func(c *redlock.Client) redlock.Lock { return c.RWMutex("r").Reader() },
		} {
			shared, err := lock(a).Acquire(ctx)
			require.NoError(t, err)
			go func() {
				other := lock(b)
				if shared.Names()[0] == "r" {
					other = b.RWMutex("r").Writer()
				}
				done <- other.Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
			}()
			require.NoError(t, shared.Extend(ctx))
			_, err = b.Inspect(ctx, shared.Names()[0])
			require.NoError(t, err)
			require.NoError(t, shared.Release(ctx))
			require.NoError(t, <-done)
		}
		fair, err := a.Mutex("f").Fair().Acquire(ctx)
		require.NoError(t, err)
		r := &roll{t: t}
		waiter := r.join(0, b.Mutex("f").Fair())
		arrived(t, f, prefix+"f", 1)
		require.NoError(t, fair.Release(ctx))
		require.NoError(t, <-waiter.ended)

		for _, n := range f.Nodes() {
			tell(t, n, "SCRIPT", "FLUSH")
		}
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			assert.NoError(t, a.Mutex("z").Do(ctx, func(context.Context, *redlock.Lease) error { return nil }))
		}, 5*time.Second, 10*time.Millisecond)
		for _, n := range f.Nodes() {
			require.Empty(t, tell(t, n, "ACL", "LOG"), "the server refused something")
		}
	}
}

// Mutexes do without the right to ZRANGE, and so does whoever looks at them.
func TestAFreeLockIsFreeToAUserWhoMayNotZRange(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f, patient, as(t, f, "locker", "-zrange"))
	state, err := c.Inspect(ctx, "x")
	require.NoError(t, err)
	require.False(t, state.Held)
	require.Equal(t, 3, state.Votes)
	for _, n := range state.Nodes {
		require.NoError(t, n.Err)
		require.False(t, n.Held || n.Reserved || n.NotString)
	}
	require.NoError(t, c.ForceRelease(ctx, "x"))

	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	state, err = c.Inspect(ctx, "x")
	require.NoError(t, err)
	require.Equal(t, l.Token(), state.Token)
	tell(t, f.Nodes()[0], "HSET", "y", "a", "b") // it cannot know whether several share that
	state, err = c.Inspect(ctx, "y")
	require.NoError(t, err)
	require.Equal(t, 2, len(slices.DeleteFunc(state.Nodes, func(n redlock.NodeState) bool { return n.Err != nil })))
}

// R1: An error of one lease concerns that lease alone, also if the server refuses the command that renews several.
func TestAForbiddenKeyCostsOtherLeasesNoVote(t *testing.T) {
	f, ctx := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3}), soon(t)
	c := open(t, f, patient, as(t, f, "locker"))
	var leases []*redlock.Lease
	for i := range 21 {
		name := fmt.Sprint("free:", i)
		if i == 10 {
			name = "forbidden"
		}
		l, err := c.Mutex(name).WithoutRenewal().Acquire(ctx)
		require.NoError(t, err)
		spread(t, f, name, l)
		leases = append(leases, l)
	}
	require.NoError(t, f.Nodes()[0].Kill()) // the others are needed
	fleettest.SetUser(t, f.Nodes()[1], "locker", "resetkeys", "~free:*", "~redlock:*")
	for range 5 {
		errs := make([]error, len(leases))
		var extends sync.WaitGroup
		for i, l := range leases { // so close together that they share commands
			extends.Go(func() { errs[i] = l.Extend(ctx) })
		}
		extends.Wait()
		for i, err := range errs {
			if i == 10 {
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.ErrorContains(t, err, "NOPERM")
				continue
			}
			require.NoError(t, err, leases[i].Names())
		}
	}
	for i, l := range leases {
		if i != 10 {
			require.NoError(t, l.Release(ctx))
		}
	}
}
