// Command compat runs the tests that use real servers, and some chaos scenarios, on every server that can be fetched,
// and writes what came of it into docs/operations.md (make compat). .ci/servers.sh fetches the servers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

type options struct {
	out     string // the Markdown file with the table
	log     string // what the tests and the scenarios print
	jobs    int    // programs of tests at the same time
	only    string // names of servers, separated by commas
	missing bool   // go on without servers that cannot be fetched
	match   string // tests
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "docs/operations.md", "file with the table, between two markers; empty: print it only")
	flag.StringVar(&o.log, "log", "compat.log", "file that receives what failed tests and scenarios print")
	flag.IntVar(&o.jobs, "jobs", runtime.NumCPU()+1, "programs of tests at the same time; they wait more than they compute")
	flag.StringVar(&o.only, "only", "", "names of servers, separated by commas (default: all that .ci/servers.sh has)")
	flag.BoolVar(&o.missing, "allow-missing", false, "go on without servers that cannot be fetched")
	flag.StringVar(&o.match, "run", "", "only tests that match this pattern (and no table is written)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// say prints a line of progress.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// run reports whether all went well.
func run(ctx context.Context, o options) (ok bool, err error) {
	found, err := fetch(ctx, o)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	log, err := os.Create(o.log)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	s := &suite{dir: dir, log: log, jobs: o.jobs, match: o.match}
	command := filepath.Join(dir, "redlock")
	say("compiling the tests and the command")
	if err := errors.Join(s.compile(ctx), build(ctx, command, "./cmd/redlock")); err != nil {
		return false, err
	}
	say("looking which tests use real servers: those that are left out without one")
	if err := s.discover(ctx); err != nil {
		return false, err
	}
	t := table{tests: s.count(), date: time.Now().UTC()}
	ok = true
	for i, server := range found {
		began := time.Now()
		r := &row{server: server}
		if r.abilities, err = look(ctx, server.path); err != nil {
			return false, fmt.Errorf("%s: %w", server, err)
		}
		r.suite = s.run(ctx, server.path)
		r.scenarios = scenarios(ctx, command, server.path, log)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		t.rows = append(t.rows, r)
		ok = ok && r.fine()
		say("%d of %d: %s: %s; %s (%v)", i+1, len(found), server, r.suite, strings.Join(r.scenarios.texts(), ", "),
			time.Since(began).Round(time.Second))
	}
	fmt.Print(t.markdown())
	if o.out == "" || o.match != "" || o.only != "" || len(found) == 0 {
		return ok, nil
	}
	return ok, tableMarks.Write(o.out, t.markdown())
}

func build(ctx context.Context, file, program string) error {
	return verbose(exec.CommandContext(ctx, "go", "build", "-o", file, program))
}

// verbose runs a command whose errors are for people.
func verbose(cmd *exec.Cmd) error {
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return nil
}
