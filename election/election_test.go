package election_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/redlocktest"
)

// A judge knows every term, and checks that no other is valid when one begins.
type judge struct {
	mu    sync.Mutex
	terms []*election.Term
}

func (j *judge) began(t *testing.T, term *election.Term) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !term.Valid() {
		return // lost already
	}
	for _, other := range j.terms {
		assert.False(t, other.Valid(), "two terms are valid")
		assert.Error(t, other.Context().Err(), "its context ends before another term begins")
		assert.Greater(t, term.Number(), other.Number())
	}
	j.terms = append(j.terms, term)
}

// Many processes campaign. Leaders resign, are cut off, or lose their client; nodes are paused and restarted.
func TestOneProcessLeadsAtATime(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		random := rand.New(rand.NewPCG(0, 1))
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var judge judge
		var wg sync.WaitGroup
		watcher := election.New(start(t, nodes).Client, "x", election.Options{})
		wg.Go(func() { watch(t, watcher.Observe(ctx)) })
		for i := range 4 {
			random := rand.New(rand.NewPCG(0, uint64(10+i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					candidate(ctx, t, start(t, nodes), &judge, random)
				}
			})
		}
		for ctx.Err() == nil {
			node := random.IntN(2) // never more than two at a time
			nodes.Pause(node)
			time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
			nodes.Resume(node)
			if random.IntN(3) == 0 {
				nodes.Restart(4)
			}
			time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond)
		}
		wg.Wait()
		require.Greater(t, len(judge.terms), 5)
	})
}

// candidate leads a few times, until its process ends.
func candidate(ctx context.Context, t *testing.T, p *process, judge *judge, random *rand.Rand) {
	defer p.Close()
	e := election.New(p.Client, "x", election.Options{Label: fmt.Sprint(random.Int())})
	for {
		term, err := e.Campaign(ctx)
		if err != nil {
			return
		}
		judge.began(t, term)
		time.Sleep(time.Duration(random.IntN(8000)) * time.Millisecond)
		switch random.IntN(4) {
		case 0:
			p.cut()
			<-term.Context().Done()
			return
		case 1:
			return // the client is closed
		default:
			if err := term.Resign(ctx); err == nil {
				assert.ErrorIs(t, context.Cause(term.Context()), redlock.ErrReleased)
			}
		}
	}
}

// watch checks that the numbers never go back, and that each change is one.
func watch(t *testing.T, leaders <-chan election.Leader) (seen int) {
	var last election.Leader
	highest := uint64(0)
	for leader := range leaders {
		if seen > 0 {
			assert.NotEqual(t, last, leader)
		}
		if !leader.None() {
			assert.GreaterOrEqual(t, leader.Number, highest)
			assert.NotEmpty(t, leader.Label)
			highest = leader.Number
		}
		last = leader
		seen++
	}
	assert.NotZero(t, seen)
	return seen
}

func TestResignHandsOverAndObserversHearWithinARoundTrip(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		const roundTrip = 40 * time.Millisecond
		for i := range 5 {
			nodes.Delay(i, roundTrip/2)
		}
		a := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		b := election.New(start(t, nodes).Client, "x", election.Options{Label: "b b"})
		leaders := election.New(start(t, nodes).Client, "x", election.Options{}).Observe(t.Context())
		require.True(t, next(t, leaders).None(), "nobody leads")
		time.Sleep(10 * time.Second) // until the subscriptions are made

		first := campaign(t, a)
		began := time.Now()
		require.Equal(t, leaderOf(first), next(t, leaders))
		require.LessOrEqual(t, time.Since(began), roundTrip)
		time.Sleep(time.Minute)
		requireQuiet(t, leaders)

		began = time.Now()
		require.NoError(t, first.Resign(t.Context()))
		require.False(t, first.Valid())
		require.True(t, next(t, leaders).None())
		require.LessOrEqual(t, time.Since(began), roundTrip)
		require.NoError(t, first.Resign(t.Context()), "again")

		second := campaign(t, b)
		require.Equal(t, leaderOf(second), next(t, leaders))
		require.Equal(t, "b b", second.Label())

		var third *election.Term
		var wg sync.WaitGroup
		wg.Go(func() { third = campaign(t, a) })
		time.Sleep(time.Second)
		require.NoError(t, second.Resign(t.Context()))
		wg.Wait()
		leader := next(t, leaders)
		if leader.None() { // a reader may see this or not
			leader = next(t, leaders)
		}
		require.Equal(t, leaderOf(third), leader)
		require.Greater(t, third.Number(), second.Number())
	})
}

