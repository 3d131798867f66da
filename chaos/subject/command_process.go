package subject

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A process is the program of a Command. Two goroutines end with it: the one that starts it and waits for it, and the one
// that shows its standard error.
type process struct {
	cmd           *exec.Cmd
	group         bool // it has its own process group
	in, out, errs *os.File

	sending sync.Mutex    // guards that lines are written whole
	exited  chan struct{} // closed when it has ended and was waited for
	shown   chan struct{} // closed when its standard error was read
	last    string        // the last line of that; read it after shown
}

const (
	sendPatience  = 10 * time.Second // for the program to read
	drainPatience = time.Second      // for what it wrote, when it has ended; and for its end, when it has closed its output
	maxShown      = 100              // lines of standard error
	maxShownLine  = 1000             // bytes
)

func (s Command) start(o Options) (*process, error) {
	p := &process{group: !o.Child, exited: make(chan struct{}), shown: make(chan struct{})}
	p.cmd = exec.Command("sh", "-c", s.Line)
	p.cmd.Env = append(os.Environ(), "REDLOCK_CHAOS_URLS="+strings.Join(o.URLs, ","),
		"REDLOCK_CHAOS_CLIENT="+strconv.Itoa(o.Client), "REDLOCK_CHAOS_TTL_MS="+strconv.FormatInt(millis(o.TTL), 10))
	setGroup(p.cmd, p.group)
	theirs := make([]*os.File, 3)
	for i, pipe := range []func(*os.File, *os.File){
		func(r, w *os.File) { theirs[0], p.in = r, w },
		func(r, w *os.File) { theirs[1], p.out = w, r },
		func(r, w *os.File) { theirs[2], p.errs = w, r },
	} {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(append(theirs[:i], p.in, p.out, p.errs)...)
			return nil, err
		}
		pipe(r, w)
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the program ends with the thread, see setGroup
		defer close(p.exited)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			reap(p.cmd, p.group)
			for _, f := range []*os.File{p.out, p.errs} { // another process may have kept them
				_ = f.SetReadDeadline(time.Now().Add(drainPatience))
			}
		}
	}()
	err := <-started
	closeAll(theirs...)
	if err != nil {
		closeAll(p.in, p.out, p.errs)
		return nil, err
	}
	var to io.Writer = os.Stderr
	if s.Stderr != nil {
		to = s.Stderr
	}
	go p.show(to, o.Client)
	return p, nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// show shows the first lines of its standard error, and reads the rest, so that the program does not wait.
func (p *process) show(to io.Writer, client int) {
	defer close(p.shown)
	defer p.errs.Close()
	lines := bufio.NewReaderSize(p.errs, maxShownLine)
	for n := 0; ; n++ {
		line, long, err := lines.ReadLine() // a long line in parts
		if err != nil {
			return
		}
		text := strings.ToValidUTF8(string(line), "?")
		if p.last = text; long {
			text += "…"
		}
		switch {
		case n < maxShown:
			fmt.Fprintf(to, "client %d: %s\n", client, printable(text))
		case n == maxShown:
			fmt.Fprintf(to, "client %d: … (further lines are not shown)\n", client)
		}
	}
}

// printable replaces control characters, which could change the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// lines reads its standard output.
func (p *process) lines() *bufio.Scanner {
	lines := bufio.NewScanner(p.out)
	lines.Buffer(nil, maxMessage)
	return lines
}

// end waits for its end, after nothing more was read, and says why it ended. It kills what does not end.
func (p *process) end(read error) error {
	defer p.out.Close()
	var why error
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		why = errors.New("the command closed its standard output, and did not end")
		p.kill()
		<-p.exited
	}
	<-p.shown
	switch said := ""; {
	case errors.Is(read, bufio.ErrTooLong):
		return fmt.Errorf("the command wrote a line of more than %d bytes", maxMessage)
	case why != nil:
		return why
	default:
		if p.last != "" {
			said = fmt.Sprintf("; it said %.200q", p.last)
		}
		return fmt.Errorf("the command ended by itself (%v)%s", p.cmd.ProcessState, said)
	}
}

// send writes a line. It fails if the program does not read.
func (p *process) send(r request) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.sending.Lock()
	defer p.sending.Unlock()
	_ = p.in.SetWriteDeadline(time.Now().Add(sendPatience))
	_, err = p.in.Write(append(line, '\n'))
	return err
}

// kill ends it, and what it started.
func (p *process) kill() {
	select {
	case <-p.exited: // its id may be that of another process
	default:
		kill(p.cmd, p.group)
	}
}

// close ends its input, and kills it if it does not end.
func (p *process) close() {
	p.in.Close()
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.kill()
		<-p.exited
	}
}
