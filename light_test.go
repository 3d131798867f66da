package redlock_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A3: The script that follows a refused light form takes another round trip. A lock that is held must not look like an
// outage for that.
func TestALightRefusalIsToldAsHeldHoweverFarTheNodesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		holder, c := w.connect(t, 0), w.connect(t, 1)
		require.NoError(t, holder.Enroll(t.Context()))
		c.Status(t.Context())
		for _, s := range w.servers {
			s.slow(1, nodeTimeout*9/10)
		}
		time.Sleep(30 * time.Second) // long enough to have measured the round trips
		errs := make(chan error)
		for _, name := range []string{"x", "y"} {
			_, err := holder.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
		}
		for _, name := range []string{"x", "y"} {
			go func() {
				_, err := c.Mutex(name).TryAcquire(t.Context())
				errs <- err
			}()
		}
		for range 2 {
			require.ErrorIs(t, <-errs, redlock.ErrHeld)
		}
	})
}

// A3: Where round trips take most of NodeTimeout, the nodes that are asked late need as long as the first ones.
func TestFarNodesThatAreAskedLateCanStillDecideTheRound(t *testing.T) {
	for silent := range 3 {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 1)
			c := w.connect(t, 0)
			require.NoError(t, c.Enroll(t.Context()))
			for _, s := range w.servers {
				s.slow(0, nodeTimeout*8/10)
			}
			for i := range 50 { // it measures when these nodes are late
				l, err := c.Mutex(fmt.Sprint(i)).Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, l.Release(t.Context()))
			}
			w.servers[silent].links[0].hold(requests, +1)
			_, err := c.Mutex("x").TryAcquire(t.Context())
			require.NoError(t, err)
			w.servers[silent].links[0].hold(requests, -1)
		})
	}
}

// soonAcquired waits for the lock for half a second.
func soonAcquired(t *testing.T, lock redlock.Lock) *redlock.Lease {
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	l, _ := lock.Acquire(ctx)
	return l
}

// C: One node's clock is wrong, and is set right between the commands of a flush. The key has its expiry by the wrong
// clock, so it is not enough to read the clock when it is right again.
func TestAClockThatIsSetRightWithinAFlushDoesNotMakeTwoHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 2)
		wrong := w.servers[0]
		wrong.step(-time.Second)
		holder, other := w.connect(t, 0, redlock.AlwaysLight), w.connect(t, 1)
		require.NoError(t, holder.Enroll(t.Context()))
		holder.Status(t.Context())
		other.Status(t.Context())
		w.servers[2].links[0].hold(requests, +1) // they have the wrong node in common
		w.servers[1].links[1].hold(requests, +1)
		seen := false
		wrong.between("EVALSHA", func() { seen = true; wrong.step(time.Second) })
		got := make(chan *redlock.Lease, 2)
		for _, name := range []string{"x", "y"} {
			go func() {
				got <- soonAcquired(t, holder.Mutex(name).WithTTL(4*time.Second).WithoutRenewal())
			}()
		}
		first, second := <-got, <-got
		require.True(t, seen)
		time.Sleep(3100 * time.Millisecond)
		for _, l := range []*redlock.Lease{first, second} {
			if l == nil {
				continue
			}
			next, _ := other.Mutex(l.Names()[0]).TryAcquire(t.Context())
			require.False(t, next != nil && next.Valid() && l.Valid(), "two hold it, for %v more", l.Remaining())
		}
	})
}

// Q1: Where the servers have forgotten vouch.lua too, the marker is read after the INFO that was to vouch for the grants.
// They count all the same, behind another INFO.
func TestALightAcquireOnServersThatForgotTheirScriptsIsGrantedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 3, 1)
		c := w.connect(t, 0, redlock.AlwaysLight)
		require.NoError(t, c.Enroll(t.Context()))
		for range 3 {
			time.Sleep(time.Second) // so that the last INFO is old
			w.forgetScripts()
			began := time.Now()
			l, err := c.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			require.Less(t, time.Since(began), nodeTimeout/10)
			require.NoError(t, l.Release(t.Context()), "that script was loaded too")
			synctest.Wait()
			for _, s := range w.servers {
				require.False(t, s.redis.Exists("x"))
			}
		}
	})
}

// Q1: A node that loses its data between the commands of a flush has not granted.
func TestANodeThatIsFlushedWithinAFlushHasNotGranted(t *testing.T) {
	for _, after := range []string{"SET", "ZADD", "EVALSHA"} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 2)
			holder, other := w.connect(t, 0, redlock.AlwaysLight), w.connect(t, 1)
			require.NoError(t, holder.Enroll(t.Context()))
			holder.Status(t.Context())
			other.Status(t.Context())
			flushed := w.servers[0]
			w.servers[2].links[0].hold(requests, +1) // they have this node in common
			w.servers[1].links[1].hold(requests, +1)
			seen := false
			flushed.between(after, func() { seen = true; flushed.flush() })
			got := make(chan *redlock.Lease, 2)
			for _, name := range []string{"x", "y"} {
				go func() {
					got <- soonAcquired(t, holder.Mutex(name).WithoutRenewal())
				}()
			}
			first, second := <-got, <-got
			require.True(t, seen, "the acquires went out in their light form")
			require.Nil(t, first)
			require.Nil(t, second)
		})
	}
}