func TestALeaderThatIsCutOffLosesItsTermBeforeAnotherLeads(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		p := start(t, nodes)
		a := election.New(p.Client, "x", election.Options{Label: "a"})
		b := election.New(start(t, nodes).Client, "x", election.Options{Label: "b"})
		leaders := election.New(start(t, nodes).Client, "x", election.Options{}).Observe(t.Context())
		first := campaign(t, a)
		for next(t, leaders) != leaderOf(first) {
		}
		time.Sleep(time.Minute)
		p.cut()
		began := time.Now()
		second := campaign(t, b)
		require.ErrorIs(t, context.Cause(first.Context()), redlock.ErrLost)
		require.False(t, first.Valid())
		require.Less(t, time.Since(began), 11*time.Second, "the TTL is 10 s")
		leader := next(t, leaders)
		if leader.None() {
			leader = next(t, leaders)
		}
		require.Equal(t, leaderOf(second), leader)
		require.Greater(t, second.Number(), first.Number())
		require.ErrorIs(t, first.Resign(t.Context()), redlock.ErrLost)
		time.Sleep(time.Minute)
		requireQuiet(t, leaders)
		require.True(t, second.Valid())
	})
}

func TestObserversHearThatALeaderDiedThoughNobodyFollows(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		p := start(t, nodes)
		leaders := election.New(start(t, nodes).Client, "x", election.Options{Poll: 2 * time.Second}).Observe(t.Context())
		first := campaign(t, election.New(p.Client, "x", election.Options{}))
		for next(t, leaders) != leaderOf(first) {
		}
		p.cut()
		began := time.Now()
		require.True(t, next(t, leaders).None())
		require.Less(t, time.Since(began), (10+2+1)*time.Second)
		require.ErrorIs(t, context.Cause(first.Context()), redlock.ErrLost)
	})
}

// A Poll so long that it means never is not taken for none. Three times this one overflowed.
func TestAnObserverMayPollAlmostNever(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		for i := range 3 {
			nodes.Delay(i, 10*time.Millisecond)
		}
		p := start(t, nodes)
		leaders := election.New(start(t, nodes).Client, "x", election.Options{Poll: math.MaxInt64/3 + 1}).Observe(t.Context())
		first := campaign(t, election.New(p.Client, "x", election.Options{}))
		for next(t, leaders) != leaderOf(first) {
		}
		p.cut()
		time.Sleep(time.Minute)
		requireQuiet(t, leaders)
	})
}

func TestASlowReaderSeesOnlyTheNewest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		e := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		leaders := e.Observe(t.Context())
		require.True(t, next(t, leaders).None())
		var last *election.Term
		for range 5 {
			last = campaign(t, e)
			time.Sleep(time.Second)
			require.NoError(t, last.Resign(t.Context()))
		}
		last = campaign(t, e)
		synctest.Wait()
		require.Equal(t, leaderOf(last), next(t, leaders))
		requireQuiet(t, leaders)

		require.NoError(t, last.Resign(t.Context()))
		last = campaign(t, e)
		require.NoError(t, last.Resign(t.Context()))
		synctest.Wait()
		require.True(t, next(t, leaders).None())
		requireQuiet(t, leaders)
	})
}

