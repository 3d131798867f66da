package redlock_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// The invariants, by the names that the table in docs/safety.md has.
const (
	twoHolders   = "two valid leases"
	fenceOrder   = "fences unique and ordered"
	staleWrite   = "no stale write through the fence"
	validRefused = "no valid write refused"
	lostUpdate   = "no lost update"
	orphaned     = "no orphan"
	stuck        = "everyone gets in after healing"
	poisoned     = "fences keep to the servers' clocks"
)

// An oracle sees all that the clients are told, and says what must not be.
type oracle struct {
	world *world

	mu         sync.Mutex // guards the rest; of the library, only Valid is called under it
	leases     map[*redlock.Lease]*grant
	highest    map[string]uint64 // by name: the largest fence returned
	granted    int
	violations []violation
}

type grant struct {
	client int
	name   string
}

type violation struct {
	invariant, detail string
	at                time.Duration
}

func (v violation) String() string { return fmt.Sprintf("%v: %s: %s", v.at, v.invariant, v.detail) }

func newOracle(w *world) *oracle {
	return &oracle{world: w, leases: map[*redlock.Lease]*grant{}, highest: map[string]uint64{}}
}

// violate is called with o.mu held.
func (o *oracle) violate(invariant, format string, args ...any) {
	if len(o.violations) < 10 {
		o.violations = append(o.violations, violation{invariant, fmt.Sprintf(format, args...), time.Since(o.world.began)})
	}
}

func (o *oracle) report(invariant, format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.violate(invariant, format, args...)
}

// begins returns the largest fence of the name that has been returned: one acquired from now on is larger.
func (o *oracle) begins(name string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.highest[name]
}

// grants notes a lease at the moment that its holder has it.
func (o *oracle) grants(client int, name string, l *redlock.Lease, floor uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.granted++
	if f := l.Fence(); f <= floor {
		o.violate(fenceOrder, "client %d got %s with fence %d, and %d was returned before it asked", client, name, f, floor)
	}
	o.highest[name] = max(o.highest[name], l.Fence())
	if now := uint64(time.Now().UnixMicro()); l.Fence() > now+uint64(2*maxStep.Microseconds()) {
		o.violate(poisoned, "client %d got %s with a fence %v ahead of true time", client, name, time.Duration(l.Fence()-now)*time.Microsecond)
	}
	o.leases[l] = &grant{client, name}
	o.lookLocked()
}

// ends notes that the holder is about to release the lease, or has dropped it.
func (o *oracle) ends(l *redlock.Lease) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lookLocked()
	delete(o.leases, l)
}

// look holds every lease against every other.
func (o *oracle) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lookLocked()
}

func (o *oracle) lookLocked() {
	believers := map[string]*redlock.Lease{}
	for l, g := range o.leases {
		if !l.Valid() {
			continue
		}
		if other := believers[g.name]; other != nil {
			o.violate(twoHolders, "clients %d and %d both hold %s, with fences %d and %d",
				g.client, o.leases[other].client, g.name, l.Fence(), other.Fence())
		}
		believers[g.name] = l
	}
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

// read returns the value, and shows the fence.
func (r *register) read(l *redlock.Lease) (int, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.value, r.admit(l)
}

// write puts value there, if the fence is not behind.
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
		r.value = r.writes // once is enough
	}
	if l != r.last && r.last != nil {
		r.passed[r.last] = true // its turn is over
	}
	if r.fenced && r.passed[l] {
		r.oracle.report(staleWrite, "%s: written with fence %d after another holder wrote", r.name, l.Fence())
	}
	r.last = l
}

// admit is false where the resource refuses: it has seen a larger fence. r.mu is held.
func (r *register) admit(l *redlock.Lease) bool {
	if !r.fenced {
		return true
	}
	if l.Fence() < r.fence {
		if l.Valid() {
			r.oracle.report(validRefused, "%s: a valid lease with fence %d was refused, after %d", r.name, l.Fence(), r.fence)
		}
		return false
	}
	r.fence = l.Fence()
	return true
}
