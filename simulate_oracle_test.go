package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// The invariants, named as in the table of docs/safety.md.
const (
	twoHolders   = "two valid leases"
	fenceOrder   = "fencing tokens unique and ordered"
	staleWrite   = "no stale write through the fence"
	validRefused = "no valid write refused"
	lostUpdate   = "no lost update"
	orphaned     = "no orphan"
	stuck        = "everyone gets in after healing"
	poisoned     = "fencing tokens keep to the servers' clocks"
	outlived     = "no context outlives its lease"
	closes       = "Close ends every lease"
	refused      = "a client that differs gets nothing"
	wrongKind    = "errors tell the truth"
	nobodyWon    = "somebody wins a try"
	leftFree     = "no lock stays free while somebody waits"
	outOfTurn    = "nobody is overtaken without bound"
	neverBack    = "every node votes again"
	inTheGap     = "nobody gets a lock that is being handed over"
	twoAdopters  = "a ticket is adopted once"
	outOfOrder   = "a fair lock is granted in order of arrival"
	twoLeaders   = "one leader"
	formerLeader = "observers see no former leader after a later one"
	deadlocked   = "no deadlock among overlapping names"
)

// An oracle sees every answer that the clients get, and reports what breaks an invariant.
type oracle struct {
	world *world

	mu         sync.Mutex // guards the rest; of the library, only Valid is called under it
	leases     map[*redlock.Lease]*call
	calls      map[*call]bool     // that have not ended, and those whose lease has not
	highest    map[string]uint64  // by name: the largest fencing token returned
	fences     map[string]string  // by name and fencing token: the owner token
	forcing    map[string]int     // by name: how many are taking it away
	grantedOf  map[string]int     // by name: how many leases there were
	quiet      bool               // nothing is wrong, and nothing has been for long
	past       []*call            // those that ended while it was quiet
	kept       map[string][]*turn // by name, where locks have minimum holds
	granted    int
	violations []violation
}

// A call is one attempt to acquire names, and its lease if it succeeds.
type call struct {
	worker *worker
	client *redlock.Client
	names  []string
	floor  map[string]uint64 // the largest fencing tokens that were returned before it
	role   role
	trying bool
	quiet  bool // when it began
	forced bool // an operator may have taken its lock away: nothing is promised to it any more

	began, ended time.Time
	lease        context.Context // ends with the lease; nil: it was never asked for
	free         time.Time       // since when nobody has had any of its names
	overtaken    int             // leases of others that came later
	granted      bool            // it got its lease, and now releases it
	leads        bool            // as the winner of an election
}

type violation struct {
	invariant, detail string
	at                time.Duration
}

func (v violation) String() string { return fmt.Sprintf("%v: %s: %s", v.at, v.invariant, v.detail) }

func newOracle(w *world) *oracle {
	return &oracle{world: w, leases: map[*redlock.Lease]*call{}, calls: map[*call]bool{}, highest: map[string]uint64{},
		fences: map[string]string{}, forcing: map[string]int{}, grantedOf: map[string]int{}, kept: map[string][]*turn{}}
}

// violate records a violation. o.mu is held.
func (o *oracle) violate(invariant, format string, args ...any) {
	if len(o.violations) < 10 {
		o.violations = append(o.violations, violation{invariant, fmt.Sprintf(format, args...), time.Since(o.world.began)})
		o.world.trace("VIOLATION %s", o.violations[len(o.violations)-1])
		o.world.record.ends()
	}
}

func (o *oracle) report(invariant, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violate(invariant, format, args...)
}

// begins records that somebody asks. Fencing tokens acquired from now on must be larger than all that were returned.
func (o *oracle) begins(k *worker, client *redlock.Client, names []string, trying bool) *call {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	a := &call{worker: k, client: client, names: names, floor: map[string]uint64{}, trying: trying, quiet: o.quiet, began: now, free: o.keptUntil(names)}
	for _, name := range names {
		a.floor[name] = o.highest[name]
		a.forced = a.forced || o.forcing[name] > 0
	}
	o.calls[a] = true
	return a
}