func TestLeaderAsksAQuorum(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		e := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		other := election.New(start(t, nodes).Client, "x", election.Options{})
		leader, err := other.Leader(t.Context())
		require.NoError(t, err)
		require.True(t, leader.None())
		term := campaign(t, e)
		synctest.Wait()
		// The lock is on a bare quorum. One node less leaves it open who leads, until the next renewal.
		for down := range 2 {
			leader, err = other.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, leaderOf(term), leader)
			nodes.Kill(down)
			time.Sleep(10 * time.Millisecond)
		}
		leader, err = other.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, leaderOf(term), leader)
		nodes.Kill(2)
		time.Sleep(time.Second)
		_, err = other.Leader(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = other.Leader(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// An observer does not take the leader for gone because nodes of its quorum are away.
func TestAnObserverKeepsTheLeaderWhileNodesAreAway(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		term := campaign(t, election.New(start(t, nodes).Client, "x", election.Options{}))
		leaders := election.New(start(t, nodes).Client, "x", election.Options{}).Observe(t.Context())
		require.Equal(t, leaderOf(term), next(t, leaders))
		for i := range 2 {
			nodes.Kill(i)
			time.Sleep(time.Minute)
			requireQuiet(t, leaders)
		}
		for i := range 2 {
			nodes.Restart(i)
			time.Sleep(time.Minute)
			requireQuiet(t, leaders)
		}
		nodes.Kill(2)
		time.Sleep(time.Minute)
		requireQuiet(t, leaders)
		require.True(t, term.Valid())
	})
}

func TestObserversHearByPollingIfThereAreNoMessages(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		e := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		first := campaign(t, e)
		var refuse atomic.Bool
		deaf := start(t, nodes, func(cfg *redlock.Config) {
			for i := range cfg.Nodes {
				cfg.Nodes[i].Dial = refusing(cfg.Nodes[i].Dial, &refuse)
			}
		})
		observer := election.New(deaf.Client, "x", election.Options{})
		_, err := observer.Leader(t.Context())
		require.NoError(t, err)
		refuse.Store(true) // from now on: it has its own connections, and gets none for subscriptions
		leaders := observer.Observe(t.Context())
		require.Equal(t, leaderOf(first), next(t, leaders))
		time.Sleep(10 * time.Second)
		require.NoError(t, first.Resign(t.Context()))
		began := time.Now()
		require.True(t, next(t, leaders).None())
		second := campaign(t, e)
		require.Equal(t, leaderOf(second), next(t, leaders))
		require.Less(t, time.Since(began), 3*time.Second)
		require.NoError(t, second.Resign(t.Context())) // until now it must not be collected
	})
}

// As after a new password: the nodes' own connections go on, and each new one is refused.
func TestTheLogSaysWhatToDoForObserversWithoutMessages(t *testing.T) {
	for refusal, remedy := range map[string]string{
		"WRONGPASS invalid username-password pair or user is disabled.": "check the user name and the password",
		"ERR max number of clients reached": "allow the user SUBSCRIBE on redlock:leader:* (ACL: &redlock:leader:* +subscribe), " +
			"and the client one connection more",
	} {
		bubbled := func(t *testing.T, nodes *redlocktest.Nodes) {
			var refuse atomic.Bool
			var log bytes.Buffer // safe to read when all goroutines of the bubble wait
			client := start(t, nodes, func(cfg *redlock.Config) {
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				for i := range cfg.Nodes {
					dial := cfg.Nodes[i].Dial
					cfg.Nodes[i].Dial = func(ctx context.Context) (redis.Conn, error) {
						if refuse.Load() {
							return nil, fmt.Errorf("it refused: %w", redis.Error(refusal))
						}
						return dial(ctx)
					}
				}
			})
			e := election.New(client.Client, "x", election.Options{})
			_, err := e.Leader(t.Context())
			require.NoError(t, err)
			refuse.Store(true)
			require.True(t, next(t, e.Observe(t.Context())).None())
			time.Sleep(time.Minute)
			synctest.Wait()
			said := log.String()
			require.Equal(t, 3, strings.Count(said, "observers of an election poll a node"), "once for each node: %s", said)
			require.Equal(t, 3, strings.Count(said, refusal+"; "+remedy+`"`), said)
		}
		t.Run(refusal, func(t *testing.T) { bubble(t, 3, bubbled) })
	}
}

