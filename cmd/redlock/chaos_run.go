package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos"
	chaoscheck "github.com/quorumlock/redlock/chaos/check"
	chaosfault "github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/report"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

type chaosOptions struct {
	scenario, subject, command, fleet, image, beside, schedule string

	nodes, clients int
	seconds        float64
	ttl            time.Duration
	seed           uint64
	search         time.Duration
	out            string
	json           bool

	locks  subject.Subject
	plays  []scenario.Scenario
	faults chaosfault.Schedule // of --schedule; nil: there is none
}

const allScenarios = "all"

// severalSeconds is the length of a scenario if several are run, so that all scenarios end within ten minutes.
const severalSeconds = 10

func newChaosRun() *cobra.Command {
	o := &chaosOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run scenarios",
		Long: `Runs one scenario, several, or all. Each has its own nodes. Progress is printed on standard error.

Scenarios that the nodes do not support are left out and named. Each scenario is also run with a baseline that is known
to be unsafe in it. It shows that the scenario detects violations, so that zero violations mean something.

Processes are started from the redis-server on PATH, or from the program that the environment variable REDLOCK_SERVER
names: another version, or another server that takes the same arguments.

--search makes short runs with schedules of faults until one is unsafe. It begins with random ones and varies those that
came closest to two holders. What it finds it makes smaller, in at most 65 more runs, and writes it to a file, which
--schedule runs again. How to write such a file for a case of your own:
` + docsURL + `failover.md

--out receives history.jsonl, report.json and report.html. With several scenarios, each history is in a folder named
after its scenario.

Exit code: 0 no violation, 1 violations, 2 it could not run (or a scenario that you named could not) or is unsure,
64 usage, 128+n if signal n ended it (130: INT).`,
		Example: "  redlock chaos run --scenario restart-empty --subject plain-redlock\n" +
			"  redlock chaos run --search 10m --subject plain-redlock\n" +
			"  redlock chaos run --fleet docker --seconds 10 --out report",
		Args: takesNone,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.takePlan(cmd.Flags().Changed); err != nil {
				return err
			}
			err := o.validate(cmd.Flags().Changed("seconds"))
			if err == nil && cmd.Flags().Changed("subject-command") {
				err = o.takeCommand(cmd.Flags().Changed("subject"), cmd.ErrOrStderr())
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			// Reported once, not once per scenario.
			if err := fleet.Available(fleet.Kind(o.fleet)); err != nil {
				return &exitError{exitUnable, err}
			}
			if o.search > 0 {
				return o.runSearch(cmd)
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.scenario, "scenario", allScenarios, "names, separated by commas, or all")
	f.StringVar(&o.schedule, "schedule", "", "a file of faults to run instead of a scenario: written by --search, or by you")
	f.DurationVar(&o.search, "search", 0, "for how long to search for faults under which the lock is unsafe, such as 10m")
	f.StringVar(&o.subject, "subject", "redlock", "the lock under test; see redlock chaos list")
	f.StringVar(&o.command, "subject-command", "", "a lock of yours: a command, in any language, that speaks as "+docsURL+"failover.md says")
	f.StringVar(&o.fleet, "fleet", "process", "embedded, process or docker")
	f.StringVar(&o.image, "image", "", "image of the containers (default redis:7, or one made from this machine's redis-server)")
	f.StringVar(&o.beside, "beside", "auto", "a subject to compare with, auto, or none")
	f.IntVar(&o.nodes, "nodes", 5, "number of nodes")
	f.IntVar(&o.clients, "clients", 8, "number of clients")
	f.Float64Var(&o.seconds, "seconds", 20, "how long a scenario runs; its script may take longer (10 if several are run; with faults of your own 5 TTLs)")
	f.DurationVar(&o.ttl, "ttl", time.Second, "TTL of the leases (500ms with --search)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of everything that is random")
	f.StringVar(&o.out, "out", "", "folder for the history and the report")
	f.BoolVar(&o.json, "json", false, "print one JSON object at the end, as in report.json")
	return cmd
}

// maxSeconds is how long a run may be.
const maxSeconds = 3600

// validate checks the flags before anything is started.
func (o *chaosOptions) validate(secondsGiven bool) error {
	var err error
	if o.locks, err = subject.ByName(o.subject); err != nil {
		return err
	}
	if o.beside != "auto" && o.beside != "none" {
		if _, err := subject.ByName(o.beside); err != nil {
			return err
		}
	}
	if !(o.seconds >= 1 && o.seconds <= maxSeconds) { // so that NaN is refused too
		return fmt.Errorf("--seconds %v: give 1 to %d", o.seconds, maxSeconds)
	}
	switch { // in chaos.Options 0 is the default
	case o.nodes == 0:
		return errors.New("--nodes 0: give 1 or more")
	case o.clients == 0:
		return errors.New("--clients 0: give 1 or more")
	case o.ttl == 0:
		return errors.New("--ttl 0: give a duration, such as 1s")
	case o.seed == 0:
		return errors.New("--seed 0: give 1 or more")
	}
	if o.faults != nil {
		o.plays = []scenario.Scenario{scenario.Planned(o.faults)}
	} else if o.plays, err = playsOf(o.scenario); err != nil {
		return err
	}
	if len(o.plays) > 1 && !secondsGiven {
		o.seconds = severalSeconds
	}
	return o.options(o.plays[0]).Validate()
}

// playsOf parses a list of scenario names.
func playsOf(list string) ([]scenario.Scenario, error) {
	if list == allScenarios {
		return scenario.All(), nil
	}
	var plays []scenario.Scenario
	for _, name := range strings.Split(list, ",") {
		play, err := scenario.ByName(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(plays, func(p scenario.Scenario) bool { return p.Name == play.Name }) {
			plays = append(plays, play)
		}
	}
	return plays, nil
}

func (o *chaosOptions) options(play scenario.Scenario) chaos.Options {
	return chaos.Options{
		Scenario: play.Name, Schedule: o.faults, Subject: o.locks, Fleet: o.fleet, Image: o.image, Nodes: o.nodes, Clients: o.clients, TTL: o.ttl,
		Length: time.Duration(o.seconds * float64(time.Second)), Seed: o.seed, Child: o.childCommand(), Replay: o.replay(play.Name),
	}
}

func (o *chaosOptions) run(cmd *cobra.Command) error {
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	ctx, progress := untilBroken(ctx, cmd.ErrOrStderr())
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return &exitError{exitUnable, err}
		}
	}
	result := chaosResult{Runs: []report.Run{}} // in JSON a list, also if it is empty
	for i, play := range o.plays {
		fmt.Fprintf(progress, "[%d/%d] %s: %s\n", i+1, len(o.plays), play.Name, play.Proves)
		err := o.one(ctx, play, progress, &result)
		if ctx.Err() != nil {
			result.Interrupted, result.stopped = true, &exitError{stoppedCode(ctx), context.Cause(ctx)}
			break
		}
		if err != nil {
			if o.json || result.saysNothing(len(o.plays)) {
				say(progress, "%v", err)
			} else {
				fmt.Fprintln(progress, "  it failed, or was left out: the end says why")
			}
			result.LeftOut = append(result.LeftOut, leftOut{play.Name, err.Error()})
			switch {
			case !errors.Is(err, chaos.ErrUnable):
				result.broken = true
			case o.scenario != allScenarios || o.faults != nil:
				result.notRun = append(result.notRun, play.Name)
			}
		}
	}
	end := result.end()
	if end != nil && end.err != nil {
		result.failedBy(end)
	}
	if err := o.report(cmd.OutOrStdout(), &result); err != nil {
		return err
	}
	return result.exit()
}

