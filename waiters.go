package redlock

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A waiters hears of releases, from this process and over the subscribers, and tells those who wait. What it
// hears are hints: losing all of them costs time, never safety (W2).
type waiters struct {
	client      *Client
	me          string // what a node's key holds that is kept for this client, and the end of its channel
	subscribers []*subscriber
	listening   atomic.Int32  // ears, so that a release without any costs next to nothing
	mute        atomic.Uint64 // a nodeSet: where this client may not publish

	mu         sync.Mutex // guards the rest and what the ears heard; no call-back under it
	keys       map[string]*keyState
	subscribed nodeSet // nodes that send their messages here
	quietSince Instant // when the last ear left
	pruneAt    int     // how many keys there are when those that are old are next looked for
	prunedAt   Instant // when that was done last
}

// A keyState is one key that somebody here waits for, or that was contended a short while ago.
type keyState struct {
	ears       []*inbox
	contended  Instant // when it was last seen to be
	handedOver int     // releases in a row that were kept in this process
}

// An inbox is one waiter's. It hears of all keys of its lock.
type inbox struct {
	keys   []any
	signal chan struct{} // capacity 1: something was heard, or a subscription stands
	hints  hints
}

// Heard is what an ear hints since it was last asked.
type hints struct {
	reserved     nodeSet // nodes that keep a key for this client
	localRelease bool    // this process has released one
	poll         bool    // a key is kept for one who polls, for a while: if it has gone, nobody will tell
	resubscribed nodeSet // nodes that send their messages here as of now, or no longer: what they sent may be lost
}

const (
	// reservationPrefix begins what a node's key holds while it is kept for a client; see scripts/release.lua.
	reservationPrefix = "next:"
	// channelPrefix is followed by what a key holds when it is kept for the client.
	channelPrefix = "redlock:released:"
	// reservationTime is how long a node keeps a key for who waits: it has to hear of it and to ask.
	reservationTime = 100 * time.Millisecond
	// lingering keeps the subscriptions after the last waiter left: there will be others.
	lingering = 10 * time.Second
	// contendedTime is how long a lock counts as contended after it was seen to be.
	contendedTime = time.Second
	// minPruned is from how many keys on those that are old are looked for, at each doubling.
	minPruned = 1024
	// maxHandedOver is how often in a row a lock goes to the next in this process while other processes wait.
	maxHandedOver = 8
)

func (w *waiters) init(c *Client) {
	w.client = c
	w.keys, w.pruneAt = map[string]*keyState{}, minPruned
	w.me = reservationPrefix + newToken()
	for _, n := range c.nodes {
		w.subscribers = append(w.subscribers, newSubscriber(c, n))
	}
}

// wait returns when no subscriber runs any more. The client is ending.
func (w *waiters) wait() {
	for _, s := range w.subscribers {
		s.goroutines.Wait()
	}
}

// key is the record of one key. w.mu is held.
func (w *waiters) key(key any) *keyState {
	k := w.keys[key.(string)]
	if k == nil {
		k = &keyState{contended: -1 << 62}
		w.keys[key.(string)] = k
	}
	return k
}

// listen hears of the keys of a lock until forget.
func (w *waiters) listen(res *resource) *inbox {
	e := &inbox{signal: make(chan struct{}, 1), keys: res.keys}
	w.listening.Add(1)
	w.mu.Lock()
	for _, key := range res.keys {
		k := w.key(key)
		k.ears = append(k.ears, e)
	}
	w.mu.Unlock()
	for _, s := range w.subscribers {
		s.want()
	}
	return e
}

// remove ends listening, and returns what was heard and not used.
func (w *waiters) remove(e *inbox) hints {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range e.keys {
		if k := w.keys[key.(string)]; k != nil {
			k.ears = slices.DeleteFunc(k.ears, func(other *inbox) bool { return other == e })
		}
	}
	if w.listening.Add(-1) == 0 {
		w.quietSince = w.client.cfg.Clock.Now()
	}
	return e.hints
}