// When the new password has arrived, nothing waits for half a minute.
func TestALoginThatWasRefusedIsTriedAgainSoon(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		var refuse atomic.Bool
		var mu sync.Mutex // guards the rest
		last, longest := time.Time{}, time.Duration(0)
		client := start(t, nodes, func(cfg *redlock.Config) {
			dial := cfg.Nodes[0].Dial
			cfg.Nodes[0].Dial = func(ctx context.Context) (redis.Conn, error) {
				mu.Lock()
				defer mu.Unlock()
				if !refuse.Load() {
					return dial(ctx)
				}
				longest, last = max(longest, time.Since(last)), time.Now()
				return nil, fmt.Errorf("it refused the login: %w", redis.Error("WRONGPASS"))
			}
		})
		e := election.New(client.Client, "x", election.Options{})
		_, err := e.Leader(t.Context())
		require.NoError(t, err)
		mu.Lock()
		last = time.Now()
		mu.Unlock()
		refuse.Store(true) // for observers: the node's own connection stands
		require.True(t, next(t, e.Observe(t.Context())).None())
		time.Sleep(2 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Less(t, max(longest, time.Since(last)), 3*time.Second)
	})
}

// refusesPings is a connection to a server that cannot write to its disk: to a PING it says so.
type refusesPings struct{ redis.Conn }

func (c refusesPings) Receive() (any, error) {
	reply, err := c.Conn.Receive()
	if kind, errKind := redis.String(first(reply), err); errKind == nil && kind == "pong" {
		return nil, redis.Error("MISCONF Redis is configured to save RDB snapshots")
	}
	return reply, err
}

func first(reply any) any {
	if all, ok := reply.([]any); ok && len(all) > 0 {
		return all[0]
	}
	return nil
}

// Such a server goes on sending messages, so observers stay subscribed.
func TestObserversStayOnAServerThatCannotWriteToItsDisk(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		var dials atomic.Int64
		client := start(t, nodes, func(cfg *redlock.Config) {
			dial := cfg.Nodes[0].Dial
			cfg.Nodes[0].Dial = func(ctx context.Context) (redis.Conn, error) {
				dials.Add(1)
				conn, err := dial(ctx)
				return refusesPings{conn}, err
			}
		})
		e := election.New(client.Client, "x", election.Options{})
		require.True(t, next(t, e.Observe(t.Context())).None())
		synctest.Wait()
		before := dials.Load()
		time.Sleep(time.Minute)
		require.Equal(t, before, dials.Load())
	})
}

// Somebody who takes the lock without an election excludes leaders, and has no label.
func TestAHolderWithoutAnElectionHasNoLabel(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := start(t, nodes)
		e := election.New(client.Client, "x", election.Options{})
		leaders := e.Observe(t.Context())
		require.True(t, next(t, leaders).None())
		lease, err := client.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{Token: lease.Token()}, next(t, leaders))
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, election.Leader{Token: lease.Token()}, leader)
		require.NoError(t, lease.Release(t.Context()))
		require.True(t, next(t, leaders).None())
	})
}

// A leader stores its label when it has heard that it has the lock. Those who are nearer to the nodes see the lock before.
func TestALeaderFarAwayIsNotNamedBeforeItsLabelIsThere(t *testing.T) {
	for _, roundTrip := range []time.Duration{50 * time.Millisecond, 240 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
				a := election.New(start(t, nodes, far(roundTrip)).Client, "x", election.Options{Label: "a"})
				client := start(t, nodes)
				near := election.New(client.Client, "x", election.Options{})
				require.NoError(t, campaign(t, a).Resign(t.Context()), "its connections are made")
				time.Sleep(time.Second)

				var term *election.Term
				var wg sync.WaitGroup
				wg.Go(func() { term = campaign(t, a) })
				defer wg.Wait()
				for state := new(redlock.State); !state.Held; time.Sleep(time.Millisecond) {
					var err error
					state, err = client.Inspect(t.Context(), "x")
					require.NoError(t, err)
				}
				leaders := near.Observe(t.Context())
				leader, err := near.Leader(t.Context())
				require.NoError(t, err)
				seen := next(t, leaders)
				wg.Wait()
				assert.Equal(t, leaderOf(term), leader, "Leader")
				assert.Equal(t, leaderOf(term), seen, "Observe")
			})
		})
	}
}

