package redlock

import (
	"math/rand/v2"
	"time"
)

// A defence is a rule without which a lock would be unsafe, or leave something behind. Tests switch single
// ones off, to show what each is for (docs/safety.md); nothing else can.
type defence uint16

const (
	releaseLateGrants  defence = 1 << iota // A5: also nodes that have not answered yet are told to forget
	cleanUpAfterCancel                     // A5: whatever the caller's context says
	freshToken                             // A1: no two attempts have the same
	finalValidity                          // A4: the time that the round took is given up
	takenOnce                              // R2: repair only after a quorum; an expired lease is never taken again
	serverBallots                          // F1: ballots are of the nodes' clocks, not of the client's
)

// A protocol is the scripts, chance, and the defences that are off: none, but in tests.
type protocol struct {
	acquire, extend, plant, release, ready, inspect *script

	off    defence
	random func(time.Duration) time.Duration // at least 0 and below; seeded in tests
}

// standard is the protocol of every client outside tests.
var standard = newProtocol(func(_, source string) string { return source })

// newProtocol makes the scripts out of their sources, after edit has seen them.
func newProtocol(edit func(name, source string) string) *protocol {
	load := func(name, source string) *script { return newScript(name, edit(name, source)) }
	p := &protocol{
		random:  rand.N[time.Duration],
		acquire: load("acquire", acquireSource),
		extend:  load("extend", extendSource),
		plant:   load("plant", plantSource),
		release: load("release", releaseSource),
		ready:   load("ready", readySource),
		inspect: load("inspect", inspectSource),
	}
	p.release.cleansUp = true
	p.acquire.grants = true
	p.acquire.first = func(args []any, s *standing, r *round, node int) []any {
		return append(args, s.marker, flag(r.enter.has(node)))
	}
	p.ready.first = func(args []any, s *standing, _ *round, _ int) []any { return append(args, s.runID) }
	return p
}

func (p *protocol) scripts() []*script {
	return []*script{p.ready, p.acquire, p.extend, p.plant, p.release, p.inspect}
}

// lacks reports whether the defence is off.
func (p *protocol) lacks(d defence) bool { return p.off&d != 0 }

var yes, no any = "1", "0"

func flag(set bool) any {
	if set {
		return yes
	}
	return no
}
