package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
)

// openSharded makes the client with this number, which has these groups.
func (w *world) openSharded(t *testing.T, client int, clock redlock.Clock, groups ...int) *redlock.Sharded {
	configs := w.groupsOf(client, groups...)
	for i := range configs {
		configs[i].Clock = clock
	}
	return shardedOf(t, configs...)
}

// nameIn finds a name that belongs to the last group of each of them.
func nameIn(all ...*redlock.Sharded) (name string) {
	for i, found := 0, false; !found; i++ {
		name, found = fmt.Sprint("order/", i), true
		for _, s := range all {
			groups := s.Groups()
			found = found && s.Group(name) == groups[len(groups)-1]
		}
	}
	return name
}

// holderAfterChange enrolls groups 0 and 1, and replaces group 1 by group 2. A client that knows that has a lock whose name
// belonged to group 1.
func (w *world) holderAfterChange(t *testing.T, usual *redlock.Sharded) (name string, l *redlock.Lease) {
	require.NoError(t, usual.Enroll(t.Context()))
	other := w.openSharded(t, 1, nil, 0, 2)
	other.Status(t.Context())
	name = nameIn(usual, other)
	require.NoError(t, other.Enroll(t.Context(), redlock.ChangeConfig()))
	l, err := other.Mutex(name).Acquire(t.Context())
	require.NoError(t, err)
	return name, l
}

// Q3: Group 1 is replaced by group 2 while a client stands still. Its connections are open, and group 1 has its marker. Its
// timers have not fired yet, so nothing but its clock tells it that what it knows of group 0 is old.
func TestAShardedClientThatStoodStillAsksWhetherTheGroupsWereChanged(t *testing.T) {
	for what, wake := range map[string]func(*link){
		"its connections are open":   func(*link) {},
		"its connections are slow":   func(l *link) { l.slow.Store(int64(200 * time.Millisecond)) },
		"its connections are broken": func(l *link) { l.slow.Store(int64(100 * time.Millisecond)); l.reset() },
		"its connections are silent": func(l *link) {
			l.hold(replies, +1)
			time.AfterFunc(2500*time.Millisecond, func() { l.hold(replies, -1) })
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, clock := virtual(t, 9, 2), &leaping{Clock: redlock.SystemClock()}
				usual := w.openSharded(t, 0, clock, 0, 1)
				require.NoError(t, usual.Enroll(t.Context()))
				other := w.openSharded(t, 1, nil, 0, 2)
				other.Status(t.Context())
				name := nameIn(usual, other)
				l, err := usual.Mutex(name).Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
				synctest.Wait()

				require.NoError(t, other.Enroll(t.Context(), redlock.ChangeConfig()))
				l, err = other.Mutex(name).Acquire(t.Context())
				require.NoError(t, err)
				clock.slept.Store(int64(time.Hour))
				for _, s := range w.servers[:3] {
					wake(s.links[0])
				}
				began := time.Now()
				_, err = usual.Mutex(name).TryAcquire(t.Context())
				require.Error(t, err, "two have the lock")
				require.True(t, l.Valid())
				if what == "its connections are open" {
					require.Zero(t, time.Since(began), "it asks at once")
				}
				time.Sleep(5 * time.Second) // the leap may have broken connections that were asked just then
				_, err = usual.Mutex(name).TryAcquire(t.Context())
				requireDiffers(t, err, "Groups")
			})
		})
	}
}

