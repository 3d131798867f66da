package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/report"
)

const ms = int64(time.Millisecond)

// unsafeRun is a run in which clients 1 and 2 held the lock at the same time, with traffic of the others.
func unsafeRun(t *testing.T, length time.Duration) report.Run {
	t.Helper()
	nodes := []string{"node-1", "node-2", "node-3"}
	var events []history.Event
	add := func(at int64, e history.Event) {
		e.At = at
		events = append(events, e)
	}
	add(0, history.Event{Kind: history.Start, Run: &history.Run{
		Version: history.Version, Scenario: "restart-empty", Subject: "some-lock", Fleet: "embedded", Nodes: nodes, Clients: 4,
		Seed: 7, Seconds: length.Seconds(), TTL: 1000 * ms, Replay: "redlock chaos run --seed 7 --text '</script><b>'",
		Proves: "A node has one vote & not two.", Observed: []string{"none of these"},
	}})
	op := uint64(100)
	traffic := func(from, to int64) {
		for at := from; at+18*ms < to; at += 20 * ms {
			op++
			e := history.Event{Client: 3 + int(op%2), Op: op, Resource: "traffic", Fence: op, Token: fmt.Sprint("t", op)}
			for i, kind := range []history.Kind{history.Acquire, history.Granted, history.Release, history.Freed} {
				e.Kind, e.Until = kind, 0
				if kind == history.Release {
					e.Until = at + 8*ms
				}
				add(at+int64(i)*4*ms, e)
			}
		}
	}
	held := func(kind history.Kind, client int, op uint64) history.Event {
		return history.Event{Kind: kind, Client: client, Op: op, Resource: "lock", Fence: 9, Token: fmt.Sprint("t", op)}
	}
	traffic(0, 1000*ms)
	ends := func(client int, op uint64, until int64) history.Event {
		e := held(history.Release, client, op)
		e.Until = until
		return e
	}
	add(1000*ms, held(history.Acquire, 1, 1))
	add(1010*ms, held(history.Granted, 1, 1))
	add(1012*ms, history.Event{Kind: history.Owner, Node: "node-1", Resource: "lock", Token: "t1"})
	add(1100*ms, history.Event{Kind: history.Fault, Node: "node-1", Fault: "restart-empty"})
	add(1101*ms, history.Event{Kind: history.Fault, Node: "node-2", Client: 2, Fault: "cut", Begin: true})
	add(1110*ms, held(history.Acquire, 2, 2))
	add(1120*ms, held(history.Granted, 2, 2))
	add(1122*ms, history.Event{Kind: history.Owner, Node: "node-1", Resource: "lock", Token: "t2"})
	add(1300*ms, ends(1, 1, 1300*ms))
	add(1310*ms, held(history.Freed, 1, 1))
	add(1400*ms, ends(2, 2, 1400*ms))
	add(1410*ms, held(history.Freed, 2, 2))
	add(1500*ms, history.Event{Kind: history.Fault, Node: "node-2", Client: 2, Fault: "cut"})
	add(1501*ms, history.Event{Kind: history.Fault, Client: 4, Fault: "stop", Begin: true})
	add(1502*ms, held(history.Acquire, 1, 3))
	add(1510*ms, held(history.Refused, 1, 3))
	traffic(1520*ms, int64(length))
	add(max(2000*ms, int64(length)), history.Event{Kind: history.End})
	result, err := check.Judge(events)
	require.NoError(t, err)
	require.Equal(t, check.Unsafe, result.Verdict)
	safe := result
	safe.Subject, safe.Verdict, safe.Violations, safe.ViolationsFound, safe.Overlaps = "other-lock", check.Safe, nil, 0, 0
	return report.Run{Events: events, Result: result, Compare: []check.Result{safe}, Unmet: []string{"it is <quick>"}}
}

func page(t *testing.T, runs ...report.Run) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, report.HTML(&out, runs...))
	return out.String()
}

func TestJSONHasTheNamesThatReadersAreToldOf(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, report.JSON(&out, []report.Run{unsafeRun(t, 2*time.Second)}))
	var object map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &object))
	for _, name := range []string{
		"scenario", "subject", "fleet", "nodes", "clients", "seed", "seconds", "faults", "acquired", "refused", "errors",
		"overlaps", "overlap_millis", "fence_duplicates", "fence_inversions", "lost_updates", "stale_writes_refused",
		"stale_writes_accepted", "orphans", "first_acquire_after_fault_millis", "latency", "verdict", "violations", "unmet", "panics",
		"compare",
	} {
		assert.Contains(t, object, name)
	}
	for _, phase := range []string{"before", "during", "after"} {
		latency := object["latency"].(map[string]any)[phase].(map[string]any)
		for _, name := range []string{"p50_micros", "p99_micros", "max_micros"} {
			assert.Contains(t, latency, name)
		}
	}
	assert.Equal(t, "unsafe", object["verdict"])
	assert.NotContains(t, object, "Events")
}

