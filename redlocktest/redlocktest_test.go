package redlocktest_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeTimeout = 250 * time.Millisecond   // the default
	quarantine  = 30750 * time.Millisecond // with the defaults
)

// bubble runs a test with n nodes in virtual time, in which work takes no time.
func bubble(t *testing.T, n int, test func(t *testing.T, nodes *redlocktest.Nodes)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, redlocktest.Start(t, n)) })
}

func connect(t *testing.T, nodes *redlocktest.Nodes, change ...func(*redlock.Config)) *redlock.Client {
	cfg := redlock.Config{Nodes: nodes.Nodes()}
	for _, change := range change {
		change(&cfg)
	}
	client, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// patient is for real time, in which a busy machine answers late.
func patient(c *redlock.Config) { c.NodeTimeout = 4 * time.Second }

// requireVotes checks how many nodes a client can have votes of, by trying a lock that nobody has.
func requireVotes(t *testing.T, client *redlock.Client, quorum bool) error {
	t.Helper()
	lease, err := client.Mutex("free").TryAcquire(t.Context())
	if !quorum {
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		return err
	}
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	return nil
}

func TestALockIsAcquiredAndReleasedInRealTime(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t, 5)
	one, two := connect(t, nodes, patient), connect(t, nodes, patient)
	lease, err := one.Mutex("x").TryAcquire(t.Context())
	require.NoError(t, err)
	require.True(t, lease.Valid())
	_, err = two.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, lease.Release(t.Context()))
	next, err := two.Mutex("x").Acquire(t.Context()) // a try could find it held: some node may still have to release it
	require.NoError(t, err)
	require.Greater(t, next.Fence(), lease.Fence())
}

func TestNewNodesGrantAtOnceWhateverTheConfigurationOfTheFirstClient(t *testing.T) {
	for name, change := range map[string]func(*redlock.Config){
		"default":  func(*redlock.Config) {},
		"MaxTTL":   func(c *redlock.Config) { c.TTL, c.MaxTTL = time.Minute, time.Hour },
		"short":    func(c *redlock.Config) { c.TTL, c.MaxTTL = time.Second, time.Second },
		"Quorum":   func(c *redlock.Config) { c.Quorum = 5 },
		"Prefix":   func(c *redlock.Config) { c.Prefix = "app/" },
		"Durable":  func(c *redlock.Config) { c.Durable = true },
		"NoFence":  func(c *redlock.Config) { c.NoFence = true },
		"ClockOff": func(c *redlock.Config) { c.ClockBand = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 { // the nodes answer in any order
				synctest.Test(t, func(t *testing.T) {
					nodes := redlocktest.Start(t, 5)
					var wg sync.WaitGroup
					for i := range 3 {
						client := connect(t, nodes, change)
						wg.Go(func() {
							lease, err := client.Mutex(fmt.Sprint(i)).TryAcquire(t.Context())
							if assert.NoError(t, err) {
								assert.NoError(t, lease.Release(t.Context()))
							}
						})
					}
					wg.Wait()
				})
			}
		})
	}
}

func TestASecondClientMustBeConfiguredLikeTheFirst(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		requireVotes(t, connect(t, nodes), true)
		synctest.Wait() // until it is released on all nodes
		other := connect(t, nodes, func(c *redlock.Config) { c.MaxTTL = time.Minute })
		var differs *redlock.ConfigError
		require.ErrorAs(t, requireVotes(t, other, false), &differs)
		require.Equal(t, "MaxTTL", differs.Differences[0].Field)
		require.NoError(t, other.Enroll(t.Context(), redlock.ChangeConfig()))
		requireVotes(t, other, true)
	})
}

// The default clock is the bubble's: in virtual time, a lease that is not renewed ends when another client may acquire.
func TestTheDefaultClockIsTheBubbles(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		before := redlock.SystemClock().Now()
		require.Positive(t, before)
		time.Sleep(time.Hour)
		require.Equal(t, time.Hour, redlock.SystemClock().Now().Sub(before))
	})
}

func TestAClientMayEnrollTheNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		require.NoError(t, client.Enroll(t.Context(), redlock.OnlyNew()))
		require.NoError(t, client.Enroll(t.Context()))
		requireVotes(t, client, true)
	})
}

