package redlock_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// The simulator's servers and links, without its chance: what a test says happens, and at that very moment.

// most is a source of chance with which each delivery takes as long as its link allows.
type most struct{}

func (most) Uint64() uint64 { return math.MaxUint64 }

// virtual starts so many servers. Each has a link without delay to each of so many clients.
func virtual(t *testing.T, nodes, clients int) *world {
	w := &world{began: time.Now()}
	w.record = &record{began: w.began}
	for i := range nodes {
		s := &server{world: w, index: i, revived: map[string]bool{}, rate: 1}
		for range clients {
			s.links = append(s.links, &link{random: rand.New(most{}), lanes: map[*lane]struct{}{}})
		}
		s.start(false)
		t.Cleanup(s.stop)
		w.servers = append(w.servers, s)
	}
	return w
}

// enrolled are three enrolled nodes in virtual time, and clients that have connected to them.
func enrolled(t *testing.T, clients int) (w *world, all []*redlock.Client) {
	w = virtual(t, 3, clients)
	for i := range clients {
		all = append(all, w.connect(t, i))
	}
	require.NoError(t, all[0].Enroll(t.Context()))
	for _, c := range all[1:] {
		c.Status(t.Context())
	}
	return w, all
}

// slow sets the round trip between the client and the server.
func (s *server) slow(client int, roundTrip time.Duration) {
	s.links[client].slow.Store(int64(roundTrip / 2))
}

// connect makes the client with this number.
func (w *world) connect(t *testing.T, id int, change ...func(*redlock.Config)) *redlock.Client {
	var cfg redlock.Config
	for i, s := range w.servers {
		cfg.Nodes = append(cfg.Nodes, redlock.Node{Name: fmt.Sprintf("node-%d", i+1), Dial: s.dialer(id)})
	}
	redlock.Seed(&cfg, uint64(id))
	for _, f := range change {
		f(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// forgetScripts has all servers forget their scripts.
func (w *world) forgetScripts() {
	for _, s := range w.servers {
		s.forgetScripts()
	}
}

// having is the servers that have the key.
func (w *world) having(key string) (servers []*server) {
	for _, s := range w.servers {
		if s.redis.Exists(key) {
			servers = append(servers, s)
		}
	}
	return servers
}

// spread renews the lease, after which all servers have it.
func (w *world) spread(t *testing.T, l *redlock.Lease) {
	t.Helper()
	require.NoError(t, l.Extend(t.Context()))
	synctest.Wait()
	require.Len(t, w.having(l.Names()[0]), len(w.servers))
}

// awaits waits until so many servers have the key.
func (w *world) awaits(key string, servers int) {
	for len(w.having(key)) != servers {
		time.Sleep(time.Millisecond)
	}
}

// deletes has all servers delete the key.
func (w *world) deletes(key string) {
	for _, s := range w.servers {
		s.tell("DEL", key)
	}
}

// hinder may stop one server, or set its clock: then what that one grants does not count (C1).
func (w *world) hinder(random *rand.Rand) {
	switch s := w.servers[random.IntN(len(w.servers))]; random.IntN(4) {
	case 0, 1:
		s.stop()
	case 2:
		s.step(10 * time.Second)
	}
}

const nodeTimeout = 250 * time.Millisecond // the default

func TestWhatALostTryIsToldIsRightWhateverNodeIsSlow(t *testing.T) {
	for _, nodes := range []int{3, 4, 5} {
		minority := (nodes - 1) / 2
		for dead := range minority + 2 {
			for slow := range nodes {
				for _, roundTrip := range []time.Duration{time.Millisecond, nodeTimeout - time.Millisecond} {
					t.Run(fmt.Sprintf("nodes=%d dead=%d slow=%d by %v", nodes, dead, slow, roundTrip), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							w := virtual(t, nodes, 2)
							holder, old := w.connect(t, 0), w.connect(t, 1)
							require.NoError(t, holder.Enroll(t.Context()))
							held, err := holder.Mutex("x").Acquire(t.Context())
							require.NoError(t, err)
							defer held.Release(t.Context()) // a lease that was dropped is not renewed
							_, err = old.Mutex("y").TryAcquire(t.Context())
							require.NoError(t, err)
							synctest.Wait()
							for i := range dead {
								w.servers[(slow+1+i)%nodes].stop()
							}
							w.servers[slow].slow(1, roundTrip)
							want, other := redlock.ErrHeld, redlock.ErrNoQuorum
							if dead > minority {
								want, other = other, want
							}
							for i := range trials(2) {
								fresh := w.connect(t, 1)
								for who, c := range map[string]*redlock.Client{"old": old, "fresh": fresh} {
									_, err := c.Mutex("x").TryAcquire(t.Context())
									require.ErrorIs(t, err, want, "%s client, try %d", who, i)
									require.NotErrorIs(t, err, other, "%s client, try %d", who, i)
								}
								require.NoError(t, fresh.Close())
							}
							for range 2 {
								ctx, cancel := context.WithTimeout(t.Context(), 2*nodeTimeout)
								_, err = old.Mutex("x").Acquire(ctx)
								cancel()
								require.ErrorIs(t, err, context.DeadlineExceeded)
								require.ErrorIs(t, err, want)
								require.NotErrorIs(t, err, other)
							}
						})
					})
				}
			}
		}
	}
}

