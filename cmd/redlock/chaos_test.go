//go:build unix

package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestChaosListNamesScenariosAndSubjects(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "list")
	if code != 0 || !strings.Contains(stdout, "restart-empty") || !strings.Contains(stdout, "plain-redlock") {
		t.Fatalf("%d\n%s%s", code, stdout, stderr)
	}
	code, stdout, _ = run(t, "chaos", "list", "--json")
	var list struct {
		Scenarios []struct {
			Name, Proves, Costs string
			Fails, Fleets       []string
		}
		Subjects []struct{ Name, About, Lock string }
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != 0 {
		t.Fatalf("%d %v: %s", code, err, stdout)
	}
	if len(list.Scenarios) < 13 || len(list.Subjects) < 7 {
		t.Fatalf("%d scenarios, %d subjects", len(list.Scenarios), len(list.Subjects))
	}
	for _, s := range list.Subjects {
		if s.Name == "redlock-rw" && (s.Lock != "read-write" || s.About == "") {
			t.Errorf("%+v", s)
		}
	}
	for _, s := range list.Scenarios {
		if s.Name == "failover" && (strings.Join(s.Fleets, " ") != "process docker" || len(s.Fails) == 0 || s.Proves == "" || s.Costs == "") {
			t.Errorf("%+v", s)
		}
	}
}

// report is the part of report.json that the tests read.
type report struct {
	Scenario, Subject, Fleet, Verdict string
	Nodes, Clients, Acquired          int
	Seed                              uint64
	Overlaps                          *int
	Latency                           map[string]map[string]float64
	Replay                            string
	Error, Kind                       string
	Compare                           []report
	Runs                              []report
	LeftOut                           []struct{ Scenario, Why string } `json:"left_out"`
}

func parseReport(t *testing.T, text []byte) (r report) {
	t.Helper()
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

func TestChaosRunOfASafeLockExitsZeroAndWritesItsFiles(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "flush",
		"--seconds", "1", "--ttl", "2s", "--clients", "4", "--seed", "3", "--out", out, "--json")
	if code != 0 {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	r := parseReport(t, []byte(stdout))
	if r.Scenario != "flush" || r.Subject != "redlock" || r.Fleet != "embedded" || r.Verdict != "safe" || r.Nodes != 5 ||
		r.Clients != 4 || r.Seed != 3 || r.Acquired == 0 || r.Overlaps == nil || *r.Overlaps != 0 || r.Latency["before"]["p99_micros"] == 0 {
		t.Errorf("%+v", r)
	}
	if len(r.Compare) != 1 || r.Compare[0].Subject != "plain-redlock" || r.Compare[0].Verdict != "unsafe" {
		t.Errorf("the zero stands beside %+v", r.Compare)
	}
	if !strings.Contains(stderr, "flushall(node-1)") || !strings.Contains(r.Replay, "--seed 3") {
		t.Errorf("%s\n%s", stderr, r.Replay)
	}
	written, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if again := parseReport(t, written); again.Acquired != r.Acquired {
		t.Errorf("report.json has %+v", again)
	}
	history := filepath.Join(out, "history.jsonl")
	if code, stdout, stderr := run(t, "chaos", "check", history); code != 0 {
		t.Errorf("check: %d: %s%s", code, stdout, stderr)
	}
	recorded, err := os.ReadFile(history)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "--json", "-"}, {"report", "--json", "-"}} {
		code, stdout, stderr := start(t, bytes.NewReader(recorded), nil, append([]string{"chaos"}, args...)...).wait()
		if code != 0 || parseReport(t, []byte(stdout)).Acquired != r.Acquired {
			t.Errorf("%v: %d: %s%s", args, code, stdout, stderr)
		}
	}
	code, _, stderr = start(t, strings.NewReader("no history\n"), nil, "chaos", "check", "-").wait()
	if code != 2 || !strings.Contains(stderr, "redlock: standard input: ") {
		t.Errorf("%d: %s", code, stderr)
	}
	for _, page := range []string{filepath.Join(out, "report.html"), filepath.Join(out, "again.html")} {
		if strings.HasSuffix(page, "again.html") {
			code, stdout, stderr := run(t, "chaos", "report", history, "-o", page, "--json")
			if code != 0 {
				t.Errorf("report: %d: %s%s", code, stdout, stderr)
			}
			if again := parseReport(t, []byte(stdout)); again.Acquired != r.Acquired || again.Verdict != "safe" {
				t.Errorf("report --json: %s", stdout)
			}
		}
		if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "<html") {
			t.Errorf("%s: %v", page, err)
		}
	}
}