// A machine that wakes up has no network at first. Its connections to group 1 survive that, or not; those to group 0 are
// broken, and the next attempt to connect there is to come when the network is back. The failed ones say nothing of group 0.
func TestAShardedClientThatWasCutOffFromAllTriesTheOtherGroupsAgain(t *testing.T) {
	for _, survive := range []bool{true, false} {
		for offline := 100 * time.Millisecond; offline < time.Second; offline += 100 * time.Millisecond {
			synctest.Test(t, func(t *testing.T) {
				w, clock := virtual(t, 9, 2), &leaping{Clock: redlock.SystemClock()}
				var unreachable atomic.Bool
				configs := withNodes(w.groupsOf(0, 0, 1), func(n *redlock.Node) {
					dial := n.Dial
					n.Dial = func(ctx context.Context) (redis.Conn, error) {
						if unreachable.Load() {
							return nil, errors.New("network is unreachable")
						}
						if strings.HasPrefix(n.Name, "group-0") {
							time.Sleep(300 * time.Millisecond) // group 1 is reached first
						}
						return dial(ctx)
					}
				})
				configs[0].Clock, configs[1].Clock = clock, clock
				usual := shardedOf(t, configs...)
				name, l := w.holderAfterChange(t, usual)

				clock.slept.Store(int64(time.Hour))
				unreachable.Store(true)
				for _, s := range w.servers[:6] {
					if s.index < 3 || !survive {
						s.links[0].reset()
					}
					s.links[0].hold(requests, +1)
				}
				for _, s := range w.servers[3:6] {
					if !survive {
						s.slow(0, 60*time.Millisecond) // it is not heard as soon as it is connected
					}
				}
				time.Sleep(offline)
				unreachable.Store(false)
				for _, s := range w.servers[:6] {
					s.links[0].hold(requests, -1)
				}
				var err error
				for range 100 {
					_, err = usual.Mutex(name).TryAcquire(t.Context())
					require.Error(t, err, "two have the lock")
					time.Sleep(10 * time.Millisecond)
				}
				requireDiffers(t, err, "Groups")
				require.True(t, l.Valid())
			})
		}
	}
}

// A machine wakes up, and an acquire waits until the other group, which is away, was tried again. Meanwhile the machine sleeps
// once more. Then that group is there, but the next attempt to connect has not begun when the time to wait is over.
func TestAShardedClientThatSleepsAgainWhileItWaitsTriesTheOtherGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, clock := virtual(t, 9, 2), &leaping{Clock: redlock.SystemClock()}
		var unreachable atomic.Bool
		tried := make(chan struct{})
		configs := withNodes(w.groupsOf(0, 0, 1), func(n *redlock.Node) {
			dial := n.Dial
			n.Dial = func(ctx context.Context) (redis.Conn, error) {
				if !unreachable.Load() || n.Name != "group-0-node-1" {
					return dial(ctx)
				}
				select {
				case tried <- struct{}{}:
				default:
				}
				<-ctx.Done() // after a second
				return nil, ctx.Err()
			}
		})
		redlock.LongPauses(&configs[0])
		configs[0].Clock, configs[1].Clock = clock, clock
		usual := shardedOf(t, configs...)
		name, l := w.holderAfterChange(t, usual)
		unreachable.Store(true)
		w.servers[0].links[0].reset()
		w.servers[1].stop()
		w.servers[2].stop()
		time.Sleep(time.Minute)

		<-tried
		synctest.Wait()
		clock.slept.Add(int64(time.Hour))
		time.AfterFunc(3*time.Second, func() { // in the second attempt since then
			clock.slept.Add(int64(time.Hour))
			unreachable.Store(false)
		})
		began := time.Now()
		_, err := usual.Mutex(name).TryAcquire(t.Context())
		require.Error(t, err, "two have the lock")
		require.True(t, l.Valid())
		require.Equal(t, 4*time.Second, time.Since(began))
		time.Sleep(2 * time.Second)
		_, err = usual.Mutex(name).TryAcquire(t.Context())
		require.ErrorContains(t, err, "refuses the groups")
	})
}

// meddling is a clock that does something before one of its readings.
type meddling struct {
	redlock.Clock
	left   atomic.Int64 // readings until then
	meddle func()
}

func (m *meddling) Now() redlock.Instant {
	if m.left.Add(-1) == 0 {
		m.meddle()
	}
	return m.Clock.Now()
}

// It looks at what it knows of the groups, and may stand still before it sends anything. So the lease counts from before.
func TestAShardedClientMayStandStillAnywhereInAnAcquire(t *testing.T) {
	step := int64(25 / min(25, trials(5))) // each run begins somewhere else
	for reading := rand.Int64N(step); reading < 25; reading += step {
		synctest.Test(t, func(t *testing.T) {
			w, leaps := virtual(t, 9, 2), &leaping{Clock: redlock.SystemClock()}
			clock := &meddling{Clock: leaps, meddle: func() { leaps.slept.Store(int64(time.Hour)) }} // it stands still for an hour
			usual := w.openSharded(t, 0, clock, 0, 1)
			name, l := w.holderAfterChange(t, usual)
			clock.left.Store(reading + 1)
			second, err := usual.Mutex(name).TryAcquire(t.Context())
			if err == nil && leaps.slept.Load() > 0 {
				require.False(t, l.Valid() && second.Valid(), "two have the lock: it stood still at reading %d", reading)
			}
		})
	}
}

