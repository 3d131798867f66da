package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Something stays under the key on the one node that clients ask first, and a quorum without it is free: another program
// has written there, or a holder died that had no other node.

const (
	deadHolders = "0123456789abcdef0123456789abcdef:01234567:dead"
	deadMutes   = "0123456789ABCDEF0123456789ABCDEF:01234567:dead" // of a client that might not publish
	anothers    = "another library's"
)

var leftovers = map[string][]any{
	"a dead holder's":      {"SET", "x", deadHolders, "PX", 600_000},
	"a dead mute holder's": {"SET", "x", deadMutes, "PX", 600_000},
	"another library's":    {"SET", "x", anothers},
	"no string":            {"HSET", "x", "f", "v"},
}

// soonFree is for how long such a key may keep a waiter from asking all nodes (W3), with the attempts around that.
const soonFree = 3 * time.Second

// W3: While one node alone is asked and refuses, nobody would learn that the lock is free on the others.
func TestAKeyThatStaysOnOneNodeKeepsNobodyOut(t *testing.T) {
	for left, command := range leftovers {
		for kind, of := range map[string]func(*redlock.Client) redlock.Lock{
			"mutex":         func(c *redlock.Client) redlock.Lock { return c.Mutex("x") },
			"reader":        func(c *redlock.Client) redlock.Lock { return c.RWMutex("x").Reader() },
			"semaphore":     func(c *redlock.Client) redlock.Lock { return c.Semaphore("x", 3) },
			"fair":          func(c *redlock.Client) redlock.Lock { return c.Mutex("x").Fair() },
			"several names": func(c *redlock.Client) redlock.Lock { return c.Mutex("x", "y") },
		} {
			for _, mute := range []int{0, 1} { // a client without rights on channels polls
				t.Run(kind+" beside "+left+map[int]string{1: ", without messages"}[mute], func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := virtual(t, 3, 1)
						w.has.mute = mute
						c := w.connect(t, 0)
						require.NoError(t, c.Enroll(t.Context()))
						time.Sleep(10 * time.Second)
						w.servers[redlock.ProbeFor(c, "x")].tell(command[0].(string), command[1:]...)
						for range 3 {
							l, err := acquireWithin(t, of(c), soonFree)
							require.NoError(t, err)
							require.NoError(t, l.Release(t.Context()))
						}
					})
				})
			}
		}
	}
}

func TestAKeyThatStaysOnOneServerKeepsNobodyOut(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f, patient)
	conn, err := f.Nodes()[redlock.ProbeFor(c, "x")].DialDirect(t.Context(), time.Second)
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Do("SET", "x", anothers)
	require.NoError(t, err)
	for range 2 {
		l, err := c.Mutex("x").Acquire(soon(t))
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
	}
}

func acquireWithin(t *testing.T, l redlock.Lock, limit time.Duration) (*redlock.Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return l.Acquire(ctx)
}

// T2: It may be on the node that decides between those who try a free lock at once.
func TestATryHasAWinnerBesideAKeyThatStaysOnOneNode(t *testing.T) {
	for left, command := range leftovers {
		for seed := range uint64(trials(10)) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				w := virtual(t, 3+random.IntN(3), 2+random.IntN(4))
				clients := make([]*redlock.Client, len(w.servers[0].links))
				for i := range clients {
					for _, s := range w.servers {
						s.links[i] = newLink(seed*1000+uint64(i*10+s.index), time.Duration(random.Int64N(int64(20*time.Millisecond))))
					}
					clients[i] = w.connect(t, i)
				}
				require.NoError(t, clients[0].Enroll(t.Context()))
				for _, c := range clients {
					c.Status(t.Context())
				}
				at := redlock.FirstRanked(clients[0])
				if seed%2 == 1 {
					at = redlock.ProbeFor(clients[0], "x")
				}
				w.servers[at].tell(command[0].(string), command[1:]...)
				if len(w.servers) == 5 && seed%3 == 0 {
					w.servers[(at+1)%5].stop()
				}
				for round := range 5 {
					winners := contest(t, clients, "x")
					require.Len(t, winners, 1, "beside %s, seed %d, round %d", left, seed, round)
					require.NoError(t, winners[0].Release(t.Context()))
					time.Sleep(time.Duration(round%2) * 2 * time.Second) // the next contest finds it contended, or not
				}
			})
		}
	}
}

// T3: A reservation whose server's clock was set back keeps nobody out. One that is for somebody does.
func TestATryYieldsToAReservationAndNotToOneThatStays(t *testing.T) {
	for lasts, want := range map[time.Duration]error{100 * time.Millisecond: redlock.ErrHeld, time.Hour: nil, 0: nil} {
		for _, contended := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, contended: %v", lasts, contended), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, all := enrolled(t, 2)
					c := all[0]
					if contended {
						held, err := all[1].Mutex("x").Acquire(t.Context())
						require.NoError(t, err)
						_, err = c.Mutex("x").TryAcquire(t.Context())
						require.ErrorIs(t, err, redlock.ErrHeld)
						require.NoError(t, held.Release(t.Context()))
						synctest.Wait()
					}
					command := []any{"x", "next:0123456789abcdef0123456789abcdef"}
					if lasts > 0 {
						command = append(command, "PX", int(lasts/time.Millisecond))
					}
					w.servers[redlock.ProbeFor(c, "x")].tell("SET", command...)
					for range 3 {
						l, err := c.Mutex("x").TryAcquire(t.Context())
						require.ErrorIs(t, err, want)
						if err == nil {
							require.NoError(t, l.Release(t.Context()))
						}
					}
				})
			})
		}
	}
}

// W3: Clients that met it soon ask another node first. To ask that one first each time costs a hand-over a round trip, and a
// pass of the turn: there were 19 turns here instead of 500.
func TestAKeyThatStaysOnOneNodeCostsNoTurns(t *testing.T) {
	for left, command := range leftovers {
		t.Run(left, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size = 4
				w := virtual(t, 3, size)
				random := rand.New(rand.NewPCG(1, 9))
				var clients []*redlock.Client
				for i := range size {
					for _, s := range w.servers {
						s.links[i] = newLink(uint64(i*10+s.index), time.Duration(random.Int64N(int64(4*time.Millisecond))))
					}
					clients = append(clients, w.connect(t, i))
				}
				require.NoError(t, clients[0].Enroll(t.Context()))
				for _, c := range clients {
					c.Status(t.Context())
				}
				w.servers[redlock.ProbeFor(clients[0], "x")].tell(command[0].(string), command[1:]...)
				var turns, longest atomic.Int64
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var work sync.WaitGroup
				for _, c := range clients {
					work.Go(func() {
						for {
							began := time.Now()
							l, err := c.Mutex("x").Acquire(ctx)
							if err != nil {
								return
							}
							turns.Add(1)
							longest.Store(max(longest.Load(), int64(time.Since(began))))
							time.Sleep(5 * time.Millisecond)
							assert.NoError(t, l.Release(t.Context()))
						}
					})
				}
				work.Wait()
				require.Greater(t, turns.Load(), int64(250))
				require.Less(t, time.Duration(longest.Load()), soonFree)
			})
		})
	}
}