func TestChaosRunOfASemaphoreIsComparedWithOneThatIsUnsafe(t *testing.T) {
	t.Parallel()
	type result struct {
		Subject, Lock, Verdict string
		Permits                int
		Violations             []struct{ Text string }
	}
	var r struct {
		result
		Compare []result
	}
	out := filepath.Join(t.TempDir(), "out")
	for tries := 1; ; tries++ { // a busy machine may be too slow for the other's short timeouts
		code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "partial-views",
			"--subject", "redlock-semaphore", "--seconds", "1", "--ttl", "2s", "--clients", "4", "--out", out, "--json")
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%v: %s%s", err, stdout, stderr)
		}
		if code != 0 || r.Lock != "semaphore" || r.Permits != 2 || r.Verdict != "safe" || len(r.Compare) != 1 {
			t.Fatalf("%d: %s%s", code, stdout, stderr)
		}
		if r.Compare[0].Verdict == "unsafe" || tries == 5 {
			break
		}
	}
	other := r.Compare[0]
	if other.Subject != "majority-semaphore" || other.Verdict != "unsafe" ||
		!strings.Contains(other.Violations[0].Text, "3 permits of 2") {
		t.Errorf("the zero stands beside %+v", other)
	}
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	if err != nil || !strings.Contains(string(page), "semaphore, 2 permits") {
		t.Errorf("the page does not say what kind of lock it is: %v", err)
	}
}

func TestTheChaosMatrixIsATableOrJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "matrix", "--fleet", "embedded", "--scenario", "client-clock")
	if code != 0 || strings.Count(stdout, "\n") != 4 || !strings.Contains(stdout, "| client-clock | getset | **unsafe** |") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "chaos", "matrix", "--fleet", "embedded", "--scenario", "client-clock,failover", "--json")
	r := parseReport(t, []byte(stdout))
	if code != 0 || len(r.Runs) != 2 || r.Runs[0].Subject != "redlock" || r.Runs[1].Verdict != "unsafe" || len(r.LeftOut) == 0 ||
		!strings.Contains(stdout, `"expected":true`) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestAMatrixInWhichNothingRanIsOneObjectOfJSON(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, "chaos", "matrix", "--fleet", "embedded", "--scenario", "failover", "--json")
	var r struct {
		Expected    bool
		Error, Kind string
		LeftOut     []struct{ Scenario string } `json:"left_out"`
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err, stdout)
	}
	if code != 2 || r.Expected || !strings.Contains(r.Error, "no scenario can be done") || r.Kind == "" || len(r.LeftOut) == 0 {
		t.Errorf("%d: %s", code, stdout)
	}
}

// What was aborted, or panicked, is no safe lock for those who judge its history later.
func TestCheckOfAnAbortedRunIsNotSafe(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]int{
		`"kind":"note","text":"a note"`:                                                         0,
		`"kind":"note","text":"the scenario was aborted: no lock","error":"no lock"`:            2,
		`"kind":"note","client":1,"text":"the subject panicked: boom","error":"panicked: boom"`: 1,
	} {
		file := filepath.Join(t.TempDir(), "history.jsonl")
		text := `{"at":0,"kind":"start","run":{"version":1,"scenario":"flush","subject":"made by hand","nodes":["n1"],"ttl":1000000000}}` +
			"\n" + `{"at":1,"kind":"acquire","client":1,"op":1,"resource":"x"}` +
			"\n" + `{"at":2,"kind":"granted","client":1,"op":1,"resource":"x"}` +
			"\n" + `{"at":3,"kind":"release","client":1,"op":1,"resource":"x","until":3}` +
			"\n" + `{"at":4,"kind":"freed","client":1,"op":1,"resource":"x"}` +
			"\n{\"at\":5," + note + "}\n" + `{"at":6,"kind":"end"}` + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, "chaos", "check", file)
		if code != want || strings.Contains(stdout, "unsure") != (want > 0) {
			t.Errorf("%s: %d: %s%s", note, code, stdout, stderr)
		}
	}
}