// The lock of a leader that died stays until it expires. Until then it is that leader's, label and number included.
func TestTheLabelOfADeadLeaderLastsAsLongAsItsLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		near := election.New(start(t, nodes).Client, "x", election.Options{})
		for i := range 12 { // at any time between two announcements
			p := start(t, nodes)
			term := campaign(t, election.New(p.Client, "x", election.Options{Label: "a"}))
			time.Sleep(10*time.Second + time.Duration(i)*300*time.Millisecond)
			p.cut()
			requireNamed(t, near, leaderOf(term))
		}
	})
}

// requireNamed checks that nobody but this leader is named until nobody leads.
func requireNamed(t *testing.T, e *election.Election, want election.Leader) {
	t.Helper()
	for {
		leader, err := e.Leader(t.Context())
		require.NoError(t, err)
		if leader.None() {
			return
		}
		require.Equal(t, want, leader)
		time.Sleep(500 * time.Millisecond)
	}
}

// A dropped term ends, and its lock expires. Who has heard that it is over does not see it again; to others, it is the
// leader's until then.
func TestADroppedTermIsNoLeaderWithoutAName(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		a := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		near := election.New(start(t, nodes).Client, "x", election.Options{Poll: 100 * time.Millisecond})
		leaders := near.Observe(t.Context())
		require.True(t, next(t, leaders).None())
		term := campaign(t, a)
		dropped := leaderOf(term)
		require.Equal(t, dropped, next(t, leaders))
		runtime.KeepAlive(term) // else it may be collected before it is announced
		runtime.GC()
		require.True(t, next(t, leaders).None())
		time.Sleep(time.Second) // the message has arrived from all nodes
		late := near.Observe(t.Context())
		require.Equal(t, dropped, next(t, late))
		requireNamed(t, near, dropped)
		require.True(t, next(t, late).None())
		requireQuiet(t, leaders)
		require.NoError(t, campaign(t, a).Resign(t.Context()))
	})
}

func TestWithoutFencingTokensObserversLearnTheLabel(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		noFence := func(cfg *redlock.Config) { cfg.NoFence = true }
		e := election.New(start(t, nodes, noFence).Client, "x", election.Options{Label: "a"})
		leaders := e.Observe(t.Context())
		require.True(t, next(t, leaders).None())
		for range 3 {
			term := campaign(t, e)
			require.Zero(t, term.Number())
			require.Equal(t, leaderOf(term), next(t, leaders))
			require.NoError(t, term.Resign(t.Context()))
			require.True(t, next(t, leaders).None())
		}
	})
}

func TestCampaignEndsWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		a := election.New(start(t, nodes).Client, "x", election.Options{})
		b := election.New(start(t, nodes).Client, "x", election.Options{})
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		term, err := a.Campaign(ctx)
		require.NoError(t, err)
		cancel()
		time.Sleep(time.Minute)
		require.True(t, term.Valid(), "the context bounds only the wait")
		require.Equal(t, "value", term.Context().Value(key{}))

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.Campaign(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlock.ErrHeld)
		_, err = a.Campaign(term.Context())
		require.ErrorIs(t, err, redlock.ErrInvalid, "it would wait for itself")
		require.NoError(t, term.Resign(term.Context()))
		require.NoError(t, campaign(t, b).Resign(t.Context()), "a campaign that ended leaves nothing behind")
	})
}

func TestWhatRunReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		p := start(t, nodes)
		e := election.New(p.Client, "x", election.Options{})
		failed := errors.New("failed")

		var numbers []uint64
		err := e.Run(t.Context(), func(_ context.Context, term *election.Term) error {
			require.True(t, term.Valid())
			if numbers = append(numbers, term.Number()); len(numbers) < 3 {
				return nil // again
			}
			return failed
		})
		require.Equal(t, failed, err)
		require.Len(t, numbers, 3)
		require.Less(t, numbers[1], numbers[2])

		ctx, cancel := context.WithCancel(t.Context())
		var resigned time.Time
		err = e.Run(ctx, func(ctx context.Context, _ *election.Term) error {
			for i := range 3 {
				nodes.Delay(i, 20*time.Millisecond)
			}
			cancel()
			<-ctx.Done()
			resigned = time.Now()
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 40*time.Millisecond, time.Since(resigned), "the process may exit now: the nodes have answered")
		for i := range 3 {
			nodes.Delay(i, 0)
		}
		require.ErrorIs(t, e.Run(ctx, nil), context.Canceled)

		// A term that is lost is followed by another campaign, whatever the function returns.
		runs := 0
		err = e.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			if runs++; runs == 2 {
				return failed
			}
			require.NoError(t, p.ForceRelease(t.Context(), "x"))
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
			return ctx.Err()
		})
		require.Equal(t, failed, err)
		require.Equal(t, 2, runs)

		err = e.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			require.NoError(t, term.Resign(ctx))
			<-ctx.Done() // a goroutine ends it with the term
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
			return failed
		})
		require.Equal(t, failed, err, "the function resigned: its error counts")

		require.Panics(t, func() {
			_ = e.Run(t.Context(), func(context.Context, *election.Term) error { panic("failed") })
		})
		require.NoError(t, campaign(t, e).Resign(t.Context()), "a panic resigns too")

		err = e.Run(t.Context(), func(ctx context.Context, term *election.Term) error {
			require.NoError(t, p.Close())
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrClosed)
			return nil
		})
		require.ErrorIs(t, err, redlock.ErrClosed)
	})
}

func TestAWrongElectionSaysSoWhenItIsUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := start(t, nodes).Client
		for what, e := range map[string]*election.Election{
			"name":          election.New(client, "", election.Options{}),
			"key":           election.New(client, "redlock:leader:x", election.Options{}),
			"Options.Label": election.New(client, "x", election.Options{Label: strings.Repeat("x", 257)}),
			"Options.Poll":  election.New(client, "x", election.Options{Poll: -1}),
			"zero Election": {},
		} {
			_, err := e.Campaign(t.Context())
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorContains(t, err, what)
			_, err = e.Leader(t.Context())
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorIs(t, e.Run(t.Context(), nil), redlock.ErrInvalid)
			_, open := <-e.Observe(t.Context())
			require.False(t, open)
		}
		_, err := election.New(client, "x", election.Options{TTL: time.Hour}).Campaign(t.Context())
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "TTL")
		term := campaign(t, election.New(client, "x", election.Options{TTL: time.Second, Label: strings.Repeat("x", 256)}))
		require.Less(t, term.Lease().Remaining(), time.Second)
		time.Sleep(time.Minute)
		require.True(t, term.Valid())
	})
}

// Close at every moment of a campaign, a term, a resignation and an observer. Everything ends, and nothing is left.
func TestCloseAtEveryMoment(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		for i := range 3 {
			nodes.Delay(i, 5*time.Millisecond)
		}
		for after := range 80 {
			p := start(t, nodes)
			e := election.New(p.Client, "x", election.Options{Poll: 10 * time.Millisecond, TTL: 100 * time.Millisecond})
			var wg sync.WaitGroup
			wg.Go(func() {
				for range e.Observe(t.Context()) {
				}
			})
			wg.Go(func() { <-e.Observe(t.Context()) }) // nobody reads the rest
			wg.Go(func() {
				for {
					term, err := e.Campaign(t.Context())
					if err != nil {
						assert.ErrorIs(t, err, redlock.ErrClosed)
						return
					}
					time.Sleep(7 * time.Millisecond)
					if err := term.Resign(t.Context()); err != nil && !errors.Is(err, redlock.ErrLost) {
						assert.ErrorIs(t, err, redlock.ErrNoQuorum)
					}
					assert.False(t, term.Valid())
				}
			})
			time.Sleep(time.Duration(after) * time.Millisecond)
			require.NoError(t, p.Close())
			wg.Wait()
			_, open := <-e.Observe(t.Context())
			require.False(t, open)
			_, err := e.Leader(t.Context())
			require.ErrorIs(t, err, redlock.ErrClosed)
		}
		term := campaign(t, election.New(start(t, nodes).Client, "x", election.Options{}))
		require.True(t, term.Valid(), "nothing is left of the others")
	})
}

