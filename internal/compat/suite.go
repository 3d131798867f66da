package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock/internal/fleet"
)

// packages are those whose tests say something about a server. The tests of the fleets and of the chaos harness are about
// these; the scenarios run for themselves.
var packages = []string{".", "./cmd/redlock", "./election", "./fence"}

const (
	shardSize    = 15 // tests of one process. Several processes run at a time, because most tests wait
	shardTimeout = 8 * time.Minute
	retried      = 12 // failures that are tried again, each alone. More are no chance
)

// A suite is the compiled tests of several packages.
type suite struct {
	dir, match string
	log        io.Writer
	jobs       int
	programs   []*program
}

type program struct {
	name, dir, file string
	tests           []string // those that use real servers
}

// A tally is what came of the tests on one server.
type tally struct {
	passed          int
	failed, skipped []string
	partly          []string // they passed, and left something out for want of a later version
	chance          []string // they failed among others, and passed alone
}

func (t tally) String() string {
	text := fmt.Sprintf("%d tests passed, %d failed", t.passed, len(t.failed))
	for _, list := range []struct {
		what  string
		tests []string
	}{{"failed", t.failed}, {"left out", t.skipped}, {"left out in part", t.partly}, {"failed once and passed alone", t.chance}} {
		if len(list.tests) > 0 {
			text += fmt.Sprintf("; %s: %s", list.what, strings.Join(list.tests, " "))
		}
	}
	return text
}

func (s *suite) compile(ctx context.Context) error {
	for i, name := range packages {
		p := &program{name: name, dir: name, file: filepath.Join(s.dir, fmt.Sprintf("%d.test", i))}
		if err := verbose(exec.CommandContext(ctx, "go", "test", "-c", "-o", p.file, name)); err != nil {
			return err
		}
		s.programs = append(s.programs, p)
	}
	return nil
}

// What package required prints where a test is left out for want of a server, or of a later version.
var (
	needsServer = regexp.MustCompile(`NOT TESTED: .*REDLOCK_REQUIRE=redis `)
	needsLater  = regexp.MustCompile(`NOT TESTED: .*REDLOCK_REQUIRE=redis-`)
)

// discover finds the tests that use real servers, without a list that somebody keeps: where there is no server, these are
// left out and say so.
func (s *suite) discover(ctx context.Context) error {
	for _, p := range s.programs {
		out, err := exec.CommandContext(ctx, p.file, "-test.list", cmp.Or(s.match, ".")).Output()
		if err != nil {
			return fmt.Errorf("list the tests of %s: %w", p.name, err)
		}
		for line := range strings.Lines(string(out)) {
			if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") {
				p.tests = append(p.tests, name)
			}
		}
	}
	outputs := s.each(ctx, filepath.Join(s.dir, "no-such-server"), false)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range s.programs {
		var real []string
		for _, name := range p.tests {
			if o := outputs[p.name+" "+name]; needsServer.MatchString(o.text) {
				real = append(real, name)
			}
		}
		say("%s: %d of %d tests", p.name, len(real), len(p.tests))
		p.tests = real
	}
	if s.count() == 0 {
		return errors.New("no test uses a real server")
	}
	return nil
}

func (s *suite) count() (n int) {
	for _, p := range s.programs {
		n += len(p.tests)
	}
	return n
}

// run runs all tests on one server.
func (s *suite) run(ctx context.Context, server string) (t tally) {
	outcomes := s.each(ctx, server, true)
	var failed []string
	for _, p := range s.programs {
		for _, test := range p.tests {
			name := p.name + " " + test
			switch outcomes[name].verdict {
			case "PASS":
				t.passed++
				if needsLater.MatchString(outcomes[name].text) {
					t.partly = append(t.partly, test)
				}
			case "SKIP":
				t.skipped = append(t.skipped, test)
			default: // it failed, or its process ended before it had
				failed = append(failed, name)
			}
		}
	}
	for _, name := range failed {
		where, test, _ := strings.Cut(name, " ")
		p := s.programs[slices.Index(packages, where)]
		fmt.Fprintf(s.log, "==== %s: %s\n%s\n", server, name, outcomes[name].text)
		if len(failed) <= retried && s.shard(ctx, p, []string{test}, server, true)[test].verdict == "PASS" {
			t.passed++
			t.chance = append(t.chance, test)
			continue
		}
		t.failed = append(t.failed, test)
	}
	return t
}

// An outcome is what one test printed, and PASS, FAIL or SKIP; "" if its process ended before it did.
type outcome struct{ verdict, text string }

// each runs the tests of all programs, in several processes at a time. The result is by program and test.
func (s *suite) each(ctx context.Context, server string, required bool) map[string]outcome {
	type shard struct {
		p     *program
		tests []string
	}
	var shards []shard
	for _, p := range s.programs {
		// Neighbours are alike, and as slow: deal them out.
		count := (len(p.tests) + shardSize - 1) / shardSize
		dealt := make([]shard, count)
		for i, test := range p.tests {
			dealt[i%count].p = p
			dealt[i%count].tests = append(dealt[i%count].tests, test)
		}
		shards = append(shards, dealt...)
	}
	queue := make(chan shard, len(shards))
	for _, one := range shards {
		queue <- one
	}
	close(queue)
	var mu sync.Mutex // guards all
	all := map[string]outcome{}
	var workers sync.WaitGroup
	for range s.jobs {
		workers.Go(func() {
			for one := range queue {
				outcomes := s.shard(ctx, one.p, one.tests, server, required)
				mu.Lock()
				for test, o := range outcomes {
					all[one.p.name+" "+test] = o
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all
}

// shard runs some tests of one program in one process.
func (s *suite) shard(ctx context.Context, p *program, tests []string, server string, required bool) map[string]outcome {
	cmd := exec.CommandContext(ctx, p.file, "-test.v", "-test.timeout", shardTimeout.String(), "-test.run", "^("+strings.Join(tests, "|")+")$")
	// Containers would run this machine's server, and not the one that is asked for.
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), fleet.ServerVariable+"="+server, "DOCKER_HOST=unix:///no-containers-here")
	cmd.Env = append(cmd.Env, "REDLOCK_REQUIRE=")
	if required {
		cmd.Env = append(cmd.Env, "REDLOCK_REQUIRE=redis")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	found := outcomes(out.String())
	if err != nil && len(found) < len(tests) {
		fmt.Fprintf(s.log, "==== %s: %s ended early: %v\n%s\n", server, p.name, err, out.String())
	}
	return found
}

var (
	began   = regexp.MustCompile(`^=== (?:RUN|NAME|CONT) +(Test[^/\s]*)`)
	verdict = regexp.MustCompile(`^--- (PASS|FAIL|SKIP): (Test[^/\s]*) \(`)
)

// outcomes reads what go test -v prints, by the tests at the top.
func outcomes(text string) map[string]outcome {
	all := map[string]outcome{}
	current := ""
	for line := range strings.Lines(text) {
		if m := began.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			current = m[1]
		}
		m := verdict.FindStringSubmatch(line)
		if m != nil {
			current = m[2]
		}
		if current == "" {
			continue
		}
		o := all[current]
		o.text += line
		if m != nil {
			o.verdict = m[1]
		}
		all[current] = o
	}
	return all
}