func TestTwoOfFiveNodesMayBeDown(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		lease, err := client.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		nodes.Kill(0)
		nodes.Kill(3)
		nodes.Kill(3)
		synctest.Wait()
		for i, node := range client.Status(t.Context()) {
			require.Equal(t, i == 0 || i == 3, node.Err != nil, "%s: %v", node.Name, node.Err)
		}
		require.NoError(t, lease.Extend(t.Context()))
		requireVotes(t, client, true)

		nodes.Kill(4)
		_, err = connect(t, nodes).Mutex("free").TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		requireVotes(t, client, false)
		<-lease.Context().Done()
		require.ErrorIs(t, context.Cause(lease.Context()), redlock.ErrLost)
	})
}

func TestAPausedNodeDoesNotAnswerUntilItIsResumed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		requireVotes(t, client, true)
		nodes.Kill(0)
		nodes.Pause(0) // it is down: this does nothing
		nodes.Pause(1)
		nodes.Pause(1)
		began := time.Now()
		requireVotes(t, client, false)
		require.GreaterOrEqual(t, time.Since(began), nodeTimeout, "no answer, and no refusal")
		nodes.Resume(1)
		nodes.Resume(2)
		synctest.Wait()
		requireVotes(t, client, true)
		require.Less(t, time.Since(began), 2*nodeTimeout, "over the connection that there was")

		nodes.Restart(0)
		time.Sleep(5 * time.Second)
		var quarantined *redlock.QuarantineError
		require.ErrorAs(t, client.Status(t.Context())[0].Err, &quarantined, "it answers")
	})
}

func TestAPartitionHoldsRequestsAndRepliesUntilItIsHealed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		requireVotes(t, client, true)
		for i := range 3 {
			nodes.Partition(i)
		}
		began := time.Now()
		requireVotes(t, client, false)
		require.GreaterOrEqual(t, time.Since(began), nodeTimeout)
		require.Less(t, time.Since(began), 2*nodeTimeout)
		time.Sleep(time.Minute) // the client reconnects in vain
		requireVotes(t, client, false)
		for i := range 3 {
			nodes.Heal(i)
		}
		lease, err := client.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(5 * time.Second) // until it has reconnected to all
		for _, node := range client.Status(t.Context()) {
			require.NoError(t, node.Err)
		}
	})
}

func TestWhatIsInFlightIsHeldAndNotLost(t *testing.T) {
	for name, fault := range map[string]struct{ begin, end func(*redlocktest.Nodes, int) }{
		"pause":     {(*redlocktest.Nodes).Pause, (*redlocktest.Nodes).Resume},
		"partition": {(*redlocktest.Nodes).Partition, (*redlocktest.Nodes).Heal},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *redlocktest.Nodes) {
				dial := func() redis.Conn {
					conn, err := nodes.Nodes()[0].Dial(t.Context())
					require.NoError(t, err)
					return conn
				}
				gone, patient := dial(), dial()
				defer patient.Close()
				nodes.Delay(0, 10*time.Millisecond)
				replies := make(chan time.Time, 2)
				incr := func() {
					_, err := patient.Do("INCR", "count")
					assert.NoError(t, err)
					replies <- time.Now()
				}
				began := time.Now()
				go incr()
				time.Sleep(15 * time.Millisecond) // its reply is in flight
				fault.begin(nodes, 0)
				require.NoError(t, gone.Send("INCR", "count"))
				require.NoError(t, gone.Flush())
				require.NoError(t, gone.Close())
				time.Sleep(time.Minute)
				if name == "pause" { // what a paused node has sent arrives
					require.Equal(t, began.Add(20*time.Millisecond), <-replies)
				}
				require.Empty(t, replies)
				fault.end(nodes, 0)
				if name == "partition" {
					require.Equal(t, began.Add(time.Minute+15*time.Millisecond), <-replies)
				}
				synctest.Wait()
				nodes.Delay(0, 0)
				count, err := redis.Int(patient.Do("GET", "count"))
				require.NoError(t, err)
				require.Equal(t, 2, count, "the late write was applied")

				require.NoError(t, patient.Send("INCR", "count"))
				nodes.Kill(0)
				_, err = patient.Do("")
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
		})
	}
}

func TestADelayIsAddedInEachDirection(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		requireVotes(t, client, true)
		for i := range 3 {
			nodes.Delay(i, 5*time.Millisecond)
		}
		began := time.Now()
		lease, err := client.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10*time.Millisecond, time.Since(began))
		for i := range 3 {
			nodes.Delay(i, 0)
		}
		began = time.Now()
		require.NoError(t, lease.Release(t.Context()))
		require.Zero(t, time.Since(began))
	})
}