// A2: A script that follows its own light form, or that a renewal of its lease has overtaken, finds its own key with a
// ballot that is too low. It leaves the key: the lease may rely on it, and only a release tells waiters that it is free.
func TestAnAcquireDoesNotDeleteItsOwnKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 1, 1)
		s := w.servers[0]
		require.NoError(t, w.connect(t, 0).Enroll(t.Context()))
		script := scriptText(t, "acquire")
		marker, err := s.redis.Get("redlock:node")
		require.NoError(t, err)
		for range 2 {
			s.tell("EVAL", script, 1, "x", marker, "0", "", "mine", 60_000, 1_000, "7")
			owner, err := s.redis.Get("x")
			require.NoError(t, err)
			require.Equal(t, "mine", owner)
		}
	})
}

// A2: A single acquire goes out in its light form only where that costs nobody anything: not far away, where a refusal
// takes a second round trip, and not if the server's clock has to be read first.
func TestASingleAcquireIsLightNearbyAndRightAfterAnother(t *testing.T) {
	for _, at := range []struct {
		where string
		trip  time.Duration
		after time.Duration // another acquire and release
		light bool
	}{
		{"near, at once", 200 * time.Microsecond, 0, true},
		{"near, after a while", 200 * time.Microsecond, 11 * time.Millisecond, false},
		{"far away, at once", 2 * time.Millisecond, 0, false},
	} {
		t.Run(at.where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, all := enrolled(t, 1)
				for _, s := range w.servers {
					s.slow(0, at.trip)
				}
				lock := all[0].Mutex("x")
				cycle := func() {
					l, err := lock.Acquire(t.Context())
					require.NoError(t, err)
					require.NoError(t, l.Release(t.Context()))
				}
				for range 10 {
					cycle()
				}
				time.Sleep(at.after)
				var light atomic.Bool
				for _, s := range w.servers {
					s.between("SET", func() { light.Store(true) })
				}
				cycle()
				require.Equal(t, at.light, light.Load())
			})
		})
	}
}

// F2: The script that follows a refused light form finds the key free: it was released meanwhile. The ballot that the
// light form stored does not count for it, once a later acquire has stored a higher one.
func TestARefusedLightFormIsNotGrantedBelowALaterBallot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := virtual(t, 1, 1)
		s := w.servers[0]
		c := w.connect(t, 0, redlock.AlwaysLight)
		require.NoError(t, c.Enroll(t.Context()))
		synctest.Wait() // what it asks before that is a script too
		require.NoError(t, s.redis.Set("x", "another's"))
		later := 0.0
		s.between("EVALSHA", func() { // vouch.lua, behind the light form
			scores, err := s.redis.SortedSet("redlock:fence")
			require.NoError(t, err)
			for slot, ballot := range scores {
				if ballot > later {
					later = ballot + 1
					_, err = s.redis.ZAdd("redlock:fence", later, slot)
					require.NoError(t, err)
				}
			}
			s.redis.Del("x")
		})
		l, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Positive(t, later, "it went out in its light form")
		require.Greater(t, l.Fence(), uint64(later))
		require.NoError(t, l.Release(t.Context()))
	})
}

// scriptText is the text of these scripts, one behind the other, behind what scripts have in common.
func scriptText(t testing.TB, names ...string) (text string) {
	t.Helper()
	for _, name := range append([]string{"common"}, names...) {
		script, err := os.ReadFile("scripts/" + name + ".lua")
		require.NoError(t, err)
		text += string(script)
	}
	return text
}

// R2, F2: A lease comes to a node late, by a renewal or a plant. Another name of its fence slot may have a higher fencing
// token there by then. That stays.
func TestALeaseThatComesToANodeLateLowersNoFencingToken(t *testing.T) {
	for _, owner := range []string{"mine", "reader mine"} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 1, 1)
			s := w.servers[0]
			require.NoError(t, w.connect(t, 0).Enroll(t.Context()))
			marker, err := s.redis.Get("redlock:node")
			require.NoError(t, err)
			for _, come := range []struct {
				ballot string
				want   float64
			}{{"5", 8}, {"9", 9}} {
				for how, call := range map[string][]any{
					"plant":  {scriptText(t, "entries", "plant"), 2, "redlock:fence", "x", owner, 60_000, come.ballot, "7"},
					"extend": {scriptText(t, "entries", "extend"), 3, "redlock:node", "redlock:fence", "x", marker, 1, owner, 60_000, come.ballot, "7"},
				} {
					_, err = s.redis.ZAdd("redlock:fence", 8, "7")
					require.NoError(t, err)
					s.tell("EVAL", call...)
					require.True(t, s.redis.Del("x"), "it came by %s", how)
					highest, err := s.redis.ZScore("redlock:fence", "7")
					require.NoError(t, err)
					require.Equal(t, come.want, highest, how)
				}
			}
		})
	}
}

