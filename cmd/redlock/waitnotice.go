package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock"
)

// noticeAfter is how long a wait may last without a word.
const noticeAfter = time.Second

// A waitNotice says on standard error what redlock run waits for: once that another holds the lock, and once that
// too few nodes vote.
type waitNotice struct {
	o    *runOptions
	last atomic.Pointer[error] // the last refusal
}

// refused is the client's hook.
func (w *waitNotice) refused(_ []string, err error) { w.last.Store(&err) }

// start begins to watch the wait. What it returns ends that, and returns when nothing more will be said.
func (w *waitNotice) start(ctx context.Context, client *redlock.Client) (stop func()) {
	if w.o.json || w.o.patience.once {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		said := map[bool]bool{} // by whether it was of a held lock
		for len(said) < 2 && sleep(ctx, noticeAfter) {
			refusal := w.last.Load()
			if refusal == nil {
				continue
			}
			held := errors.Is(*refusal, redlock.ErrHeld)
			if said[held] {
				continue
			}
			what := w.held
			if !held {
				what = outage
			}
			text := what(ctx, client)
			if ctx.Err() != nil {
				return
			}
			if text != "" {
				said[held] = true
				say(w.o.stderr, "waiting (--wait %s): %s", w.o.patience.written, text)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// held says who is in the way. Nothing: nobody is, or no longer.
func (w *waitNotice) held(ctx context.Context, client *redlock.Client) string {
	for _, key := range w.o.keys {
		state, _ := client.Inspect(ctx, key)
		if state == nil || !state.Held {
			continue
		}
		left := reportOn(state).remaining()
		return fmt.Sprintf("%s is held by %s, for %s unless it is renewed", key, ownerShort(state.Token), left)
	}
	return ""
}

// ownerShort is an owner token of which too little is shown to release the lock with.
func ownerShort(token string) string {
	if token = oneLine(token); len(token) > 8 {
		return token[:8] + "…"
	}
	return "another"
}

// outage says which nodes do not vote and why.
func outage(ctx context.Context, client *redlock.Client) string {
	status := client.Status(ctx)
	why := reasons{all: len(status)}
	vote, quarantined := 0, false
	for _, s := range status {
		if s.Err == nil {
			vote++
			continue
		}
		problem, confined := problemOf(s.Err)
		quarantined = quarantined || confined
		why.add(s.Name, problem)
	}
	if vote == len(status) {
		return ""
	}
	text := fmt.Sprintf("%d of %s %s, and it takes %d; %s", vote, plural(len(status), "node"), votes(vote), len(status)/2+1, why.String())
	if quarantined {
		text += "; they are new, or may have forgotten leases: if no client can have one, `redlock enroll` ends the quarantine now"
	}
	return text
}

// reasons are why some of all nodes do not do something. What several have in common is said once.
type reasons struct {
	all   int
	texts []string
	nodes map[string][]string // by text
}

func (r *reasons) add(node, text string) {
	if r.nodes == nil {
		r.nodes = map[string][]string{}
	}
	if r.nodes[text] == nil {
		r.texts = append(r.texts, text)
	}
	r.nodes[text] = append(r.nodes[text], node)
}

func (r *reasons) String() string {
	said := make([]string, len(r.texts))
	for i, text := range r.texts {
		who := strings.Join(r.nodes[text], ", ")
		if n := len(r.nodes[text]); n == r.all && n > 1 {
			who = "all"
		}
		said[i] = who + ": " + text
	}
	return strings.Join(said, "; ")
}

// problemOf is why a node does not vote, in few words.
func problemOf(err error) (text string, quarantined bool) {
	var quarantine *redlock.QuarantineError
	if errors.As(err, &quarantine) {
		return fmt.Sprintf("in quarantine, %v left", quarantine.Left.Round(time.Second)), true
	}
	return oneLine(err.Error()), false
}