func TestChaosRunOfAnUnsafeLockExitsOneAndSaysWhatHappened(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "flush,client-clock", "--subject", "get-del",
		"--seconds", "1", "--ttl", "2s", "--clients", "3", "--beside", "none", "--out", out)
	if code != 1 || !strings.Contains(stdout, "unsafe") || !strings.Contains(stdout, "both believed") || strings.Contains(stderr, "both believed") ||
		!regexp.MustCompile(`(?m)^  unsafe, [0-9]+ violations?: more at the end$`).MatchString(stderr) {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	written, err := os.ReadFile(filepath.Join(out, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if r := parseReport(t, written); len(r.Runs) != 2 || r.Runs[0].Verdict != "unsafe" || r.Runs[1].Verdict != "safe" {
		t.Errorf("%+v", r)
	}
	if code, stdout, _ := run(t, "chaos", "check", "--json", filepath.Join(out, "flush", "history.jsonl")); code != 1 || !strings.Contains(stdout, `"violations"`) {
		t.Errorf("check: %d: %s", code, stdout)
	}
}

func TestAFleetThatCannotDoAScenarioLeavesItOutByName(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "failover", "--json")
	r := parseReport(t, []byte(stdout))
	if code != 2 || r.Runs == nil || len(r.LeftOut) != 1 || r.LeftOut[0].Scenario != "failover" || !strings.Contains(stderr, "--fleet process") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if r.Error != r.LeftOut[0].Why || r.Kind != "failed" {
		t.Errorf("nothing was run: %s", stdout)
	}
}

func TestAScenarioThatWasLeftOutHasNoHistory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ scenarios, file string }{
		{"failover", "history.jsonl"},                  // alone
		{"failover,control", "failover/history.jsonl"}, // beside one that runs
	} {
		out := t.TempDir()
		stale := filepath.Join(out, filepath.FromSlash(c.file)) // of an earlier run, on another fleet
		if err := errors.Join(os.MkdirAll(filepath.Dir(stale), 0o755), os.WriteFile(stale, []byte("{}\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", c.scenarios, "--seconds", "1", "--clients", "2",
			"--beside", "none", "--out", out)
		if code != 2 || !strings.Contains(stdout+stderr, "--fleet process") {
			t.Errorf("%d: %s%s", code, stdout, stderr)
		}
		var files []string
		err := filepath.WalkDir(out, func(path string, d fs.DirEntry, err error) error {
			if path != out {
				files = append(files, filepath.ToSlash(strings.TrimPrefix(path, out+string(filepath.Separator))))
			}
			return err
		})
		want := []string{"report.html", "report.json"}
		if c.scenarios != "failover" {
			want = append([]string{"control", "control/history.jsonl"}, want...)
		}
		if err != nil || !slices.Equal(files, want) {
			t.Errorf("%s: %v: %v", c.scenarios, err, files)
		}
		written, err := os.ReadFile(filepath.Join(out, "report.json"))
		if err != nil {
			t.Fatal(err)
		}
		if r := parseReport(t, written); len(r.LeftOut) != 1 || r.LeftOut[0].Scenario != "failover" {
			t.Errorf("%s: %s", c.scenarios, written)
		}
	}
}

func TestAScenarioThatHurtsNothingOnSoFewNodesIsNotRun(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "partial-views", "--nodes", "2", "--beside", "none")
	if code != 2 || stdout != "" || !strings.Contains(stderr, "2 nodes are too few; give --nodes 3 or more") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestWhyNothingRanIsSaidOnce(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "failover")
	if code != 2 || stdout != "" || strings.Count(stderr, "--fleet process") != 1 {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "failover,control", "--seconds", "1", "--clients", "2", "--beside", "none")
	if all := stdout + stderr; code != 2 || strings.Count(all, "--fleet process") != strings.Count(stdout, "LEFT OUT ") || strings.Contains(all, "no runs") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestAScenarioThatWasNamedAndCannotRunExitsTwoAlsoBesideOthers(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "chaos", "run", "--fleet", "embedded", "--scenario", "control,failover", "--seconds", "1",
		"--clients", "2", "--beside", "none", "--json")
	r := parseReport(t, []byte(stdout))
	if code != 2 || len(r.Runs) != 1 || r.Runs[0].Verdict != "safe" || len(r.LeftOut) != 1 || r.LeftOut[0].Scenario != "failover" {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if r.Error != "not run: failover" {
		t.Errorf("it says why: %q", r.Error)
	}
}

func TestAHistoryThatCannotBeJudgedToItsEndIsNotSafeWithoutAWord(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	at := 0
	line := func(format string, args ...any) {
		fmt.Fprintf(&lines, `{"at":%d,`+format+"}\n", append([]any{at}, args...)...)
		at++
	}
	line(`"kind":"start","run":{"version":1,"scenario":"crowd","subject":"made by hand","nodes":["n1"],"ttl":1000000000}`)
	const crowd = 70 // concurrent reads
	for op := 1; op <= crowd; op++ {
		line(`"kind":"acquire","client":%d,"op":%d,"resource":"stock"`, op, op)
		line(`"kind":"granted","client":%d,"op":%d`, op, op)
		line(`"kind":"release","client":%d,"op":%d,"until":%d`, op, op, at)
	}
	for op := 1; op <= crowd; op++ {
		line(`"kind":"read","client":%d,"op":%d,"resource":"stock","value":0`, op, op)
	}
	line(`"kind":"end"`)
	file := filepath.Join(t.TempDir(), "history.jsonl")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "chaos", "check", file)
	if code != 2 || !strings.Contains(stdout, "unsure*") || !strings.Contains(stdout, `NOT CHECKED: unfenced register of "stock": lines`) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "chaos", "check", "--json", file)
	var r struct {
		Verdict string
		LeftOut []struct{ Check, Resource, Reason string } `json:"checks_left_out"`
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if code != 2 || r.Verdict != "unsure" || len(r.LeftOut) == 0 || r.LeftOut[0].Resource != "stock" || r.LeftOut[0].Reason == "" {
		t.Errorf("%d: %+v %s", code, r, stderr)
	}
}

