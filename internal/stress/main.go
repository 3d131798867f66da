// Stress runs the tests of every package in every module of this repository many times under the race detector, while
// other work keeps all processors busy. It prints which tests failed and how often, and so finds flaky tests.
//
//	go run ./internal/stress -runs 50
//
// Arguments are packages of the module in the current directory, and then only these run.
package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	runs := flag.Int("runs", 50, "how often the tests of each package run")
	jobs := flag.Int("jobs", 2*runtime.NumCPU(), "number of test programs that run at once, each of them load for the others")
	burners := flag.Int("burners", (runtime.NumCPU()+1)/2, "number of goroutines that keep processors busy while tests wait")
	match := flag.String("run", "", "run only tests that match, like go test -run")
	timeout := flag.Duration("timeout", time.Hour, "time limit for one run of one package")
	logFile := flag.String("log", "stress.log", "file for the output of failed runs")
	recordFile := flag.String("record", "", "file that keeps how often each program has run, so that a later call goes on: a program that is still the same is run only as often as is left")
	flag.Parse()
	if *match != "" && *recordFile != "" {
		fmt.Fprintln(os.Stderr, "stress: -run and -record: a run of some tests does not count as one of the program")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := stress(ctx, options{*runs, *jobs, *burners, *match, *timeout, *logFile, *recordFile, flag.Args()})
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

type options struct {
	runs, jobs, burners int
	match               string
	timeout             time.Duration
	logFile, recordFile string
	packages            []string // none: all of all modules
}

// unwatched is what is not watched for races: see RACE in the Makefile.
var unwatched = []string{
	"-gcflags=github.com/yuin/gopher-lua/...=-race=false", "-gcflags=regexp/...=-race=false", "-gcflags=go/...=-race=false",
}

// A program is the compiled tests of one package.
type program struct{ name, dir, file, sum string }

// A tally counts the runs of one test.
type tally struct {
	runs, failures, skips int
	seconds               float64 // of all runs
}

// An outcome is how one run of a test ended.
type outcome struct {
	action  string
	seconds float64
}

type results struct {
	mu     sync.Mutex // guards the rest
	tests  map[string]*tally
	cpu    map[string]time.Duration // by package: processor time of all runs, that of servers that ended included
	broken int                      // runs that failed outside any test
	cut    int                      // runs that the race detector cut short: see isCut
	done   int
	log    io.Writer
	record *record
}

func newResults(log io.Writer, record *record) *results {
	return &results{tests: map[string]*tally{}, cpu: map[string]time.Duration{}, log: log, record: record}
}

func stress(ctx context.Context, o options) (failed bool, err error) {
	dir, err := os.MkdirTemp("", "stress")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	programs, err := compileAll(ctx, dir, o.packages)
	if err != nil {
		return false, err
	}
	log, err := os.Create(o.logFile)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	record, err := openRecord(o.recordFile, programs)
	if err != nil {
		return false, err
	}
	r := newResults(log, record)

	burn, cool := context.WithCancel(ctx)
	defer cool()
	for range o.burners {
		go func() {
			for burn.Err() == nil {
				for range 1 << 20 { // iterations between two checks
				}
			}
		}()
	}

	began := time.Now()
	queue := make(chan program)
	var workers sync.WaitGroup
	for range o.jobs {
		workers.Go(func() {
			for p := range queue {
				for i := 0; r.run(ctx, p, o, i < 2); i++ {
				}
			}
		})
	}
	for i := range o.runs {
		for _, p := range programs {
			if i < record.before[p.name] {
				continue
			}
			select {
			case queue <- p:
			case <-ctx.Done():
				close(queue)
				workers.Wait()
				return r.report(time.Since(began)), ctx.Err()
			}
		}
		fmt.Fprintf(os.Stderr, "stress: round %d of %d started after %v, %d failures\n", i+1, o.runs, time.Since(began).Round(time.Second), r.failures())
	}
	close(queue)
	workers.Wait()
	return r.report(time.Since(began)), ctx.Err()
}

// compileAll compiles the tests of the packages, or of all modules at and below this directory.
func compileAll(ctx context.Context, dir string, packages []string) (programs []program, err error) {
	if len(packages) > 0 {
		return compile(ctx, dir, ".", packages)
	}
	err = filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "go.mod" {
			return err
		}
		some, err := compile(ctx, dir, filepath.Dir(path), []string{"./..."})
		programs = append(programs, some...)
		return err
	})
	return programs, err
}

func compile(ctx context.Context, dir, module string, patterns []string) (programs []program, err error) {
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}"}, patterns...)...)
	list.Dir = module
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		name, at, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		p := program{name: name, dir: at, file: filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".test")}
		// Without the paths and the revision, the same code makes the same program.
		args := append([]string{"test", "-race"}, unwatched...)
		build := exec.CommandContext(ctx, "go", append(args, "-trimpath", "-buildvcs=false", "-c", "-o", p.file, name)...)
		build.Dir = module
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("go test -c %s: %w", name, err)
		}
		binary, err := os.ReadFile(p.file)
		if err != nil {
			return nil, err
		}
		p.sum = fmt.Sprintf("%x", sha256.Sum256(binary))[:16]
		programs = append(programs, p)
	}
	return programs, nil
}

