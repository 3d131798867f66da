package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A board remembers what redlock top has seen. It does no I/O and reads no clock.
type board struct {
	quorum int
	given  bool // the names were given, so they stay on the board
	limit  int  // of locks on the board

	began time.Time // of the first sample
	locks map[string]*track
	more  bool // a lock was found for which there is no room
}

// keepFor is how long a lock stays on the board after it was held or wanted.
const keepFor = 10 * time.Second

// A track is one lock on the board.
type track struct {
	name string

	owner     string    // of the last sample; "": nobody has it on a quorum. Of a shared lock it is the kind
	sharers   int       // how many share it, of a shared lock
	last      string    // the last owner that was seen
	since     time.Time // when that one was first seen
	before    bool      // it may have had the lock for longer: since before the first sample, or before the lock was found
	left      time.Duration
	partial   bool // some node has the key, and no owner has it on a quorum
	foreign   bool // some node has something else there
	unread    bool // its user may not read the key on so many nodes that nobody knows who has it
	waiters   int
	waits     time.Duration
	active    time.Time // when it was last held or wanted
	samples   int
	contended int // samples with a waiter
	owners    int // owners seen, one after the other
}

func newBoard(quorum, limit int, names []string) *board {
	b := &board{quorum: quorum, limit: limit, given: len(names) > 0, locks: map[string]*track{}}
	for _, name := range names {
		b.locks[name] = &track{name: name}
	}
	return b
}

// full reports whether there is no room for another lock, and that one was found.
func (b *board) full() bool { return b.more && len(b.locks) >= b.limit }

// found adds locks that are not on the board, as far as there is room. before: the last look did not search for them all, so
// they may have been held then.
func (b *board) found(names []string, before bool) {
	for _, name := range names {
		switch {
		case b.locks[name] != nil:
		case len(b.locks) >= b.limit:
			b.more = true
		default:
			b.locks[name] = &track{name: name, before: before}
		}
	}
}

// sightings are what the nodes have for one of the names.
func sightings(seen map[int][]sighting, name int) (all []sighting) {
	for _, node := range seen {
		all = append(all, node[name])
	}
	return all
}

// names are the names on the board, in order.
func (b *board) names() []string {
	names := make([]string, 0, len(b.locks))
	for name := range b.locks {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// update enters a sample: what each node has for each of the names.
func (b *board) update(now time.Time, names []string, seen map[int][]sighting) {
	if b.began.IsZero() {
		b.began = now
	}
	for i, name := range names {
		t := b.locks[name]
		t.update(now, b.quorum, sightings(seen, i), now.Equal(b.began))
		switch {
		case b.given || t.isLock():
		case t.foreign || t.unread || now.Sub(t.active) >= keepFor:
			delete(b.locks, name)
		}
	}
}

// isLock reports whether somebody has the lock or waits for it, as far as the nodes told.
func (t *track) isLock() bool { return t.owner != "" || t.partial || t.waiters > 0 }

func (t *track) update(now time.Time, quorum int, nodes []sighting, first bool) {
	owner, shared, left := "", "", []time.Duration{}
	on := map[string][]time.Duration{}
	waiters := map[string]struct{}{} // each is in the queue of the node that it asks first, or in several
	t.partial, t.foreign, t.waits, t.sharers = false, false, 0, 0
	read := 0
	for _, n := range nodes {
		if n.unread {
			continue
		}
		read++
		for _, waiter := range n.waiters {
			waiters[waiter] = struct{}{}
		}
		t.waits = max(t.waits, n.waits)
		for _, sharer := range n.sharers {
			shared, t.partial = n.kind, true
			on[sharer] = append(on[sharer], n.left)
		}
		switch {
		case n.owner == "" || n.isReserved():
		case !isToken(n.owner) || n.left < 0:
			t.foreign = true
		default:
			t.partial = true
			on[n.owner] = append(on[n.owner], n.left)
		}
	}
	t.waiters, t.unread = len(waiters), read < quorum && read < len(nodes)
	for o, l := range on {
		if len(l) < quorum {
			continue
		}
		owner, left = o, l
		t.partial = false
		if shared != "" {
			owner = shared
			t.sharers++
		}
	}
	t.left = 0
	if owner != "" {
		slices.Sort(left)
		t.left = left[len(left)-quorum] // a quorum has it for so long
		if owner != t.last {            // it may have been away for a sample, as when a node died
			t.owners++
			t.last, t.since, t.before = owner, now, first || t.samples == 0 && t.before
		}
	}
	t.owner = owner
	t.samples++
	if t.waiters > 0 {
		t.contended++
	}
	if owner != "" || t.waiters > 0 || t.partial || t.active.IsZero() {
		t.active = now
	}
}

// isReserved reports whether the key is reserved for the next waiter. Another program's text may begin the same.
func (s sighting) isReserved() bool {
	digits, reserved := strings.CutPrefix(s.owner, "next:")
	return reserved && len(digits) == 32 && isToken(digits) && s.left >= 0
}

// isLock reports whether somebody has the lock on this node or waits for it there.
func (s sighting) isLock() bool {
	return len(s.sharers) > 0 || len(s.waiters) > 0 || isToken(s.owner) && s.left >= 0
}

// held is for how long the owner has been seen.
func (t *track) held(now time.Time) time.Duration {
	if t.owner == "" {
		return 0
	}
	return now.Sub(t.since)
}

// contention is the share of the samples in which somebody waited, in percent.
func (t *track) contention() int {
	if t.samples == 0 {
		return 0
	}
	return 100 * t.contended / t.samples
}

// shown are the locks in the order of interest: those with the most waiters first, then those that are held for longest.
func (b *board) shown(now time.Time) (tracks []*track, held, waiters int) {
	for _, t := range b.locks {
		if t.owner != "" {
			held++
		}
		waiters += t.waiters
		tracks = append(tracks, t)
	}
	slices.SortFunc(tracks, func(a, b *track) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters), cmp.Compare(b.held(now), a.held(now)), cmp.Compare(a.name, b.name))
	})
	return tracks, held, waiters
}
