//go:build unix

package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/chaos/traffic"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// childVariable makes this program the client that a scenario stops or kills.
const childVariable = "REDLOCK_CHAOS_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		if err := traffic.ServeChild(context.Background(), os.Stdin, os.Stdout, childSubject); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Runs wait more than they work.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// short is a run that is hardly longer than its script.
func short(t *testing.T, kind fleet.Kind, play, name string) chaos.Options {
	t.Helper()
	fleettest.Require(t, kind)
	s, err := subject.ByName(name)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	ttl := 500 * time.Millisecond
	// A baseline shows as unsafe only if the second client gets the lock before the first one's lease ends by its
	// clock, even on a busy machine. A busy container engine may take long for one fault. Two baselines have short
	// timeouts, so their tries may take long.
	switch {
	case kind == fleet.Docker || name == "plain-redlock" || name == "majority-semaphore":
		ttl = 2 * time.Second
	case !subject.IsOurs(name):
		ttl = time.Second
	}
	return chaos.Options{
		Scenario: play, Subject: s, Fleet: string(kind), Clients: 5, Length: time.Second, TTL: ttl,
		Child: []string{"env", childVariable + "=1", self}, Log: t.Output(),
	}
}

// run skips the test if this machine does not support the scenario. On a busy machine nobody may acquire within the second
// of a short run, or the observer may not see it, and the run then shows nothing: it runs again, a few times at most, and
// longer each time.
func run(t *testing.T, o chaos.Options) *chaos.Outcome {
	t.Helper()
	return runUntil(t, o, longer, func(o *chaos.Outcome) bool {
		return o.Verdict == check.Unsafe || o.Acquired > 0 && o.OwnerEvents > 0
	})
}

func runOnce(t *testing.T, o chaos.Options) *chaos.Outcome {
	t.Helper()
	outcome, err := chaos.Run(t.Context(), o)
	if err != nil && fleet.Kind(o.Fleet) != fleet.Embedded {
		if missing := fleet.ClocksAvailable(fleet.Kind(o.Fleet)); missing != nil {
			required.Missing(t, "clocks", err)
		}
	}
	require.NoError(t, err)
	require.Empty(t, outcome.Error)
	require.Empty(t, outcome.Panics)
	return outcome
}

func requireSafe(t *testing.T, o *chaos.Outcome) {
	t.Helper()
	if o.Verdict != check.Safe {
		if file, err := os.CreateTemp("", "chaos-*.jsonl"); err == nil {
			_, err = file.Write(o.History)
			t.Logf("the history is in %s (%v)", file.Name(), errors.Join(err, file.Close()))
		}
	}
	for _, v := range o.Violations {
		t.Errorf("%s", v.Text)
	}
	assert.Equal(t, check.Safe, o.Verdict, "%v", o.LeftOut)
	assert.Positive(t, o.Acquired)
	assert.Positive(t, o.OwnerEvents, "without an observer the verdict means little")
}

// runUntilUnsafe runs it until the lock is seen unsafe, a few times at most: a second client must acquire while the
// first one still believes. A busy machine may be too slow for that, so the TTL grows from run to run.
func runUntilUnsafe(t *testing.T, o chaos.Options) *chaos.Outcome {
	t.Helper()
	return runUntil(t, o, longerTTL, func(o *chaos.Outcome) bool { return o.Verdict == check.Unsafe })
}

func longer(o *chaos.Options)    { o.Length += o.Length / 2 }
func longerTTL(o *chaos.Options) { o.TTL += o.TTL / 2 }

// runUntil runs o again and again, and gives it more time before each further run.
func runUntil(t *testing.T, o chaos.Options, more func(*chaos.Options), shown func(*chaos.Outcome) bool) *chaos.Outcome {
	t.Helper()
	for tries := 1; ; tries++ {
		outcome := runOnce(t, o)
		if shown(outcome) || tries == 6 {
			return outcome
		}
		t.Logf("run %d: not seen", tries)
		more(&o)
	}
}

func TestEveryLockIsSafeWhereNothingHappens(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		for _, s := range subject.All() {
			t.Run(fmt.Sprintf("%s/%s", kind, s.Name()), func(t *testing.T) {
				t.Parallel()
				o := short(t, kind, "control", s.Name())
				o.Clients = 2 // with more clients, a lock with short timeouts may not make progress
				requireSafe(t, run(t, o))
			})
		}
	}
}