// run runs the tests of one package once. It returns whether they have to run again, as they may if the race detector cut
// the run short.
func (r *results) run(ctx context.Context, p program, o options, mayRepeat bool) (again bool) {
	args := []string{"-test.v=test2json", "-test.count=1", "-test.timeout", o.timeout.String()}
	if o.match != "" {
		args = append(args, "-test.run", o.match)
	}
	// The program is a child of this process, so that it ends with ctx. test2json only translates.
	tests, translate := exec.CommandContext(ctx, p.file, args...), exec.Command("go", "tool", "test2json", "-t", "-p", p.name)
	tests.Dir = p.dir
	// What a test repeats, each of these runs does once or a fifth as often: see CONTRIBUTING.md.
	if os.Getenv("REDLOCK_TRIALS") == "" {
		tests.Env = append(os.Environ(), "REDLOCK_TRIALS=1")
	}
	tests.WaitDelay = 10 * time.Second
	raw, err := tests.StdoutPipe()
	if err != nil {
		return r.finish(p, nil, nil, 0, false, err)
	}
	tests.Stderr = tests.Stdout
	translate.Stdin = raw
	out, err := translate.StdoutPipe()
	if err == nil {
		err = errors.Join(tests.Start(), translate.Start())
	}
	if err != nil {
		return r.finish(p, nil, nil, 0, false, err)
	}
	var text []string
	outcomes := map[string]outcome{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var event struct {
			Action, Test, Output string
			Elapsed              float64
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			text = append(text, lines.Text()+"\n")
			continue
		}
		switch event.Action {
		case "output":
			text = append(text, event.Output)
		case "pass", "fail", "skip":
			outcomes[event.Test] = outcome{event.Action, event.Elapsed} // "" is the package
		}
	}
	err = errors.Join(translate.Wait(), tests.Wait())
	if ctx.Err() != nil { // it was ended here, which says nothing
		return false
	}
	return r.finish(p, outcomes, text, tests.ProcessState.UserTime()+tests.ProcessState.SystemTime(), mayRepeat, err)
}

func (r *results) finish(p program, outcomes map[string]outcome, text []string, cpu time.Duration, mayRepeat bool, err error) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if mayRepeat && isCut(outcomes, text) {
		r.cut++
		fmt.Fprintf(r.log, "==== %s: the race detector failed: %v\n%s\n", p.name, err, strings.Join(text, ""))
		return true
	}
	r.done++
	r.cpu[p.name] += cpu
	bad := false
	for test, o := range outcomes {
		if test == "" {
			continue
		}
		name := p.name + "." + test
		t := r.tests[name]
		if t == nil {
			t = &tally{}
			r.tests[name] = t
		}
		t.runs++
		t.seconds += o.seconds
		switch o.action {
		case "fail":
			t.failures++
			bad = true
		case "skip":
			t.skips++
		}
	}
	if !bad && (err != nil || outcomes[""].action == "fail") {
		r.broken++
		bad = true
	}
	if err := r.record.add(p, bad); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
	}
	if bad {
		fmt.Fprintf(os.Stderr, "stress: %s failed\n", p.name)
		fmt.Fprintf(r.log, "==== %s: %v\n%s\n", p.name, err, strings.Join(text, ""))
	}
	return false
}

// isCut is whether the race detector has ended the program because of a defect of its own, before it or a test found anything.
func isCut(outcomes map[string]outcome, text []string) bool {
	for test, o := range outcomes {
		if test != "" && o.action == "fail" {
			return false
		}
	}
	all := strings.Join(text, "")
	return strings.Contains(all, "ThreadSanitizer: CHECK failed") && !strings.Contains(all, "WARNING: DATA RACE")
}

func (r *results) failures() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tests {
		n += t.failures
	}
	return n + r.broken
}

func (r *results) report(took time.Duration) (failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	least := 0
	skipped := 0
	for _, t := range r.tests {
		if least == 0 || t.runs < least {
			least = t.runs
		}
		if t.skips > 0 {
			skipped++
		}
	}
	names := slices.SortedFunc(maps.Keys(r.tests), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.tests[b].failures, r.tests[a].failures), cmp.Compare(a, b))
	})
	for _, name := range names {
		if t := r.tests[name]; t.failures > 0 {
			failed = true
			fmt.Printf("FAIL %d of %d: %s\n", t.failures, t.runs, name)
		}
		if t := r.tests[name]; t.skips > 0 {
			fmt.Printf("SKIP %d of %d: %s\n", t.skips, t.runs, name)
		}
	}
	if r.broken > 0 {
		failed = true
		fmt.Printf("FAIL %d programs failed outside any test\n", r.broken)
	}
	if r.cut > 0 {
		fmt.Printf("stress: the race detector failed in %d runs (ThreadSanitizer: CHECK failed), which do not count and were repeated\n", r.cut)
	}
	failed = r.record.report() || failed
	r.reportTimes()
	fmt.Printf("stress: %d tests (%d of them skipped somewhere), each at least %d times, %d programs run in %v\n",
		len(r.tests), skipped, least, r.done, took.Round(time.Second))
	if os.Getenv("REDLOCK_TRIALS") == "" {
		fmt.Println("stress: what a test repeats, each run did once or a fifth as often as make unit does")
	}
	return failed
}

// reportTimes says which tests and packages a round waits for. r.mu is held.
func (r *results) reportTimes() {
	slowest := slices.SortedFunc(maps.Keys(r.tests), func(a, b string) int { return cmp.Compare(r.tests[b].seconds, r.tests[a].seconds) })
	for _, name := range slowest[:min(20, len(slowest))] {
		fmt.Printf("%6.1f s a run: %s\n", r.tests[name].seconds/float64(r.tests[name].runs), name)
	}
	for _, name := range slices.SortedFunc(maps.Keys(r.cpu), func(a, b string) int { return cmp.Compare(r.cpu[b], r.cpu[a]) }) {
		fmt.Printf("%6.0f s of processor time in all runs: %s\n", r.cpu[name].Seconds(), name)
	}
}
