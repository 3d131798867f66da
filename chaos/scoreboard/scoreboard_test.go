package scoreboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/chaos"
	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A planted lock says of itself what is wrong with it.
type planted struct {
	name    string
	open    error // of Open
	refuses bool  // nobody gets it, once the run has begun; otherwise everybody does
	opened  *atomic.Int64
}

func (p planted) Name() string { return p.name }

func (p planted) Open(context.Context, subject.Options) (subject.Client, error) {
	if p.opened != nil {
		p.opened.Add(1)
	}
	return p, p.open
}

func (p planted) Acquire(_ context.Context, name string) (subject.Lease, error) {
	if p.refuses && !strings.Contains(name, "warm") {
		return nil, subject.ErrRefused
	}
	return plantedLease{}, nil
}

func (planted) Close() error { return nil }

type plantedLease struct{}

func (plantedLease) Valid() bool                   { return true }
func (plantedLease) Lost() <-chan struct{}         { return nil }
func (plantedLease) Fence() uint64                 { return 0 }
func (plantedLease) Token() string                 { return "" }
func (plantedLease) Release(context.Context) error { return nil }

func replayOf(_ Settings, t Trial) string { return "again " + t.Scenario.Name + " " + t.Subject.Name() }

// command parses the flags of a scoreboard with these subjects.
func command(t *testing.T, args string, known ...subject.Subject) *Command {
	c := &Command{Known: known, Default: "all", Replay: replayOf}
	f := flag.NewFlagSet("", flag.ContinueOnError)
	c.Flags(f)
	require.NoError(t, f.Parse(append([]string{"--fleet", "embedded"}, strings.Fields(args)...)))
	return c
}

func TestEverySubjectIsJudgedAlikeAndWhatDidNotRunIsSaid(t *testing.T) {
	dir := t.TempDir()
	page, histories := filepath.Join(dir, "board.md"), filepath.Join(dir, "histories")
	c := command(t, "--scenario control,failover --seeds 1 --out "+page+" --histories "+histories,
		subject.Redlock{}, planted{name: "for|all"}, planted{name: "for-none", refuses: true}, planted{name: "broken", open: errors.New("no key")})
	var out, log bytes.Buffer
	b, err := c.Run(t.Context(), &out, &log)
	require.NoError(t, err)
	require.False(t, b.Whole, "broken failed")
	require.Equal(t, 1, c.Code(b))

	text := func(scenario, subject string) string { return b.cell(scenario, subject).Text }
	require.Equal(t, "safe", text("control", "redlock"), log.String())
	require.Regexp(t, `^unsafe 1/1: overlap \([\d.]+ ms\)$`, text("control", "for|all"))
	require.Equal(t, "unsure 1/1", text("control", "for-none"))
	require.Equal(t, "not run", text("control", "broken"))
	for _, s := range b.Subjects {
		require.Equal(t, "not run", text("failover", s.Name))
	}
	require.Contains(t, out.String(), "not run: control with broken: broken: open of client 1: no key")
	require.Contains(t, out.String(), "NOT WHOLE")
	require.Contains(t, out.String(), "not run: failover with all subjects: it cannot run here: embedded nodes have no replicas")
	require.Contains(t, out.String(), "unsure: control with for-none: nobody got the lock")
	require.Contains(t, log.String(), "[8/8] failover: broken, seed 1 (about ")

	var markdown bytes.Buffer
	require.NoError(t, b.Markdown(&markdown))
	require.Contains(t, markdown.String(), "| scenario | what happens | `redlock` | `for\\|all` | `for-none` | `broken` |\n")
	require.Regexp(t, "\\| `control` \\| no fault \\| safe \\| \\*\\*unsafe\\*\\* 1/1: overlap \\([\\d.]+ ms\\) \\| \\*\\*unsure\\*\\* 1/1 \\| not run \\|\n", markdown.String())
	require.Contains(t, markdown.String(), "\nagain control for|all\nagain control for-none\n```\n")
	written, err := filepath.Glob(filepath.Join(histories, "*.jsonl"))
	require.NoError(t, err)
	require.Len(t, written, 2)
	require.FileExists(t, page)
}

