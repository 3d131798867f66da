package redlock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A watch hears of releases, from this process and over the subscribers, and tells those who wait. What it
// hears are hints: losing all of them costs time, never safety (W2).
type watch struct {
	client      *Client
	me          string // what a node's key holds that is kept for this client, and the end of its channel
	subscribers []*subscriber
	listening   atomic.Int32 // ears, so that a release without any costs next to nothing

	mu         sync.Mutex // guards the rest and what the ears heard; no call-back under it
	keys       map[string]*watched
	subscribed nodeSet // nodes that send their messages here
	quietSince Instant // when the last ear left
}

// A watched is one key that somebody here waits for, or that was contended a short while ago.
type watched struct {
	ears      []*ear
	contended Instant // when it was last seen to be
	favoured  int     // releases in a row that were kept in this process
}

// An ear is one waiter's. It hears of all keys of its lock.
type ear struct {
	keys   []any
	signal chan struct{} // capacity 1: something was heard, or a subscription stands
	kept   nodeSet       // nodes that keep a key for this client
	local  bool          // this process has released one
}

const (
	// keptPrefix begins what a node's key holds while it is kept for a client; see scripts/release.lua.
	keptPrefix = "next:"
	// channelPrefix is followed by the lock key, or by what it holds when it is kept for a client.
	channelPrefix = "redlock:released:"
	// keepTime is how long a node keeps a key for who waits: it has to hear of it and to ask.
	keepTime = 100 * time.Millisecond
	// lingering keeps the subscriptions after the last waiter left: there will be others.
	lingering = 10 * time.Second
	// contendedTime is how long a lock counts as contended after it was seen to be.
	contendedTime = time.Second
	// maxRemembered is from how many keys on those that are old are looked for and dropped.
	maxRemembered = 1024
	// maxFavoured is how often in a row a lock goes to the next in this process while other processes wait.
	maxFavoured = 8
)

func (w *watch) init(c *Client) {
	w.client = c
	w.keys = map[string]*watched{}
	w.me = keptPrefix + newToken()
	for _, n := range c.nodes {
		w.subscribers = append(w.subscribers, newSubscriber(c, n))
	}
}

// wait returns when no subscriber runs any more. The client is ending.
func (w *watch) wait() {
	for _, s := range w.subscribers {
		s.goroutines.Wait()
	}
}

// key is the record of one key. w.mu is held.
func (w *watch) key(key any) *watched {
	k := w.keys[key.(string)]
	if k == nil {
		k = &watched{contended: -1 << 62}
		w.keys[key.(string)] = k
	}
	return k
}

// listen hears of the keys of a lock until forget.
func (w *watch) listen(res *resource) *ear {
	e := &ear{signal: make(chan struct{}, 1), keys: res.keys}
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

// forget ends listening. What nodes keep for this client and was not used is passed on.
func (w *watch) forget(e *ear) {
	w.mu.Lock()
	for _, key := range e.keys {
		k := w.key(key)
		for i := range k.ears {
			if k.ears[i] == e {
				k.ears = append(k.ears[:i], k.ears[i+1:]...)
				break
			}
		}
		if len(k.ears) > 0 {
			e.kept = 0 // another waiter has heard of it too
		}
	}
	if w.listening.Add(-1) == 0 {
		w.quietSince = w.client.cfg.Clock.Now()
	}
	kept := e.kept
	w.mu.Unlock()
	for _, key := range e.keys {
		w.passOn(key, kept)
	}
}

// passOn gives up what these nodes keep for this client.
func (w *watch) passOn(key any, nodes nodeSet) {
	if nodes != 0 {
		w.client.forget([]any{key}, w.me, nodes, keepTime)
	}
}

// contend notes that others want the lock too, or had it.
func (w *watch) contend(res *resource) {
	now := w.client.cfg.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.keys) >= maxRemembered {
		w.prune(now)
	}
	for _, key := range res.keys {
		w.key(key).contended = now
	}
}

// prune drops what nobody waits for and was not contended lately. w.mu is held.
func (w *watch) prune(now Instant) {
	for key, k := range w.keys {
		if len(k.ears) == 0 && now.Sub(k.contended) > contendedTime {
			delete(w.keys, key)
		}
	}
}

// isContended reports whether somebody wanted the lock, or had it, a short while ago.
func (w *watch) isContended(res *resource) bool {
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

// favours reports whether a release may go to who waits in this process, before others.
func (w *watch) favours(res *resource) bool {
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
		if k.favoured++; k.favoured > maxFavoured {
			k.favoured = 0
			return false
		}
	}
	return true
}

// released tells this process's waiters that the release was sent to all nodes. What they send now follows it
// on the same connections, so they need not wait for any node's word.
func (w *watch) released(res *resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		if k := w.keys[key.(string)]; k != nil {
			for _, e := range k.ears {
				e.local = true
				e.nudge()
			}
		}
	}
}

// told passes on that the node keeps the key for this client.
func (w *watch) told(key string, node int) {
	w.mu.Lock()
	k := w.keys[key]
	wanted := k != nil && len(k.ears) > 0
	if wanted {
		for _, e := range k.ears {
			e.kept.add(node)
			e.nudge()
		}
	}
	w.mu.Unlock()
	if !wanted {
		w.passOn(key, 1<<node)
	}
}

// confirm notes that a node sends its messages here, or no longer does.
func (w *watch) confirm(node int, subscribed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !subscribed {
		w.subscribed &^= 1 << node
		return
	}
	w.subscribed.add(node)
	for _, k := range w.keys {
		for _, e := range k.ears {
			e.nudge()
		}
	}
}

// wanted reports whether messages are: somebody waits, or did a short while ago.
func (w *watch) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.client.cfg.Clock.Now()
	w.prune(now)
	return w.listening.Load() > 0 || now.Sub(w.quietSince) <= lingering
}

// hearing is which of the nodes send their messages here.
func (w *watch) hearing(nodes nodeSet) nodeSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nodes & w.subscribed
}

// take returns what the ear heard since it was last asked.
func (w *watch) take(e *ear) (kept nodeSet, local bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	kept, local = e.kept, e.local
	e.kept, e.local = 0, false
	return kept, local
}

func (e *ear) nudge() {
	select {
	case e.signal <- struct{}{}:
	default:
	}
}
