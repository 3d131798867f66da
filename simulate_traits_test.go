package redlock_test

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/redlock"
)

// What a world may have, and what is judged, apart from links that fail, servers that forget and one clock that steps.
const (
	severalWidths  = "four and seven nodes"
	closing        = "close and reopen"
	closingAtWork  = "close with attempts under way"
	durability     = "durable"
	staleDurable   = "durable, and a stale replica promoted"
	forcing        = "force release"
	differing      = "a client that differs"
	failingBack    = "failback in one process"
	failingUnseen  = "failback that live connections do not notice"
	wrongClock     = "a wrong clock at boot, then stepped right"
	deafness       = "subscriptions lost alone"
	muteness       = "a user without channels"
	blocking       = "hooks and logs that block"
	forgetsScripts = "scripts flushed"
	splitting      = "a flush between two commands"
	impatience     = "callers who give up beside one who waits"
	sharing        = "readers, writers and permits"
	handingOver    = "leases that are handed over"
	arrivals       = "fair locks alone, and clients that die"
	raising        = "huge ballots on one server"
	fairness       = "fair locks among others"
	leading        = "elections"
	dining         = "names that overlap in a ring"
	quietStep      = "a clock out of step in the quiet time"
	staying        = "a key that stays on one server"
	deceiving      = "clocks far apart, or read over slow links"
	minHolding     = "minimum holds"
	borrowing      = "the data of another server"
)

// simulatedKinds are the kinds of lock of which every world has one, if the command line says so. Where they can, callers
// then want no other.
var simulatedKinds = []string{"fair", "shared", "handover", "leader", "names", "minhold"}

// isKind reports whether the command line wants this kind.
func isKind(kind string) bool { return *simulateKind == kind }

var simulateDraw = flag.String("draw", "", "what most worlds have: names with + between")

// isNamed reports whether the command line names this trait. Then most worlds have it.
func isNamed(what string) bool {
	return *simulateDraw != "" && slices.Contains(strings.Split(*simulateDraw, "+"), what)
}

// traits are what a world is like from beginning to end.
type traits struct {
	nodes, clients  int
	calm            bool // nothing goes wrong
	durable         bool // no restart forgets anything
	closes          bool // clients are closed, and opened again
	forces          bool // an operator takes locks away
	differs         int  // the number, from 1, of the client that has another configuration; 0: none
	difference      int
	mute            int  // of the client that may use no channel
	blocks          int  // of the client whose hooks and logger take their time
	impatient       bool // most give up soon, beside one waiter
	wrongClock      bool
	failsBack       bool
	failsBackUnseen bool
	light           bool // every acquire that may go out in its light form does
	handsOver       bool // leases are detached, and adopted by other clients
	raises          bool // a program writes huge ballots to one server
	splits          bool // servers are flushed between two commands of a light acquire
	shares          bool // there are locks that several may have
	fairWriters     bool // of these locks, all writers are fair
	elects          bool // some locks are those of elections
	dines           bool // in the calm, all want names that overlap
	outOfStep       bool // in the calm, one server's clock is out of step for a while
	stays           bool // in the calm, something stays under the names of locks on one server
	deceives        bool // a client may take a wrong time for a right one: see deception
	ordered         bool // all locks are fair: see fairWorld
	holds           bool // most locks have a minimum hold: see holdMinimum
	borrows         bool // servers continue with the data of another one
	fair            int  // the percentage of the locks that are fair
}