func TestJSONOfSeveralRunsIsAList(t *testing.T) {
	for _, n := range []int{0, 2} {
		var out bytes.Buffer
		require.NoError(t, report.JSON(&out, make([]report.Run, n)))
		var object struct {
			Runs []map[string]any `json:"runs"`
		}
		require.NoError(t, json.Unmarshal(out.Bytes(), &object))
		require.NotNil(t, object.Runs)
		require.Len(t, object.Runs, n)
		for _, run := range object.Runs {
			for _, list := range []string{"faults", "violations", "unmet", "panics"} {
				assert.Equal(t, []any{}, run[list], "no list may be null")
			}
		}
	}
}

func TestTheTableTellsEveryViolation(t *testing.T) {
	run := unsafeRun(t, 2*time.Second)
	run.Result.Violations[0].Text += "\x1b[2J\nand more"
	var out, coloured bytes.Buffer
	require.NoError(t, report.Table(&out, []report.Run{run}, false))
	require.NoError(t, report.Table(&coloured, []report.Run{run}, true))
	text := out.String()
	assert.NotContains(t, text, "\x1b")
	assert.Regexp(t, `(?m)^restart-empty +some-lock +unsafe `, text)
	assert.Regexp(t, `(?m)^  compared with +other-lock +safe `, text)
	for i, v := range run.Result.Violations {
		assert.Regexp(t, fmt.Sprintf(`(?m)^ +%d\. %.3f s  .*clients \d.*nodes `, i+1, v.At.Seconds()), text)
	}
	cause := "cause: restart-empty node-1, 20ms before: the key of client 1 (op 1) was on node-1 before it, and not after it"
	assert.Contains(t, text, "\n      "+cause+"\n")
	assert.Contains(t, page(t, run), "<p>C"+cause[1:]+"</p>")
	assert.Contains(t, text, "NOT AS EXPECTED: it is <quick>")
	assert.Contains(t, text, "repeat: redlock chaos run --seed 7")
	bare := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(coloured.String(), "")
	assert.Equal(t, text, bare, "colour changes nothing but the colour")
	assert.NotEqual(t, text, coloured.String())
}

func TestTheTableShowsNoNumberBesideSafeThatItDoesNotExplain(t *testing.T) {
	table := func(res check.Result) string {
		res.Scenario, res.Subject = "stopped-holder", "some-lock"
		var out bytes.Buffer
		require.NoError(t, report.Table(&out, []report.Run{{Result: res}}, false))
		return out.String()
	}
	const means = "\nLOST UPD, STALE WRITES without a violation: a client was stopped between its look at its lease and its write."
	assert.Contains(t, table(check.Result{Verdict: check.Safe, LostUpdates: 1}), means)
	assert.Contains(t, table(check.Result{Verdict: check.Safe, StaleWritesAccepted: 1}), means)
	assert.NotContains(t, table(check.Result{Verdict: check.Safe}), means)
	assert.NotContains(t, table(check.Result{Verdict: check.Unsafe, LostUpdates: 1}), means, "a violation tells more")

	orphans := table(check.Result{Verdict: check.Safe, Orphans: 77})
	assert.NotContains(t, orphans, "77", "their TTL ended them")
	assert.Contains(t, table(check.Result{Verdict: check.Unsafe, Orphans: 77, OrphansPast: 66}), " 66 ")
}

func TestAPanicIsShownWithItsStack(t *testing.T) {
	run := report.Run{Panics: []string{"the subject panicked in acquire: <boom>\nmain.lock(...)\n\tlock.go:7\x1b[2J +0x1"}}
	var out bytes.Buffer
	require.NoError(t, report.Table(&out, []report.Run{run}, false))
	assert.Contains(t, out.String(), "PANIC: the subject panicked in acquire: <boom>\n      main.lock(...)\n      lock.go:7 [2J +0x1\n")
	assert.Contains(t, page(t, run), "<strong>Panic:</strong> the subject panicked in acquire: &lt;boom&gt;</p>\n<pre>main.lock(...)\nlock.go:7 [2J &#43;0x1</pre>")
}

func TestWhatWasNotCheckedIsSaidBesideTheVerdict(t *testing.T) {
	run := report.Run{Result: check.Result{
		Scenario: "control", Verdict: check.Safe,
		LeftOut: []check.LeftOut{{Check: "orphans and late losses", Reason: "the keys on the nodes were not observed"}},
	}}
	var table, whole bytes.Buffer
	require.NoError(t, report.Table(&table, []report.Run{run}, false))
	assert.Contains(t, table.String(), "safe*")
	assert.Contains(t, table.String(), "* NOT CHECKED: orphans and late losses: the keys on the nodes were not observed\n")
	require.NoError(t, report.HTML(&whole, run))
	assert.Contains(t, whole.String(), "1 not checked")
	assert.Contains(t, whole.String(), "orphans and late losses: the keys on the nodes were not observed")
}

