package measure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func setting(t *testing.T, transport Transport) Setting {
	fleettest.Require(t, fleet.Process)
	servers, err := StartServers(t.Context(), transport)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, servers.Close()) })
	return Setting{Servers: servers, Time: 100 * time.Millisecond, Prefix: t.Name()}
}

// progress runs the load until somebody has acquired, for longer each time, as a busy machine may be too slow.
func progress(t *testing.T, load Load, set Setting, s subject.Subject) Sample {
	for tries := 1; ; tries++ {
		sample, err := load.Run(t.Context(), set, s)
		require.NoError(t, err)
		if sample[Rate] > 0 || tries == 4 {
			return sample
		}
		set.Time *= 3
	}
}

func TestEachSubjectMakesProgressAndLeavesNothing(t *testing.T) {
	for _, transport := range []Transport{TCP, Unix} {
		set := setting(t, transport)
		set.Time = 20 * time.Millisecond
		for _, s := range subject.All() {
			t.Run(string(transport)+"/"+s.Name, func(t *testing.T) {
				set.Prefix = t.Name()
				sample := progress(t, Load{Goroutines: 8, Keys: Distinct}, set, s)
				assert.Positive(t, sample[Rate])
				t.Logf("%v keys left, gave up %v times", sample[Leftovers], sample[Failures])
				if !s.Litters { // a name whose old keys are on a quorum of the servers cannot be acquired
					assert.Zero(t, sample[Failures])
				}
				// Others may leave a key where a server was too slow for them: redsync does not wait for longer than 0.4 s.
				if strings.HasPrefix(s.Name, "redlock") {
					assert.Zero(t, sample[Leftovers])
				}
				assert.Positive(t, sample[CycleP50])
				assert.LessOrEqual(t, sample[CycleP50], sample[CycleP99])
				assert.LessOrEqual(t, sample[CycleP99], sample[CycleMax])
			})
		}
	}
}

func TestContendersTakeTurns(t *testing.T) {
	set := setting(t, TCP)
	set.Time = 100 * time.Millisecond
	load := Load{Goroutines: 4, Clients: 4, Keys: Hot, Hold: time.Millisecond}
	for _, s := range subject.All() {
		if load.Bearable(s) != nil {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			set.Prefix = t.Name()
			sample := progress(t, load, set, s)
			assert.Positive(t, sample[Rate])
			most := 1000.0 * float64(max(1, s.Permits))
			assert.LessOrEqual(t, sample[Rate], most, "one holder of each permit at a time, each for a millisecond")
			assert.Positive(t, sample[WaitMax])
		})
	}
}

func TestEachFaultIsAppliedAndHealed(t *testing.T) {
	set := setting(t, Links)
	load := Load{Goroutines: 1, Keys: Distinct}
	ours := subject.All()[0]
	for _, fault := range []Fault{AllWell, Stopped, OneSlower, AllSlower} {
		load.Fault = fault
		set.Prefix = t.Name() + string(fault)
		sample := progress(t, load, set, ours)
		assert.Positive(t, sample[Rate], fault)
		if fault == AllSlower { // an acquire and a release, one round trip each
			assert.Greater(t, sample[CycleP50], micros(2*slower))
		}
		require.Eventually(t, func() bool { // on a busy machine many take longer; while there is a delay, all do
			rtt, err := set.Servers.RoundTrip(t.Context())
			return err == nil && rtt < slower
		}, 30*time.Second, time.Millisecond, "after %q", fault)
	}
}

func TestHandoverGoesFromClientToClient(t *testing.T) {
	set := setting(t, TCP)
	for _, s := range subject.All() {
		if s.Bare || s.Permits > 1 { // with a permit left, nobody waits for the release
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			set.Prefix = t.Name()
			sample, err := RunHandover(t.Context(), set, s, AllWell)
			if err != nil && s.Sleeps {
				t.Skip(err)
			}
			require.NoError(t, err)
			assert.Positive(t, sample[FullRTT])
			assert.GreaterOrEqual(t, sample[FullRTT], sample[HandoverRTT])
		})
	}
}

func TestScaleCountsLeases(t *testing.T) {
	set := setting(t, TCP)
	for _, s := range subject.All() {
		if !s.Renews || s.Sleeps {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			set.Prefix = t.Name()
			sample := Sample{Failures: -1}
			for tries := 0; tries < 4 && (sample[Lost] != 0 || sample[Failures] != 0); tries++ { // a busy machine may be too slow
				var err error
				sample, err = RunScale(t.Context(), set, s, 300, 5*time.Second, func(text string) { t.Log(text) })
				require.NoError(t, err)
			}
			assert.Zero(t, sample[Lost])
			assert.Zero(t, sample[Failures])
			assert.Zero(t, sample[Leftovers])
			assert.Positive(t, sample[LeaseBytes])
			idle, err := RunIdle(t.Context(), set, s)
			require.NoError(t, err)
			assert.Positive(t, idle[ClientConns])
		})
	}
}

func TestAnEndedContextEndsTheMeasurement(t *testing.T) {
	set := setting(t, TCP)
	set.Time = time.Minute
	for _, s := range subject.All() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		began := time.Now()
		_, err := Load{Goroutines: 8, Keys: Distinct}.Run(ctx, set, s)
		cancel()
		assert.ErrorIs(t, err, context.DeadlineExceeded, s.Name)
		assert.Less(t, time.Since(began), 20*time.Second, s.Name)
	}
}
