package redlock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A notifier calls the user's hooks and the user's log handler, in the order in which things happened, on a goroutine
// of its own. Nothing else waits for it: whatever a hook does, and however long a log takes, leases end in time and are
// renewed.
type notifier struct {
	events  chan func()
	quit    chan struct{} // closed by close: no more events come
	ended   chan struct{} // closed when the goroutine has returned
	dropped atomic.Uint64 // events that found the queue full
	log     *slog.Logger  // the user's; nil: none
	logged  uint64        // of dropped, how many the log has; run's
	here    bool          // userApart is off, in tests: events posted without a mutex are delivered where they happen
}

// maxEvents bounds the events that wait for a slow hook or log.
const maxEvents = 4096

// newNotifier makes a notifier and replaces the hooks and the logger of the configuration, so that both go through it.
// It returns nil if there are none: then an event costs nothing.
func newNotifier(cfg *Config) *notifier {
	log := cfg.Logger
	if log == nil || log.Handler() == slog.DiscardHandler {
		log, cfg.Logger = nil, slog.New(slog.DiscardHandler)
	}
	if log == nil && cfg.Hooks.none() {
		return nil
	}
	here := cfg.protocol != nil && cfg.protocol.omits(userApart)
	n := &notifier{here: here, events: make(chan func(), maxEvents), quit: make(chan struct{}), ended: make(chan struct{}), log: log}
	if log != nil {
		cfg.Logger = slog.New(laterHandler{n, log.Handler()})
	}
	cfg.Hooks = n.later(cfg.Hooks)
	go n.run()
	return n
}

// post queues one call of the user's code. It never blocks: an event that finds the queue full is dropped and counted.
func (n *notifier) post(event func()) {
	select {
	case n.events <- event:
	default:
		n.dropped.Add(1)
	}
}

// postFree is post for callers that hold no mutex.
func (n *notifier) postFree(event func()) {
	if n.here {
		event()
		return
	}
	n.post(event)
}

// run delivers events until close, and then those that are left.
func (n *notifier) run() {
	over := false
	defer func() {
		if over {
			close(n.ended)
			return
		}
		go n.run() // a hook has ended its goroutine (runtime.Goexit), as t.FailNow does
	}()
	since := 0
	deliver := func(event func()) {
		event()
		since++
		// Report this only when the queue is empty, or after a whole queue of events: it must not make a slow log
		// slower.
		dropped := n.dropped.Load()
		if dropped != n.logged && n.log != nil && (len(n.events) == 0 || since >= maxEvents) {
			n.log.Warn("redlock: a hook or the log is too slow; events were dropped", "dropped", dropped-n.logged)
			n.logged, since = dropped, 0
		}
	}
	for {
		select {
		case event := <-n.events:
			deliver(event)
			continue
		case <-n.quit:
		}
		for {
			select {
			case event := <-n.events:
				deliver(event)
			default:
				over = true
				return
			}
		}
	}
}

// close waits until the queued events are delivered, no longer than patience: a hook may block, and a hook may itself
// close the client.
func (n *notifier) close(patience time.Duration) {
	if n == nil {
		return
	}
	close(n.quit)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-n.ended:
	case <-timer.C:
	}
}

// A laterHandler passes each log record to the user's handler later, on the notifier's goroutine. It asks whether the
// level is enabled there too, because the user's code answers that. The record already has its time and its place in
// the source.
type laterHandler struct {
	notifier *notifier
	handler  slog.Handler
}

func (h laterHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h laterHandler) Handle(ctx context.Context, record slog.Record) error {
	h.notifier.postFree(func() {
		if h.handler.Enabled(ctx, record.Level) {
			_ = h.handler.Handle(ctx, record) // slog ignores this error too
		}
	})
	return nil
}

func (h laterHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return laterHandler{h.notifier, h.handler.WithAttrs(attrs)}
}

func (h laterHandler) WithGroup(name string) slog.Handler {
	return laterHandler{h.notifier, h.handler.WithGroup(name)}
}
