package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/access"
)

const topHelp = `Shows holders and waiters of locks again and again. In a pipe it prints lines instead.

Give the names of the locks. Without names, top looks for them with SCAN on every node, which its Redis user must be
allowed to do (+scan). With a prefix (--prefix) it looks only at keys that begin with it.

  LOCK     the name
  HOLDER   its host and process, and what --owner added; else the first digits of the owner token;
           of a lock that several share: how many readers, or holders of permits;
           "partial": somebody is acquiring or releasing the lock, or failed to; "no-lock": the key is something else;
           "no-right": the Redis user may not read the key
  HELD     for how long top has seen this holder; + means that it was there before; "new": the last look had another
  LEFT     when the lock expires if the holder does not renew it
  WAITERS  how many processes wait (those that wait within one process count as one); one that died
           counts for some 10 s, and for longer while others wait
  WAITING  for how long the first of them has waited
  BUSY     the share of the time in which somebody waited, since top began
  TURNS    how many holders top has seen, one after the other

top only reads. It looks once an interval, so it misses what happens in between.

Without names, a lock stays on the list for 10 s after it was held. Keys that the Redis user may not read are left out,
and a key that is no lock is looked at again after a minute. If the nodes have many other keys, it takes several looks
to find all locks. Until then, and if there are more than --limit, the first line of a look says more=true. --count 1
takes up to 30 s to look at all keys.

Exit code: 0 a signal ended it, or it has printed --count times, 69 too few nodes voted at the end, 64 usage, 1 the
nodes refuse SCAN.`

type topper struct {
	operator
	interval time.Duration
	count    int
	limit    int
}

func newTop() *cobra.Command {
	o := &topper{operator: looking()}
	cmd := &cobra.Command{
		Use:   "top [flags] [KEY...]",
		Short: "Watch holders, waiters and contention, live",
		Long:  topHelp,
		Example: "  redlock top\n  redlock top nightly hourly\n  redlock top --count 1 | sort\n" +
			"  redlock top --json --interval 10s >> locks.json",
		ValidArgsFunction: noFiles,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case o.interval < 100*time.Millisecond || o.interval > time.Hour:
				return usage("--interval %v: give 100ms to 1h", o.interval)
			case o.count < 0:
				return usage("--count %d is negative", o.count)
			case o.limit < 1 || o.limit > 10_000:
				return usage("--limit %d: give 1 to 10000", o.limit)
			case len(names) > o.limit:
				return usage("there are more names than --limit %d", o.limit)
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return o.top(ctx, cmd.OutOrStdout(), names)
		},
	}
	o.flags(cmd)
	cmd.Flags().DurationVar(&o.interval, "interval", time.Second, "time between two looks")
	cmd.Flags().IntVar(&o.count, "count", 0, "end after so many looks; 0: do not end")
	cmd.Flags().IntVar(&o.limit, "limit", 1000, "how many locks are watched at most")
	return cmd
}