// While all nodes hang, Close does not take longer than without an election.
func TestCloseWhileTheNodesHang(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		p := start(t, nodes)
		e := election.New(p.Client, "x", election.Options{})
		leaders := e.Observe(t.Context())
		term := campaign(t, e)
		for next(t, leaders) != leaderOf(term) {
		}
		for i := range 3 {
			nodes.Partition(i)
		}
		began := time.Now()
		require.NoError(t, p.Close())
		require.LessOrEqual(t, time.Since(began), 250*time.Millisecond)
		require.ErrorIs(t, context.Cause(term.Context()), redlock.ErrClosed)
		_, open := <-leaders
		require.False(t, open)
	})
}

func TestAnObserverEndsWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		e := election.New(start(t, nodes).Client, "x", election.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		leaders := e.Observe(ctx)
		synctest.Wait() // something is there to be read
		cancel()
		synctest.Wait()
		_, open := <-leaders
		require.False(t, open)
	})
}

// A message that was held up for long does not bring an old leader back.
func TestALateMessageDoesNotBringAnOldLeaderBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		e := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		leaders := election.New(start(t, nodes).Client, "x", election.Options{}).Observe(t.Context())
		require.True(t, next(t, leaders).None())
		time.Sleep(time.Second)
		nodes.Pause(0)
		first := campaign(t, e)
		require.Equal(t, leaderOf(first), next(t, leaders))
		require.NoError(t, first.Resign(t.Context()))
		require.True(t, next(t, leaders).None())
		second := campaign(t, e)
		require.Equal(t, leaderOf(second), next(t, leaders))
		nodes.Resume(0)
		time.Sleep(time.Minute)
		requireQuiet(t, leaders)
		require.True(t, second.Valid())
	})
}

// The lock may be on a bare quorum. If one of its nodes dies before the next renewal, the leader still leads.
func TestAnObserverKeepsTheLeaderOfABareQuorum(t *testing.T) {
	for down := range 5 {
		t.Run(fmt.Sprint(down), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
				observer := election.New(start(t, nodes).Client, "x", election.Options{Poll: 20 * time.Millisecond})
				leaders := observer.Observe(t.Context())
				require.True(t, next(t, leaders).None())
				term := campaign(t, election.New(start(t, nodes).Client, "x", election.Options{}))
				require.Equal(t, leaderOf(term), next(t, leaders))
				nodes.Kill(down)
				time.Sleep(time.Second)
				requireQuiet(t, leaders)
				require.True(t, term.Valid())
			})
		})
	}
}

// One server's clock may be wrong. The keys that expire there by that clock do not make an election without a leader.
func TestOneWrongClockDoesNotHideTheLeader(t *testing.T) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			bubble(t, n, func(t *testing.T, nodes *redlocktest.Nodes) {
				client := start(t, nodes)
				observer := election.New(client.Client, "x", election.Options{})
				leaders := observer.Observe(t.Context())
				require.True(t, next(t, leaders).None())
				term := campaign(t, election.New(start(t, nodes).Client, "x", election.Options{}))
				require.Equal(t, leaderOf(term), next(t, leaders))
				state, err := client.Inspect(t.Context(), "x") // the lock is on a bare quorum
				require.NoError(t, err)
				has := slices.IndexFunc(state.Nodes, func(node redlock.NodeState) bool { return node.Held })
				nodes.StepClock(has, time.Hour)
				for range 8 { // before a renewal, and long after it
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					leader, err := observer.Leader(ctx)
					cancel()
					if err == nil {
						require.Equal(t, leaderOf(term), leader)
					} else {
						require.ErrorIs(t, err, context.DeadlineExceeded, "it is not known who leads")
					}
					requireQuiet(t, leaders)
					time.Sleep(time.Second)
				}
				require.True(t, term.Valid())
			})
		})
	}
}