// one runs a scenario, and then a baseline to compare with.
func (o *chaosOptions) one(ctx context.Context, play scenario.Scenario, progress io.Writer, result *chaosResult) (err error) {
	options := o.options(play)
	options.Log = progress
	var outcome *chaos.Outcome
	if o.out != "" {
		file, failed := o.createHistory(play.Name)
		if failed != nil {
			return failed
		}
		options.History = file
		defer func() { err = file.end(err, outcome == nil && errors.Is(err, chaos.ErrUnable)) }()
	}
	outcome, err = chaos.Run(ctx, options)
	if outcome == nil {
		return err
	}
	run := runOf(outcome)
	defer func() { result.Runs = append(result.Runs, run) }()
	if o.out != "" {
		var unread error
		run.Events, unread = history.ReadAll(bytes.NewReader(outcome.History))
		err = errors.Join(err, unread)
	}
	switch {
	case outcome.OK() && len(outcome.LeftOut) == 0:
	case o.json:
		complain(progress, outcome)
	case !outcome.OK(): // the table at the end has the details
		fmt.Fprintf(progress, "  %s, %s: more at the end\n", outcome.Verdict, plural(outcome.ViolationsFound, "violation"))
	}
	if err != nil {
		return err
	}
	name := o.other(play)
	if name == "" {
		return nil
	}
	// As short as possible: the script decides, and it takes the time it needs.
	options.Length, options.History, options.Replay, options.Log = time.Second, nil, "", nil
	if options.Subject, err = subject.ByName(name); err != nil {
		return err
	}
	beside, err := chaos.Run(ctx, options)
	if err != nil {
		return fmt.Errorf("to compare with, %s: %w", name, err)
	}
	run.Compare, err = comparison(name, beside)
	return err
}