// weakness has the scenario that each baseline was written to fail.
var weakness = map[string]string{
	"setnx-expire": "dead-holder", "getset": "client-clock", "get-del": "late-release", "single": "failover", "watchdog": "failover",
	"reader-counter": "failover", "majority-semaphore": "partial-views",
}

// With REDLOCK_CHAOS=full in the environment, every baseline runs in every scenario that shows it unsafe. Otherwise
// each baseline and each scenario runs once.
func TestEachBaselineIsSeenUnsafeWhereItIsSaidToBe(t *testing.T) {
	for _, play := range scenario.All() {
		for i, name := range play.Fails {
			if os.Getenv("REDLOCK_CHAOS") != "full" && i < len(play.Fails)-1 && weakness[name] != play.Name {
				continue
			}
			t.Run(play.Name+"/"+name, func(t *testing.T) {
				t.Parallel()
				o := runUntilUnsafe(t, short(t, fleet.Process, play.Name, name))
				require.Equal(t, check.Unsafe, o.Verdict)
				require.NotEmpty(t, o.Violations)
				assert.NotEmpty(t, o.Violations[0].Text)
			})
		}
	}
}

// Each fault is the only one of its run that makes a node forget.
func TestAViolationNamesTheFaultOfItsScenario(t *testing.T) {
	for play, of := range map[string][2]string{
		"failover": {"single", "promote"}, "restart-empty": {"plain-redlock", "restart-empty"}, "flush": {"plain-redlock", "flushall"},
		"clock-ahead": {"plain-redlock", "clock+1m0s"}, "client-clock": {"getset", "client-clock+1m0s"}, "stopped-holder": {"watchdog", "stop"},
		"slow-replies": {"late-validity", "cut-replies"},
	} {
		t.Run(play, func(t *testing.T) {
			t.Parallel()
			o := runUntilUnsafe(t, short(t, fleet.Process, play, of[0]))
			require.NotEmpty(t, o.Violations)
			for _, v := range o.Violations { // the traffic beside it may have others, on a busy machine
				if v.Resource == "chaos/lock" && (v.Kind == check.Overlap || v.Kind == check.LateLoss) {
					assert.Equal(t, of[1], v.Cause.Fault, "%s: %s", v.Text, v.Cause.Text)
				}
			}
		})
	}
}

// It differs from late-validity in nothing but the beginning of its leases.
func TestALeaseThatCountsFromTheBeginningOfItsRoundIsSafeWithSlowReplies(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Process, "slow-replies", "plain-redlock")
	o.Subject = subject.PlainRedlock{Patience: o.TTL}
	late := func(o *chaos.Outcome) bool { // A got the lock with slow replies, so that was tested
		events, err := history.ReadAll(bytes.NewReader(o.History))
		require.NoError(t, err)
		var asked int64
		return slices.ContainsFunc(events, func(e history.Event) bool {
			if e.Client == 1 && e.Kind == history.Acquire {
				asked = e.At
			}
			return e.Client == 1 && e.Kind == history.Granted && e.At-asked > int64(time.Second/2)
		})
	}
	outcome := runUntil(t, o, longerTTL, func(o *chaos.Outcome) bool { return o.Verdict == check.Unsafe || late(o) })
	requireSafe(t, outcome)
	assert.True(t, late(outcome))
}

func TestThisLibraryIsSafeInEveryScenario(t *testing.T) {
	for _, play := range scenario.All() {
		t.Run(play.Name, func(t *testing.T) {
			t.Parallel()
			// With a TTL that is too short for a busy machine, hundreds of waiters get nothing, and calls return late.
			o := runUntil(t, short(t, fleet.Process, play.Name, "redlock"), longerTTL, func(o *chaos.Outcome) bool {
				return o.Verdict != check.Unsure && o.Acquired > 0 && o.OwnerEvents > 0
			})
			requireSafe(t, o)
			assert.Zero(t, o.FencedStaleAccepted)
			if len(o.Unmet) > 0 { // a busy machine may be too slow
				t.Logf("late: %q", o.Unmet)
			}
		})
	}
}

func TestThisLibraryServesAgainSoonAfterAnOutage(t *testing.T) {
	for _, play := range []string{"kill-minority", "restart-empty"} {
		t.Run(play, func(t *testing.T) {
			t.Parallel()
			o := short(t, fleet.Process, play, "redlock")
			o.TTL = 2 * time.Second
			outcome := run(t, o)
			requireSafe(t, outcome)
			assert.Empty(t, outcome.Unmet)
		})
	}
}