func TestARestartedNodeIsInQuarantineAndDoesNotVote(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		requireVotes(t, client, true)
		nodes.Restart(0)
		began := time.Now()
		time.Sleep(5 * time.Second) // the client reconnects
		var quarantined *redlock.QuarantineError
		require.ErrorAs(t, client.Status(t.Context())[0].Err, &quarantined)
		requireVotes(t, client, true)
		nodes.Kill(2)
		require.ErrorAs(t, requireVotes(t, client, false), &quarantined)

		time.Sleep(quarantine - time.Second - time.Since(began))
		requireVotes(t, client, false)
		time.Sleep(5 * time.Second)
		requireVotes(t, client, true)
		require.NoError(t, client.Status(t.Context())[0].Err)
	})
}

func TestEnrollEndsTheQuarantineOfRestartedNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		for i := range 3 {
			nodes.Kill(i)
			nodes.Restart(i)
		}
		time.Sleep(5 * time.Second)
		requireVotes(t, client, false)
		require.NoError(t, client.Enroll(t.Context()))
		requireVotes(t, client, true)
	})
}

func TestTheVoteOfANodeWhoseClockWasSteppedDoesNotCount(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		client := connect(t, nodes)
		requireVotes(t, client, true)
		nodes.Kill(2)
		for _, step := range []time.Duration{time.Second, -2 * time.Second} {
			nodes.StepClock(0, step)
			require.ErrorContains(t, requireVotes(t, client, false), "clock")
		}
		nodes.StepClock(0, time.Second+30*time.Millisecond) // less than half of the ClockBand
		requireVotes(t, client, true)
	})
}

func TestKeysExpireByTheClockOfTheirNode(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{
		0: 10 * time.Second, 4 * time.Second: 6 * time.Second, 10 * time.Second: time.Millisecond, -4 * time.Second: 14 * time.Second,
	} {
		t.Run(step.String(), func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, nodes *redlocktest.Nodes) {
				conn, err := nodes.Nodes()[0].Dial(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				_, err = conn.Do("SET", "key", "value", "PX", 10_000)
				require.NoError(t, err)
				before, err := redis.Ints(conn.Do("TIME"))
				require.NoError(t, err)
				nodes.StepClock(0, step)
				after, err := redis.Ints(conn.Do("TIME"))
				require.NoError(t, err)
				require.Equal(t, step, time.Duration(after[0]-before[0])*time.Second)
				time.Sleep(want - time.Millisecond)
				exists, err := redis.Bool(conn.Do("EXISTS", "key"))
				require.NoError(t, err)
				require.Equal(t, step < 10*time.Second, exists)
				time.Sleep(2 * time.Millisecond)
				exists, err = redis.Bool(conn.Do("EXISTS", "key"))
				require.NoError(t, err)
				require.False(t, exists)
			})
		})
	}
}

func TestALeaseOf30sExpiresInVirtualTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		nodes := redlocktest.Start(t, 5)
		one, two := connect(t, nodes), connect(t, nodes)
		lease, err := one.Mutex("x").WithTTL(30 * time.Second).WithoutRenewal().Acquire(t.Context())
		require.NoError(t, err)
		_, err = two.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.False(t, lease.Valid())
		require.InDelta(t, 30*time.Second, time.Since(began), float64(time.Second))
	})
	require.Less(t, time.Since(began), 20*time.Second)
}

func TestAReleaseWakesAWaiter(t *testing.T) {
	bubble(t, 5, func(t *testing.T, nodes *redlocktest.Nodes) {
		one, two := connect(t, nodes), connect(t, nodes)
		lease, err := one.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		got := make(chan time.Time)
		go func() {
			_, err := two.Mutex("x").Acquire(t.Context())
			assert.NoError(t, err)
			got <- time.Now()
		}()
		time.Sleep(time.Minute + 123*time.Millisecond) // at no time at which anybody polls
		released := time.Now()
		require.NoError(t, lease.Release(t.Context()))
		// The waiter can ask a node before the release has reached it, and asks again a moment later.
		require.WithinDuration(t, released, <-got, 50*time.Millisecond)
	})
}

