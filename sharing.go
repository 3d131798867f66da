package redlock

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// Locks that several may have at once (S): readers (rwmutex.go) and holders of permits (semaphore.go). They are
// acquired, renewed, lost and released as a mutex is. Only what a node has for each of them differs: an entry of the
// lock key, and not all of it (scripts/entries.lua). The scripts are told the entry where that of a mutex is told the
// owner token.

// A sharing is how a lock that several may share is held. It does not change after it was made. A mutex has none: nil.
type sharing struct {
	reader  bool  // any number of readers may have it; otherwise it is a semaphore
	permits int   // of the semaphore
	take    int   // how many of them a lease has
	keys    []any // of share.lua
}

const (
	readerEntry = "reader " // begins the entry of a reader
	permitEntry = "permit " // and that of a holder of permits

	// What a refusal calls the owner of a key that several share.
	ownedByReaders = "readers"
	ownedByPermits = "permits"
	// writerAhead is the owner by which a reader is refused that a waiting writer's intent keeps out (S2).
	writerAhead = reservationPrefix + "00000000000000000000000000000000"
)

// ownerIn reads the owner in a refusal. That of a key that several share is in capitals if one of them may not publish
// (mute): acquire.lua and fair.lua look at the one whose entry ends last.
func ownerIn(reply string) (owner string, mute bool) {
	for _, several := range []string{ownedByReaders, ownedByPermits} {
		if reply == strings.ToUpper(several) {
			return several, true
		}
	}
	return reply, false
}

// isOfSeveral reports whether the owner in a refusal stands for all that share the key, however many.
func isOfSeveral(owner string) bool { return owner == ownedByReaders || owner == ownedByPermits }

func (s *sharing) isReader() bool    { return s != nil && s.reader }
func (s *sharing) isSemaphore() bool { return s != nil && !s.reader }

// like reports whether both are of one kind: mutexes, readers, or permits.
func (s *sharing) like(other *sharing) bool {
	return (s == nil) == (other == nil) && s.isReader() == other.isReader()
}

// wantsMore reports whether this takes more permits than the other, which is of the same kind.
func (s *sharing) wantsMore(other *sharing) bool { return s.isSemaphore() && s.take > other.take }

// entry is what the scripts are told instead of the owner token. slots is what an attempt asks for, of a semaphore.
func (s *sharing) entry(token string, slots []int) string {
	switch {
	case s == nil:
		return token
	case s.isReader():
		return readerEntry + token
	}
	var b strings.Builder
	b.WriteString(permitEntry)
	for i, slot := range slots {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(slot))
	}
	b.WriteString("/" + strconv.Itoa(s.permits) + " " + token)
	return b.String()
}

// tokenOf is the owner token in an entry, which is the entry itself for a mutex.
func tokenOf(entry string) string { return entry[strings.LastIndexByte(entry, ' ')+1:] }

// isEntry reports whether the argument that stands for an owner is an entry.
func isEntry(owner any) bool {
	text, _ := owner.(string)
	return strings.HasPrefix(text, readerEntry) || strings.HasPrefix(text, permitEntry)
}

// shareKeys is the keys of share.lua.
func shareKeys(key string) []any {
	return []any{key, waitPrefix + key, sharedPrefix + key, intentPrefix + key, markerArg, fenceArg}
}

// anySlots is what the first attempt asks for: slots by chance, so that clients mostly ask for different ones.
func (s *sharing) anySlots(chance func(time.Duration) time.Duration) []int {
	if !s.isSemaphore() {
		return nil
	}
	first, slots := int(chance(time.Duration(s.permits))), make([]int, s.take)
	for i := range slots {
		slots[i] = (first + i) % s.permits
	}
	slices.Sort(slots)
	return slots
}