func TestADefenceOfThisLibraryThatIsSwitchedOffIsMissed(t *testing.T) {
	o := short(t, fleet.Process, "clock-ahead", "redlock")
	o.TTL = 2 * time.Second // long enough for the second client on a busy machine
	o.Subject = subject.Redlock{Configure: func(cfg *redlock.Config) { cfg.ClockBand = -1 }}
	outcome := runUntilUnsafe(t, o)
	assert.Equal(t, check.Unsafe, outcome.Verdict)
	assert.Positive(t, outcome.Overlaps)
	assert.Zero(t, outcome.FencedStaleAccepted, "the fencing tokens still work")
}

func TestEveryBaselineHasAScenarioThatShowsItsWeakness(t *testing.T) {
	for _, s := range subject.Baselines() {
		shown := slices.ContainsFunc(scenario.All(), func(p scenario.Scenario) bool { return slices.Contains(p.Fails, s.Name()) })
		assert.True(t, shown, s.Name())
	}
	for _, play := range scenario.All() {
		for _, name := range play.Fails {
			assert.False(t, subject.IsOurs(name), name)
			_, err := subject.ByName(name)
			assert.NoError(t, err)
		}
		assert.NotEmpty(t, play.Proves)
		assert.NotEmpty(t, play.Fleets())
		assert.NotEmpty(t, play.Costs)
	}
}

func TestInContainersAFailoverGivesASingleMasterTwoOwnersAndThisLibraryOne(t *testing.T) {
	o := runUntil(t, short(t, fleet.Docker, "failover", "single"), longerTTL, func(o *chaos.Outcome) bool { return o.Overlaps > 0 })
	assert.Equal(t, check.Unsafe, o.Verdict)
	assert.Positive(t, o.Overlaps)
	requireSafe(t, run(t, short(t, fleet.Docker, "failover", "redlock")))
}

func TestTheHistoryIsTheSameForTheWriterAndTheJudge(t *testing.T) {
	o := short(t, fleet.Embedded, "control", "redlock")
	var written bytes.Buffer
	o.History = &written
	outcome := runOnce(t, o)
	assert.Equal(t, outcome.History, written.Bytes())
	assert.Contains(t, written.String(), `"observed":["chaos/lock","chaos/traffic"]`)
	again, err := check.JudgeReader(&written)
	require.NoError(t, err)
	assert.Equal(t, outcome.Result, again)
	requireJudgedAlike(t, outcome)
}

// requireJudgedAlike requires that a history tells all of its run.
func requireJudgedAlike(t *testing.T, outcome *chaos.Outcome) {
	t.Helper()
	events, err := history.ReadAll(bytes.NewReader(outcome.History))
	require.NoError(t, err)
	again, err := chaos.Judge(events)
	require.NoError(t, err)
	again.History = outcome.History
	assert.Equal(t, outcome, again)
}

// An unwilling lock is granted to nobody.
type unwilling struct{ subject.Single }

func (unwilling) Open(context.Context, subject.Options) (subject.Client, error) {
	return unwillingClient{}, nil
}

type unwillingClient struct{}

func (unwillingClient) Acquire(_ context.Context, name string) (subject.Lease, error) {
	if strings.HasPrefix(name, "chaos/warm") {
		return unwillingLease{}, nil
	}
	return nil, io.EOF
}

func (unwillingClient) Close() error { return nil }

type unwillingLease struct{ subject.Lease }

func (unwillingLease) Release(context.Context) error { return nil }

func TestTheHistoryTellsThatItsRunWasAborted(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Embedded, "late-release", "single")
	o.Subject, o.Clients = unwilling{}, 3
	outcome, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.Contains(t, outcome.Error, "client 1 did not get a lock that nobody else wanted")
	require.Equal(t, check.Unsure, outcome.Verdict)
	requireJudgedAlike(t, outcome)
}

// A reporter tells when its clients are granted a lock, and when they are closed.
type reporter struct {
	subject.Single
	granted func(name string)
	closes  func()
}

func (s reporter) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := s.Single.Open(ctx, o)
	return reportingClient{c, s}, err
}

type reportingClient struct {
	subject.Client
	to reporter
}

func (c reportingClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	lease, err := c.Client.Acquire(ctx, name)
	if err == nil && c.to.granted != nil {
		c.to.granted(name)
	}
	return lease, err
}

func (c reportingClient) Close() error {
	err := c.Client.Close()
	if c.to.closes != nil {
		c.to.closes()
	}
	return err
}