// contend notes that others want the lock too, or had it.
func (w *waiters) contend(res *resource) {
	now := w.client.cfg.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.keys) >= w.pruneAt {
		w.prune(now)
	}
	for _, key := range res.keys {
		w.key(key).contended = now
	}
}

// prune drops what nobody waits for and was not contended lately. w.mu is held.
func (w *waiters) prune(now Instant) {
	for key, k := range w.keys {
		if len(k.ears) == 0 && now.Sub(k.contended) > contendedTime {
			delete(w.keys, key)
		}
	}
	w.pruneAt, w.prunedAt = max(minPruned, 2*len(w.keys)), now
}

// isContended reports whether somebody wanted the lock, or had it, a short while ago.
func (w *waiters) isContended(res *resource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.keys) == 0 {
		return false
	}
	since := w.client.cfg.Clock.Now().Add(-contendedTime)
	for _, key := range res.keys {
		if k := w.keys[key.(string)]; k != nil && k.contended > since {
			return true
		}
	}
	return false
}

// handsOver reports whether a release may go to who waits in this process, before others.
func (w *waiters) handsOver(res *resource) bool {
	if w.listening.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		k := w.keys[key.(string)]
		if k == nil || len(k.ears) == 0 {
			return false
		}
		if k.handedOver++; k.handedOver > maxHandedOver {
			k.handedOver = 0
			return false
		}
	}
	return true
}

// released tells this process's waiters that the release was sent to all nodes, and that nobody else was told. What
// they send now follows it on the same connections, so they need not wait for any node's word. A waiter that gives
// up instead tells the others (see waiting.end); if there is none any more, that is done here.
func (w *waiters) released(res *resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		if k := w.keys[key.(string)]; k != nil {
			for _, e := range k.ears {
				e.hints.localRelease = true
				e.wakeUp()
			}
		}
	}
	w.leaveLocked(res.keys, w.client.allNodes(), nil)
}

// confirm notes that a node sends its messages here, or no longer does. At either moment some may have been lost, and
// a node that has died tells nothing more: its waiters ask, and enter another's queue.
func (w *waiters) confirm(node int, subscribed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.subscribed
	if w.subscribed.add(node); !subscribed {
		w.subscribed &^= 1 << node
	}
	if !subscribed && w.subscribed == was {
		return // there was no subscription
	}
	for _, k := range w.keys {
		for _, e := range k.ears {
			e.hints.resubscribed.add(node)
			e.wakeUp()
		}
	}
}

// wakeAll has all waiters look at how they wait.
func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		for _, e := range k.ears {
			e.wakeUp()
		}
	}
}

// setMute notes whether this client may not publish on the node.
func (w *waiters) setMute(node int, mute bool) {
	if mute {
		w.mute.Or(1 << node)
	} else {
		w.mute.And(^(uint64(1) << node))
	}
}

// ownerToken is a new token. It is in capitals where this client's releases can be told to nobody: whoever meets it
// polls.
func (w *waiters) ownerToken() string {
	token := newToken()
	if w.mute.Load() != 0 {
		token = strings.ToUpper(token)
	}
	return token
}

// refusal is why the waiters of that node poll, with the remedy; nil if they need not, or nobody has waited lately.
func (w *waiters) refusal(node int) error { return w.subscribers[node].refusal() }

// wanted reports whether messages are: somebody waits, or did a short while ago.
func (w *waiters) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.client.cfg.Clock.Now()
	if now.Sub(w.prunedAt) >= tidyInterval {
		w.prune(now)
	}
	return w.listening.Load() > 0 || now.Sub(w.quietSince) <= lingering
}

// subscribedTo is which of the nodes send their messages here.
func (w *waiters) subscribedTo(nodes nodeSet) nodeSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nodes & w.subscribed
}

// drain returns what the ear heard since it was last asked.
func (w *waiters) drain(e *inbox) hints {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := e.hints
	e.hints = hints{}
	return h
}

func (e *inbox) wakeUp() {
	select {
	case e.signal <- struct{}{}:
	default:
	}
}