// freeSlots is what to ask for next, after a round was refused because the slots that it asked for are taken. It
// chooses slots that may be free on a quorum: those that are taken on the fewest nodes, and among these by chance. ok
// is false if there are not enough, if no node said that others are free, or if a node has reserved its last one for
// a waiter.
func (s *sharing) freeSlots(answers []answer, need int, alone bool,
	chance func(time.Duration) time.Duration) (slots []int, ok bool) {
	taken, mostly := make([]int, s.permits), len(answers)-need // taken on so many nodes, a slot is still free on a quorum
	free := make([]bool, s.permits)                            // on the node that is looked at, which may name a slot twice
	if alone {
		mostly = 0
	}
	for _, a := range answers {
		if a.denial == nil || a.denial.reason != held && a.denial.reason != slotTaken {
			continue
		}
		if a.denial.isReservation() {
			return nil, false // the last one is a waiter's
		}
		ok = ok || a.denial.reason == slotTaken
		clear(free)
		for _, slot := range a.denial.free {
			if slot < len(free) {
				free[slot] = true
			}
		}
		for slot := range taken {
			if !free[slot] {
				taken[slot]++
			}
		}
	}
	first := int(chance(time.Duration(s.permits)))
	for bound := 0; bound <= mostly; bound++ {
		for i := range taken {
			if slot := (first + i) % s.permits; taken[slot] == bound && len(slots) < s.take {
				slots = append(slots, slot)
			}
		}
	}
	slices.Sort(slots)
	return slots, ok && len(slots) == s.take
}

// anotherSlot chooses what to ask for after the refused round, and reports whether to ask at once.
func (r *round) anotherSlot(res *resource, c *Client) (slots []int, ok bool) {
	if !res.share.isSemaphore() {
		return nil, false
	}
	alone := r.alone()
	answers, votes := r.snapshot()
	if !alone && !votes.answered() {
		return nil, false
	}
	return res.share.freeSlots(answers, votes.need, alone, c.protocol.random)
}

// maxAsked is how often in a row a waiter asks at once for other permits: others may be as quick.
const maxAsked = 4

// asksForOthers reports whether the waiter, refused because the permits that it asked for are taken, asks at once for
// others. It asks the first node alone, which decides between those that want the same (W3).
func (w *waiter) asksForOthers(r *round) bool {
	slots, ok := r.anotherSlot(w.res, w.client)
	w.how.slots = nil
	if !ok || w.asked >= maxAsked {
		w.asked = 0
		return false
	}
	w.asked++
	w.how.slots, w.how.probe = slots, w.client.probeFor(w.res)
	return true
}

// tooFew is those of the nodes that have reserved permits where these were not enough: for a lease with several, or because
// the holders there know of more permits (S6).
func (s *sharing) tooFew(answers []answer, reserved nodeSet) (nodes nodeSet) {
	if !s.isSemaphore() {
		return 0
	}
	for i, a := range answers {
		if d := a.denial; d != nil && d.reason == held && reserved.has(i) && (s.take > 1 || d.permits > s.permits) {
			nodes.add(i)
		}
	}
	return nodes
}

// otherSlots is anotherSlot for a try. Before it asks for a slot that it was not about to get, it hears the first node,
// which may have reserved that for a waiter (T3).
func (t *try) otherSlots(ctx context.Context, r *round) (slots []int, ok bool) {
	c, res := t.spec.client, t.spec.res
	if !res.share.isSemaphore() {
		return nil, false
	}
	if first := c.probeFor(res); first != nil && r.askedNodes().has(first.index) {
		hasVoted := func(t *tally) bool { return t.votes[first.index] != pending }
		if c.awaitVotes(ctx, r, c.cfg.Clock.Now().Add(c.patience(first)), hasVoted) != nil {
			return nil, false
		}
	}
	return r.anotherSlot(res, c)
}