// judged is what a history tells of its run to those who have nothing else.
func judged(t *testing.T, recorded io.Reader) *chaos.Outcome {
	t.Helper()
	events, err := history.ReadAll(recorded)
	require.NoError(t, err)
	outcome, err := chaos.Judge(events)
	require.NoError(t, err)
	return outcome
}

// It was interrupted before its fault, so it shows nothing.
func TestTheHistoryOfAnInterruptedRunSaysSo(t *testing.T) {
	t.Parallel()
	for _, play := range []string{"flush", "control"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		o := short(t, fleet.Embedded, play, "single")
		o.Length = time.Minute
		var recorded bytes.Buffer
		o.History = &recorded
		o.Subject = reporter{granted: func(name string) {
			if name == "chaos/traffic" {
				cancel(errors.New("somebody stopped it"))
			}
		}}
		interrupted, err := chaos.Run(ctx, o)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, check.Unsure, interrupted.Verdict)
		assert.Equal(t, 1, strings.Count(recorded.String(), `"error":"somebody stopped it"`), "one note")
		outcome := judged(t, &recorded)
		assert.Equal(t, "somebody stopped it", outcome.Error)
		assert.Equal(t, check.Unsure, outcome.Verdict)
	}
}

// A crowd is a lock that everybody gets. Its first holders wait for each other; then full is called.
type crowd struct {
	subject.Single
	had  *atomic.Int64
	both chan struct{}
	full func()
}

func (s crowd) Open(context.Context, subject.Options) (subject.Client, error) {
	return crowdClient{s}, nil
}

type crowdClient struct{ of crowd }

func (c crowdClient) Acquire(_ context.Context, name string) (subject.Lease, error) {
	if strings.HasPrefix(name, "chaos/warm") {
		return unwillingLease{}, nil
	}
	return &crowdLease{of: c.of}, nil
}

func (crowdClient) Close() error { return nil }

type crowdLease struct {
	subject.Lease
	of   crowd
	once sync.Once
}

// Valid is asked when the grant is recorded.
func (l *crowdLease) Valid() bool {
	l.once.Do(func() {
		if l.of.had.Add(1) == 2 {
			l.of.full()
			close(l.of.both)
		}
	})
	<-l.of.both
	return true
}

func (*crowdLease) Lost() <-chan struct{}         { return nil }
func (*crowdLease) Fence() uint64                 { return 0 }
func (*crowdLease) Token() string                 { return "" }
func (*crowdLease) Release(context.Context) error { return nil }

func TestAViolationCountsAlsoIfTheRunIsInterruptedLater(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	o := short(t, fleet.Embedded, "control", "single")
	o.Length = time.Minute
	o.Subject = crowd{had: new(atomic.Int64), both: make(chan struct{}), full: func() { cancel(errors.New("somebody stopped it")) }}
	outcome, err := chaos.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.NotNil(t, outcome)
	assert.Equal(t, check.Unsafe, outcome.Verdict)
	assert.Positive(t, outcome.Overlaps)
	assert.Equal(t, "somebody stopped it", outcome.Error)
	requireJudgedAlike(t, outcome)
}

func TestTheHistoryTellsThatClientsDidNotClose(t *testing.T) { // alone, because it sets the patience of all runs
	before := chaos.SetEndPatience(time.Millisecond)
	hanging := make(chan struct{})
	t.Cleanup(func() {
		close(hanging)
		chaos.SetEndPatience(before)
	})
	o := short(t, fleet.Embedded, "control", "single")
	var recorded bytes.Buffer
	o.History = &recorded
	o.Subject = reporter{closes: func() { <-hanging }}
	outcome, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	assert.Contains(t, outcome.Error, "its clients did not close within 1ms")
	assert.Equal(t, outcome.Error, judged(t, &recorded).Error)
}

// The harness delays A between two commands of its release, not of its acquire.
func TestALateReleaseIsThatOfALockThatStepsInItsAcquireToo(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Embedded, "late-release", "setnx-expire")
	o.TTL = 3 * time.Second // a command that takes longer fails, and can leave this lock without an expiry
	outcome := runOnce(t, o)
	assert.Contains(t, string(outcome.History), `"kind":"written"`)
}

func TestAFleetThatCannotDoAScenarioSaysSo(t *testing.T) {
	for _, name := range []string{"failover", "stale-replica", "clock-ahead", "durable-stale-replica", "subscriptions-killed"} {
		o := short(t, fleet.Embedded, name, "redlock")
		_, err := chaos.Run(t.Context(), o)
		require.ErrorIs(t, err, chaos.ErrUnable)
		require.ErrorContains(t, err, name)
	}
	o := short(t, fleet.Embedded, "stopped-holder", "redlock")
	o.Child = nil
	_, err := chaos.Run(t.Context(), o)
	require.ErrorIs(t, err, chaos.ErrUnable)
}