// It is broken off after the first run, and goes on with the second.
func TestABoardThatWasBrokenOffGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "board.json")
	var opened atomic.Int64
	subjects := []subject.Subject{planted{name: "everybodys", opened: &opened}}
	broken := errors.New("a signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	log := writerFunc(func(p []byte) (int, error) {
		if bytes.HasPrefix(p, []byte("[2/2]")) {
			cancel(broken)
		}
		return len(p), nil
	})
	const flags = "--scenario control --seeds 2 --resume "
	var out bytes.Buffer
	b, err := command(t, flags+file, subjects...).Run(ctx, &out, log)
	require.ErrorIs(t, err, broken)
	require.False(t, b.Whole)
	require.Regexp(t, `unsafe 1/2: overlap \([\d.]+ ms\), 1 to come\n`, out.String())
	require.Contains(t, out.String(), "NOT WHOLE")

	out.Reset()
	b, err = command(t, "--json "+flags+file, subjects...).Run(ctx, &out, io.Discard)
	require.ErrorIs(t, err, broken)
	var object struct {
		Board
		Error, Kind string
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &object))
	require.Equal(t, b.Cells, object.Cells)
	require.Equal(t, []any{false, "a signal", "interrupted"}, []any{object.Whole, object.Error, object.Kind})

	before := opened.Load()
	out.Reset()
	b, err = command(t, flags+file, subjects...).Run(t.Context(), &out, log)
	require.NoError(t, err)
	require.True(t, b.Whole)
	require.Equal(t, before+theClients, opened.Load(), "only the second seed ran")
	require.Regexp(t, `unsafe 2/2: overlap \([\d.]+ ms\)\n`, out.String())
	kept, err := Read(file)
	require.NoError(t, err)
	require.Equal(t, b, kept)
	require.Equal(t, []Run{b.Cells[0].Runs[0]}, object.Cells[0].Runs)

	for _, other := range []string{"--scenario flush --seeds 2", "--scenario control --seeds 3", "--scenario control --seeds 2 --seconds 2"} {
		_, err = command(t, other+" --resume "+file, subjects...).Run(t.Context(), io.Discard, io.Discard)
		require.ErrorAs(t, err, new(UsageError), other)
	}
}

