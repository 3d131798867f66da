package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorumlock/redlock/chaos"
	chaosfault "github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/report"
	"github.com/quorumlock/redlock/chaos/scenario"
)

// takeSearch checks --search, and sets what it changes.
func (o *chaosOptions) takeSearch(given func(flag string) bool) error {
	if o.search <= 0 {
		return usage("--search %v: give how long, such as 10m", o.search)
	}
	o.faults = chaosfault.Schedule{}
	if !given("ttl") {
		o.ttl = chaos.SearchTTL
	}
	if !given("seconds") {
		return o.takeLength()
	}
	return nil
}

// takeLength makes a run as long as it should be with leases of this length.
func (o *chaosOptions) takeLength() error {
	o.seconds = scenario.PlannedLength(o.ttl).Seconds()
	if o.seconds > maxSeconds {
		return usage("a TTL of %v: a run of five TTLs is longer than an hour; give --seconds, or a shorter --ttl", o.ttl)
	}
	return nil
}

// A searchReport is what --search prints as JSON.
type searchReport struct {
	jsonFailure
	Subject     string         `json:"subject"`
	Fleet       string         `json:"fleet"`
	Seed        uint64         `json:"seed"`
	Runs        int            `json:"runs"`
	Aborted     int            `json:"aborted"`
	Idle        int            `json:"idle"` // nobody acquired the lock
	Unsure      int            `json:"unsure"`
	Interrupted bool           `json:"interrupted,omitempty"`
	Closest     *closestReport `json:"closest"` // null: in no run did a lease end by itself before another grant
	Found       *foundReport   `json:"found"`   // null: no violation
}

type closestReport struct {
	Margin   float64      `json:"margin_millis"`
	File     string       `json:"file,omitempty"` // with --out
	Schedule scheduleFile `json:"schedule"`
}

type foundReport struct {
	File     string              `json:"file"`
	Schedule scheduleFile        `json:"schedule"`
	First    chaosfault.Schedule `json:"first"`  // before it was shrunk
	Unsafe   int                 `json:"unsafe"` // so many of Again runs were unsafe
	Again    int                 `json:"again"`
	Run      report.Run          `json:"run"` // one that was unsafe
}

// fewViolations are enough for people: a lock that is no lock has hundreds.
const fewViolations = 3

// runSearch is redlock chaos run --search.
func (o *chaosOptions) runSearch(cmd *cobra.Command) error {
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	ctx, progress := untilBroken(ctx, cmd.ErrOrStderr())
	if o.out != "" { // made now, or a long search could be for nothing
		_, before := os.Stat(o.out)
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return &exitError{exitUnable, err}
		}
		if errors.Is(before, fs.ErrNotExist) {
			defer os.Remove(o.out) // which leaves it, unless it is empty
		}
	}
	options := chaos.SearchOptions{Options: o.options(o.plays[0]), For: o.search}
	options.Log, options.Replay = progress, o.replayOf("--schedule "+shellWord(o.found()))
	fmt.Fprintf(progress, "search for %v: schedules of faults for %s on %d %s nodes, %vs each\n", o.search, oneLine(o.subject), o.nodes, o.fleet, o.seconds)
	result, err := chaos.Search(ctx, options)
	if result == nil {
		return &exitError{exitUnable, err}
	}
	r := o.searchReport(result)
	end := r.end(ctx, err)
	if end != nil && end.err != nil {
		r.failedBy(end)
	}
	if err := o.reportSearch(cmd.OutOrStdout(), r, result); err != nil {
		return err
	}
	if end == nil {
		return nil
	}
	if !o.json && end.err != nil {
		say(progress, "%v", end.err)
	}
	return &exitError{end.code, nil}
}

func (o *chaosOptions) searchReport(result *chaos.SearchResult) *searchReport {
	r := &searchReport{
		Subject: o.subject, Fleet: o.fleet, Seed: o.seed,
		Runs: result.Runs, Aborted: result.Aborted, Idle: result.Idle, Unsure: result.Unsure,
	}
	about := o.replayOf(fmt.Sprintf("--search %v", o.search))
	if c := result.Closest; c != nil {
		r.Closest = &closestReport{
			Margin:   float64(c.Margin.Microseconds()) / 1000,
			Schedule: o.scheduleFile("the closest of "+about, c.Schedule),
		}
	}
	if f := result.Found; f != nil {
		r.Found = &foundReport{
			File: o.found(), Schedule: o.scheduleFile("found by "+about, f.Schedule), First: f.First,
			Unsafe: f.Unsafe, Again: f.Again, Run: runOf(f.Outcome),
		}
	}
	return r
}