func TestATryHasAWinnerWhateverTheDelays(t *testing.T) {
	for seed := range uint64(trials(20)) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			nodes, size := 3+random.IntN(3), 2+random.IntN(15)
			slowest := nodeTimeout / 8
			if seed%2 == 1 {
				slowest = nodeTimeout * 4 / 10 // each way
			}
			w := virtual(t, nodes, size)
			clients := make([]*redlock.Client, size)
			for i := range clients {
				for _, s := range w.servers {
					s.links[i] = newLink(seed*1000+uint64(i*10+s.index), time.Duration(random.Int64N(int64(slowest))))
				}
				clients[i] = w.connect(t, i)
			}
			require.NoError(t, clients[0].Enroll(t.Context()))
			w.hinder(random)
			for round := range 5 {
				winners := contest(t, clients, fmt.Sprint("x", round%2))
				if assert.Len(t, winners, 1, "seed %d: of %d who tried on %d nodes, in round %d", seed, size, nodes, round) {
					require.NoError(t, winners[0].Release(t.Context()))
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

// T1: Release returns when a quorum has deleted the key. The node that a try asks first may still have it then.
func TestATryGetsALockThatAQuorumHasReleased(t *testing.T) {
	for _, nodes := range []int{3, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, nodes, 2)
			holder, c := w.connect(t, 0), w.connect(t, 1)
			require.NoError(t, holder.Enroll(t.Context()))
			time.Sleep(10 * time.Second) // by then, every client knows that every node votes
			for i := range 20 {
				name := fmt.Sprint("x", i)
				l, err := holder.Mutex(name).Acquire(t.Context())
				require.NoError(t, err)
				synctest.Wait() // every node has it
				_, err = c.Mutex(name).TryAcquire(t.Context())
				require.ErrorIs(t, err, redlock.ErrHeld) // from now on it asks one node first
				first := redlock.ProbeFor(c, name)
				w.servers[first].slow(0, 100*time.Millisecond)
				require.NoError(t, l.Release(t.Context()))
				require.Positive(t, w.servers[first].timeToLive(name))
				l, err = c.Mutex(name).TryAcquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
				w.servers[first].slow(0, 0)
				time.Sleep(time.Second)
			}
		})
	}
}

// W2: Two clients hand a lock to each other, however far away the servers are. From the call of Release to the return of
// the other's Acquire, the release travels to a node, the message to the other client, and its acquire there and back.
// (With a clock band, a winner whose round trip is above a quarter of the band also waits for what C2 says.)
func TestAHandOverTakesTwoRoundTrips(t *testing.T) {
	for _, roundTrip := range []time.Duration{time.Millisecond, 150 * time.Millisecond, 240 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 5, 2)
			quiet := redlock.LostPoll(time.Hour) // a waiter that asks again just then needs a round trip more
			clients := []*redlock.Client{w.connect(t, 0, quiet), w.connect(t, 1, quiet)}
			for _, s := range w.servers {
				s.slow(0, roundTrip)
				s.slow(1, roundTrip)
			}
			require.NoError(t, clients[0].Enroll(t.Context()))
			clients[1].Status(t.Context())
			time.Sleep(time.Minute) // long enough to have measured the round trips
			held, err := clients[0].Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			for i := range 20 {
				got := make(chan *redlock.Lease)
				go func() {
					l, err := clients[(i+1)%2].Mutex("x").Acquire(t.Context())
					assert.NoError(t, err)
					got <- l
				}()
				time.Sleep(3 * time.Second) // by then it waits, and its message would come
				began := time.Now()
				go func(l *redlock.Lease) { assert.NoError(t, l.Release(t.Context())) }(held)
				held = <-got
				require.LessOrEqual(t, time.Since(began), 2*roundTrip+time.Millisecond, "hand-over %d", i)
			}
			require.NoError(t, held.Release(t.Context()))
		})
	}
}

// W2, C2: However far away the servers are, a hand-over takes about two round trips, and each waiter has its turn.
func TestFarContendersHandOverInTurn(t *testing.T) {
	const (
		contenders = 4
		roundTrip  = 150 * time.Millisecond
	)
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 5, contenders)
		var clients [contenders]*redlock.Client
		for i := range clients {
			clients[i] = w.connect(t, i)
			for _, s := range w.servers {
				s.slow(i, roundTrip)
			}
		}
		require.NoError(t, clients[0].Enroll(t.Context()))
		for _, c := range clients {
			c.Status(t.Context())
		}
		time.Sleep(time.Minute) // long enough to have measured the round trips
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var work sync.WaitGroup
		var mu sync.Mutex // guards the rest
		grants, longest := 0, time.Duration(0)
		for _, c := range clients {
			work.Go(func() {
				for {
					asked := time.Now()
					l, err := c.Mutex("x").Acquire(ctx)
					if err != nil {
						return
					}
					mu.Lock()
					grants++
					longest = max(longest, time.Since(asked))
					mu.Unlock()
					assert.NoError(t, l.Release(context.WithoutCancel(ctx)))
				}
			})
		}
		work.Wait()
		require.Greater(t, grants, 55)
		require.Less(t, longest, 3*time.Second)
		t.Logf("%d grants in 20s, longest wait %v", grants, longest)
	})
}

// lag makes what the first client sends take that much longer.
func (w *world) lag(d time.Duration) {
	for _, s := range w.servers {
		s.links[0].lag[requests].Store(int64(d))
	}
}
