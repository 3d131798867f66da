package redlock

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// waiters gets hints of releases, from this process and from the subscribers, and puts them into the waiters' inboxes.
// They are only hints: losing all of them costs time, never safety (W2).
type waiters struct {
	client      *Client
	me          string // the value of a key that is reserved for this client, and the end of its channel's name
	meShared    string // the same for those of its waiters that may share the lock: these are not in each other's way
	id          string // the beginning of me: it names this client in its owner tokens
	owner       string // what follows the digits in its owner tokens
	subscribers []*subscriber
	listening   atomic.Int32  // the number of inboxes; without any, a release takes no mutex
	mute        atomic.Uint64 // a nodeSet: where this client may not publish
	metAt       atomic.Int64  // an Instant: when a stranger was last met (strangers.go); longAgo: never

	mu         sync.Mutex // guards the rest and the inboxes' hints; no call-back under it
	keys       map[string]*keyState
	places     map[string]*inbox // of waiters of fair locks, by waiter (O3)
	made       uint64            // how many of these there were
	watches    watches           // leases that want to know of waiters (wanted.go)
	subscribed nodeSet           // nodes whose subscription is confirmed
	quietSince Instant           // when the last inbox was removed
	pruneAt    int               // at how many keys contend next drops the old ones
	prunedAt   Instant           // when that was last done
}

// A keyState is a key that somebody here waits for, or that was contended a short while ago.
type keyState struct {
	inboxes    []*inbox
	contended  Instant          // when that was last seen
	handedOver int              // releases in a row that went to a waiter of this process
	met        map[int]stranger // by node, who has the key there without being in the way
}

// An inbox collects the hints for one waiter, of all keys of its lock.
type inbox struct {
	keys   []any
	shared bool          // it is of a lock that several may share
	signal chan struct{} // capacity 1: there are hints, or a subscription has changed
	hints  hints
	trying nodeSet // where its waiter now uses hints that it has drained
}

// hints are what came into an inbox since it was last drained.
type hints struct {
	reserved     nodeSet // nodes that reserved a key for this client; or where a key of a fair lock was released
	permit       int     // of a semaphore, the slot that they reserved, plus one; 0: not said
	localRelease bool    // this process has released a key
	poll         bool    // a key is reserved for another client, which polls: if that one is dead, no message follows
	// nodes whose subscription was made or has ended, so messages may have been lost; or where another waiter of this
	// process has taken the client out of a queue
	resubscribed nodeSet
}

const (
	// channelPrefix begins the name of a client's channel. The value of a key that is reserved for the client follows.
	channelPrefix = "redlock:released:"
	// takenPrefix and wantedPrefix begin the names of two further channels of a client, for the leases that it holds: a
	// key was taken from one, and somebody waits for one. waiters.id follows.
	takenPrefix  = channelPrefix + "taken:"
	wantedPrefix = channelPrefix + "wanted:"
	// lingering is how long the subscriptions stay after the last waiter has left: others often follow.
	lingering = 10 * time.Second
	// contendedTime is how long a lock counts as contended after it was last seen to be.
	contendedTime = time.Second
	// minPruned is the number of keys at which old ones are first dropped, and then at each doubling.
	minPruned = 1024
	// maxHandedOver is how many times in a row a release may hand the lock to a waiter of this process.
	maxHandedOver = 8
)

func (w *waiters) init(c *Client) {
	w.client = c
	w.keys, w.pruneAt = map[string]*keyState{}, minPruned
	w.places = map[string]*inbox{}
	w.watches = watches{}
	w.metAt.Store(int64(longAgo))
	id := newToken("")
	w.me, w.id = reservationPrefix+id, id[:clientDigits]
	w.meShared = reservationPrefix + newToken("")
	w.owner = ownerSuffix(w.id, c.cfg.Owner)
	for _, n := range c.nodes {
		w.subscribers = append(w.subscribers, newSubscriber(c, n))
	}
}

// wait returns when no subscriber runs any more. It is called when the client is ending.
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

// listen makes an inbox for the keys of a lock, and starts the subscribers. The inbox gets hints until remove.
func (w *waiters) listen(res *resource) *inbox {
	box := &inbox{signal: make(chan struct{}, 1), keys: res.keys, shared: res.isShared()}
	w.listening.Add(1)
	w.mu.Lock()
	for _, key := range res.keys {
		k := w.key(key)
		k.inboxes = append(k.inboxes, box)
		w.seeAll(key)
	}
	w.mu.Unlock()
	for _, s := range w.subscribers {
		s.want()
	}
	return box
}

// remove takes the inbox out, and returns the hints that were not used.
func (w *waiters) remove(box *inbox) hints {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range box.keys {
		if k := w.keys[key.(string)]; k != nil {
			k.inboxes = slices.DeleteFunc(k.inboxes, func(other *inbox) bool { return other == box })
		}
	}
	if w.listening.Add(-1) == 0 {
		w.quietSince = w.client.cfg.Clock.Now()
	}
	return box.hints
}