func (o *topper) top(ctx context.Context, out io.Writer, names []string) error {
	nodes, closeNodes, err := o.openNodes(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil // ended before there was anything to see
	case err != nil:
		return err
	}
	defer closeNodes()
	cfg, err := o.config(ctx, nodes, redlock.Hooks{})
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	client, err := o.start(ctx, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	to := access.Of(client)
	for _, name := range names {
		if _, _, err := to.Keys(name); err != nil {
			return failure(err)
		}
	}
	asking, stop := context.WithCancel(ctx)
	asked, done := newTopNodes(asking, to)
	defer func() { stop(); done() }()

	w := &watch{topper: o, client: client, nodes: asked, screen: newScreen(out, o.json)}
	defer w.screen.close()
	return w.run(ctx, names)
}

// A watch is one run of redlock top.
type watch struct {
	*topper
	client *redlock.Client
	nodes  *topNodes
	board  *board
	screen *screen

	ended    []bool // of which nodes a search has seen the last key
	searched bool   // of a quorum, so every lock was found that was held all the while
	whole    bool   // the last search saw every key
}

func (w *watch) run(ctx context.Context, names []string) error {
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	var last *topSample
	for i := 1; ; i++ {
		s, err := w.sample(ctx, names)
		switch {
		case ctx.Err() != nil && last == nil:
			return nil // ended before there was anything to see
		case ctx.Err() != nil:
		case err != nil:
			return err
		default:
			last = s
			if err := w.screen.show(s); err != nil {
				return &exitError{exitFailed, err}
			}
		}
		if i == w.count || ctx.Err() != nil {
			break
		}
		select {
		case <-ticker.C:
		case <-w.screen.pauser.asked:
			w.screen.pause() // then it draws the whole screen anew
		case <-ctx.Done():
		}
	}
	w.screen.close()
	switch {
	case last.votes >= last.quorum:
		return nil
	case w.json: // its last line has the number of votes
		return &exitError{exitNoQuorum, nil}
	}
	return &exitError{exitNoQuorum, last.tooFew()}
}

func (w *watch) sample(ctx context.Context, names []string) (*topSample, error) {
	status := w.client.Status(ctx)
	s := &topSample{nodes: len(status), quorum: w.quorum, interval: w.interval, scanning: len(names) == 0}
	if w.board == nil {
		w.board, w.ended = newBoard(s.quorum, w.limit, names), make([]bool, len(status))
	}
	if s.scanning {
		if err := w.search(ctx); err != nil {
			return nil, &exitError{exitFailed,
				fmt.Errorf("without names, top looks for locks with SCAN: %w; allow +scan, or give the names", err)}
		}
		s.searching = !w.searched
	}
	names = w.board.names()
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = w.before + name
	}
	seen := w.nodes.look(ctx, keys)
	// Only nodes that vote and answered this say which locks are held: of any other, nobody knows which locks it has, or may
	// have forgotten.
	maps.DeleteFunc(seen, func(node int, _ []sighting) bool { return status[node].Err != nil })
	s.votes = len(seen)
	for node, refused := range w.nodes.blind {
		if refused != nil && status[node].Err == nil {
			s.refused = refused
		}
	}
	s.at = time.Now()
	w.board.update(s.at, names, seen)
	s.tracks, s.held, s.waiters = w.board.shown(s.at)
	s.more = w.board.more
	return s, nil
}

// A screen prints samples: in place on a terminal, as lines elsewhere.
type screen struct {
	out    io.Writer
	json   bool
	file   *os.File // a terminal that is large enough; nil: lines
	last   []string
	pauser *pauser // hears of a pause only if there is a screen to leave
}

const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[2J" // the alternate screen, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

func newScreen(out io.Writer, json bool) *screen {
	s := &screen{out: out, json: json, pauser: newPauser()}
	if file := liveTerminal(out); file != nil && !json {
		s.file = file
		s.pauser.listen()
		io.WriteString(out, enterScreen)
	}
	return s
}

func (s *screen) show(sample *topSample) error {
	switch {
	case s.json:
		report := sample.report()
		if sample.votes < sample.quorum {
			report.failed(sample.tooFew(), kindOf(exitNoQuorum))
		}
		return writeJSON(s.out, report)
	case s.file == nil:
		_, err := io.WriteString(s.out, strings.Join(sample.lines(), "\n")+"\n")
		return err
	}
	width, height, err := term.GetSize(int(s.file.Fd())) // each time: it may have been resized
	if err != nil || width == 0 || height == 0 {
		width, height = 80, 24
	}
	s.last = sample.frame(width, height)
	// In one write, so that it does not flicker.
	_, err = io.WriteString(s.out, "\x1b[H"+strings.Join(s.last, "\x1b[K\n")+"\x1b[K\x1b[J")
	return err
}

// pause stops redlock, and gives the terminal back until it is continued.
func (s *screen) pause() {
	io.WriteString(s.out, leaveScreen)
	_ = s.pauser.pause() // if it cannot stop, it goes on
	io.WriteString(s.out, enterScreen)
}

// close leaves the alternate screen, and the last frame on the usual one.
func (s *screen) close() {
	if s.file == nil {
		return
	}
	io.WriteString(s.out, leaveScreen)
	for i, line := range s.last {
		if line != "" && i < len(s.last)-2 {
			fmt.Fprintln(s.out, line)
		}
	}
	s.file = nil
	s.pauser.close()
}