// The folder of the histories is gone when the second run ends.
func TestWhatRanIsPrintedAlsoIfItCannotBeKept(t *testing.T) {
	for _, asJSON := range []string{"", "--json "} {
		histories := filepath.Join(t.TempDir(), "histories")
		log := writerFunc(func(p []byte) (int, error) {
			if bytes.HasPrefix(p, []byte("[2/2]")) {
				_ = os.RemoveAll(histories)
			}
			return len(p), nil
		})
		var out bytes.Buffer
		c := command(t, asJSON+"--scenario control --seeds 2 --histories "+histories, planted{name: "everybodys"})
		b, err := c.Run(t.Context(), &out, log)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NotNil(t, b)
		require.Contains(t, out.String(), "unsafe 2/2: overlap")
		if asJSON != "" {
			require.Contains(t, out.String(), `,"kind":"failed"}`)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestACellSaysHowManyRunsWereNotSafe(t *testing.T) {
	safe, unsure, failed := Run{Verdict: check.Safe}, Run{Verdict: check.Unsure}, Run{}
	starred := Run{Verdict: check.Safe, NotChecked: []check.LeftOut{{Check: "validity"}}}
	orphan := Run{Verdict: check.Unsafe, Violations: []check.ViolationKind{check.Orphan}}
	overlap := Run{Verdict: check.Unsafe, Violations: []check.ViolationKind{check.Overlap, check.Orphan}}
	short := Run{Verdict: check.Unsafe, Violations: []check.ViolationKind{check.Overlap}, Longest: 0.0547}
	long := Run{Verdict: check.Unsafe, Violations: []check.ViolationKind{check.Overlap}, Longest: 503.5985}
	late := Run{Verdict: check.Unsafe, Violations: []check.ViolationKind{check.LateLoss}}
	for want, runs := range map[string][]Run{
		"–":                                  nil,
		"safe":                               {safe, safe, safe},
		"safe*":                              {safe, starred, safe},
		"safe, 1 to come":                    {safe, safe},
		"unsafe 2/3: overlap":                {orphan, safe, overlap},
		"unsafe 2/3: late loss, not run 1/3": {orphan, late, failed},
		"unsafe 1/3: late loss, unsure 1/3":  {late, unsure, starred},
		"unsafe 1/3: overlap, 2 to come":     {overlap},
		"unsure 1/3, not run 1/3, 1 to come": {unsure, failed},
		"unsafe 3/3: overlap (504 ms)":       {short, long, short},
		"unsafe 1/3: overlap (0.055 ms)":     {short, safe, safe},
		"unsure 3/3":                         {unsure, unsure, unsure},
		"not run":                            {failed, failed, failed},
		"not run 1/3":                        {failed, safe, safe},
		"unsafe 1/3: late loss, not run 2/3": {late, failed, failed},
	} {
		c := Cell{Runs: runs}
		assert.Equal(t, want, c.text(3))
	}
}

func TestAViolationBesideAnErrorCounts(t *testing.T) {
	failed := errors.New("control: the fleet did not close")
	o := &chaos.Outcome{}
	o.Verdict, o.Violations = check.Unsafe, []check.Violation{{Kind: check.Overlap, Text: "two"}}
	r := runOf(1, o, failed, "again")
	require.Equal(t, "unsafe 1/1: overlap", (&Cell{Runs: []Run{r}}).text(1))
	require.Equal(t, "two", r.Why)
	o.Verdict, o.Violations = check.Safe, nil
	require.Equal(t, Run{Seed: 1, Why: failed.Error(), Replay: "again"}, runOf(1, o, failed, "again"))
}

func TestTheCodeIsThatOfTheWorstRun(t *testing.T) {
	named, every := &Command{scenarios: "control"}, &Command{scenarios: all}
	board := func(runs ...Run) *Board { return &Board{Cells: []Cell{{Runs: runs}}} }
	safe, unsafe, unable := Run{Verdict: check.Safe}, Run{Verdict: check.Unsafe}, Run{Unable: true}
	require.Equal(t, 0, named.Code(board(safe)))
	require.Equal(t, 2, named.Code(board(safe, unable)))
	require.Equal(t, 0, every.Code(board(safe, unable)), "left out, as in redlock chaos run")
	require.Equal(t, 2, every.Code(board(safe, Run{})))
	require.Equal(t, 2, every.Code(board(safe, Run{Verdict: check.Unsure})))
	require.Equal(t, 1, every.Code(board(Run{}, unsafe)))
}

func TestWrongFlagsAreToldBeforeAnythingStarts(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.json")
	require.NoError(t, os.WriteFile(other, []byte("{}"), 0o600))
	for args, want := range map[string]string{
		"--scenario doom":   `there is no scenario "doom"`,
		"--subject doom":    `there is no subject "doom"; there are redlock`,
		"--seeds 0":         "--seeds 0: give 1 to",
		"--seed 0":          "--seed 0: give 1 to",
		"--seconds 0":       "--seconds 0: give 1 to",
		"--seconds NaN":     "--seconds NaN: give 1 to",
		"--fleet armada":    "armada",
		"--resume " + other: "no scoreboard",
		"--resume .":        "it is no file",
		"--resume doc.go/x": "not a directory",
	} {
		_, err := command(t, args, subject.Redlock{}).Run(t.Context(), io.Discard, io.Discard)
		require.ErrorAs(t, err, new(UsageError), args)
		require.ErrorContains(t, err, want)
	}
	for _, out := range []string{other, filepath.Dir(other) + "/./other.json"} {
		_, err := command(t, "--resume "+other+" --out "+out, subject.Redlock{}).Run(t.Context(), io.Discard, io.Discard)
		require.ErrorAs(t, err, new(UsageError))
		require.ErrorContains(t, err, "name two files")
	}
	require.NoFileExists(t, other+".lock")
}

func TestEveryScenarioHasAFewWordsForItsRow(t *testing.T) {
	said := map[string]bool{}
	for _, s := range scenario.All() {
		require.NotEmpty(t, s.Short, s.Name)
		require.LessOrEqual(t, len(s.Short), 52, s.Name)
		require.False(t, said[s.Short], s.Name)
		said[s.Short] = true
	}
}

func TestTheTimeLeftIsThatOfTheScenariosThatAreLeft(t *testing.T) {
	trial := func(name string) Trial { return Trial{Scenario: scenario.Scenario{Name: name}} }
	var p pace
	require.Empty(t, p.left([]Trial{trial("long")}))
	p.add(trial("long"), 100e9)
	p.add(trial("short"), 10e9)
	p.add(trial("short"), 20e9)
	require.Equal(t, " (about 30 s left)", p.left([]Trial{trial("short"), trial("short")}))
	require.Equal(t, " (about 2 min left)", p.left([]Trial{trial("long"), trial("short")}))
	require.Equal(t, " (about 43 s left)", p.left([]Trial{trial("unknown")}))
}
