//go:build unix

package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// noLock is a command that speaks as a lock and gives everybody what they ask for.
const noLock = `sed -u 's/.*"id":\([0-9]*\),"op":"acquire".*/{"id":\1,"ok":true,"lease":"\1"}/; t
s/.*"id":\([0-9]*\).*/{"id":\1,"ok":true}/'`

// searchFor is a search whose runs are as short as they can be.
func searchFor(args ...string) []string {
	return append([]string{"chaos", "run", "--fleet", "embedded", "--clients", "3", "--nodes", "1", "--ttl", "200ms"}, args...)
}

func TestASearchPrintsAndWritesTheSmallestScheduleThatIsUnsafe(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	command := strings.ReplaceAll(noLock, "\n", "; ")
	code, stdout, stderr := run(t, searchFor("--search", "20s", "--subject-command", command, "--out", out)...)
	if code != 1 || !strings.Contains(stdout, "UNSAFE: ") || !strings.Contains(stdout, " to 0 faults, unsafe in 5 of 5 more runs:\n  no fault\n") ||
		!strings.Contains(stdout, "cause: ") || !strings.Contains(stderr, "run 1: ") ||
		!regexp.MustCompile(`it is made smaller, in at most 65 more runs: at most some [0-9m]+s\n`).MatchString(stderr) ||
		!regexp.MustCompile(`how often it is unsafe: 5 more runs, some [0-9]+s\n`).MatchString(stderr) {
		t.Fatalf("%d: %s%s", code, stdout, stderr)
	}
	for _, name := range []string{"history.jsonl", "report.json", "report.html"} {
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	schedule, err := os.ReadFile(filepath.Join(out, "schedule.json"))
	if how := " --fleet embedded --nodes 1 --clients 3 --seconds 1 --ttl 200ms --seed 1"; err != nil ||
		!strings.Contains(string(schedule), `"about": "found by redlock chaos run --search 20s --subject-command `) || !strings.Contains(string(schedule), how+`",`) {
		t.Errorf("%v: it does not say how it was found: %s", err, schedule)
	}
	code, stdout, stderr = run(t, "chaos", "run", "--schedule", filepath.Join(out, "schedule.json"), "--fleet", "embedded",
		"--subject-command", command, "--json")
	if r := parseReport(t, []byte(stdout)); code != 1 || r.Verdict != "unsafe" || r.Nodes != 1 || r.Clients != 3 || r.Scenario != "schedule" {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestASearchWithoutAViolationSaysHowCloseItCame(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, searchFor("--search", "3s", "--json")...)
	var r struct {
		Runs, Idle, Unsure, Aborted int
		Closest                     *struct {
			Schedule struct{ Faults []string }
		}
		Found *struct{}
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err, stdout, stderr)
	}
	// On a busy machine it may be that no run shows anything.
	if r.Found != nil || r.Runs == 0 || (code == 0) != (r.Runs > r.Idle+r.Unsure+r.Aborted) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestAnInterruptedSearchSaysWhatItDid(t *testing.T) {
	t.Parallel()
	p := start(t, nil, nil, searchFor("--search", "10m")...)
	eventually(t, "a run", func() bool { return strings.Contains(p.said(), "run 1: ") })
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := p.wait()
	if code != 130 || !strings.Contains(stdout, "no violation: redlock, ") || !strings.Contains(stderr, "interrupted by SIGINT") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestAScheduleOfOnesOwnIsRun(t *testing.T) {
	t.Parallel()
	var often []string // so that one of them is while the lock is held
	for _, at := range []string{"300ms", "400ms", "500ms", "600ms", "700ms", "800ms", "900ms"} {
		often = append(often, at+" flushall(node-1)")
	}
	faults, err := json.Marshal(often)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "my schedule.json")
	text := `{"about": "its only node forgets", "nodes": 1, "clients": 3, "ttl": "500ms", "faults": ` + string(faults) + "}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "chaos", "run", "--schedule", file, "--fleet", "embedded", "--subject", "single", "--json")
	if r := parseReport(t, []byte(stdout)); code != 1 || r.Verdict != "unsafe" || !strings.Contains(r.Replay, "--schedule '"+file+"'") ||
		!strings.Contains(r.Replay, "--nodes 1 --clients 3 --seconds 2.5 --ttl 500ms") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	code, stdout, stderr = run(t, "chaos", "run", "--schedule", file, "--fleet", "embedded", "--nodes", "3", "--json")
	if r := parseReport(t, []byte(stdout)); code != 0 || r.Nodes != 3 || r.Subject != "redlock" {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestARunOfAScheduleSaysHowCloseItCame(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "closest.json")
	if err := os.WriteFile(file, []byte(`{"nodes": 3, "clients": 3, "ttl": "200ms", "faults": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := run(t, "chaos", "run", "--schedule", file, "--fleet", "embedded")
	if strings.Count(stdout, "\nThe closest: ")+strings.Count(stdout, "\nHow close it came is not known: ") != 1 {
		t.Errorf("%s%s", stdout, stderr)
	}
}

func TestAScheduleThatIsNoneIsWrongUsage(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schedule.json")
	for text, want := range map[string]string{
		``:                                       `schedule.json: it is empty; write for example {"faults": ["1s kill(node-1) for 2s"]}`,
		`{"faults": [`:                           "schedule.json: it ends too soon; write for example {",
		"\n\nkill(node-1)":                       "schedule.json: line 3: invalid character 'k' looking for beginning of value; write for example {",
		"{\"faults\": [],\n\"nodes\": \"x\"}":    `schedule.json: line 2: "nodes" takes no string; write for example {`,
		"[1]":                                    "schedule.json: line 1: it is no object; write for example {",
		`{}`:                                     `it has no "faults"; write for example {`,
		`{"faults": []} {}`:                      "more than one object",
		"{\"faults\": [],\n\"fault\": 1}":        `schedule.json: line 2: there is no "fault"; there are about, nodes, clients, ttl, seconds, seed, faults`,
		"{\"faults\": [],\n\n\"ttl\": \"soon\"}": `schedule.json: line 3: "ttl": "soon" is no time; write it as 2s or 500ms`,
		"{\"about\": \"2\",\n\"ttl\": \"2\"}":    `schedule.json: line 2: "ttl": "2" is no time; write it as 2s or 500ms`,
		"{\"faults\": [\n\"1 kill(node-1) for 2s\"]}":                            `line 2: "1 kill(node-1) for 2s": "1" is no time; write when it begins as 1.5s or 500ms`,
		"{\"faults\": [\n\"1s kill(node-1) for 2\"]}":                            `line 2: "1s kill(node-1) for 2": "2" is no time; write how long it lasts as 2s or 500ms`,
		"{\"faults\": [\n\"1s delay(node-1) for 2s\"]}":                          `line 2: "1s delay(node-1) for 2s": fault "delay(node-1)": it needs a duration other than 0; write it as delay(node-1,50ms)`,
		"{\"faults\": [\"1s delay(node-1,5) for 2s\"]}":                          `fault "delay(node-1,5)": a fault has one node; write it as delay(node-1,50ms)`,
		`{"faults": ["1s doom(node-1)"]}`:                                        `there is no "doom"; there are client-clock, `,
		`{"faults": ["1s kill(node-1)"]}`:                                        "say for how long",
		`{"faults": ["1s flushall(node-9)"]}`:                                    `fault 1, 1s flushall(node-9): there is no "node-9"; there are node-1, `,
		`{"faults": ["flushall(node-1)"]}`:                                       "write it as",
		`{"faults": [], "nodes": 99}`:                                            "99 nodes; give 1 to 15",
		`{"faults": ["1s pause(node-1) for 0"]}`:                                 "say for how long",
		`{"faults": [null]}`:                                                     `fault 1, 0s (): there is no ""`,
		`{"faults": [], "ttl": "800s"}`:                                          "a TTL of 13m20s: a run of five TTLs is longer than an hour; give --seconds, or a shorter --ttl",
		`{"faults": ["0s cut(node-1) for 2s", "1s cut-replies(node-1) for 3s"]}`: "1s cut-replies(node-1) for 3s: it overlaps 0s cut(node-1) for 2s",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"chaos", "run", "--fleet", "embedded", "--schedule", file}
		code, stdout, stderr := run(t, args...)
		if code != 64 || !saysWhy(args, stdout, stderr) || !strings.Contains(stderr, want) {
			t.Errorf("%s: %d: %s%s", text, code, stdout, stderr)
		}
	}
	args := []string{"chaos", "run", "--fleet", "embedded", "--schedule", "/nonexistent"}
	if code, stdout, stderr := run(t, args...); code != 2 || !saysWhy(args, stdout, stderr) {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
}

func TestWrongUsageOfASearchIsOneLineAndExits64(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{
		"--search 0", "--search -1s", "--search soon", "--search 1s --scenario flush", "--search 1s --schedule x.json",
		"--schedule x.json --scenario flush", "--search 1s --beside single", "--search 1s --subject doom", "--search 1s --seconds 0",
		"--search 1s --ttl 1ms --json", "--search 1s --ttl 800s",
	} {
		args := append([]string{"chaos", "run", "--fleet", "embedded"}, strings.Fields(flags)...)
		if code, stdout, stderr := run(t, args...); code != 64 || !saysWhy(args, stdout, stderr) {
			t.Errorf("%s: %d: %s%s", flags, code, stdout, stderr)
		}
	}
	out := filepath.Join(t.TempDir(), "out")
	args := []string{"chaos", "run", "--fleet", "embedded", "--search", "1s", "--clients", "2", "--out", out}
	if code, stdout, stderr := run(t, args...); code != 2 || !strings.Contains(stdout+stderr, "its script needs 3") {
		t.Errorf("%d: %s%s", code, stdout, stderr)
	}
	if left, err := os.ReadDir(out); !os.IsNotExist(err) {
		t.Errorf("a folder is left, though nothing was to be written: %v, %v", left, err)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, _ = run(t, args...)
	if _, err := os.Stat(out); err != nil {
		t.Errorf("the folder was there before: %v", err)
	}
}
