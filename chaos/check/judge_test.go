package check

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// A judge that shared code with the subject would share its errors.
func TestTheJudgeImportsOfThisModuleNothingButTheHistory(t *testing.T) {
	const ours = "github.com/quorumlock/redlock"
	for dir, allowed := range map[string]string{".": ours + "/chaos/history", "../history": ""} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			require.NoError(t, err)
			for _, spec := range parsed.Imports {
				if path := strings.Trim(spec.Path.Value, `"`); strings.HasPrefix(path, ours) {
					require.Equal(t, allowed, path, file)
				}
			}
		}
	}
}

func TestWhatIsNoHistoryIsNotJudged(t *testing.T) {
	_, err := Judge([]history.Event{start(), {Kind: history.Granted, Op: 17}})
	require.EqualError(t, err, "history: line 2: granted of op 17, which was never acquired")
	_, err = JudgeReader(strings.NewReader("{"))
	require.EqualError(t, err, "history: line 1: cut off: the line does not end")
}

func start() history.Event {
	return history.Event{Kind: history.Start, Run: &history.Run{Version: 1, TTL: 1}}
}

func TestTheReportHasItsFields(t *testing.T) {
	res, err := Judge([]history.Event{start(), {Kind: history.End}})
	require.NoError(t, err)
	text, err := json.Marshal(res)
	require.NoError(t, err)
	fields := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &fields))
	for _, name := range []string{
		"scenario", "subject", "fleet", "nodes", "clients", "seed", "seconds", "faults", "acquired", "refused", "errors",
		"overlaps", "overlap_millis", "fence_duplicates", "fence_inversions", "lost_updates", "stale_writes_refused",
		"stale_writes_accepted", "orphans", "first_acquire_after_fault_millis", "latency", "verdict", "checks_left_out",
	} {
		require.Contains(t, fields, name)
	}
	require.Equal(t, []any{}, fields["faults"], "an empty list, not null")
	require.Equal(t, []any{}, fields["violations"])
	require.Len(t, fields["checks_left_out"], 1, "nobody held the lock")
	require.Nil(t, fields["first_acquire_after_fault_millis"])
	require.Equal(t, "unsure", fields["verdict"])
	for _, phase := range []string{"before", "during", "after"} {
		latency := fields["latency"].(map[string]any)[phase]
		for _, name := range []string{"p50_micros", "p99_micros", "p999_micros", "max_micros"} {
			require.Contains(t, latency, name)
		}
	}
}

// What grants nothing shows nothing.
func TestALockThatNobodyEverHeldIsUnsure(t *testing.T) {
	acquire := history.Event{Kind: history.Acquire, At: 1, Client: 1, Op: 1, Resource: "r"}
	for why, events := range map[string][]history.Event{
		"no acquire was granted":                          {start(), acquire, {Kind: history.Failed, At: 2, Op: 1}, {Kind: history.End, At: 3}},
		"nobody believed in any of 1 leases for any time": {start(), acquire, {Kind: history.Granted, At: 2, Op: 1}, {Kind: history.Lost, At: 2, Op: 1, Until: 2}, {Kind: history.End, At: 3}},
	} {
		res, err := Judge(events)
		require.NoError(t, err)
		require.Equal(t, Unsure, res.Verdict)
		last := res.LeftOut[len(res.LeftOut)-1]
		require.Equal(t, "everything", last.Check)
		require.Contains(t, last.Reason, why)
	}
}

// Who sees at once that its lease is over holds no lock beside another, and overtakes nobody. The second opinion says the
// same, or Judge fails.
func TestAGrantThatNobodyBelievedInIsNoHolder(t *testing.T) {
	for kind, run := range map[history.LockKind]history.Run{
		history.Mutex: {}, history.Fair: {Lock: history.Fair}, history.Semaphore: {Lock: history.Semaphore, Permits: 1},
	} {
		for until, wrong := range map[int64]int{4: 0, 5: 0, 6: 1} {
			begin := start()
			begin.Run.Nodes, begin.Run.Lock, begin.Run.Permits = []string{"n1"}, run.Lock, run.Permits
			events := []history.Event{
				begin,
				{At: 1, Kind: history.Acquire, Client: 1, Op: 1, Resource: "r"},
				{At: 2, Kind: history.Acquire, Client: 2, Op: 2, Resource: "r"},
				{At: 3, Kind: history.Acquire, Client: 3, Op: 3, Resource: "r"},
				{At: 4, Kind: history.Granted, Op: 1},
				{At: 5, Kind: history.Granted, Op: 3},
				{At: 7, Kind: history.Lost, Op: 3, Until: until},
				{At: 8, Kind: history.Release, Op: 1, Until: 8},
				{At: 9, Kind: history.Granted, Op: 2},
				{At: 10, Kind: history.Release, Op: 2, Until: 10},
				{At: 11, Kind: history.End},
			}
			overtakings := 0
			if kind == history.Fair {
				events = slices.Insert(events, 3, history.Event{At: 2, Kind: history.Queued, Op: 2, Since: 2})
				overtakings = wrong
			}
			res, err := Judge(events)
			require.NoError(t, err, "%q until %d", kind, until)
			require.Equal(t, wrong, res.Overlaps, "%q until %d: %v", kind, until, res.Violations)
			require.Equal(t, overtakings, res.Overtakings, "%q until %d: %v", kind, until, res.Violations)
		}
	}
}