// contend notes that the lock is contended: others want it too, or held it.
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

// prune drops the keys that nobody waits for and that were not contended lately. w.mu is held.
func (w *waiters) prune(now Instant) {
	for key, k := range w.keys {
		if len(k.inboxes) == 0 && now.Sub(k.contended) > max(contendedTime, metTime) {
			delete(w.keys, key)
		}
	}
	w.pruneAt, w.prunedAt = max(minPruned, 2*len(w.keys)), now
}

// isContended reports whether the lock was contended within the last contendedTime.
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

// handsOver reports whether a release may hand the lock to a waiter of this process: each key has one, and none was
// handed over too often in a row. It counts the hand-over.
func (w *waiters) handsOver(res *resource) bool {
	if w.listening.Load() == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range res.keys {
		k := w.keys[key.(string)]
		if k == nil || len(k.inboxes) == 0 {
			return false
		}
		if k.handedOver++; k.handedOver > maxHandedOver {
			k.handedOver = 0
			return false
		}
	}
	return true
}

// released tells this process's waiters that a release was sent to all nodes that had the lock. It either reserved the
// key for nobody where they ask first (W1), or has only shortened the key's time (H2). What the waiters send now follows
// it on the same connections, so they need not wait for any node's answer. A waiter that gives up instead passes the keys
// on (waiter.end). If no waiter is left here, released itself passes them on.
func (w *waiters) released(res *resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	unwanted := make([]any, 0, len(res.keys))
	for _, key := range res.keys {
		k := w.keys[key.(string)]
		if k == nil || len(k.inboxes) == 0 {
			unwanted = append(unwanted, key)
			continue
		}
		for _, box := range k.inboxes {
			box.hints.localRelease = true
			box.wakeUp()
		}
	}
	w.leaveLocked(unwanted, w.client.allNodes(), 0, nil, false)
}

// idFor is the name of this client's waiters for the lock in the queues of the nodes.
func (w *waiters) idFor(shared bool) string {
	if shared {
		return w.meShared
	}
	return w.me
}

// confirm notes that the subscription to a node was confirmed, or has ended. In both cases messages may have been lost,
// and a node that has died sends no more. So the waiters ask again, and may enter another node's queue.
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
	for _, box := range w.places {
		box.hints.resubscribed.add(node)
		box.wakeUp()
	}
	for _, k := range w.keys {
		for _, box := range k.inboxes {
			box.hints.resubscribed.add(node)
			box.wakeUp()
		}
	}
}

// wakeAll wakes all waiters, so that each decides anew how it waits.
func (w *waiters) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, box := range w.places {
		box.wakeUp()
	}
	for _, k := range w.keys {
		for _, box := range k.inboxes {
			box.wakeUp()
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

// ownerToken makes a new owner token. Its digits are in capital letters if this client may not publish on some node: a
// waiter that finds such an owner polls.
func (w *waiters) ownerToken(suffix string) string {
	token := newToken(suffix)
	if w.mute.Load() != 0 {
		token = strings.ToUpper(token[:tokenDigits]) + suffix
	}
	return token
}

// refusal is why the waiters of that node poll, with the remedy; nil if no reason is known.
func (w *waiters) refusal(node int) error { return w.subscribers[node].refusal() }

// wanted reports whether the subscriptions are still wanted: somebody waits, or did within lingering, or a lease wants to
// know of waiters. It also prunes.
func (w *waiters) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.client.cfg.Clock.Now()
	if now.Sub(w.prunedAt) >= tidyInterval {
		w.prune(now)
	}
	return w.listening.Load() > 0 || len(w.watches) > 0 || now.Sub(w.quietSince) <= lingering
}

// subscribedTo is those of the nodes whose subscription is confirmed.
func (w *waiters) subscribedTo(nodes nodeSet) nodeSet {
	w.mu.Lock()
	defer w.mu.Unlock()
	return nodes & w.subscribed
}

// drain takes the hints out of the inbox.
func (w *waiters) drain(box *inbox) hints {
	w.mu.Lock()
	defer w.mu.Unlock()
	box.trying |= w.hopes(box)
	h := box.hints
	box.hints = hints{}
	return h
}

// hopes is the nodes where the owner of the inbox may still use a reservation, or a release of this process. w.mu is held.
func (w *waiters) hopes(box *inbox) nodeSet {
	nodes := box.trying | box.hints.reserved
	if box.hints.localRelease {
		nodes = w.client.allNodes()
	}
	return nodes
}

// tried notes that the owner of the inbox has had its turn in vain: nothing is left for it any more.
func (w *waiters) tried(box *inbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	box.trying = 0
}

func (box *inbox) wakeUp() {
	select {
	case box.signal <- struct{}{}:
	default:
	}
}