// With fewer nodes nothing would be cut, and every lock would be called safe.
func TestPartialViewsTakeThreeNodes(t *testing.T) {
	for nodes := 1; nodes <= 2; nodes++ {
		_, err := chaos.Run(t.Context(), chaos.Options{Scenario: "partial-views", Subject: subject.Single{}, Fleet: "embedded", Nodes: nodes})
		require.ErrorIs(t, err, chaos.ErrUnable)
		require.ErrorContains(t, err, fmt.Sprintf("%d nodes are too few; give --nodes 3 or more", nodes))
	}
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for want, wrong := range map[string]func(*chaos.Options){
		"scenario":    func(o *chaos.Options) { o.Scenario = "doom" },
		"Subject":     func(o *chaos.Options) { o.Subject = nil },
		"nodes":       func(o *chaos.Options) { o.Nodes = 16 },
		"clients":     func(o *chaos.Options) { o.Clients = -1 },
		"length":      func(o *chaos.Options) { o.Length = time.Millisecond },
		"TTL":         func(o *chaos.Options) { o.TTL = time.Millisecond },
		"no kind":     func(o *chaos.Options) { o.Fleet = "armada" },
		"an image":    func(o *chaos.Options) { o.Image = "redis:7" },
		"are too few": func(o *chaos.Options) { o.Scenario, o.Clients = "late-release", 2 },
	} {
		o := short(t, fleet.Embedded, "control", "redlock")
		wrong(&o)
		_, err := chaos.Run(t.Context(), o)
		require.ErrorContains(t, err, want)
		if want != "are too few" { // this depends on the scenario
			require.ErrorIs(t, err, chaos.ErrInvalid)
			require.EqualError(t, o.Validate(), err.Error())
		}
	}
}

// A stumbler panics after this many acquires.
type stumbler struct {
	subject.Redlock
	after    int64
	acquired atomic.Int64
}

func (s *stumbler) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := s.Redlock.Open(ctx, o)
	return stumblingClient{c, s}, err
}

type stumblingClient struct {
	subject.Client
	s *stumbler
}

func (c stumblingClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	if c.s.acquired.Add(1) > c.s.after {
		panic("stumbled")
	}
	return c.Client.Acquire(ctx, name)
}

func TestAPanicOfASubjectIsRecordedAndTheNodesAreRemoved(t *testing.T) {
	o := short(t, fleet.Process, "flush", "redlock")
	o.Subject = &stumbler{after: 20}
	outcome, err := chaos.Run(t.Context(), o)
	require.NoError(t, err)
	require.NotEmpty(t, outcome.Panics)
	assert.Contains(t, outcome.Panics[0], "stumbled\n")
	assert.Contains(t, outcome.Panics[0], "stumblingClient.Acquire(", "the stack")
	assert.Equal(t, check.Unsure, outcome.Verdict, "the run ended before its faults")
	assert.False(t, outcome.OK())
	assert.Contains(t, string(outcome.History), "stumbled")
	requireJudgedAlike(t, outcome)
}

// A stuck lock is one whose clients never return from the first acquire of the traffic's lock, until they are closed.
type stuck struct{ subject.Single }

func (s stuck) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := s.Single.Open(ctx, o)
	return &stuckClient{Client: c, closed: make(chan struct{})}, err
}

type stuckClient struct {
	subject.Client
	closed chan struct{}
}

func (c *stuckClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	if name == "chaos/traffic" {
		<-c.closed
		return nil, io.EOF
	}
	return c.Client.Acquire(ctx, name)
}

func (c *stuckClient) Close() error {
	close(c.closed)
	return c.Client.Close()
}

func TestALockWhoseCallsNeverReturnIsUnsureAndTheCallsAreNamed(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Embedded, "control", "single")
	o.Subject, o.Clients, o.TTL = stuck{}, 2, 100*time.Millisecond
	outcome := runOnce(t, o)
	assert.Equal(t, check.Unsure, outcome.Verdict)
	require.NotEmpty(t, outcome.LeftOut)
	assert.Regexp(t, `^calls: \d+ calls of Acquire never returned, long after their contexts had ended$`, outcome.LeftOut[0].String())
	requireJudgedAlike(t, outcome)
}

// A fragile lock is one whose clients give up once, with an error, the first time that they want a name, as a pool does
// that lends a connection which a fault has broken.
type fragile struct{ subject.Single }

