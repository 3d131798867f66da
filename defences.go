package redlock

import (
	"math/rand/v2"
	"time"
)

// A defence is a rule without which a lock would be unsafe, or would leave something behind. A test can switch a single
// one off, to show what it is for (docs/safety.md). Nothing else can.
type defence uint32

const (
	releaseLateGrants  defence = 1 << iota // A5: nodes that have not answered get the release too
	cleanUpAfterCancel                     // A5: also if the caller's context has ended
	freshToken                             // A1: no two attempts have the same owner token
	finalValidity                          // A4: the validity gives up the time that the round took, and more
	takenOnce                              // R2: plant only after a quorum extended; never take an expired lease again
	takenInTime                            // R2: a renewal that takes keys counts only while the lease is valid
	serverBallots                          // F1: ballots come from the nodes' clocks, not from the client's
	clocksOfOthers                         // Q1: a quarantine is measured by the other nodes' clocks too
	clocksApart                            // Q1: a quarantine is longer by how far clocks in step may be apart
	clocksMisread                          // Q1: the other nodes' clocks are believed only as far as they were read exactly
	dataSetVouched                         // Q1: a grant counts only if INFO still names the marked data set
	dataSetNamed                           // Q1: the marker names the data set, not only the process
	promotedForgets                        // Q2: Durable does not apply to a promoted replica
	configAgreed                           // Q3: the nodes refuse a client that is configured differently
	ticksDrained                           // L2: Close also ends the lease that is being renewed
	callsAwaited                           // L2: Close waits for calls that are running, and for their releases
	userApart                              // hooks and the log run on a goroutine of their own, the notifier
	queuesLeft                             // W2: a waiter that gives up leaves the queues and passes on its turn
	markerChecked                          // Q1: a grant counts only if the marker is right (its light form; the script is edited)
	markerReadLast                         // A2: the marker is read after the light acquires that it vouches for
	fenceCompared                          // F2: a ballot must be above the highest (likewise)
	fenceStored                            // F2: the ballot is stored (likewise)
	hedgesReleased                         // A5: the nodes that were asked late get the release too
	lossClassified                         // A3: a lost round waits until it is clear whether it is held or an outage
	triesDecided                           // T2: after a split vote, one of the tries goes on
	adopterGivesBack                       // D5: an adopter that failed gives the keys back to the ticket
	giverStops                             // D2: Detach ends the lease before the nodes swap its token
	ticketsCompared                        // O2: a ticket is larger than those that a quorum of nodes has
	placesLeft                             // O3: a waiter of a fair lock that gives up leaves its place
	farBallotsAgreed                       // F2: a ballot far ahead of the servers' clocks counts only if a quorum has such
)

// A protocol is what tests can change: the scripts, the source of chance, some times, and the defences that are off.
type protocol struct {
	acquire, fair, vouch, extend, plant, release, leave, swap, undo, adopt, ready, enroll, inspect, share, unshare *script

	off    defence
	random func(time.Duration) time.Duration // from 0 to below the argument; seeded in tests
	// lostPoll is about how often a waiter asks again without any message, because messages may be lost (W2).
	lostPoll time.Duration
	// asksAll has every round ask all nodes at once. Tests of what all nodes have set it.
	asksAll bool
	// lightAlone has a single acquire go out in its light form wherever its server is (light.go). Tests set it.
	lightAlone bool
	// slowMargin is a part of the limit above which a node is too slow to be asked first (W3).
	slowMargin time.Duration
	// lateMargin is added to the time after which a node is late (A2).
	lateMargin time.Duration
	// firstLimit is how many attempts of a client may be under way at first (admission.go).
	firstLimit int
}

// standard is the protocol of every client outside tests.
var standard = newProtocol(func(_, source string) string { return source })

// newProtocol makes the scripts from their sources. edit may change each source.
func newProtocol(edit func(name, source string) string) *protocol {
	load := func(name, source string) *script { return newScript(name, edit(name, source)) }
	common := edit("common", commonSource)
	loadCommon := func(name, source string) *script { return newScript(name, common+edit(name, source)) }
	entries := common + edit("entries", entriesSource)
	loadWith := func(name, source string) *script { return newScript(name, entries+edit(name, source)) }
	p := &protocol{
		random:   rand.N[time.Duration],
		lostPoll: time.Second,

		slowMargin: 2 * time.Millisecond,
		firstLimit: firstLimit,

		acquire: loadCommon("acquire", acquireSource),
		fair:    loadWith("fair", fairSource),
		vouch:   load("vouch", vouchSource),
		extend:  loadWith("extend", extendSource),
		plant:   loadWith("plant", plantSource),
		release: loadCommon("release", releaseSource),
		leave:   loadWith("leave", leaveSource),
		swap:    load("swap", swapSource),
		adopt:   loadCommon("adopt", adoptSource),
		ready:   load("ready", readySource),
		inspect: loadWith("inspect", inspectSource),
		share:   loadWith("share", shareSource),
		unshare: loadWith("unshare", unshareSource),
	}
	p.share.name, p.unshare.name = p.acquire.name, p.release.name // the operations, by which errors call them
	p.fair.name = p.acquire.name
	p.release.cleansUp, p.unshare.cleansUp = true, true
	for _, s := range []*script{p.release, p.unshare, p.swap} {
		s.counts = true
	}
	for _, s := range []*script{p.acquire, p.fair, p.share, p.adopt} {
		s.grants, s.takes = true, true
	}
	p.acquire.own, p.fair.own, p.share.own, p.adopt.own = ownMarker, ownMarker, ownShare, ownMarkerOnly
	p.ready.own, p.extend.own = ownIdentity, ownLease
	p.swap.name = "detach"
	undo := *p.swap // the same script, but it is owed until a server has answered it (D5)
	p.undo, undo.name, undo.cleansUp = &undo, "undo", true
	enroll := *p.ready // the same script, but it is not sent to an unfit server, which must not become a voter (N1)
	p.enroll, enroll.name, enroll.grants = &enroll, opEnroll, true
	return p
}

func (p *protocol) scripts() []*script {
	return []*script{p.ready, p.acquire, p.fair, p.vouch, p.extend, p.plant, p.release, p.leave, p.swap, p.adopt, p.inspect,
		p.share, p.unshare}
}

// omits reports whether the defence is off.
func (p *protocol) omits(d defence) bool { return p.off&d != 0 }

var yes, no any = "1", "0"

// Arguments that are the same in many commands, so that none is made for each.
var (
	markerArg    any = markerKey
	fenceArg     any = fenceKey
	takesNothing any = "-"      // extend.lua: this lease takes no missing keys
	raisedArg    any = "raised" // acquire.lua: the light form has stored the ballot
	noMarker     any = ""       // extend.lua: no lease does

	setNX, setPX, zaddGT, zaddCH any = "NX", "PX", "GT", "CH"
)

func flag(set bool) any {
	if set {
		return yes
	}
	return no
}