func TestAnIdleShardedClientLearnsThatTheGroupsWereChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 9, 2)
		usual := w.openSharded(t, 0, nil, 0, 1)
		require.NoError(t, usual.Enroll(t.Context()))
		other := w.openSharded(t, 1, nil, 0, 2)
		time.Sleep(time.Minute)
		require.NoError(t, other.Enroll(t.Context(), redlock.ChangeConfig()))
		time.Sleep(7 * time.Second)
		for _, s := range w.servers[:3] {
			s.links[0].hold(requests, +1)
		}
		began := time.Now()
		_, err := usual.Mutex(nameIn(usual)).TryAcquire(t.Context())
		requireDiffers(t, err, "Groups")
		require.Zero(t, time.Since(began), "it asks by itself")
	})
}

// The groups are independent. One that is away holds up nobody, neither when it goes nor later.
func TestNoAcquireWaitsForAGroupThatIsAway(t *testing.T) {
	for what, goes := range map[string]func(*server){
		"they die":        (*server).stop,
		"they are silent": func(s *server) { s.links[0].hold(requests, +1) },
		"they are cut":    func(s *server) { s.links[0].hold(requests, +1); s.links[0].reset() },
		"two are silent": func(s *server) {
			if s.index > 0 {
				s.links[0].hold(replies, +1)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 6, 1)
				s := w.openSharded(t, 0, nil, 0, 1)
				require.NoError(t, s.Enroll(t.Context()))
				name := nameIn(s)
				for i := range 240 {
					if i == 30 {
						for _, s := range w.servers[:3] {
							goes(s)
						}
					}
					began := time.Now()
					l, err := s.Mutex(name).TryAcquire(t.Context())
					require.NoError(t, err)
					require.Zero(t, time.Since(began), "after %d", i)
					require.NoError(t, l.Release(t.Context()))
					time.Sleep(250 * time.Millisecond)
				}
				began := time.Now()
				l, err := w.openSharded(t, 0, nil, 0, 1).Mutex(name).TryAcquire(t.Context())
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(began), time.Second, "a new client tries each node once")
				require.NoError(t, l.Release(t.Context()))
			})
		})
	}
}

// It was refused before its first call. Then its connections to those who refused it break.
func TestARefusedShardedClientStaysRefusedThoughItNeverAsked(t *testing.T) {
	for what, c := range map[string]struct {
		breaks func(*link)
		after  time.Duration
	}{
		"at once":             {(*link).reset, 0},
		"while it connects":   {(*link).reset, 300 * time.Millisecond},
		"while it asks anew":  {(*link).reset, 500 * time.Millisecond},
		"while it is cut off": {func(l *link) { l.hold(requests, +1) }, 30 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := virtual(t, 9, 2)
				usual := w.openSharded(t, 0, nil, 0, 1)
				require.NoError(t, usual.Enroll(t.Context()))
				other := w.openSharded(t, 1, nil, 0, 2)
				require.Error(t, other.Enroll(t.Context()))
				time.Sleep(10 * time.Second)
				for _, s := range w.servers[:3] {
					s.slow(1, 200*time.Millisecond)
					c.breaks(s.links[1])
				}
				time.Sleep(c.after)
				_, err := other.Mutex(nameIn(usual, other)).TryAcquire(t.Context())
				requireDiffers(t, err, "Groups")
			})
		})
	}
}

