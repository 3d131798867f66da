package redlock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A notifier calls the user's hooks and the user's log handler, in the order in which things happened, on a goroutine
// that nothing else waits for. Whatever a hook does, and however long a log takes, leases end in time and are renewed.
type notifier struct {
	events  chan func()
	quit    chan struct{} // closed by close: nothing comes any more
	ended   chan struct{} // closed when the goroutine has returned
	dropped atomic.Uint64 // events that found the queue full
	log     *slog.Logger  // the user's; nil: none
	here    bool          // where userApart is off: what is posted without a mutex is delivered where it happens
}

// maxEvents bounds the events that wait for a slow hook or log.
const maxEvents = 4096

// newNotifier puts itself between the client and the hooks and the logger of its configuration. It is nil where there
// are none: then an event costs nothing.
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

// post queues one call of the user's code. It never blocks: what finds no room is dropped and counted.
func (n *notifier) post(event func()) {
	select {
	case n.events <- event:
	default:
		n.dropped.Add(1)
	}
}

// postFree is post where no mutex is held.
func (n *notifier) postFree(event func()) {
	if n.here {
		event()
		return
	}
	n.post(event)
}

// run delivers until close, and then what is left.
func (n *notifier) run() {
	defer close(n.ended)
	logged, since := uint64(0), 0
	deliver := func(event func()) {
		event()
		since++
		// Once the queue is empty or was delivered whole, so that telling does not make a slow log slower.
		dropped := n.dropped.Load()
		if dropped != logged && n.log != nil && (len(n.events) == 0 || since >= maxEvents) {
			n.log.Warn("redlock: a hook or the log is too slow; events were dropped", "dropped", dropped-logged)
			logged, since = dropped, 0
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
				return
			}
		}
	}
}

// close lets what is queued be delivered and waits for it, no longer than patience: a hook may block, and may be what
// closes the client.
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

// Dropped is how many calls of hooks and lines of the log were dropped, because earlier ones took too long: up to 4096
// of them wait. It never goes down; 0 is the normal value.
func (c *Client) Dropped() uint64 {
	if c.notifier == nil {
		return 0
	}
	return c.notifier.dropped.Load()
}

// A laterHandler hands each record to the user's handler later. Even whether a level is enabled is asked later, because
// the user's code answers that. The record has its time and its place in the source already.
type laterHandler struct {
	notifier *notifier
	handler  slog.Handler
}

func (h laterHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h laterHandler) Handle(ctx context.Context, record slog.Record) error {
	h.notifier.postFree(func() {
		if h.handler.Enabled(ctx, record.Level) {
			_ = h.handler.Handle(ctx, record) // as slog does
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
