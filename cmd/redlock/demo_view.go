package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	framesEvery = 100 * time.Millisecond
	linesEvery  = time.Second
	frameWidth  = 80 // no line of a frame is wider
)

// A view shows a stage. On a terminal it redraws a few lines again and again. Elsewhere it prints a line per second.
// With --json it prints nothing.
type view struct {
	out    io.Writer
	stage  *stage
	silent bool
	live   bool
	colour bool // in its lines that stay too

	mu    sync.Mutex // guards the rest, and writing
	drawn int        // lines of the last frame, which the next one replaces
}

func newView(out io.Writer, s *stage, silent bool) *view {
	v := &view{out: out, stage: s, silent: silent}
	if file := liveTerminal(out); file != nil && !silent {
		width, _, err := term.GetSize(int(file.Fd()))
		v.live = err != nil || width == 0 || width >= frameWidth // lines that wrap cannot be redrawn
		v.colour = true
	}
	return v
}

// opening says what will happen.
func (v *view) opening() {
	if v.silent {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	io.WriteString(v.out, `Four clients increment one counter under one lock on five nodes in this process.
First a lock holder pauses, then two nodes die, then one of them restarts empty.
`)
}

// draw shows the stage until ctx ends.
func (v *view) draw(ctx context.Context) {
	if v.silent {
		return
	}
	every := linesEvery
	if v.live {
		every = framesEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			v.frame()
		}
	}
}

func (v *view) frame() {
	if !v.live {
		line := v.stage.line()
		v.mu.Lock()
		defer v.mu.Unlock()
		fmt.Fprintln(v.out, line)
		return
	}
	lines := v.stage.lines(v.colours())
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	v.erase(&b)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	v.drawn = len(lines)
	io.WriteString(v.out, b.String()) // in one write, so that it does not flicker
}

// erase makes the next output replace the last frame. mu is held.
func (v *view) erase(b *strings.Builder) {
	if v.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", v.drawn)
	}
	v.drawn = 0
}

// event prints a line that stays.
func (v *view) event(format string, args ...any) {
	if v.silent {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	v.erase(&b)
	fmt.Fprintf(&b, "%5.1fs  %s\n", time.Since(v.stage.began).Seconds(), fmt.Sprintf(format, args...))
	io.WriteString(v.out, b.String())
}

// close removes the last frame.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	v.erase(&b)
	io.WriteString(v.out, b.String())
}

// shown is the last sentence of a demo that passed.
const shown = `Shown: with a paused holder, two dead nodes and one that lost its data, the lock
had one holder at a time, and no update was lost or overwritten.
`

func (v *view) verdict(r verdict) error {
	c := v.colours()
	var b strings.Builder
	if r.Interrupted {
		fmt.Fprintf(&b, "Interrupted after %.1fs. Checks of what ran until then:\n", r.Seconds)
	}
	failed := 0
	for _, check := range r.Checks {
		mark := c.good + "✓" + c.plain
		if !check.OK {
			mark = c.bad + "✗" + c.plain
			failed++
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, check.Name, check.Detail)
	}
	if r.LostLeases > 0 {
		fmt.Fprintf(&b, "  leases that ended before their holder wrote, so it did not write: %d\n", r.LostLeases)
	}
	switch {
	case failed > 0:
		fmt.Fprintf(&b, "Not shown: %d of %d checks failed.\n", failed, len(r.Checks))
	case !r.Interrupted:
		b.WriteString(shown)
	}
	_, err := io.WriteString(v.out, b.String())
	return err
}

type colours struct{ good, wait, bad, plain string }

func (v *view) colours() colours {
	if !v.colour {
		return colours{}
	}
	return colours{good: "\x1b[32m", wait: "\x1b[33m", bad: "\x1b[31m", plain: "\x1b[0m"}
}

// of returns the colour of a node.
func (c colours) of(state nodeState) string {
	switch state.word {
	case up:
		return c.good
	case down:
		return c.bad
	}
	return c.wait
}

func (s nodeState) String() string {
	if s.word == quarantined {
		return fmt.Sprintf("%s %.1fs", s.word, max(0, time.Until(s.until).Seconds()))
	}
	return s.word
}

// A moment is the stage as it is now.
type moment struct {
	states  []nodeState
	last    tenure
	by      [demoClients]int // leases of each client
	counter int64
}

func (s *stage) now() (m moment) {
	m.counter, _ = s.counter.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	m.states = slices.Clone(s.states)
	for _, t := range s.tenures {
		m.by[t.client]++
		if t.from > m.last.from {
			m.last = t
		}
	}
	return m
}

// lines are a frame. Each is shorter than frameWidth.
func (s *stage) lines(c colours) []string {
	m := s.now()
	nodes, shares := make([]string, len(m.states)), make([]string, len(m.by))
	for i, state := range m.states {
		nodes[i] = fmt.Sprintf("%s%s %v%s", c.of(state), s.nodes[i].Name(), state, c.plain)
	}
	for id, n := range m.by {
		shares[id] = fmt.Sprintf("client %d: %d", id+1, n)
	}
	return []string{
		fmt.Sprintf("%5.1fs  %s", time.Since(s.began).Seconds(), strings.Join(nodes, "  ")),
		fmt.Sprintf("        counter %d  last holder: client %d, fencing token %d", m.counter, m.last.client+1, m.last.fence),
		"        leases  " + strings.Join(shares, "  "),
	}
}

// line is a frame in one line. It names the nodes that do not vote.
func (s *stage) line() string {
	m := s.now()
	text := fmt.Sprintf("%5.1fs  counter %d; %d of %d nodes vote", time.Since(s.began).Seconds(), m.counter, s.voting(), len(s.nodes))
	separator := "; "
	for i, state := range m.states {
		if state.word != up {
			text += fmt.Sprintf("%s%s %v", separator, s.nodes[i].Name(), state)
			separator = ", "
		}
	}
	return text
}