// In a schedule, the lock that the faults are for was never held, and that of the other clients was.
func TestALockThatNobodyHeldInAScheduleIsUnsureAlsoBesideAnother(t *testing.T) {
	for scenario, want := range map[string]Verdict{Planned: Unsure, "partial-views": Safe} {
		begin := start()
		begin.Run.Scenario = scenario
		res, err := Judge([]history.Event{
			begin,
			{At: 1, Kind: history.Acquire, Client: 4, Op: 1, Resource: "chaos/traffic"},
			{At: 2, Kind: history.Granted, Op: 1},
			{At: 3, Kind: history.Release, Op: 1, Until: 3},
			{At: 4, Kind: history.Acquire, Client: 1, Op: 2, Resource: "chaos/lock"},
			{At: 5, Kind: history.Failed, Op: 2, Error: "no quorum"},
			{At: 6, Kind: history.End},
		})
		require.NoError(t, err)
		require.Equal(t, want, res.Verdict, scenario)
		missing := LeftOut{Check: "everything", Resource: "chaos/lock", Reason: "no acquire was granted"}
		require.Equal(t, want == Unsure, slices.Contains(res.LeftOut, missing), "%v", res.LeftOut)
	}
}

// crowd is a history in which n clients believe at the same time, all with the same fencing token.
func crowd(n int) []history.Event {
	events := []history.Event{start()}
	at := int64(0)
	add := func(e history.Event) {
		at++
		e.At = at
		events = append(events, e)
	}
	for op := uint64(1); op <= uint64(n); op++ {
		add(history.Event{Kind: history.Acquire, Client: int(op), Op: op, Resource: "r"})
		add(history.Event{Kind: history.Granted, Op: op, Fence: 1})
	}
	at++ // the first ends after the last has begun
	for op := uint64(1); op <= uint64(n); op++ {
		add(history.Event{Kind: history.Release, Op: op, Until: at})
	}
	add(history.Event{Kind: history.End})
	return events
}

// Half a billion overlaps are counted but not listed.
func TestViolationsAreAllCountedAndSomeListed(t *testing.T) {
	const n = 30_000
	begun := time.Now()
	res, err := Judge(crowd(n))
	require.NoError(t, err)
	t.Logf("%d overlaps in %v", res.Overlaps, time.Since(begun))
	require.Equal(t, n*(n-1)/2, res.Overlaps)
	require.Equal(t, n-1, res.FenceDuplicates)
	require.Equal(t, res.Overlaps+res.FenceDuplicates, res.ViolationsFound)
	require.Len(t, res.Violations, 2*MaxListed)
	last := time.Duration(0)
	for _, v := range res.Violations {
		require.GreaterOrEqual(t, v.At, last, "in the order of time")
		last = v.At
	}
	require.Equal(t, Confirmation{Agreed: 2}, res.Confirmed)
}

