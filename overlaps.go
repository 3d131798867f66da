package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// overlaps has attempts of this process whose names overlap made one after the other (W1). Made at once, each would get
// the names that they share on some nodes, so that none gets its lock, again and again.
//
// The queues are of attempts and not of waiters: a waiter that sleeps, because one of its names is held, keeps nobody from
// the others.
type overlaps struct {
	several atomic.Int32 // how many acquire several names at once; while nobody does, nothing overlaps

	mu     sync.Mutex // guards the queues, and the places in them
	queues map[any][]*attemptPlace
}

// An attemptPlace is an attempt's place in the queues of all of its keys.
type attemptPlace struct {
	keys  []any
	ahead int           // the number of queues in which it is not the first
	turn  chan struct{} // closed when ahead is 0; nil: it was the first everywhere from the beginning
}

// enter puts an attempt for these keys, of which no two are the same, at the ends of their queues.
func (o *overlaps) enter(keys []any) *attemptPlace {
	p := &attemptPlace{keys: keys}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queues == nil {
		o.queues = map[any][]*attemptPlace{}
	}
	for _, key := range keys {
		queue := append(o.queues[key], p)
		o.queues[key] = queue
		if len(queue) > 1 {
			p.ahead++
		}
	}
	if p.ahead > 0 {
		p.turn = make(chan struct{})
	}
	return p
}

// leave takes the attempt out of the queues, also if its turn has not come.
func (o *overlaps) leave(p *attemptPlace) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range p.keys {
		queue := o.queues[key]
		at := slices.Index(queue, p)
		if queue = slices.Delete(queue, at, at+1); len(queue) == 0 {
			delete(o.queues, key)
			continue
		}
		o.queues[key] = queue
		if next := queue[0]; at == 0 {
			if next.ahead--; next.ahead == 0 {
				close(next.turn)
			}
		}
	}
}

// awaitOverlaps waits until no earlier attempt of this process for one of the lock's names is under way, no longer than
// NodeTimeout: nodes that are away must not make one wait for the other. It returns what to call after the attempt. An
// error is that of ctx, or ErrClosed.
func (c *Client) awaitOverlaps(ctx context.Context, res *resource) (leave func(), err error) {
	o := &c.overlaps
	if res.isShared() || o.several.Load() == 0 {
		return func() {}, nil
	}
	p := o.enter(res.keys)
	leave = func() { o.leave(p) }
	if p.turn == nil {
		return leave, nil
	}
	if err := c.awaitEvent(ctx, p.turn, c.cfg.NodeTimeout); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}