// comparison is the result to compare with. That of a run that was aborted would mean nothing.
func comparison(name string, beside *chaos.Outcome) ([]chaoscheck.Result, error) {
	if why := cmp.Or(beside.Error, strings.Join(headlines(beside.Panics), "; ")); why != "" && beside.Verdict != chaoscheck.Unsafe {
		return nil, fmt.Errorf("to compare with, %s: aborted: %s", name, why)
	}
	return []chaoscheck.Result{beside.Result}, nil
}

// headlines are panics without their stacks.
func headlines(panics []string) (all []string) {
	for _, text := range panics {
		what, _, _ := strings.Cut(text, "\n")
		all = append(all, what)
	}
	return all
}

// complain prints problems at once, not only at the end.
func complain(w io.Writer, outcome *chaos.Outcome) {
	for _, v := range outcome.Violations[:min(3, len(outcome.Violations))] {
		fmt.Fprintf(w, "  VIOLATION %s\n    cause: %s\n", oneLine(v.Text), oneLine(v.Cause.Text))
	}
	for _, text := range slices.Concat(outcome.Unmet, headlines(outcome.Panics)) {
		fmt.Fprintf(w, "  NOT AS EXPECTED: %s\n", oneLine(text))
	}
	for _, l := range outcome.LeftOut {
		fmt.Fprintf(w, "  NOT CHECKED: %s\n", oneLine(l.String()))
	}
	if outcome.Error != "" {
		fmt.Fprintf(w, "  ABORTED: %s\n", oneLine(outcome.Error))
	}
}

// other returns the subject to compare with: of those that are unsafe in the scenario, the one that is closest to a
// safe lock. One of the same kind comes first, and then a mutex.
func (o *chaosOptions) other(play scenario.Scenario) string {
	name := o.beside
	switch name {
	case "none":
		return ""
	case "auto":
		name = ""
		for _, kind := range []history.LockKind{history.Mutex, subject.KindOf(o.locks).Lock} {
			for _, fails := range play.Fails {
				if s, err := subject.ByName(fails); err == nil && subject.KindOf(s).Lock == kind {
					name = fails
				}
			}
		}
	}
	if name == o.subject {
		return ""
	}
	return name
}

func (o *chaosOptions) replay(scenario string) string {
	if o.schedule != "" {
		return o.replayOf("--schedule " + shellWord(o.schedule))
	}
	return o.replayOf("--scenario " + scenario)
}

func (o *chaosOptions) replayOf(what string) string {
	kind := o.fleet
	if o.image != "" {
		kind += " --image " + shellWord(o.image)
	}
	return fmt.Sprintf("redlock chaos run %s %s --fleet %s --nodes %d --clients %d --seconds %v --ttl %v --seed %d",
		what, o.subjectFlag(), kind, o.nodes, o.clients, o.seconds, o.ttl, o.seed)
}

type leftOut struct {
	Scenario string `json:"scenario"`
	Why      string `json:"why"`
}

// A chaosResult is the result of all scenarios.
type chaosResult struct {
	jsonFailure
	Runs        []report.Run `json:"runs"`
	LeftOut     []leftOut    `json:"left_out,omitempty"`
	Interrupted bool         `json:"interrupted,omitempty"`

	broken  bool       // a scenario failed to run that should have run
	notRun  []string   // scenarios that were asked for by name, and cannot run here
	stopped *exitError // by the signal, if it was interrupted
}

// saysNothing reports whether the table at the end would be empty: the one scenario did not run.
func (r *chaosResult) saysNothing(plays int) bool {
	return plays == 1 && len(r.Runs) == 0 && !r.Interrupted
}

// end is how the command ends; nil: with 0. Its error is nil if the runs say why. A violation counts more than what
// ended the command: it is one in what was recorded until then.
func (r *chaosResult) end() *exitError {
	broken := r.broken
	for _, run := range r.Runs {
		if run.Result.Verdict == chaoscheck.Unsafe || len(run.Panics) > 0 {
			return &exitError{exitFailed, nil}
		}
		broken = broken || run.Error != "" || run.Result.Verdict == chaoscheck.Unsure
	}
	switch {
	case r.Interrupted:
		return r.stopped
	case len(r.Runs) == 0 && len(r.LeftOut) == 1:
		return &exitError{exitUnable, errors.New(r.LeftOut[0].Why)}
	case len(r.Runs) == 0:
		return &exitError{exitUnable, errors.New("no scenario was run; left_out says why")}
	case broken:
		return &exitError{exitUnable, nil}
	case len(r.notRun) > 0:
		return &exitError{exitUnable, fmt.Errorf("not run: %s", strings.Join(r.notRun, ", "))}
	}
	return nil
}

// exit is end after everything was printed.
func (r *chaosResult) exit() error {
	if end := r.end(); end != nil {
		return &exitError{end.code, nil}
	}
	return nil
}