// The race detector looks on.
func TestFaultsMayBeInjectedConcurrently(t *testing.T) {
	t.Parallel()
	nodes := redlocktest.Start(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i, fault := range []func(i int){
		func(i int) { nodes.Kill(i); nodes.Restart(i) },
		func(i int) { nodes.Pause(i); nodes.Resume(i) },
		func(i int) { nodes.Partition(i); nodes.Heal(i) },
		func(i int) { nodes.Delay(i, time.Millisecond); nodes.Delay(i, 0) },
		func(i int) { nodes.StepClock(i, -time.Second); nodes.StepClock(i, time.Second) },
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				fault(i % 2)
				time.Sleep(time.Millisecond)
			}
		})
		client := connect(t, nodes)
		wg.Go(func() {
			for ctx.Err() == nil {
				_ = client.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
			}
		})
	}
	wg.Wait()
	for i := range 2 {
		nodes.Kill(i)
	}
	lease, err := connect(t, nodes).Mutex("y").Acquire(t.Context())
	require.NoError(t, err, "three nodes had no fault")
	require.NoError(t, lease.Release(t.Context()))
}

func TestNodesEndWithTheirTest(t *testing.T) {
	before := goleak.IgnoreCurrent()
	var nodes *redlocktest.Nodes
	t.Run("inner", func(t *testing.T) {
		nodes = redlocktest.Start(t, 3)
		nodes.Pause(1)
		nodes.Partition(2)
		requireVotes(t, connect(t, nodes), false)
	})
	require.NoError(t, goleak.Find(before))
	nodes.Restart(0)
	_, err := nodes.Nodes()[0].Dial(t.Context())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// A failure is what a test helper says when it fails the test.
type failure struct {
	testing.TB
	text string
}

func (f *failure) Helper() {}
func (f *failure) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	panic(f)
}

func TestWrongArgumentsFailTheTest(t *testing.T) {
	for want, call := range map[string]func(t testing.TB){
		"there is no node 3; the 3 nodes are numbered from 0":  func(t testing.TB) { redlocktest.Start(t, 3).Kill(3) },
		"there is no node -1; the 3 nodes are numbered from 0": func(t testing.TB) { redlocktest.Start(t, 3).Heal(-1) },
		"Delay of -1s; give 0 or more":                         func(t testing.TB) { redlocktest.Start(t, 3).Delay(0, -time.Second) },
		"Start with 0 nodes; give at least 1":                  func(t testing.TB) { redlocktest.Start(t, 0) },
	} {
		f := &failure{TB: t}
		require.PanicsWithValue(t, f, func() { call(f) })
		require.Equal(t, "redlocktest: "+want, f.text)
	}
}

// The tests of this package count too: go mod tidy writes the modules that they need into the importer's go.sum.
func TestTheImporterNeedsNoDocker(t *testing.T) {
	list, err := exec.Command("go", "list", "-deps", "-test", ".").Output()
	require.NoError(t, err)
	require.Contains(t, string(list), "github.com/alicebob/miniredis/v2\n")
	for path := range strings.Lines(string(list)) {
		require.NotContains(t, path, "docker")
	}
}

// AgreedConfig is for tools. On new nodes it must leave the decision to the first client.
func TestAgreedConfigDecidesNothingOnNewNodes(t *testing.T) {
	bubble(t, 3, func(t *testing.T, nodes *redlocktest.Nodes) {
		cfg, err := redlock.AgreedConfig(t.Context(), redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		require.Zero(t, cfg.MaxTTL)
		client := connect(t, nodes, func(cfg *redlock.Config) { cfg.MaxTTL = 2 * time.Minute })
		_, err = client.Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		cfg, err = redlock.AgreedConfig(t.Context(), redlock.Config{Nodes: nodes.Nodes()})
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, cfg.MaxTTL)
	})
}

// New nodes vote for clients that do not reach all of them, as in production once they are enrolled.
func TestNewNodesGrantAtOnceThoughAMinorityIsAway(t *testing.T) {
	for what, away := range map[string]func(nodes *redlocktest.Nodes, i int){
		"killed":      (*redlocktest.Nodes).Kill,
		"paused":      (*redlocktest.Nodes).Pause,
		"partitioned": (*redlocktest.Nodes).Partition,
		"slow":        func(nodes *redlocktest.Nodes, i int) { nodes.Delay(i, 100*time.Millisecond) },
		"stepped":     func(nodes *redlocktest.Nodes, i int) { nodes.StepClock(i, time.Hour) },
	} {
		for _, n := range []int{1, 3, 5} {
			t.Run(fmt.Sprint(n, " nodes, ", what), func(t *testing.T) {
				bubble(t, n, func(t *testing.T, nodes *redlocktest.Nodes) {
					for i := range n / 2 {
						away(nodes, i)
					}
					_, err := connect(t, nodes).Mutex("x").TryAcquire(t.Context())
					require.NoError(t, err)
				})
			})
		}
	}
}