func TestASentenceTellsWhoWhenAndWhere(t *testing.T) {
	const ms = int64(time.Millisecond)
	run := &history.Run{Version: 1, TTL: 1000 * ms, Nodes: []string{"n1", "n2", "n3"}}
	owner := func(at int64, node, token string) history.Event {
		return history.Event{At: at * ms, Kind: history.Owner, Resource: "r", Node: node, Token: token}
	}
	res, err := Judge([]history.Event{
		{Kind: history.Start, Run: run},
		{At: 1 * ms, Kind: history.Acquire, Client: 1, Op: 1, Resource: "r"},
		owner(2, "n1", "a"), owner(2, "n2", "a"),
		{At: 3 * ms, Kind: history.Granted, Op: 1, Token: "a"},
		{At: 4 * ms, Kind: history.Acquire, Client: 2, Op: 2, Resource: "r"},
		{At: 5 * ms, Kind: history.Fault, Node: "n2", Fault: "kill", Begin: true},
		owner(6, "n2", "b"), owner(6, "n3", "b"),
		{At: 7 * ms, Kind: history.Granted, Op: 2, Token: "b"},
		{At: 9 * ms, Kind: history.Release, Op: 1, Until: 9 * ms},
		{At: 9 * ms, Kind: history.End},
	})
	require.NoError(t, err)
	require.Equal(t, Unsafe, res.Verdict)
	require.Len(t, res.Violations, 2)
	require.Equal(t, Violation{
		Kind: LateLoss, At: 6 * time.Millisecond, For: 3 * time.Millisecond, Resource: "r",
		Clients: []int{1, 2}, Ops: []uint64{1, 2}, Nodes: []string{"n1", "n2", "n3"},
		Text: `client 1 (op 1) still believed that it held "r" for 3ms after client 2 (op 2) took it at 6ms; ` +
			`at 6ms op 1 was seen on n1 and op 2 was seen on n2, n3`,
		Cause: Cause{Why: KeyLost, Fault: "kill", Node: "n2", Before: 1, Text: "kill n2, 1ms before: the key of client 1 (op 1) was on n2 before it, and not after it"},
	}, res.Violations[0])
	require.Equal(t, Violation{
		Kind: Overlap, At: 7 * time.Millisecond, Resource: "r",
		Clients: []int{1, 2}, Ops: []uint64{1, 2}, Nodes: []string{"n1", "n2", "n3"},
		Text: `client 1 (op 1) and client 2 (op 2) both believed that they held "r" for 0s, from 7ms to 7ms; ` +
			`at 7ms op 1 was seen on n1 and op 2 was seen on n2, n3`,
		Cause: Cause{Why: KeyLost, Fault: "kill", Node: "n2", Before: 2, Text: "kill n2, 2ms before: the key of client 1 (op 1) was on n2 before it, and not after it"},
	}, res.Violations[1], "a belief without length within another's")
}

func TestLatencyIsTheNearestRank(t *testing.T) {
	var took []int64
	for i := int64(1); i <= 1000; i++ {
		took = append(took, (1001-i)*1000)
	}
	require.Equal(t, Latency{Count: 1000, P50: 500, P99: 990, P999: 999, Max: 1000}, latency(took))
	require.Equal(t, Latency{Count: 1, P50: 7, P99: 7, P999: 7, Max: 7}, latency([]int64{7999}))
	require.Equal(t, Latency{Count: 3, P50: 2, P99: 3, P999: 3, Max: 3}, latency([]int64{3000, 1000, 2000}))
}

func TestTheLongestTimeWithoutAFault(t *testing.T) {
	shut := []window{{10, 20}, {30, 30}, {50, never}}
	for _, c := range []struct{ from, to, wantFrom, wantTo int64 }{
		{0, 5, 0, 5},
		{0, 15, 0, 10},
		{12, 18, 12, 12},
		{12, 29, 20, 29},
		{5, 100, 30, 50},
		{60, 100, 60, 60},
		{never, 100, never, never},
	} {
		from, to := longestOpen(c.from, c.to, shut)
		require.Equal(t, []int64{c.wantFrom, c.wantTo}, []int64{from, to}, fmt.Sprint(c))
	}
}

// The largest number of calls that porcupine gets at once is judged in reasonable time, whether right or wrong.
func TestConfirmationsTakeNoMoreThanTheirTime(t *testing.T) {
	for _, wrong := range []bool{false, true} {
		events := []history.Event{start()}
		for op := uint64(1); op <= confirmOps; op++ {
			fence := op
			if wrong && op == confirmOps {
				fence = 1
			}
			events = append(events, history.Event{Kind: history.Acquire, Client: 1, Op: op, Resource: "r"})
			if op%4 == 0 { // four at a time
				for k := op - 3; k <= op; k++ {
					f := k
					if k == op {
						f = fence
					}
					events = append(events, history.Event{Kind: history.Granted, Op: k, Fence: f})
				}
			}
		}
		begun := time.Now()
		res, err := Judge(append(events, history.Event{Kind: history.End}))
		require.NoError(t, err)
		t.Logf("wrong: %t, %v, %+v", wrong, time.Since(begun), res.Confirmed)
		require.Equal(t, Confirmation{Agreed: 2}, res.Confirmed)
		require.Equal(t, wrong, res.Verdict == Unsafe)
	}
}