// Node 2 of group 1 was away when the groups were changed, and refuses the new ones. The others of its group outvote it, until
// another one is silent for so long that what it said is old. Nothing is granted then, and nobody is refused for good.
func TestANodeThatKnowsOldGroupsEndsNoWaitWhileOthersCouldOutvoteIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 9, 3)
		old := w.openSharded(t, 0, nil, 0, 1, 2)
		require.NoError(t, old.Enroll(t.Context()))
		require.NoError(t, old.Close())
		w.servers[5].links[1].hold(requests, +1)
		s := w.openSharded(t, 1, nil, 1, 0)
		require.Error(t, s.Enroll(t.Context(), redlock.ChangeConfig()))
		w.servers[5].links[1].hold(requests, -1)
		time.Sleep(time.Minute)
		name := nameIn(s)
		l, err := s.Mutex(name).Acquire(t.Context())
		require.NoError(t, err)
		two := w.openSharded(t, 2, nil, 1, 0)
		got := make(chan error, 1)
		go func() {
			_, err := two.Mutex(name).Acquire(t.Context())
			got <- err
		}()
		time.Sleep(10 * time.Second)
		away := w.servers[4].links[2]
		away.hold(replies, +1)
		time.Sleep(3 * time.Second)
		_, err = two.Mutex(name).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld, "what it said a moment ago counts")
		time.Sleep(30 * time.Second)
		_, err = two.Mutex(name).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrInvalid)
		require.ErrorContains(t, err, "a node of another group refuses the groups of this client")
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(10 * time.Second)
		require.Empty(t, got, "neither refused nor granted")
		away.hold(replies, -1)
		require.NoError(t, <-got)
	})
}

// A refusal lasts until a quorum has voted. It does not come back when that quorum is away.
func TestARefusalThatWasOutvotedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 9, 3)
		old := w.openSharded(t, 0, nil, 0, 1, 2)
		require.NoError(t, old.Enroll(t.Context()))
		require.NoError(t, old.Close())
		w.servers[5].links[1].hold(requests, +1)
		require.Error(t, w.openSharded(t, 1, nil, 1, 0).Enroll(t.Context(), redlock.ChangeConfig()))
		s := w.openSharded(t, 2, nil, 1, 0)
		time.Sleep(30 * time.Second)
		for _, stops := range w.servers[3:6] {
			stops.stop()
			if stops.index == 3 {
				continue
			}
			time.Sleep(30 * time.Second)
		}
		_, err := s.Mutex(nameIn(s)).TryAcquire(t.Context())
		require.ErrorContains(t, err, "refuses the groups", "the node that refuses went last")

		for _, starts := range w.servers[3:5] {
			starts.start(true)
		}
		time.Sleep(2 * time.Minute) // they are in quarantine, and vote
		for _, stops := range w.servers[3:5] {
			stops.stop()
		}
		time.Sleep(30 * time.Second)
		_, err = s.Mutex(nameIn(s)).TryAcquire(t.Context())
		require.NoError(t, err)
	})
}

// Q3: Those nodes of the group that both have that are up refuse the client. Their words come while its acquire looks at what
// is known of them, before any of its readings of the clock.
func TestARefusalThatComesWhileAnAcquireLooksIsHeard(t *testing.T) {
	for reading := range int64(3) {
		for _, up := range []int{1, 3} {
			t.Run(fmt.Sprintf("up=%d reading=%d", up, reading), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := refusedSharded(t)
					require.NoError(t, w.other.Close())
					for i, s := range w.servers[:3] {
						s.links[1].hold(replies, +1)
						if i < 3-up {
							s.stop()
						}
					}
					answer := func(servers []*server) {
						for _, s := range servers {
							s.links[1].hold(replies, -1)
						}
					}
					clock := &meddling{Clock: redlock.SystemClock(), meddle: func() {
						answer(w.servers[1:3])
						time.Sleep(time.Nanosecond) // until that has arrived
					}}
					configs := w.groupsOf(1, 0, 2)
					configs[1].Clock = clock
					w.other = shardedOf(t, configs...)
					got := make(chan error, 1)
					go func() {
						_, err := w.other.Mutex(w.name).TryAcquire(t.Context())
						got <- err
					}()
					synctest.Wait() // it waits, and looks again when the first node has answered, or could not be reached again
					clock.left.Store(reading + 1)
					answer(w.servers[:1])
					err := <-got
					require.Error(t, err, "two have the lock")
					if up == 3 {
						requireDiffers(t, err, "Groups")
					}
					require.True(t, w.lease.Valid())
				})
			})
		}
	}
}