// end is how the command ends; nil: with 0.
func (r *searchReport) end(ctx context.Context, err error) *exitError {
	r.Interrupted = ctx.Err() != nil
	switch {
	case r.Found != nil:
		return &exitError{exitFailed, nil}
	case r.Interrupted:
		return &exitError{stoppedCode(ctx), context.Cause(ctx)}
	case err != nil:
		return &exitError{exitUnable, err}
	case r.Runs == r.Aborted+r.Idle+r.Unsure:
		return &exitError{exitUnable, errors.New("no run of the search shows anything: see what it printed for each")}
	}
	return nil
}

// found is the file for a schedule that is unsafe.
func (o *chaosOptions) found() string {
	if o.out != "" {
		return filepath.Join(o.out, "schedule.json")
	}
	subject := o.subject
	if o.command != "" {
		subject = "command"
	}
	return fmt.Sprintf("schedule-%s-%d.json", subject, o.seed)
}

// reportSearch prints the result and writes its files. Its error has an exit code.
func (o *chaosOptions) reportSearch(w io.Writer, r *searchReport, result *chaos.SearchResult) (err error) {
	switch {
	case r.Found != nil:
		err = r.Found.Schedule.write(r.Found.File)
	case r.Closest != nil && o.out != "":
		r.Closest.File = filepath.Join(o.out, "closest.json")
		err = r.Closest.Schedule.write(r.Closest.File)
	}
	if r.Found != nil && o.out != "" {
		err = errors.Join(err, o.writeFound(&r.Found.Run, result.Found.Outcome))
	}
	if o.json {
		return printed(w, err, &r.jsonFailure, func() any { return r })
	}
	_, failed := io.WriteString(w, r.text())
	if r.Found != nil && failed == nil {
		shown := r.Found.Run
		shown.Result.Violations = shown.Result.Violations[:min(fewViolations, len(shown.Result.Violations))] // the others are counted
		failed = report.Table(w, []report.Run{shown}, coloured(w))
	}
	if err = errors.Join(err, failed); err != nil {
		return &exitError{exitUnable, err}
	}
	return nil
}

// writeFound writes the history and the report of a run that was unsafe.
func (o *chaosOptions) writeFound(run *report.Run, outcome *chaos.Outcome) error {
	in := func(name string) string { return filepath.Join(o.out, name) }
	write := func(name string, to func(io.Writer) error) error { return writeFile(in(name), to) }
	var unread error
	run.Events, unread = history.ReadAll(bytes.NewReader(outcome.History))
	return errors.Join(unread,
		write("history.jsonl", func(w io.Writer) error { _, err := w.Write(outcome.History); return err }),
		write("report.json", func(w io.Writer) error { return report.JSON(w, []report.Run{*run}) }),
		write("report.html", func(w io.Writer) error { return report.HTML(w, *run) }))
}

// text is the result for people.
func (r *searchReport) text() string {
	var out strings.Builder
	print := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	if f := r.Found; f != nil {
		how := fmt.Sprintf("unsafe in %d of %d more runs", f.Unsafe, f.Again)
		if f.Again == 0 {
			how = "not run again"
		}
		print("UNSAFE: %s, in schedule %d of seed %d. Made smaller, from %s to %s, %s:",
			oneLine(r.Subject), r.Runs, r.Seed, plural(len(f.First), "fault"), plural(len(f.Schedule.Faults), "fault"), how)
		printFaults(&out, f.Schedule.Faults)
		print("The schedule is in %s.\n", f.File)
		return out.String()
	}
	print("no violation: %s, %s of seed %d", oneLine(r.Subject), plural(r.Runs, "schedule"), r.Seed)
	if none := r.Aborted + r.Idle + r.Unsure; none > 0 {
		print("%d of them show nothing: nobody acquired the lock: %d; unsure: %d; aborted: %d", none, r.Idle, r.Unsure, r.Aborted)
	}
	if r.Closest == nil {
		print("How close it came is not known: in no run did a lease end by itself before the lock was granted again.")
		return out.String()
	}
	print("The closest: %v from the end of a lease to the next grant, with", marginOf(r.Closest.Margin))
	printFaults(&out, r.Closest.Schedule.Faults)
	if r.Closest.File != "" {
		print("The schedule is in %s.", r.Closest.File)
	}
	return out.String()
}

func printFaults(w io.Writer, s chaosfault.Schedule) {
	if len(s) == 0 {
		fmt.Fprintln(w, "  no fault")
	}
	for _, t := range s {
		fmt.Fprintf(w, "  %v\n", t)
	}
}