func TestThePageNeedsNothingBesideItself(t *testing.T) {
	html := page(t, unsafeRun(t, 2*time.Second))
	for _, outside := range []string{"http:", "https:", "@import", "url(", "<link", "src=", "ZgotmplZ"} {
		assert.NotContains(t, strings.ReplaceAll(html, "http://www.w3.org/2000/svg", ""), outside)
	}
	assert.NotContains(t, html, "</script><b>", "what a history says is text")
	assert.Contains(t, html, "&#39;&lt;/script&gt;&lt;b&gt;&#39;")
	assert.Contains(t, html, "it is &lt;quick&gt;")
}

func TestThePageHasALaneForEachAndAMarkForEachViolation(t *testing.T) {
	run := unsafeRun(t, 2*time.Second)
	html := page(t, run)
	for _, lane := range []string{"node-1", "node-2", "node-3", "client-1", "client-2", "client-3", "client-4"} {
		assert.Equal(t, 1, strings.Count(html, `data-lane="`+lane+`"`), lane)
	}
	for i := range run.Result.Violations {
		assert.Contains(t, html, fmt.Sprintf(`id="run-1-mark-%d"`, i+1))
		assert.Contains(t, html, fmt.Sprintf(`href="#run-1-violation-%d"`, i+1))
		assert.Contains(t, html, fmt.Sprintf(`id="run-1-violation-%d"`, i+1))
	}
	for _, text := range []string{
		"A node has one vote &amp; not two.", ">unsafe<", ">7<", "cut client 2", "restart-empty", "never healed", "other-lock",
		"op 1, client 1, lock, fencing token 9", "held 1.010 s to 1.300 s (290 ms)", "the key on node-1 belonged to op 2, client 2",
		`class="wait refused`, "before the faults", `tabindex="0"`, "aria-label",
	} {
		assert.Contains(t, html, text)
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(page(t, run, run), -1) {
		assert.False(t, ids[id[1]], "the id %s is there twice", id[1])
		ids[id[1]] = true
	}
}

// Whoever prints the page on a terminal must not obey the name of a lock.
func TestThePageHasNoControlCharacters(t *testing.T) {
	run := unsafeRun(t, 2*time.Second)
	for i := range run.Events {
		e := &run.Events[i]
		for _, text := range []*string{&e.Resource, &e.Token, &e.Error, &e.Fault} {
			if *text != "" {
				*text += "\x1b[2J\u009b2J\u202e"
			}
		}
	}
	result, err := check.Judge(run.Events)
	require.NoError(t, err)
	run.Result = result
	text := page(t, run)
	require.Contains(t, text, "lock [2J")
	for _, r := range []string{"\x1b", "\u009b", "\u202e"} {
		require.NotContains(t, text, r)
	}
}

func TestThePageOfNothingCanBeRead(t *testing.T) {
	assert.Contains(t, page(t), "no runs")
	assert.Contains(t, page(t, report.Run{}), "There was no history")
	run := unsafeRun(t, 2*time.Second)
	run.Events = nil
	html := page(t, run)
	assert.Contains(t, html, `data-lane="node-2"`)
	assert.Contains(t, html, `id="run-1-mark-1"`)
}

func TestALongRunMakesNoLongPage(t *testing.T) {
	short, long := unsafeRun(t, 2*time.Second), unsafeRun(t, 30*time.Minute)
	html := page(t, long)
	assert.Less(t, strings.Count(html, "<rect"), 9000)
	assert.Less(t, len(html), 3<<20)
	assert.Contains(t, html, `class="block"`)
	assert.NotContains(t, page(t, short), `class="block"`)
	for _, kept := range []string{"op 1, client 1", "op 2, client 2"} {
		assert.Contains(t, html, kept, "what is part of a violation is drawn by itself")
	}
	assert.Contains(t, html, "op 149, client 4", "and what was next to a fault")
}

func TestManyViolationsAreAllListedAndShareTheirMarks(t *testing.T) {
	run := report.Run{Result: check.Result{Seconds: 10, Nodes: 1, Clients: 2, Verdict: check.Unsafe, ViolationsFound: 400}}
	for i := range 300 {
		run.Result.Violations = append(run.Result.Violations, check.Violation{
			Kind: check.Overlap, At: time.Second + time.Duration(i)*time.Millisecond, For: time.Millisecond, Clients: []int{1, 2},
		})
	}
	html := page(t, run)
	assert.Equal(t, 300, strings.Count(html, `<li id="run-1-violation-`))
	assert.Less(t, strings.Count(html, `class="mark"`), 20)
	assert.Regexp(t, `text-anchor="middle">\d+&#43;\d+<`, html, "a mark says how many others it stands for")
	assert.Contains(t, html, "100 more were counted")
}