// One node at a time has a fault, of each kind. While a term is valid, nobody is told anything else.
func TestOneFaultAtATimeDoesNotHideTheLeader(t *testing.T) {
	faults := []struct {
		name        string
		begin, undo func(nodes *redlocktest.Nodes, i int)
	}{
		{"pause", (*redlocktest.Nodes).Pause, (*redlocktest.Nodes).Resume},
		{"partition", (*redlocktest.Nodes).Partition, (*redlocktest.Nodes).Heal},
		{"kill", (*redlocktest.Nodes).Kill, (*redlocktest.Nodes).Restart},
		{"restart", (*redlocktest.Nodes).Restart, func(*redlocktest.Nodes, int) {}},
		{"clock ahead", func(nodes *redlocktest.Nodes, i int) { nodes.StepClock(i, time.Hour) },
			func(nodes *redlocktest.Nodes, i int) { nodes.StepClock(i, -time.Hour) }},
		{"clock behind", func(nodes *redlocktest.Nodes, i int) { nodes.StepClock(i, -time.Hour) },
			func(nodes *redlocktest.Nodes, i int) { nodes.StepClock(i, time.Hour) }},
	}
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		random := rand.New(rand.NewPCG(1, 7))
		observer := election.New(start(t, nodes).Client, "x", election.Options{Poll: 3 * time.Second})
		leaders := observer.Observe(t.Context())
		a := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
		for _, i := range random.Perm(len(faults)) {
			fault, node := faults[i], random.IntN(3)
			term := campaign(t, a)
			for next(t, leaders) != leaderOf(term) {
			}
			watchFor := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					leader, err := observer.Leader(ctx)
					cancel()
					require.True(t, term.Valid(), fault.name)
					if err == nil {
						require.Equal(t, leaderOf(term), leader, fault.name)
					}
					requireQuiet(t, leaders)
				}
			}
			fault.begin(nodes, node)
			watchFor(10 * time.Second)
			fault.undo(nodes, node)
			watchFor(45 * time.Second) // also a quarantine
			require.NoError(t, term.Resign(t.Context()))
		}
	})
}

// A number that no election has, in a message or in a record of a single node, made an observer deaf to all leaders after it.
func TestOneNodesNonsenseDoesNotLast(t *testing.T) {
	for what, nonsense := range map[string]func(token string) []any{
		"leads":  func(string) []any { return []any{"PUBLISH", "redlock:leader:x", "leads t 18446744073709551615 nobody"} },
		"ended":  func(string) []any { return []any{"PUBLISH", "redlock:leader:x", "ended 9007199254740991"} },
		"record": func(token string) []any { return []any{"SET", "redlock:leader:x", token + " 9007199254740991 nobody"} },
	} {
		for node := range 3 {
			t.Run(fmt.Sprint(what, node), func(t *testing.T) {
				bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
					e := election.New(start(t, nodes).Client, "x", election.Options{Label: "a"})
					first := campaign(t, e)
					conn, err := nodes.Nodes()[node].Dial(t.Context())
					require.NoError(t, err)
					defer conn.Close()
					say := func() {
						said := nonsense(leaderOf(first).Token)
						_, err := conn.Do(said[0].(string), said[1:]...)
						require.NoError(t, err)
					}
					observer := election.New(start(t, nodes).Client, "x", election.Options{})
					if what == "record" { // who looks takes the one that comes first
						say()
						for range 50 {
							leader, err := observer.Leader(t.Context())
							require.NoError(t, err)
							require.Equal(t, leaderOf(first), leader)
						}
					}
					leaders := observer.Observe(t.Context())
					require.Equal(t, leaderOf(first), next(t, leaders))
					say()
					time.Sleep(time.Minute)
					requireQuiet(t, leaders)
					require.NoError(t, first.Resign(t.Context()))
					require.True(t, next(t, leaders).None())
					second := campaign(t, e)
					require.Equal(t, leaderOf(second), next(t, leaders))
					require.NoError(t, second.Resign(t.Context()))
				})
			})
		}
	}
}
