package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// A terminal runs a program on a terminal of its own.
type terminal struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	ended  chan struct{} // nothing more is read

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// startAtTerminal starts redlock on a terminal of this size.
func startAtTerminal(t *testing.T, columns, rows int, env []string, args ...string) *terminal {
	t.Helper()
	return startProgramAtTerminal(t, columns, rows, env, binary, args...)
}

// openTerminal returns both ends of a new terminal: ours, and that of programs.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return master, slave
}

// startProgramAtTerminal does the same with another program.
func startProgramAtTerminal(t *testing.T, columns, rows int, env []string, program string, args ...string) *terminal {
	t.Helper()
	master, slave := openTerminal(t)
	defer slave.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}))
	p := &terminal{t: t, master: master, cmd: exec.CommandContext(t.Context(), program, args...), ended: make(chan struct{})}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	for _, v := range os.Environ() {
		if !isOwnVariable(v) && !strings.HasPrefix(v, "NO_COLOR=") && !strings.HasPrefix(v, "TERM=") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(append(p.cmd.Env, "TERM=xterm"), env...)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			p.mu.Lock()
			p.text.Write(buffer[:n])
			p.mu.Unlock()
			if err != nil { // EIO: the last process has closed the terminal
				return
			}
		}
	}()
	t.Cleanup(func() { master.Close(); <-p.ended })
	return p
}

func (p *terminal) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func (p *terminal) typed(text string) {
	_, err := p.master.WriteString(text)
	require.NoError(p.t, err)
}

// wait returns the exit code. It fails where the program does not end: a shell stays if it believes that a job is stopped.
func (p *terminal) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		require.Fail(p.t, "the program at the terminal goes on", "it said:\n%s", p.said())
	}
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

func TestEnrollAsksAtATerminal(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	p := startAtTerminal(t, 80, 24, nil, "enroll", nodes(f))
	require.Equal(t, 0, p.wait(), p.said())
	require.NotContains(t, p.said(), "[y/N]", "new servers need no question")
	const question = "or was replaced? If that is wrong, two clients may hold one lock. [y/N] "
	for _, c := range []struct {
		typed string
		code  int
		said  string
	}{
		{"\n", 64, "not confirmed; nothing was changed"},
		{"no\n", 64, "not confirmed; nothing was changed"},
		{"\x04", 64, "not confirmed; nothing was changed"}, // the end of the input
		{"\x03", 130, "redlock: interrupted by SIGINT"},    // interrupted
		{"Y\n", 0, "1 node enrolled: " + namesOf(f.Nodes()[1:2]) + "; 2 were already: "},
	} {
		do(t, f.Nodes()[1], "FLUSHALL")
		p := startAtTerminal(t, 80, 24, nil, "enroll", nodes(f))
		eventually(t, "the question", func() bool { return strings.HasSuffix(p.said(), question) })
		require.Contains(t, p.said(), "would vote at once")
		p.typed(c.typed)
		require.Equal(t, c.code, p.wait(), "%q: %s", c.typed, p.said())
		require.Contains(t, p.said(), c.said, "%q", c.typed)
	}
	p = startAtTerminal(t, 80, 24, nil, "doctor", nodes(f))
	require.Equal(t, 0, p.wait(), p.said())
}

var escape = regexp.MustCompile("\x1b\\[[?0-9]*[A-Za-z]")

// At 80 by 24, each frame is drawn in place, and the screen is as before at the end.
func TestTopRedrawsATerminal(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	hold(t, newClient(t, f), "nightly")
	for name, env := range map[string][]string{"usual": nil, "empty": {"NO_COLOR="}} { // no-color.org: empty is not set
		p := startAtTerminal(t, 80, 24, env, "top", "--interval=100ms", nodes(f))
		frames := func() []string { return strings.Split(p.said(), "\x1b[H") }
		eventually(t, "three frames", func() bool { return len(frames()) > 4 })
		frame := frames()[3]
		rows := strings.Split(frame, "\r\n")
		require.Len(t, rows, 24, name)
		for _, row := range rows {
			require.LessOrEqual(t, len([]rune(escape.ReplaceAllString(row, ""))), 80, "%q", row)
			require.Contains(t, row, "\x1b[K", "what was there before is erased")
		}
		require.Regexp(t, `^redlock top - 3 of 3 nodes vote, 1 lock held, 0 waiters +\d\d:\d\d:\d\d$`, escape.ReplaceAllString(rows[0], ""))
		require.Regexp(t, `^nightly +`+regexp.QuoteMeta(thisProcess()[:min(12, len(thisProcess()))])+`\S* +[0-9.]+m?s\+ +[0-9.]+s +0 +- +0% +1$`, escape.ReplaceAllString(rows[3], ""))
		p.typed("\x03")
		require.Equal(t, 0, p.wait(), p.said())
		said := p.said()
		require.Equal(t, 1, strings.Count(said, "\x1b[?1049h"))
		_, rest, _ := strings.Cut(said, "\x1b[?25h\x1b[?1049l")
		require.Contains(t, rest, "nightly", "the last frame stays")
		require.NotContains(t, rest, "\x1b")
	}
}

// Such a terminal, and such a user, gets plain lines as in a pipe: no colour, and nothing that is redrawn.
func TestATerminalGetsPlainLinesWhereTheUserWantsNoColours(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Process, fleet.Options{Nodes: 3})
	for _, env := range []string{"TERM=dumb", "NO_COLOR=1"} {
		p := startAtTerminal(t, 80, 24, []string{env}, "top", "--count=2", "--interval=100ms", nodes(f), "nightly")
		require.Equal(t, 0, p.wait())
		require.NotContains(t, p.said(), "\x1b", env)
		require.Equal(t, 2, strings.Count(p.said(), "Z lock=nightly holder=- "), p.said())
		p = startAtTerminal(t, 80, 24, []string{env}, "demo", "--seconds=1")
		require.Equal(t, 0, p.wait(), p.said())
		require.NotContains(t, p.said(), "\x1b", env)
	}
	p := startAtTerminal(t, 80, 24, nil, "demo", "--seconds=1")
	require.Equal(t, 0, p.wait(), p.said())
	require.Contains(t, p.said(), "\x1b[32m")
}

// Whatever ends top, the terminal is as before: with a cursor, and not on the alternate screen.
func TestEverySignalGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	f := startEnrolled(t, fleet.Embedded, fleet.Options{Nodes: 1})
	for sig := range endings {
		p := startAtTerminal(t, 80, 24, nil, "top", "--interval=100ms", nodes(f), "k")
		eventually(t, "a frame", func() bool { return strings.Contains(p.said(), "\x1b[H") })
		require.NoError(t, p.cmd.Process.Signal(sig))
		require.Equal(t, 0, p.wait(), "%v: %s", sig, p.said())
		require.Contains(t, p.said(), "\x1b[?25h\x1b[?1049l", "%v", sig)
		require.NotContains(t, p.said(), "goroutine")
	}
}