func TestWhatChaosCannotRunExitsTwo(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "/nonexistent"},
		{"check", "chaos_test.go"},
		{"report", "/nonexistent", "-o", "/nonexistent.html"},
		{"report", "/nonexistent", "--json"},
	} {
		code, stdout, stderr := run(t, append([]string{"chaos"}, args...)...)
		if code != 2 || !saysWhy(args, stdout, stderr) {
			t.Errorf("%v: %d: %s%s", args, code, stdout, stderr)
		}
	}
}

func TestWrongUsageOfChaosIsOneLineAndExits64(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", "--scenario", "doom"},
		{"run", "--subject", "doom"},
		{"run", "--beside", "doom"},
		{"run", "--fleet", "armada"},
		{"run", "--fleet", "armada", "--json"},
		{"run", "--fleet", "embedded", "--image", "redis:7"},
		{"run", "--seconds", "0"},
		{"run", "--seconds", "NaN"},
		{"run", "--nodes", "0"},
		{"run", "--clients", "0"},
		{"run", "--ttl", "0"},
		{"run", "--seed", "0"},
		{"run", "--nodes", "99"},
		{"run", "--clients", "-1"},
		{"run", "--ttl", "1ms"},
		{"run", "--doom"},
		{"run", "now"},
		{"matrix", "--fleet", "armada"},
		{"matrix", "now"},
		{"scoreboard", "now"},
		{"scoreboard", "--subject", "doom"},
		{"scoreboard", "--seeds", "0", "--json"},
		{"scoreboard", "--seeds", "few"},
		{"scoreboard", "--resume", "chaos_test.go"},
		{"list", "--doom"},
		{"check"},
		{"report", "chaos_test.go"},
		{"doom"},
	} {
		code, stdout, stderr := run(t, append([]string{"chaos"}, args...)...)
		if code != 64 || !saysWhy(args, stdout, stderr) {
			t.Errorf("%v: %d: %s%s", args, code, stdout, stderr)
		}
	}
}

