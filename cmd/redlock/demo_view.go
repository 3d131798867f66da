package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	framesEvery = 100 * time.Millisecond
	linesEvery  = time.Second
)

// A view shows a stage: some lines drawn over and over on a terminal, a line now and then elsewhere, nothing
// where JSON was asked for.
type view struct {
	out    io.Writer
	stage  *stage
	silent bool
	live   bool
	colour bool

	mu    sync.Mutex // guards the rest, and writing
	drawn int        // lines of the last frame, which the next is drawn over
}

func newView(out io.Writer, s *stage, silent bool) *view {
	v := &view{out: out, stage: s, silent: silent}
	if file, ok := out.(*os.File); ok && !silent {
		v.live = term.IsTerminal(int(file.Fd())) && os.Getenv("TERM") != "dumb"
		v.colour = v.live && os.Getenv("NO_COLOR") == "" // see no-color.org
	}
	return v
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
	lines := v.stage.lines(v.colours())
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.live {
		for i := range lines[1:] {
			lines[i+1] = strings.TrimSpace(lines[i+1])
		}
		fmt.Fprintln(v.out, strings.Join(lines, ", "))
		return
	}
	var b strings.Builder
	v.erase(&b)
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	v.drawn = len(lines)
	io.WriteString(v.out, b.String()) // in one write, so that it does not flicker
}

// erase has the next output take the place of the last frame. mu is held.
func (v *view) erase(b *strings.Builder) {
	if v.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\r\x1b[J", v.drawn)
	}
	v.drawn = 0
}

// event prints a line that stays.
func (v *view) event(text string) {
	if v.silent {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	v.erase(&b)
	fmt.Fprintf(&b, "%5.1fs  %s\n", time.Since(v.stage.began).Seconds(), text)
	io.WriteString(v.out, b.String())
}

// close leaves no half frame behind.
func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	var b strings.Builder
	v.erase(&b)
	io.WriteString(v.out, b.String())
}

func (v *view) verdict(r verdict) error {
	c := v.colours()
	var b strings.Builder
	if r.Interrupted {
		fmt.Fprintf(&b, "Interrupted after %.1fs. What ran until then:\n", r.Seconds)
	}
	for _, check := range r.Checks {
		mark := c.good + "✓" + c.plain
		if !check.OK {
			mark = c.bad + "✗" + c.plain
		}
		fmt.Fprintf(&b, "%s %s: %s\n", mark, check.Name, check.Detail)
	}
	if r.LostLeases > 0 {
		fmt.Fprintf(&b, "  leases lost before the counter was written, which then was not: %d\n", r.LostLeases)
	}
	_, err := io.WriteString(v.out, b.String())
	return err
}

type colours struct{ good, bad, plain string }

func (v *view) colours() colours {
	if !v.colour {
		return colours{}
	}
	return colours{good: "\x1b[32m", bad: "\x1b[31m", plain: "\x1b[0m"}
}

// lines is the stage as it is now, each line shorter than 80 columns.
func (s *stage) lines(c colours) []string {
	nodes := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		if nodes[i] = c.good + n.Name() + " up" + c.plain; !n.Alive() {
			nodes[i] = c.bad + n.Name() + " down" + c.plain
		}
	}
	by := make([]int, demoClients)
	s.mu.Lock()
	var last tenure
	for _, t := range s.tenures {
		by[t.client]++
		if t.from > last.from {
			last = t
		}
	}
	s.mu.Unlock()
	shares := make([]string, demoClients)
	for id, n := range by {
		shares[id] = fmt.Sprintf("client %d: %d", id+1, n)
	}
	return []string{
		fmt.Sprintf("%5.1fs  %s", time.Since(s.began).Seconds(), strings.Join(nodes, "  ")),
		fmt.Sprintf("        counter %d  fence %d  last holder: client %d", s.counter.Load(), last.fence, last.client+1),
		"        " + strings.Join(shares, "  "),
	}
}
