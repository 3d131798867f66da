package election

import (
	"strconv"
	"strings"
	"time"
)

// A view is what an observer knows. It decides what messages and looks mean: no I/O, no goroutine, no clock. Messages
// may be lost, repeated, or late. The number of the leader never goes back.
type view struct {
	known   bool
	now     Leader
	changes int // how often a message has changed now

	highest uint64   // the largest number of a leader that was seen
	ended   uint64   // the largest number of a term that is known to be over
	over    string   // the owner token of the leader that was heard last to end
	owner   nameless // the owner without a record that was seen last
}

// heard takes a message, and returns whether to look. One with a number above most says nothing itself: one node is not
// believed that. The number never goes back, so after nonsense no leader would be heard of again.
func (v *view) heard(message string, most uint64) (look bool) {
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "leads":
		l, ok := parseRecord(rest)
		if !ok || l.Number == 0 || l.Number > most {
			return l != v.now
		}
		if l.Number <= max(v.highest, v.ended) {
			return !v.known || l != v.now && l.Number > v.ended
		}
		v.highest = l.Number
		v.change(l)
	case "ended":
		number, err := strconv.ParseUint(rest, 10, 64)
		if err != nil || number == 0 || number > most {
			return true
		}
		if number <= v.ended {
			return false
		}
		v.ended = number
		if !v.known || v.now.Number > number || v.now.Number == 0 {
			return true
		}
		if !v.now.None() {
			v.over = v.now.Token
		}
		v.change(Leader{})
	}
	return true
}

func (v *view) change(now Leader) {
	v.known, v.now = true, now
	v.changes++
}

// saw takes what a look found, and returns whether to look again soon. The look must have begun after the last message
// that changed the view.
func (v *view) saw(s sighting) (again bool) {
	if !s.found {
		return false
	}
	l := s.leader
	switch {
	case l == v.now:
	case l.Number != 0 && l.Number <= v.ended:
		l = Leader{} // its release has not arrived everywhere
	case s.nameless() && l.Token == v.over:
		l = Leader{} // as above, and its record is gone
	case l.Number != 0 && l.Number < v.highest:
		return false // the nodes lost their fencing state; see docs/safety.md
	case s.nameless() && !v.owner.saw(s):
		return true
	}
	v.known, v.now = true, l
	v.highest = max(v.highest, l.Number)
	return false
}

// A nameless is an owner of the lock of which looks have found no record.
type nameless struct {
	patience time.Duration
	token    string
	looks    int
	since    time.Time // when the first look that saw it ended
}

// namelessLooks is in how many looks, and over a patience, an owner without a record counts as one that has none. A
// leader stores its record when it has heard that it has the lock, so the record follows the lock by a round trip of the
// leader. The patience is NodeTimeout: a leader that is further away than that gets no lock.
const namelessLooks = 3

// saw takes a look that found an owner without a record, and returns whether the lock was taken by no election.
func (o *nameless) saw(s sighting) bool {
	if s.leader.Token != o.token {
		o.token, o.looks, o.since = s.leader.Token, 0, s.ended
	}
	o.looks++
	return o.looks >= namelessLooks && s.began.Sub(o.since) >= o.patience
}
