package scoreboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A Command is the scoreboard as a command line: redlock chaos scoreboard, and programs that have other subjects. Its
// exported fields are set before Flags is called.
type Command struct {
	Known   []subject.Subject // what --subject can name
	Default string            // of --subject
	Child   []string          // see chaos.Options
	// Replay returns the command that repeats a run.
	Replay func(Settings, Trial) string

	scenarios, subjects, out, resume, histories string

	settings Settings
	json     bool
}

// all stands for every scenario, or every subject.
const all = "all"

const (
	maxSeconds = 3600
	maxSeeds   = 1000
	theNodes   = fleet.DefaultNodes
	theClients = 8
	theTTL     = time.Second
)

// Flags adds the flags.
func (c *Command) Flags(f *flag.FlagSet) {
	f.StringVar(&c.scenarios, "scenario", all, "the rows: names, separated by commas, or all")
	f.StringVar(&c.subjects, "subject", c.Default, "the columns: names, separated by commas, or all")
	f.StringVar(&c.settings.Fleet, "fleet", "process", "embedded, process or docker")
	f.IntVar(&c.settings.Seeds, "seeds", 5, "how many runs for each cell, each with the next seed")
	f.Uint64Var(&c.settings.Seed, "seed", 1, "the first seed")
	f.Float64Var(&c.settings.Seconds, "seconds", 1, "how long a run lasts; its script may take longer")
	f.StringVar(&c.out, "out", "", "write the table into this `file` too, as Markdown, with the commands that repeat runs")
	f.StringVar(&c.resume, "resume", "", "keep the runs in this `file`, as JSON, and do not repeat what it has")
	f.StringVar(&c.histories, "histories", "", "`folder` for the history of each run that is not safe, for redlock chaos report")
	f.BoolVar(&c.json, "json", false, "print one JSON object at the end, instead of the table")
}

// A UsageError says what is wrong with the flags.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// options checks the flags before anything is started.
func (c *Command) options() (o Options, err error) {
	c.settings.Nodes, c.settings.Clients, c.settings.TTL = theNodes, theClients, theTTL.Milliseconds()
	o = Options{Settings: c.settings, Child: c.Child, Replay: c.Replay}
	s := c.settings
	switch {
	case !(s.Seconds >= 1 && s.Seconds <= maxSeconds): // so that NaN is refused too
		return o, fmt.Errorf("--seconds %v: give 1 to %d", s.Seconds, maxSeconds)
	case s.Seeds < 1 || s.Seeds > maxSeeds:
		return o, fmt.Errorf("--seeds %d: give 1 to %d", s.Seeds, maxSeeds)
	case s.Seed == 0 || s.Seed > math.MaxInt64: // in chaos.Options 0 is the default
		return o, fmt.Errorf("--seed %d: give 1 to %d", s.Seed, uint64(math.MaxInt64))
	}
	if o.Scenarios, err = named(c.scenarios, "scenario", scenario.All(), func(s scenario.Scenario) string { return s.Name }); err != nil {
		return o, err
	}
	if o.Subjects, err = named(c.subjects, "subject", c.Known, subject.Subject.Name); err != nil {
		return o, err
	}
	run := s.chaos()
	run.Subject = o.Subjects[0]
	return o, run.Validate()
}

// named finds the things with these names, each once.
func named[T any](list, what string, known []T, name func(T) string) (found []T, err error) {
	if list == all {
		return known, nil
	}
	var have []string
	for _, k := range known {
		have = append(have, name(k))
	}
	var taken []string
	for _, n := range strings.Split(list, ",") {
		n = strings.TrimSpace(n)
		i := slices.Index(have, n)
		if i < 0 {
			return nil, fmt.Errorf("there is no %s %q; there are %s", what, n, strings.Join(have, ", "))
		}
		if !slices.Contains(taken, n) {
			found, taken = append(found, known[i]), append(taken, n)
		}
	}
	return found, nil
}

// Run does what the flags say, and prints the board. It returns a UsageError if the flags are wrong, and the cause of ctx
// if that ended it. If there is a board beside an error, what there was by then is printed, with --json also the error.
func (c *Command) Run(ctx context.Context, stdout, stderr io.Writer) (*Board, error) {
	o, err := c.options()
	if err == nil {
		err = c.checkFiles()
	}
	if err == nil && c.resume != "" {
		var unlock func()
		if unlock, err = lockAt(c.resume); err == nil {
			defer unlock()
			o.Before, err = Read(c.resume)
		}
	}
	var b *Board
	if err == nil {
		if b, err = o.board(); err != nil {
			err = fmt.Errorf("--resume %s: %w", c.resume, err)
		}
	}
	if err != nil {
		return nil, UsageError{err}
	}
	if err := fleet.Available(fleet.Kind(o.Fleet)); err != nil {
		return nil, err
	}
	if c.histories != "" {
		if err := os.MkdirAll(c.histories, 0o755); err != nil {
			return nil, err
		}
	}
	if err := c.save(b); err != nil { // before the first run, which may take long
		return nil, err
	}
	o.Log, o.Done = stderr, c.keep
	err = o.fill(ctx, b)
	kind := "failed"
	if ctx.Err() != nil {
		kind = "interrupted"
	}
	return b, errors.Join(err, c.deliver(b, stdout, err, kind))
}

// keep writes what there is after a run into the files.
func (c *Command) keep(b *Board, t Trial, r Run, history []byte) error {
	if c.histories != "" && r.Verdict != check.Safe && len(history) > 0 {
		name := fmt.Sprintf("%s-%s-%d.jsonl", t.Scenario.Name, strings.ReplaceAll(t.Subject.Name(), "/", "-"), r.Seed)
		if err := os.WriteFile(filepath.Join(c.histories, name), history, 0o644); err != nil {
			return err
		}
	}
	return c.save(b)
}

// save writes the board into the files.
func (c *Command) save(b *Board) error {
	if c.resume != "" {
		if err := b.Write(c.resume); err != nil {
			return err
		}
	}
	if c.out == "" {
		return nil
	}
	var text bytes.Buffer
	if err := b.Markdown(&text); err != nil {
		return err
	}
	return replace(c.out, text.Bytes())
}

// deliver prints the board. why says what ended it early, and kind what that is for redlock.
func (c *Command) deliver(b *Board, stdout io.Writer, why error, kind string) error {
	if !c.json {
		return b.Text(stdout)
	}
	object := struct {
		*Board
		Error string `json:"error,omitempty"`
		Kind  string `json:"kind,omitempty"`
	}{Board: b}
	if why != nil {
		object.Error, object.Kind = plain(why.Error()), kind
	}
	return json.NewEncoder(stdout).Encode(object)
}

// Code is the exit code of a board that was not broken off: 0 every run was safe, 1 at least one was unsafe, 2 one was
// unsure or did not run. With all scenarios, those that cannot run here are left out.
func (c *Command) Code(b *Board) int {
	code := 0
	for _, cell := range b.Cells {
		for _, r := range cell.Runs {
			switch {
			case r.Verdict == check.Unsafe:
				return 1
			case r.Verdict != check.Safe && !(r.Unable && c.scenarios == all):
				code = 2
			}
		}
	}
	return code
}

// Redlock returns the command of redlock that repeats a run of one of its own subjects.
func Redlock(s Settings, t Trial) string {
	return fmt.Sprintf("redlock chaos run --scenario %s --subject %s --fleet %s --nodes %d --clients %d --seconds %v --ttl %v --seed %d --beside none",
		t.Scenario.Name, t.Subject.Name(), s.Fleet, s.Nodes, s.Clients, s.Seconds, s.chaos().TTL, t.Seed)
}
