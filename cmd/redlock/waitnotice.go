package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/sleep"
)

// noticeAfter is how long a wait may last without a message.
const noticeAfter = time.Second

// A waitNotice prints on standard error what redlock run waits for: at most once that another client holds the lock,
// and at most once that too few nodes vote.
type waitNotice struct {
	o    *runOptions
	last atomic.Pointer[error] // the last refusal

	permits atomic.Int64 // how many permits others give the semaphore, if that is another number; 0: none is known to
}

// refused is a hook of the client.
func (w *waitNotice) refused(_ []string, err error) {
	w.last.Store(&err)
	w.comparePermits(err)
}

// comparePermits looks in a refusal for the number of permits that others give the semaphore (S6). No node is asked for it,
// so a run that is not refused does not learn it.
func (w *waitNotice) comparePermits(refusal error) {
	refused, _ := nodeErrors(refusal)
	for _, node := range refused {
		if denial := (*redlock.Denial)(nil); errors.As(node, &denial) {
			w.otherPermits(denial.Permits)
		}
	}
}

// otherPermits is told how many permits another gives the semaphore, 0 for another kind of lock. It says so once, if this run
// gives another number.
func (w *waitNotice) otherPermits(theirs int) {
	ours := w.o.kind.semaphore
	if ours == 0 || theirs == 0 || theirs == ours || !w.permits.CompareAndSwap(0, int64(theirs)) || w.o.json {
		return
	}
	say(w.o.stderr, "%s has %s here (--semaphore) and %d in another run or program; so up to %d can hold it at a time; give the same number everywhere",
		printable(w.o.keys[0]), plural(ours, "permit"), theirs, max(ours, theirs))
}

// start begins to watch the wait. stop ends that; after it has returned, nothing more is printed.
func (w *waitNotice) start(ctx context.Context, client *redlock.Client) (stop func()) {
	if w.o.json || w.o.patience.once {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		said := map[bool]bool{} // true: that the lock is held; false: that there is no quorum
		var before *error       // a refusal that the nodes' status does not explain
		for len(said) < 2 && sleep.For(ctx, noticeAfter) == nil {
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
				what = w.outage
			}
			text := what(ctx, client)
			switch {
			case ctx.Err() != nil:
				return
			case held:
				before = nil
			case text == "":
				// The outage may be over. If the lock is refused once more, enough nodes vote, and fail at what the lock takes:
				// a right is missing, or they are slow.
				if before != nil && before != refusal {
					text = withRemedy(sentence(*refusal))
				}
				before = refusal
			}
			if text != "" {
				said[held] = true
				say(w.o.stderr, "waiting (--wait %s): %s", w.o.patience.written, text)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// held describes the holder. It returns "" if there is none, or none any more.
func (w *waitNotice) held(ctx context.Context, client *redlock.Client) string {
	for _, key := range w.o.keys {
		state, _ := client.Inspect(ctx, key)
		key = printable(key)
		if state == nil {
			continue
		}
		if !state.Held {
			if never := noLockIn(state); never != nil {
				return sentence(never)
			}
			continue
		}
		report := reportOn(state)
		for _, s := range state.Sharers {
			w.otherPermits(s.Permits)
		}
		if n := len(state.Sharers); n > 0 {
			last := ""
			if n > 1 {
				last = "the last of them "
			}
			return fmt.Sprintf("%s is shared by %s, %sfor %s unless it is renewed", key, firstOf(state.Sharers), last, report.remaining())
		}
		holder, _ := state.Holder()
		who := printable(holder.String()) + foreign(state.Token)
		if state.Token == "" {
			who = report.holder() // the key is no string
		}
		text := fmt.Sprintf("%s is held by %s, %s", key, who, report.until())
		if report.RemainingMillis < 0 {
			isString := slices.ContainsFunc(state.Nodes, func(n redlock.NodeState) bool { return n.Held && !n.NotString })
			text += "; it is not a lock: " + howToClear([]string{state.Name}, isString)
		}
		return text
	}
	return ""
}

// firstOf names the first of those that share a lock, and says how many more there are.
func firstOf(sharers []redlock.Sharer) string {
	first := printable(sharers[0].Holder().String())
	if more := len(sharers) - 1; more > 0 {
		return fmt.Sprintf("%s and %d more", first, more)
	}
	return first
}

// withSharers adds to a refusal who shares the lock. The nodes that refuse say only that several do.
func withSharers(ctx context.Context, client *redlock.Client, refusal error) error {
	var round *redlock.RoundError
	if !errors.As(refusal, &round) {
		return refusal
	}
	if holder, ok := round.Holder(); !ok || holder.Token != "readers" && holder.Token != "permits" { // see [redlock.Holder]
		return refusal
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	for _, key := range round.Names {
		if state, _ := client.Inspect(ctx, key); state != nil && len(state.Sharers) > 0 {
			code, _, err := codeOf(refusal)
			return &exitError{code, &retoldError{fmt.Sprintf("%v; shared by %s", err, firstOf(state.Sharers)), err}}
		}
	}
	return refusal
}

// outage describes which nodes do not vote, and why. It returns "" if the others are a quorum.
func (w *waitNotice) outage(ctx context.Context, client *redlock.Client) string {
	status := client.Status(ctx)
	why := reasons{all: len(status)}
	vote, quarantined := 0, false
	for _, s := range status {
		if s.Err == nil {
			vote++
			continue
		}
		problem, inQuarantine := problemOf(s.Err)
		quarantined = quarantined || inQuarantine
		why.add(s.Name, problem)
	}
	if vote >= w.o.quorum {
		return ""
	}
	text := fmt.Sprintf("%d of %s %s, and it takes %d; %s", vote, plural(len(status), "node"), votes(vote, len(status)), w.o.quorum, why.String())
	if quarantined {
		text += "; nodes in quarantine are new, or may have forgotten leases; they vote again by themselves; only for nodes that nobody has used yet, `redlock enroll --only-new` ends this now"
	} else {
		text += "; " + askDoctor
	}
	return text
}

// reasons collects why some of the nodes fail. Nodes with the same reason share one entry.
type reasons struct {
	all  int
	list []reason
}

type reason struct {
	nodes []string
	text  string // with the node's own name, if there is one node
	plain string // without it: "dial tcp: connect: connection refused"
}

func (r *reasons) add(node, text string) {
	plain := strings.Replace(text, " "+node+":", ":", 1)
	for i := range r.list {
		if known := &r.list[i]; known.plain == plain {
			known.nodes, known.text = append(known.nodes, node), plain
			return
		}
	}
	r.list = append(r.list, reason{[]string{node}, text, plain})
}

func (r *reasons) String() string {
	said := make([]string, len(r.list))
	for i, why := range r.list {
		who := strings.Join(why.nodes, ", ")
		if n := len(why.nodes); n == r.all && n > 1 {
			who = "all"
		}
		said[i] = who + ": " + why.text
	}
	return strings.Join(said, "; ")
}

// problemOf describes in a few words why a node does not vote.
func problemOf(err error) (text string, quarantined bool) {
	var quarantine *redlock.QuarantineError
	if errors.As(err, &quarantine) {
		return fmt.Sprintf("in quarantine, %v left", quarantine.Left.Round(time.Second)), true
	}
	return sentence(err), false
}

// sentence returns the text of an error as a part of a longer line: what a server says may end with a full stop.
func sentence(err error) string {
	return strings.TrimSuffix(oneLine(err.Error()), ".")
}