// drawTraits draws what a world is like. Most worlds have what the command line names, or what shows the purpose of a
// defence.
func drawTraits(r *rand.Rand, shows string) traits {
	draw := func(percent int, what string) bool {
		if isNamed(what) || what == shows {
			percent = 70
		}
		return r.IntN(100) < percent
	}
	t := traits{nodes: 3, clients: 2}
	switch n := r.IntN(20); {
	case n < 4:
		t.nodes = 5
	case n < 6:
		t.nodes = 4
	case n < 7:
		t.nodes = 7
	}
	if r.IntN(4) == 0 {
		t.clients = 3
	}
	t.calm = r.IntN(10) == 0 && shows == ""
	t.durable = draw(8, durability)
	t.closes = draw(20, closing)
	t.forces = draw(8, forcing)
	t.wrongClock = draw(15, wrongClock)
	t.failsBack = draw(15, failingBack)
	t.failsBackUnseen = draw(5, failingUnseen)
	if draw(5, differing) {
		t.differs, t.difference = t.clients, r.IntN(len(differences))
	}
	if t.impatient = draw(10, impatience); t.impatient {
		t.clients = 3 // a holder, a waiter that gives up, and the next waiter
	}
	if draw(6, muteness) {
		t.mute = 1 + r.IntN(t.clients)
	}
	if draw(8, blocking) {
		t.blocks = 1 + r.IntN(t.clients)
	}
	t.light = r.IntN(2) == 0
	t.splits = draw(8, splitting)
	t.light = t.light || t.splits
	t.handsOver = draw(15, handingOver)
	t.ordered = draw(5, arrivals)
	// A server that was told huge ballots has lost its own. Where another one forgets too, tokens are in order only as far
	// as the clocks are (docs/safety.md), so no clock is wrong there.
	t.raises = draw(5, raising) && !t.ordered && !t.wrongClock
	if draw(12, fairness) {
		t.fair = 50 * (1 + r.IntN(2))
	}
	return t
}

// drawApart draws a trait from a source of its own, so that other worlds stay as they are.
func drawApart(seed, source uint64, percent int, what, shows string) bool {
	if isNamed(what) || what == shows {
		percent = 85
	}
	return rand.New(rand.NewPCG(seed, source)).IntN(100) < percent
}

// ofKind makes a world one of the kind that the command line wants.
func (t *traits) ofKind() {
	if *simulateKind != "" {
		t.ordered = isKind("fair")
	}
	t.shares = t.shares && *simulateKind == "" || isKind("shared")
	t.handsOver = t.handsOver || isKind("handover")
	t.elects = t.elects || isKind("leader")
	t.dines = t.dines || isKind("names")
}

// differences are settings in which clients of the same nodes must agree.
var differences = []func(*redlock.Config){
	func(cfg *redlock.Config) { cfg.MaxTTL *= 2 },
	func(cfg *redlock.Config) { cfg.TTL, cfg.MaxTTL = cfg.TTL/2, cfg.MaxTTL/2 },
	func(cfg *redlock.Config) { cfg.MaxClockSkew *= 2 },
	func(cfg *redlock.Config) { cfg.ClockBand = cfg.TTL / 10 },
	func(cfg *redlock.Config) { cfg.Prefix = "other/" },
	func(cfg *redlock.Config) { cfg.Durable = !cfg.Durable },
	func(cfg *redlock.Config) { cfg.NoFence = true },
	func(cfg *redlock.Config) { cfg.Nodes = cfg.Nodes[:len(cfg.Nodes)-1] },
	func(cfg *redlock.Config) { cfg.Quorum = len(cfg.Nodes) },
}

func (t *traits) differ(cfg *redlock.Config) { differences[t.difference](cfg) }

// A blocker is a hook that takes its time, or a logger whose disk is full.
type blocker struct {
	world  *world
	mu     sync.Mutex // guards random
	random *rand.Rand
}

func (b *blocker) block() {
	if !b.world.troubled.Load() {
		return
	}
	b.mu.Lock()
	d := time.Duration(0)
	if b.random.IntN(4) == 0 {
		d = time.Duration(b.random.Int64N(int64(2 * b.world.ttl)))
	}
	b.mu.Unlock()
	time.Sleep(d)
}

func (b *blocker) hooks() redlock.Hooks {
	return redlock.Hooks{
		Refused:      func([]string, error) { b.block() },
		Extended:     func(redlock.LeaseInfo, time.Duration, time.Duration) { b.world.oracle.look(); b.block() },
		ExtendFailed: func(redlock.LeaseInfo, error) { b.block() },
		Lost:         func(redlock.LeaseInfo, error) { b.block() },
		NodeUp:       func(string) { b.block() },
		NodeDown:     func(string, error) { b.block() },
	}
}

func (b *blocker) Enabled(context.Context, slog.Level) bool  { return true }
func (b *blocker) Handle(context.Context, slog.Record) error { b.block(); return nil }
func (b *blocker) WithAttrs([]slog.Attr) slog.Handler        { return b }
func (b *blocker) WithGroup(string) slog.Handler             { return b }
