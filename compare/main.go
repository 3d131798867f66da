// Command compare measures this library and similar ones on the same servers.
//
//	go run .                     # about ten minutes
//	go run . --quick             # about ninety seconds
//	go run . --scale             # 100 000 leases in one client, and what an idle client costs
//	go run . --out ../docs/performance.md --summary ../README.md  # the tables go between the marks in these
//
// It starts its own servers, with the redis-server on PATH, and stops them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// options are the command line.
type options struct {
	rounds  int
	seconds float64
	only    string
	quick   bool
	json    bool
	out     string
	summary string
	list    bool
	scale   bool
	leases  int
	ttl     time.Duration
	keep    time.Duration
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 3, "number of rounds; each measures everything")
	f.Float64Var(&o.seconds, "seconds", 0, "length of each measurement (default 1; 0.25 with --quick)")
	f.StringVar(&o.only, "only", "", "regular expression that \"workload: subject\" must match; see --list")
	f.BoolVar(&o.quick, "quick", false, "measure a selection, in about ninety seconds")
	f.BoolVar(&o.json, "json", false, "write JSON instead of tables")
	f.StringVar(&o.out, "out", "", "put Markdown tables between the marks of this file too")
	f.StringVar(&o.summary, "summary", "", "put one small Markdown table between the marks of this file too")
	f.BoolVar(&o.list, "list", false, "say what would be measured")
	f.BoolVar(&o.scale, "scale", false, "measure many leases in one client, and idle clients, instead")
	f.IntVar(&o.leases, "leases", 100_000, "with --scale: how many")
	f.DurationVar(&o.ttl, "ttl", 30*time.Second, "with --scale: their time to live, at most 30s")
	f.DurationVar(&o.keep, "keep", time.Minute, "with --scale: how long they are kept")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("only flags are allowed, but %q was given", f.Args())
	case o.rounds < 1, o.seconds < 0, o.leases < 1, o.keep <= 0, o.ttl <= 0:
		return o, errors.New("--rounds, --seconds, --leases, --ttl and --keep must be positive")
	case o.scale && o.out+o.summary != "":
		return o, errors.New("--out and --summary are for the tables of the comparison, which --scale does not make")
	}
	if o.seconds == 0 {
		o.seconds = 1
		if o.quick {
			o.seconds = 0.25
		}
	}
	return o, nil
}

// execute runs the command line and returns the exit code: 1 if something failed, 2 if the command line is wrong, 130
// after Ctrl-C.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "compare:", err)
		return 2
	}
	err = o.run(ctx, stdout, stderr)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "compare: interrupted")
		return 130
	case err != nil:
		fmt.Fprintln(stderr, "compare:", err)
		return 1
	}
	return 0
}

func (o options) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	r := &runner{each: time.Duration(o.seconds * float64(time.Second)), rounds: o.rounds, log: stderr}
	if o.only != "" {
		if r.only, err = regexp.Compile(o.only); err != nil {
			return fmt.Errorf("--only: %w", err)
		}
	}
	plan := fullPlan()
	if o.quick {
		plan = quickPlan()
	}
	if o.list {
		for _, w := range plan {
			for _, s := range r.wanted(w) {
				fmt.Fprintf(stdout, "%s: %s\n", w.name, s.Name)
			}
		}
		return nil
	}
	defer func() { err = errors.Join(err, r.close()) }()
	var rep *report
	if o.scale {
		rep, err = r.scale(ctx, o.leases, o.ttl, o.keep)
	} else {
		rep, err = r.run(ctx, plan)
	}
	if err != nil {
		return err
	}
	return o.deliver(rep, stdout)
}

// deliver writes the results.
func (o options) deliver(rep *report, stdout io.Writer) error {
	if len(rep.Results) == 0 {
		return errors.New("nothing matches --only; see --list")
	}
	if o.json {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(rep); err != nil {
			return err
		}
	} else if err := rep.writeText(stdout); err != nil {
		return err
	}
	if o.out != "" {
		if err := writeMarkdown(o.out, tablesMarks, rep.markdown()); err != nil {
			return err
		}
	}
	if o.summary != "" {
		if err := writeMarkdown(o.summary, summaryMarks, rep.shortMarkdown()); err != nil {
			return err
		}
	}
	if rep.failed() {
		return errors.New("some measurements failed; see above")
	}
	return nil
}