// R1: One command renews several leases. One of them cannot be renewed, because the key of the fencing tokens has the wrong
// type, or its own key cannot be read. The others are.
func TestALeaseThatCannotBeRenewedDoesNotTouchTheOthersOfItsCommand(t *testing.T) {
	onFleets(t, fleet.Options{Nodes: 1}, func(t *testing.T, f *fleet.Fleet) {
		conn, err := f.Nodes()[0].DialDirect(soon(t), time.Second)
		require.NoError(t, err)
		defer conn.Close()
		for _, set := range [][]any{{"redlock:node", "marker"}, {"redlock:fence", "no sorted set"}, {"mine", "me", "PX", 1000}} {
			_, err := conn.Do("SET", set...)
			require.NoError(t, err)
		}
		replies, err := redis.Values(conn.Do("EVAL", scriptText(t, "entries", "extend"), 4, "redlock:node", "redlock:fence", "new", "mine",
			"marker", 1, "me", 60_000, 5, "7", 1, "me", 60_000, "-"))
		require.NoError(t, err)
		require.Len(t, replies, 3)
		require.ErrorContains(t, replies[1].(redis.Error), "WRONGTYPE")
		require.EqualValues(t, 1, replies[2])
		left, err := redis.Int64(conn.Do("PTTL", "mine"))
		require.NoError(t, err)
		require.Greater(t, left, int64(50_000))
	})
}

// R1: A node's clock was set back, so a key has longer to live by that clock than its lease has given it. A plant of the
// lease's other key leaves that.
func TestAPlantMakesNoKeysTimeShorter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := virtual(t, 1, 1).servers[0]
		require.NoError(t, s.redis.Set("y", "mine"))
		s.redis.SetTTL("y", time.Minute)
		s.tell("EVAL", scriptText(t, "entries", "plant"), 3, "redlock:fence", "x", "y", "mine", 10_000, "0")
		require.Equal(t, time.Minute, s.timeToLive("y"))
		require.Equal(t, 10*time.Second, s.timeToLive("x"))
	})
}

// W2: A client leaves, and the key is reserved for it. If nobody else waits, the key is free at once.
func TestWhatIsReservedForALeaverIsFreeIfNobodyElseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := virtual(t, 1, 1).servers[0]
		for _, owner := range []string{"next:1", "next:2"} {
			require.NoError(t, s.redis.Set("x", owner))
			s.tell("EVAL", scriptText(t, "entries", "leave"), 4, "x", "redlock:wait:x", "redlock:shared:x", "redlock:rw:x", "next:1", 1000)
			require.Equal(t, owner == "next:2", s.redis.Exists("x"), owner)
		}
	})
}

// S1: The key of permits expires when the last entry ends that is left, also if one that was reserved lasted for longer.
func TestTheKeyOfPermitsDoesNotOutliveThemWhenAWaiterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := virtual(t, 1, 1).servers[0]
		for entry, lasts := range map[string]time.Duration{"permit 0/2 holder": 5 * time.Second, "permit 1/2 next:1": time.Minute} {
			_, err := s.redis.ZAdd("x", float64(time.Now().Add(lasts).UnixMicro()), entry)
			require.NoError(t, err)
		}
		s.redis.SetTTL("x", time.Minute)
		s.tell("EVAL", scriptText(t, "entries", "leave"), 4, "x", "redlock:wait:x", "redlock:shared:x", "redlock:rw:x", "next:1", 1000)
		require.Equal(t, 5*time.Second, s.timeToLive("x"))
	})
}

// Q1: A server forgot its data set, and a client with another configuration begins its quarantine. It lasts as long as
// the leases that either configuration allows.
func TestAQuarantineOutlastsTheLeasesOfTheConfigurationBefore(t *testing.T) {
	for _, maxTTL := range []int{10_000, 120_000} {
		synctest.Test(t, func(t *testing.T) {
			s := virtual(t, 1, 1).servers[0]
			require.NoError(t, s.redis.Set("redlock:node", "run1 digest1"))
			require.NoError(t, s.redis.Set("redlock:config", "MaxTTL 90000ms\n"))
			s.tell("EVAL", scriptText(t, "ready"), 4, "redlock:node", "redlock:quarantine", "redlock:config", "redlock:fence",
				s.commands.Identity().RunID, 0, "digest2", fmt.Sprintf("MaxTTL %dms\n", maxTTL), maxTTL, 750, "", 0, 0, 500_000, 0, "1")
			longest := time.Duration(max(maxTTL, 90_000)) * time.Millisecond
			require.Equal(t, longest+750*time.Millisecond, s.timeToLive("redlock:quarantine"))
		})
	}
}