func (f fragile) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := f.Single.Open(ctx, o)
	return &fragileClient{Client: c}, err
}

type fragileClient struct {
	subject.Client
	failed sync.Map
}

func (c *fragileClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	if _, again := c.failed.LoadOrStore(name, true); !again {
		return nil, io.EOF
	}
	return c.Client.Acquire(ctx, name)
}

// Otherwise nobody asks for the lock that the node has forgotten, and a lock looks safe because it is fragile.
func TestAScriptGoesOnWhereALockGivesUpWithAnError(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Embedded, "flush", "single")
	o.Subject, o.Clients = fragile{}, 2
	outcome := runUntilUnsafe(t, o)
	assert.Equal(t, check.Unsafe, outcome.Verdict)
	assert.Empty(t, outcome.Unmet)
}

// A slowly is a fragile lock whose first lease of a name is over when its holder looks at it, as on a machine that stood
// still.
type slowly struct{ fragile }

func (slowly) Name() string { return "slowly" }

func (s slowly) Open(ctx context.Context, o subject.Options) (subject.Client, error) {
	c, err := s.fragile.Open(ctx, o)
	return &slowClient{Client: c}, err
}

type slowClient struct {
	subject.Client
	had sync.Map
}

func (c *slowClient) Acquire(ctx context.Context, name string) (subject.Lease, error) {
	lease, err := c.Client.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	if _, again := c.had.LoadOrStore(name, true); !again {
		return overLease{lease}, nil
	}
	return lease, nil
}

type overLease struct{ subject.Lease }

func (overLease) Valid() bool { return false }

// childSubject finds the subject of a child process.
func childSubject(name string) (subject.Subject, error) {
	if name == (slowly{}).Name() {
		return slowly{}, nil
	}
	return subject.ByName(name)
}

// On a machine with too much to do, the first tries of the process that is to be stopped fail, and its lease may be over
// too soon. This must not end the run.
func TestAScriptGoesOnWhereItsChildIsLate(t *testing.T) {
	for _, play := range []string{"stopped-holder", "dead-holder"} {
		t.Run(play, func(t *testing.T) {
			t.Parallel()
			o := short(t, fleet.Embedded, play, "single")
			o.Subject, o.Clients = slowly{}, 2
			outcome := runOnce(t, o)
			assert.Contains(t, string(outcome.History), `"error":"EOF"`, "the first try failed")
			assert.Contains(t, string(outcome.History), `"fault":"`+map[string]string{"stopped-holder": "stop", "dead-holder": "kill"}[play])
		})
	}
}

// A stranger is a lock that the process that should serve it does not know.
type stranger struct{ subject.Single }

func (stranger) Name() string { return "stranger" }

func TestAChildThatIsNoneSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, wrong := range map[string]func(*chaos.Options){
		`the child ended before it answered (exit status 1): does it call traffic.ServeChild? Its command is ["false"]`: func(o *chaos.Options) { o.Child = []string{"false"} },
		`the child ended before it answered (exit status 0): does it call traffic.ServeChild? Its command is ["true"]`:  func(o *chaos.Options) { o.Child = []string{"true"} },
		`does it call traffic.ServeChild? Its command is ["echo" "hello"]`:                                              func(o *chaos.Options) { o.Child = []string{"echo", "hello"} },
		`does it call traffic.ServeChild? Its command is ["cat"]`:                                                       func(o *chaos.Options) { o.Child = []string{"cat"} },
		`the child did not open the lock: there is no subject "stranger"`:                                               func(o *chaos.Options) { o.Subject = stranger{} },
	} {
		o := short(t, fleet.Embedded, "dead-holder", "single")
		o.Clients = 2
		wrong(&o)
		outcome, err := chaos.Run(t.Context(), o)
		if errors.Is(err, chaos.ErrUnable) {
			t.Skipf("NOT TESTED: %v", err)
		}
		require.NoError(t, err)
		assert.Contains(t, outcome.Error, want)
		assert.NotContains(t, outcome.Error, "write |1")
	}
}

func TestAnInterruptedRunLeavesNothing(t *testing.T) {
	o := short(t, fleet.Process, "rolling-restart", "redlock")
	o.Length = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	o.History = writer(func(line []byte) (int, error) { // the first line is written when everything runs
		cancel()
		return len(line), nil
	})
	began := time.Now()
	_, err := chaos.Run(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.Less(t, time.Since(began), o.Length, "it stopped early")
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
