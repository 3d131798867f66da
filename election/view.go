package election

import (
	"strconv"
	"strings"
)

// A view is what an observer knows. It decides what messages and looks mean: no I/O, no goroutine, no clock. Messages
// may be lost, repeated, or late. The number of the leader never goes back.
type view struct {
	known   bool
	now     Leader
	changes int // how often a message has changed now

	highest  uint64 // the largest number of a leader that was seen
	ended    uint64 // the largest number of a term that is known to be over
	owner    string // the owner without a record that was seen last
	nameless int    // in how many looks in a row
}

// heard takes a message, and returns whether to look.
func (v *view) heard(message string) (look bool) {
	kind, rest, _ := strings.Cut(message, " ")
	switch kind {
	case "leads":
		l, ok := parseRecord(rest)
		if !ok || l.Number == 0 {
			return l != v.now
		}
		if l.Number <= max(v.highest, v.ended) {
			return !v.known || l != v.now && l.Number > v.ended
		}
		v.highest = l.Number
		v.change(l)
	case "ended":
		number, err := strconv.ParseUint(rest, 10, 64)
		if err != nil || number == 0 {
			return true
		}
		if number <= v.ended {
			return false
		}
		v.ended = number
		if !v.known || v.now.Number > number || v.now.Number == 0 {
			return true
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
	if !s.nameless() {
		v.nameless = 0
	}
	l := s.leader
	switch {
	case l == v.now:
	case l.Number != 0 && l.Number <= v.ended:
		l = Leader{} // its release has not arrived everywhere
	case l.Number != 0 && l.Number < v.highest:
		return false // the nodes lost their fencing state; see docs/safety.md
	case s.nameless():
		if l.Token != v.owner {
			v.owner, v.nameless = l.Token, 0
		}
		if v.nameless++; v.nameless < namelessLooks {
			return true
		}
	}
	v.known, v.now = true, l
	v.highest = max(v.highest, l.Number)
	return false
}