// parseFree reads which slots are free here, and of how many permits a holder knows (share.lua).
func (d *denial) parseFree(reply []any) bool {
	text, err := redis.String(at(reply, 5))
	if err != nil {
		return false
	}
	largest, err := redis.Int(at(reply, 6))
	if err != nil {
		return false
	}
	d.permits = largest
	for part := range strings.SplitSeq(text, ",") {
		if slot, err := strconv.Atoi(part); err == nil && slot >= 0 {
			d.free = append(d.free, slot)
		}
	}
	if len(d.free) > 0 {
		d.reason = slotTaken
	}
	return true
}

// reservedPermit reads the message "permit <slot> <key>" (scripts/entries.lua). Whoever may publish may have sent it, so a slot
// that no semaphore has is no such message.
func reservedPermit(message string) (slot int, key string, ok bool) {
	text, isPermit := strings.CutPrefix(message, permitEntry)
	number, key, both := strings.Cut(text, " ")
	slot, err := strconv.Atoi(number)
	return slot, key, isPermit && both && err == nil && slot >= 0 && slot < maxPermits
}

// A Sharer is one of those that share a name: a reader, or a holder of permits of a semaphore.
type Sharer struct {
	Token string // the owner's token; see [Lease.Token]
	// Slots is which of the permits it has, from 0; nil for a reader.
	Slots []int
	// Permits is of how many permits it knows: the number given to [Client.Semaphore]; 0 for a reader.
	Permits int
	// Remaining is how much longer it has them if it does nothing.
	Remaining time.Duration

	entry string
}

// Holder says who it is.
func (s Sharer) Holder() Holder { return holderIn(s.Token, s.Remaining) }

// String says who it is, and not its owner token, which is a secret.
func (s Sharer) String() string { return s.Holder().String() }

// LogValue is String, so that it shows no owner token in a log. JSON of it does.
func (s Sharer) LogValue() slog.Value { return slog.StringValue(s.String()) }

// parseSharers reads what inspect.lua found: each entry, and when it ends; nil for a string.
func parseSharers(reply any, nowMicros int64) (all []Sharer, ok bool) {
	list, isList := reply.([]any)
	if reply != nil && !isList {
		return nil, false
	}
	for i := 0; i+1 < len(list); i += 2 {
		entry, err := redis.String(list[i], nil)
		ends, isInt := list[i+1].(int64)
		if err != nil || !isInt {
			return nil, false
		}
		s := Sharer{entry: entry, Token: tokenOf(entry), Remaining: time.Duration(ends-nowMicros) * time.Microsecond}
		if isReserved(s.Token, s.Remaining) {
			continue // it belongs to nobody, and who knows the waiter's id could take it
		}
		if slots, isPermit := strings.CutPrefix(entry, permitEntry); isPermit {
			slots, of, _ := strings.Cut(slots, "/")
			for number := range strings.SplitSeq(slots, ",") {
				slot, _ := strconv.Atoi(number)
				s.Slots = append(s.Slots, slot)
			}
			of, _, _ = strings.Cut(of, " ")
			s.Permits, _ = strconv.Atoi(of)
		}
		all = append(all, s)
	}
	return all, true
}

// sharersOf is those that a quorum has, with the time for which it does. A writer that became a reader may still have its string
// on nodes that were not told (S4).
func sharersOf(nodes []NodeState, need int) (all []Sharer) {
	byEntry, left := map[string]Sharer{}, map[string][]time.Duration{}
	for _, n := range nodes {
		for _, s := range n.Sharers {
			byEntry[s.entry] = s
			left[s.entry] = append(left[s.entry], s.Remaining)
		}
	}
	for _, n := range nodes {
		if entry := readerEntry + n.Token; n.Held && len(n.Sharers) == 0 && left[entry] != nil {
			left[entry] = append(left[entry], n.Remaining)
		}
	}
	for entry, s := range byEntry {
		if times := left[entry]; len(times) >= need {
			slices.SortFunc(times, longest)
			s.Remaining = times[need-1]
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Sharer) int { return strings.Compare(a.entry, b.entry) })
	return all
}