// saysWhy reports whether a failure is explained in one line: on standard error, or with --json as an object on
// standard output.
func saysWhy(args []string, stdout, stderr string) bool {
	if !slices.Contains(args, "--json") {
		return stdout == "" && strings.Count(stderr, "\n") == 1
	}
	var failure struct{ Error, Kind string }
	return stderr == "" && strings.Count(stdout, "\n") == 1 && json.Unmarshal([]byte(stdout), &failure) == nil && failure.Error != "" && failure.Kind != ""
}

func TestAnInterruptedChaosRunLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		temporary := t.TempDir()
		p := start(t, nil, []string{"TMPDIR=" + temporary}, "chaos", "run", "--scenario", "stopped-holder", "--seconds", "60", "--ttl", "30s")
		eventually(t, "a fault", func() bool { return strings.Contains(p.said(), "start of") })
		time.Sleep(200 * time.Millisecond) // anywhere between the start of the servers and the first fault
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := p.wait(); code != want {
			t.Errorf("%d, not %d: %s%s", code, want, stdout, stderr)
		}
		left, err := os.ReadDir(temporary)
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// Who reads what chaos says may end (| head). That would end the process in the middle, and leave its servers' files and,
// with containers, the servers.
func TestAChaosRunThatNobodyReadsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	fleettest.Require(t, fleet.Process)
	temporary := t.TempDir()
	code, stdout, stderr := shell(t, `"$0" "$@" 2>&1 >/dev/null | head -n 3; exit ${PIPESTATUS[0]}`, []string{"TMPDIR=" + temporary},
		"chaos", "run", "--scenario", "rolling-restart", "--beside", "none", "--seconds", "20")
	if code != 128+int(syscall.SIGPIPE) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAnInterruptedMatrixSaysSo(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		p := start(t, nil, nil, "chaos", "matrix", "--fleet", "embedded", "--json")
		eventually(t, "the first run", func() bool { return strings.Contains(p.said(), "[1/") })
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if code, stdout, stderr := p.wait(); code != want || stdout != `{"error":"interrupted by `+signalName(sig)+`","kind":"interrupted"}`+"\n" {
			t.Errorf("%d, not %d: %s%s", code, want, stdout, stderr)
		}
	}
}

// A script reads standard output as one document.
func TestAReportThatCannotBeWrittenIsPartOfTheOneLineOfJSON(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"report.html":  {"--scenario", "control", "--beside", "none", "--seconds", "1", "--clients", "2"},
		"closest.json": {"--search", "3s", "--subject", "single", "--clients", "3"},
	} {
		out := t.TempDir()
		for _, file := range []string{name, "schedule.json"} { // where the file should be
			if err := os.Mkdir(filepath.Join(out, file), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		args := append([]string{"chaos", "run", "--fleet", "embedded", "--nodes", "3", "--json", "--out", out}, flags...)
		code, stdout, stderr := run(t, args...)
		var r struct{ Error, Kind string }
		if err := json.Unmarshal([]byte(stdout), &r); err != nil {
			t.Fatalf("%v: %s", err, stdout)
		}
		if code == 0 && name == "closest.json" {
			continue // no lease ended by itself, so there was nothing to write
		}
		if code != 2 || !strings.Contains(r.Error, "is a directory") || r.Kind != "failed" {
			t.Errorf("%s: %d: %s%s", name, code, stdout, stderr)
		}
	}
}
