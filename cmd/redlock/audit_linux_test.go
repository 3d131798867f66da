package main_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/required"
)

// auditOf judges journals and returns the exit code and what it says as JSON.
func auditOf(t *testing.T, files ...string) (code int, r struct {
	Verdict                  string
	Processes, Names, Leases int
	Counts                   map[string]int
	Violations               []struct {
		Basis  string
		Leases []struct{ Process, End string }
	}
	LeftOut []string `json:"left_out"`
}) {
	t.Helper()
	code, out, errs := run(t, append([]string{"audit", "--json", "--clock-error=0"}, files...)...) // all are on this machine
	require.Empty(t, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &r), out)
	return code, r
}

// Several processes write to one file.
func TestTheJournalsOfRunsShowThatOneHeldTheLock(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	file := filepath.Join(t.TempDir(), "leases.jsonl")
	var runs []*process
	for range 5 {
		runs = append(runs, start(t, nil, nil, "run", nodes(f), "--node-timeout=3s", "--journal", file, "job", "second", "--", "sleep", "0.05"))
	}
	for _, p := range runs {
		code, _, errs := p.wait()
		require.Equal(t, 0, code, errs)
	}
	code, r := auditOf(t, file)
	require.Equal(t, 0, code, "%+v", r)
	require.Equal(t, "consistent", r.Verdict)
	require.Equal(t, [3]int{5, 2, 5}, [3]int{r.Processes, r.Names, r.Leases})
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	code, out, _ := run(t, "audit", file)
	require.Equal(t, 0, code)
	require.Regexp(t, `^5 leases of 2 names; processes: 5\nfrom [0-9-]+ [0-9:.]+ to [0-9-]+ [0-9:.]+\n(?:.* may or may not have overlapped .*\n)?no violation\n$`, out)
}

// The first holder does not know that its lock was taken away until its next renewal.
func TestTheAuditFindsALockThatWasTakenAwayByForce(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first.jsonl"), filepath.Join(dir, "second.jsonl")
	log := newRunLog(t)
	p := start(t, nil, nil, "run", nodes(f), "--node-timeout=3s", "--ttl=12s", "--journal", first, "job", "--", "sh", "-c", `echo began >>"$0"; exec sleep 60`, string(log))
	log.await(t, "began", 1)
	spread(t, f, "job")
	code, _, errs := run(t, "release", "--force", "--node-timeout=3s", nodes(f), "job")
	require.Equal(t, 0, code, errs)
	code, _, errs = run(t, "run", nodes(f), "--node-timeout=3s", "--journal", second, "job", "--", "sleep", "0.5")
	require.Equal(t, 0, code, errs)
	code, _, errs = p.wait()
	require.Equal(t, 76, code, errs)

	code, r := auditOf(t, second, first)
	require.Equal(t, 1, code)
	require.Equal(t, "violated", r.Verdict)
	require.Equal(t, map[string]int{"overlap": 1}, r.Counts)
	require.Equal(t, "wall clocks", r.Violations[0].Basis)
	require.Contains(t, r.Violations[0].Leases[0].End, "lost: ")
	require.Equal(t, "released", r.Violations[0].Leases[1].End)
	code, out, _ := run(t, "audit", "--clock-error=10ms", first, second)
	require.Equal(t, 1, code)
	require.Regexp(t, `(?m)^VIOLATION overlap of job, by wall clocks: \S+:\d+ with fencing token \d+ and \S+:\d+ with fencing token \d+ held it at the same time, for \S+ at least$`, out)
	require.Regexp(t, `(?m)^  \S+:\d+ +fence \d+ +from \S+ \S+ +to \S+ \S+ +lost: .+$`, out)
	require.Regexp(t, `(?m)^violated$`, out)
	code, out, _ = run(t, "audit", "--clock-error=1h", first, second)
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "1 lease may or may not have overlapped with another process's: their clocks may be wrong by 1h0m0s\nno violation\n")
}

func TestAJournalThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other, empty, pipe := filepath.Join(dir, "other"), filepath.Join(dir, "empty"), filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	require.NoError(t, os.WriteFile(other, []byte("hello\n"), 0o600))
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"audit"}, 64, "redlock: redlock audit needs a JOURNAL.jsonl; see redlock audit --help\n"},
		{[]string{"audit", "--clock-error=-1s", empty}, 64, "redlock: --clock-error is negative: -1s\n"},
		{[]string{"audit", filepath.Join(dir, "none")}, 2, "redlock: open " + dir + "/none: no such file or directory\n"},
		{[]string{"audit", other}, 2, "redlock: " + other + ": it is no journal: no line of it is a JSON object\n"},
		{[]string{"run", "--nodes=embedded", "--journal", dir, "k", "--", "true"}, 64, "redlock: --journal: open " + dir + ": is a directory\n"},
		{[]string{"run", "--nodes=embedded", "--journal", pipe, "k", "--", "true"}, 64, "redlock: --journal: " + pipe + " is a pipe; give a file\n"},
		{[]string{"run", "--nodes=embedded", "--journal", dir + "/no/file", "k", "--", "true"}, 64, "redlock: --journal: open " + dir + "/no/file: no such file or directory\n"},
	} {
		code, _, errs := run(t, c.args...)
		require.Equal(t, c.code, code, "%v", c.args)
		require.Equal(t, c.says, errs)
	}
	code, out, errs := run(t, "audit", empty)
	require.Equal(t, 2, code)
	require.Empty(t, errs)
	require.Equal(t, "0 leases of 0 names; processes: 0\nLEFT OUT there are no leases in the journals\nunsure: no violation, but a part was not judged\n", out)
	code, out, _ = start(t, strings.NewReader("hello\n"), nil, "audit", "--json", "-").wait()
	require.Equal(t, 2, code)
	require.Contains(t, out, `"error":"standard input: it is no journal`)
}

// The work under the lock must not fail for it.
func TestAJournalThatIsFullIsToldAndNothingElse(t *testing.T) {
	t.Parallel()
	for _, json := range []bool{false, true} {
		args := []string{"run", "--nodes=embedded", "--journal=/dev/full"}
		if json {
			args = append(args, "--json")
		}
		code, out, errs := run(t, append(args, "k", "--", "echo", "ran")...)
		require.Equal(t, 0, code)
		require.Equal(t, "ran\n", out)
		if json {
			require.Contains(t, errs, `"detail":"the journal is not complete: write /dev/full: no space left on device"`)
		} else {
			require.Equal(t, "redlock: the journal is not complete: write /dev/full: no space left on device\n", errs)
		}
	}
}

// A terminal whose output is stopped takes nothing, as a disk that is stuck.
func TestAJournalOnADiskThatIsStuckHoldsUpNothing(t *testing.T) {
	t.Parallel()
	master, slave := openTerminal(t)
	defer master.Close()
	defer slave.Close()
	const outputOff = 0 // TCOOFF
	require.NoError(t, unix.IoctlSetInt(int(slave.Fd()), unix.TCXONC, outputOff))

	code, out, errs := run(t, "run", "--nodes=embedded", "--journal", slave.Name(), "k", "--", "echo", "ran")
	require.Equal(t, 0, code)
	require.Equal(t, "ran\n", out)
	require.Equal(t, "redlock: the journal is not complete: the disk does not answer\n", errs)
}

// A disk is full for a while.
func TestWhatTheDiskDidNotTakeIsInTheJournal(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		required.Missing(t, "root", errors.New("a small disk is mounted"))
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		required.Missing(t, "root", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	log := newRunLog(t)
	file, filler := filepath.Join(dir, "leases.jsonl"), filepath.Join(dir, "filler")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600) // until it is full
	p := lead(t, f, log, "job", `echo run >>"$0"`, "--every=100ms", "--journal="+file, "--ttl=3s")
	log.await(t, "run", 2)
	require.NoError(t, os.Remove(filler))
	eventually(t, "a line about what is missing", func() bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), `"kind":"missed"`)
	})
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	code, _, errs := p.wait()
	require.Contains(t, []int{0, 143}, code) // it was between two runs, or not
	require.Contains(t, errs, "redlock: the journal is not complete: write "+file+": no space left on device\n")
	code, r := auditOf(t, file)
	require.Equal(t, 2, code)
	require.Equal(t, "unsure", r.Verdict)
}
