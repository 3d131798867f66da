package redlock

import (
	"maps"

	"github.com/gomodule/redigo/redis"
)

// Wanted returns a channel that is closed when it is known that somebody waits for one of the lease's names: a chance
// to stop early and release. It is closed once and stays closed, also if that waiter gives up. It is not closed when
// the lease ends: select on the lease's context too. Every call returns the same channel, and so do re-entered leases.
//
// It is a hint. A waiter of this process is known at once. One elsewhere is known after a round trip, by a message. If
// messages are lost, or the user may not use channels, it is known after the next renewal, and with
// [Lock.WithoutRenewal] only if it waited already at the first call. A caller of [Lock.TryAcquire], and a program that
// polls with another library, is not known.
//
// The first call makes the client subscribe to its nodes, as a waiter does: one connection more a node, until its last
// such lease has ended. A lease that does not ask costs nothing.
func (l *Lease) Wanted() <-chan struct{} {
	o := l.ownership
	o.mu.Lock()
	w, begins := o.watch, o.watch == nil && o.ended == nil
	if w == nil {
		w = &watch{keys: o.lock.res.keys, seen: make(chan struct{})}
		o.watch = w
	}
	if begins {
		o.client.waiters.watch(w)
	}
	o.mu.Unlock()
	if begins && o.client.begin() { // else Close may already wait for the subscribers
		defer o.client.finish()
		for _, s := range o.client.waiters.subscribers {
			s.want()
		}
		o.lookForWaiters()
	}
	return w.seen
}

// A watch is a lease that wants to know of waiters. Its channel is closed under the mutex of waiters, once.
type watch struct {
	keys []any
	seen chan struct{}
}

// watches are by key: there may be as many as leases, and a waiter or the end of a lease must not look at all of them.
type watches map[string]map[*watch]struct{}

func (w *watch) isOver() bool {
	select {
	case <-w.seen:
		return true
	default:
		return false
	}
}

// lookForWaiters asks all nodes whether anybody is in a queue, if the lease wants to know. It is how waiters are seen
// whose message did not come, or that came before the subscription.
func (o *ownership) lookForWaiters() {
	o.mu.Lock()
	w, ended := o.watch, o.ended != nil
	o.mu.Unlock()
	if w == nil || ended || w.isOver() {
		return
	}
	for _, n := range o.client.nodes {
		o.client.waiters.lookFor(w, n)
	}
}

// lookFor asks one node. A queue is there only while somebody is in it.
func (ws *waiters) lookFor(w *watch, n *node) {
	queues := make([]any, len(w.keys))
	for i, key := range w.keys {
		queues[i] = waitPrefix + key.(string)
	}
	n.command("EXISTS", queues, func(reply any, err error) {
		if queues, err := redis.Int(reply, err); err == nil && queues > 0 {
			ws.mu.Lock()
			defer ws.mu.Unlock()
			ws.see(w)
		}
	})
}

// watch has the watch told of waiters, until unwatch. The mutex of its ownership is held.
func (ws *waiters) watch(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, key := range w.keys {
		key := key.(string)
		if ws.watches[key] == nil {
			ws.watches[key] = map[*watch]struct{}{}
		}
		ws.watches[key][w] = struct{}{}
	}
	for _, key := range w.keys {
		if k := ws.keys[key.(string)]; k != nil && len(k.inboxes) > 0 {
			ws.see(w)
			return
		}
	}
	for _, s := range ws.subscribers { // those that run already
		s.subscribeMore()
	}
}

func (ws *waiters) unwatch(w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.forget(w)
}

// forget drops the watch. w.mu is held.
func (ws *waiters) forget(w *watch) {
	for _, key := range w.keys {
		key := key.(string)
		if delete(ws.watches[key], w); len(ws.watches[key]) == 0 {
			delete(ws.watches, key)
		}
	}
}

// see closes the watch. w.mu is held.
func (ws *waiters) see(w *watch) {
	if !w.isOver() {
		close(w.seen)
	}
	ws.forget(w)
}

// seeAll closes the watches of this key. w.mu is held.
func (ws *waiters) seeAll(key any) {
	for w := range ws.watches[key.(string)] {
		ws.see(w)
	}
}

// isWanted is called for a message that somebody waits for this key.
func (ws *waiters) isWanted(key string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.seeAll(key)
}

// isWatching reports whether some lease wants to know of waiters.
func (ws *waiters) isWatching() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.watches) > 0
}

// watchedOn is called when the node sends messages of waiters from now on: those that came before are looked for.
func (ws *waiters) watchedOn(n *node) {
	ws.mu.Lock()
	all := map[*watch]struct{}{} // one of several names is there several times
	for _, of := range ws.watches {
		maps.Copy(all, of)
	}
	ws.mu.Unlock()
	for w := range all {
		ws.lookFor(w, n)
	}
}