// grants records a lease at the moment when its holder gets it.
func (o *oracle) grants(a *call, l *redlock.Lease, wantsContext bool) {
	if wantsContext {
		a.lease = l.Context()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted++
	a.granted = true
	client := a.worker.id + 1
	if a.worker.id+1 == o.world.has.differs {
		o.violate(refused, "client %d has another configuration, and got %s", client, a.names)
	}
	for _, name := range a.names {
		if l.Valid() || l.Fence() > o.highest[name] { // else a suspended process got it before another did
			o.grantedOf[name]++
		}
		if f := l.Fence(); f <= a.floor[name] {
			o.violate(fenceOrder, "client %d got %s with fencing token %d, and %d was returned before it asked", client, name, f, a.floor[name])
		}
		o.highest[name] = max(o.highest[name], l.Fence())
		id := fmt.Sprint(name, " ", l.Fence())
		if of := o.fences[id]; of != "" && of != l.Token() {
			o.violate(fenceOrder, "client %d got %s with fencing token %d, which another lease had", client, name, l.Fence())
		}
		o.fences[id] = l.Token()
	}
	if now := uint64(time.Now().UnixMicro()); l.Fence() > now+uint64(2*maxStep.Microseconds()) {
		o.violate(poisoned, "client %d got %s with a fence %v ahead of true time", client, a.names, time.Duration(l.Fence()-now)*time.Microsecond)
	}
	o.passes(a)
	o.leases[l] = a
	o.lookLocked()
}

// ends records that the holder is about to release the lease, or has dropped it. It reports whether the lease was
// valid.
func (o *oracle) ends(l *redlock.Lease) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lookLocked()
	a := o.leases[l]
	delete(o.leases, l)
	o.frees(a)
	return l.Valid() && !a.forced
}

// writes reports whether the holder may write where no fencing token guards.
func (o *oracle) writes(a *call, l *redlock.Lease) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return l.Valid() && !a.forced
}

// forces records that a lock is being taken away, and returns what to call when that is over. Whoever has the lock, or
// acquires it meanwhile, may lose it without notice.
func (o *oracle) forces(name string) (done func()) {
	mark := func(by int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.forcing[name] += by
		o.endHolds("", name)
		for a := range o.calls {
			a.forced = a.forced || slices.Contains(a.names, name)
		}
	}
	mark(+1)
	return func() { mark(-1) }
}

// closed records that Close of a client has returned.
func (o *oracle) closed(client *redlock.Client) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for l, a := range o.leases {
		if a.client == client && (l.Valid() || a.lease != nil && a.lease.Err() == nil) {
			o.violate(closes, "client %d: Close has returned, and a lease of %s goes on: valid %v", a.worker.id+1, a.names, l.Valid())
		}
	}
}

// look compares every lease with every other.
func (o *oracle) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lookLocked()
}

func (o *oracle) lookLocked() {
	o.lookShared()
	believers := map[string]*redlock.Lease{}
	for l, a := range o.leases {
		if a.forced || !l.Valid() {
			continue
		}
		for _, name := range a.names {
			if slices.Contains(sharedNames, name) {
				continue
			}
			if other := believers[name]; other != nil {
				invariant := twoHolders
				if a.leads && o.leases[other].leads {
					invariant = twoLeaders
				}
				o.violate(invariant, "clients %d and %d both hold %s, with fences %d and %d",
					a.worker.id+1, o.leases[other].worker.id+1, name, l.Fence(), other.Fence())
			}
			believers[name] = l
		}
	}
	for l, a := range o.leases {
		if a.forced || a.lease == nil || a.lease.Err() != nil {
			continue
		}
		for _, name := range a.names {
			if other := believers[name]; other != nil && other != l {
				o.violate(outlived, "client %d has %s with fence %d, and the context of client %d's lease with fence %d has not ended; it is valid: %v",
					o.leases[other].worker.id+1, name, other.Fence(), a.worker.id+1, l.Fence(), l.Valid())
			}
		}
	}
}

// isForced reports whether the lease may have been taken away.
func (o *oracle) isForced(l *redlock.Lease) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	a := o.leases[l]
	return a == nil || a.forced
}

// A register is what a lock guards: a counter that is read, and written back one higher.
type register struct {
	oracle *oracle
	name   string
	fenced bool

	mu     sync.Mutex // guards the rest
	value  int
	writes int
	fence  uint64         // the largest that it has seen
	last   *redlock.Lease // that wrote
	passed map[*redlock.Lease]bool
}

// read returns the value, and shows the lease's fencing token to the register.
func (r *register) read(l *redlock.Lease) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.admit(l)
}

// write stores the value, unless the register has seen a larger fencing token.
func (r *register) write(l *redlock.Lease, value int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.admit(l) {
		return
	}
	r.writes++
	r.value = value
	if r.value != r.writes {
		r.oracle.report(lostUpdate, "%s: %d writes raised the counter to %d", r.name, r.writes, r.value)
		r.value = r.writes // it is reported once
	}
	if l != r.last && r.last != nil {
		r.passed[r.last] = true // its turn is over
	}
	if r.fenced && r.passed[l] {
		r.oracle.report(staleWrite, "%s: written with fence %d after another holder wrote", r.name, l.Fence())
	}
	r.last = l
}

// admit is false where the register refuses: it has seen a larger fencing token. r.mu is held.
func (r *register) admit(l *redlock.Lease) bool {
	if !r.fenced {
		return true
	}
	if l.Fence() < r.fence {
		if l.Valid() && !r.oracle.isForced(l) {
			r.oracle.report(validRefused, "%s: a valid lease with fence %d was refused, after %d", r.name, l.Fence(), r.fence)
		}
		return false
	}
	r.fence = l.Fence()
	return true
}
