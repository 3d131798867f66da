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
	subscribers []*subscriber
	listening   atomic.Int32 // ears, so that a release without any costs next to nothing

	mu   sync.Mutex // guards the rest and what the ears heard; no call-back under it
	keys map[string]*watched
}

// A watched is one key whose releases somebody here wants to hear, or did a short while ago.
type watched struct {
	ears       []*ear
	subscribed nodeSet   // nodes that confirmed
	quietSince time.Time // when the last ear left
}

// An ear is one waiter's. It hears the releases of all keys of its lock.
type ear struct {
	keys   []string
	signal chan struct{} // capacity 1: something was heard, or a subscription stands
	watch  *watch
	// tokens are who released, by the word of which nodes; older those before, so that forgetting the oldest
	// never forgets half of what is being waited for.
	tokens, older map[string]nodeSet
}

const (
	// lingering keeps a subscription after its last waiter left: who was waited for once will be again.
	lingering = 10 * time.Second
	// maxHeard bounds what one ear remembers.
	maxHeard = 64
)

func (w *watch) init(c *Client) {
	w.client = c
	w.keys = map[string]*watched{}
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

// hears reports whether a quorum of nodes send the releases of all these keys already.
func (w *watch) hears(res *resource) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		if k := w.keys[key.(string)]; k == nil || k.subscribed.len() < w.client.need {
			return false
		}
	}
	return true
}

// listen subscribes to the keys of a lock until forget.
func (w *watch) listen(res *resource) *ear {
	e := &ear{signal: make(chan struct{}, 1), watch: w, tokens: map[string]nodeSet{}}
	w.listening.Add(1)
	w.mu.Lock()
	for _, key := range res.keys {
		key := key.(string)
		e.keys = append(e.keys, key)
		k := w.keys[key]
		if k == nil {
			k = &watched{}
			w.keys[key] = k
		}
		k.ears = append(k.ears, e)
	}
	w.mu.Unlock()
	for _, s := range w.subscribers {
		s.want()
	}
	return e
}

func (w *watch) forget(e *ear) {
	w.listening.Add(-1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range e.keys {
		k := w.keys[key]
		for i := range k.ears {
			if k.ears[i] == e {
				k.ears = append(k.ears[:i], k.ears[i+1:]...)
				break
			}
		}
		if len(k.ears) == 0 {
			k.quietSince = time.Now()
		}
	}
}

// released tells this process's waiters that the owner has sent its release to all nodes. What they send now
// follows it on the same connections, so they need not wait for any node's word.
func (w *watch) released(res *resource, token string) {
	if w.listening.Load() == 0 {
		return
	}
	all := nodeSet(1)<<len(w.client.nodes) - 1
	for _, key := range res.keys {
		w.tell(key.(string), token, all)
	}
}

// tell passes on what was heard.
func (w *watch) tell(key, token string, from nodeSet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.keys[key]
	if k == nil {
		return
	}
	for _, e := range k.ears {
		if len(e.tokens) >= maxHeard {
			e.older, e.tokens = e.tokens, map[string]nodeSet{}
		}
		e.tokens[token] |= from
		e.nudge()
	}
}

// confirm notes that a node's subscription to the key stands.
func (w *watch) confirm(key string, node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[key]; k != nil {
		k.subscribed.add(node)
		for _, e := range k.ears {
			e.nudge()
		}
	}
}

// left notes that a node's subscription to the key was given up.
func (w *watch) left(key string, node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[key]; k != nil {
		k.subscribed &^= 1 << node
	}
}

// unconfirm notes that none of the node's subscriptions stands any more.
func (w *watch) unconfirm(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.keys {
		k.subscribed &^= 1 << node
	}
}

// wanted are the keys to be subscribed to. Those that nobody has waited for in a while are dropped.
func (w *watch) wanted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := make([]string, 0, len(w.keys))
	for key, k := range w.keys {
		if len(k.ears) > 0 || time.Since(k.quietSince) <= lingering {
			keys = append(keys, key)
		} else if k.subscribed == 0 {
			delete(w.keys, key) // all subscribers have left it
		}
	}
	return keys
}

// subscribed is which nodes confirmed all of the ear's keys.
func (w *watch) subscribed(e *ear) nodeSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := ^nodeSet(0)
	for _, key := range e.keys {
		all &= w.keys[key].subscribed
	}
	return all
}

// heard is which nodes said that the owner released.
func (e *ear) heard(owner string) nodeSet {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return e.tokens[owner] | e.older[owner]
}

func (e *ear) nudge() {
	select {
	case e.signal <- struct{}{}:
	default:
	}
}
