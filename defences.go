package redlock

import (
	"math/rand/v2"
	"time"
)

// A defence is a rule without which a lock would be unsafe, or leave something behind. Tests switch single
// ones off, to show what each is for (docs/safety.md); nothing else can.
type defence uint32

const (
	releaseLateGrants  defence = 1 << iota // A5: also nodes that have not answered yet are told to forget
	cleanUpAfterCancel                     // A5: whatever the caller's context says
	freshToken                             // A1: no two attempts have the same
	finalValidity                          // A4: the time that the round took is given up
	takenOnce                              // R2: repair only after a quorum; an expired lease is never taken again
	serverBallots                          // F1: ballots are of the nodes' clocks, not of the client's
	clocksOfOthers                         // Q1: a quarantine is counted by the other nodes' clocks too
	dataSetVouched                         // Q1: a vote counts only if the data set is the one that was marked
	dataSetNamed                           // Q1: the marker names the data set, and not the process alone
	promotedForgets                        // Q2: Durable does not trust what a promoted replica has
	configAgreed                           // Q3: the nodes refuse a client that is configured otherwise
	ticksDrained                           // Close ends also the lease that is being renewed
	callsAwaited                           // Close waits for what calls under way leave behind
	userApart                              // hooks and the log run where nothing waits for them
	queuesLeft                             // W2: a waiter that gives up says so to the next
	lossClassified                         // A5: a lost round waits until it can tell held from an outage
	triesDecided                           // a try that lost a split vote to nobody goes on
)

// A protocol is the scripts, chance, and the defences that are off: none, but in tests.
type protocol struct {
	acquire, extend, plant, release, leave, ready, enroll, inspect *script

	off    defence
	random func(time.Duration) time.Duration // at least 0 and below; seeded in tests
	// lostPoll is how often a waiter asks for a lock that it should hear of: a message may be lost.
	lostPoll time.Duration
	// slowMargin is by how much a node's round trip may be above the others' for it still to be asked first.
	slowMargin time.Duration
}

// standard is the protocol of every client outside tests.
var standard = newProtocol(func(_, source string) string { return source })

// newProtocol makes the scripts out of their sources, after edit has seen them.
func newProtocol(edit func(name, source string) string) *protocol {
	load := func(name, source string) *script { return newScript(name, edit(name, source)) }
	p := &protocol{
		random:   rand.N[time.Duration],
		lostPoll: time.Second,

		slowMargin: slowMargin,

		acquire: load("acquire", acquireSource),
		extend:  load("extend", extendSource),
		plant:   load("plant", plantSource),
		release: load("release", releaseSource),
		leave:   load("leave", leaveSource),
		ready:   load("ready", readySource),
		inspect: load("inspect", inspectSource),
	}
	p.release.cleansUp = true
	p.acquire.grants = true
	p.acquire.own, p.ready.own = ownMarker, ownIdentity
	enroll := *p.ready // the same script, but nobody can make a voter of an unfit server
	p.enroll, enroll.name, enroll.grants = &enroll, "enroll", true
	return p
}

func (p *protocol) scripts() []*script {
	return []*script{p.ready, p.acquire, p.extend, p.plant, p.release, p.leave, p.inspect}
}

// omits reports whether the defence is off.
func (p *protocol) omits(d defence) bool { return p.off&d != 0 }

var yes, no any = "1", "0"

func flag(set bool) any {
	if set {
		return yes
	}
	return no
}
