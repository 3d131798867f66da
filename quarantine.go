package redlock

import (
	"errors"
	"slices"
	"time"
)

// readiness is what a node knows about whether its server may grant (Q1). It belongs to one connection. While ready is
// false, the four fields after it say why.
type readiness struct {
	identity  any          // the name of the server's data set, boxed for redigo
	marker    any          // what the server's marker must be, boxed
	known     bool         // ready.lua has answered
	ready     bool         // it answered that the server may grant
	differs   *ConfigError // the node's clients are configured differently
	until     Instant      // when its quarantine ends, if it is in one
	unjudged  bool         // the server may have forgotten, and too few other nodes answer this client to judge that, or their clocks disagree
	why       error        // why the server does not grant, unless it is in quarantine
	asking    bool         // ready.lua is being asked
	reloaded  bool         // it is being asked once more, because the server had forgotten it
	whenKnown []func()     // to be called when it has answered, or the connection broke
	whenAgain []func()     // likewise, when it has answered a question that was not in flight when they came
	askAgain  *time.Timer
}

// marker is what redlock:node holds on a node that may grant; see scripts/ready.lua.
func marker(identity, digest string) string { return identity + " " + digest }

var errUsed = errors.New("it has been used: it has keys, fencing tokens or a marker; " +
	"it votes by itself when its quarantine is over; only if no client can hold a lease, enroll it without --only-new")

var errLooksNew = errors.New("it looks new; it was not enrolled, because not every other node is known to be new, and so this one " +
	"may have forgotten leases; it votes by itself when its quarantine is over; " +
	"only if no client can hold a lease, enroll it without --only-new")

var errUnjudged = errors.New("it may have forgotten what it granted, and nothing can judge that: too few other nodes answer, or their clocks disagree")

var errOtherProcess = errors.New("INFO names another server process within a script than outside of one: the connection leads to " +
	"several servers, as behind a proxy; give the node's own address")

// errOnlyLooked takes the place of errUnjudged in a client that only looks.
var errOnlyLooked = errors.New("it is new, or it may have forgotten what it granted, and no client has begun its quarantine; " +
	"if it is new: `redlock enroll --only-new`; if not: start a client, or give this command the --max-ttl of your clients")

// opinion says three things about the node, for word: it does not object to our configuration (agrees), it may grant
// (ready), and it objects (differs). All three are false while the node is not connected or has not answered ready.lua.
func (n *node) opinion() (agrees, ready, differs bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.readiness
	if !n.up || !s.known {
		return false, false, false
	}
	return s.differs == nil && (s.why == nil || s.unjudged), s.ready, s.differs != nil
}

// forgetsNothing reports whether a restart of the server has lost nothing (Q2): the server persists before it answers,
// and all its data are its own. A promoted replica has only what had reached it. Keys that were evicted are gone from
// the persisted data too. A server that was told to keep an append-only file after it had started has what was in an RDB
// file, which is older. It has written that file since. One that has only written its file anew is not told from that.
func (n *node) forgetsNothing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	promoted := n.server.history != "" && !n.protocol.omits(promotedForgets)
	return n.cfg.Durable && !promoted && !n.server.hasEvicted() && !n.server.aofAnew && n.unfit == nil
}

// askReady asks the server whether it may grant, unless it is being asked already. INFO goes first, because the
// question contains the name of the data set.
func (n *node) askReady() { n.askReadyThen(nil) }

// askReadyThen also calls then, if it is not nil, when a question that was asked after this call is answered: one that is
// in flight already may have been answered by the server before. It reports whether it will. It will not if the node is
// not connected.
func (n *node) askReadyThen(then func()) bool {
	n.mu.Lock()
	up, ask := n.up, n.up && !n.readiness.asking
	switch {
	case !up || then == nil:
	case ask:
		n.readiness.whenKnown = append(n.readiness.whenKnown, then)
	default:
		n.readiness.whenAgain = append(n.readiness.whenAgain, then)
	}
	if ask {
		n.queueReady()
	}
	n.mu.Unlock()
	if ask {
		n.wakeUp()
	}
	return up
}

// queueReady queues the question. Needs n.mu.
func (n *node) queueReady() {
	n.readiness.asking = true
	n.queue = append(n.queue, request{command: &command{name: "INFO", done: func(n *node, _ request, reply any, err error) {
		n.applyInfo(reply, err)
		n.sendReady()
	}}})
}

// sendReady asks ready.lua, with the data set that INFO named.
func (n *node) sendReady() {
	word, at := n.host.word(n)
	others := ""
	if word == wordDurable {
		others = n.host.runIDsBeside(n)
	}
	learn := func(r *round, node int, a answer, _ verdict, _ bool) {
		if node == n.index {
			n.learnReady(a, r.t0, true)
		}
	}
	r := n.newRound(plan{call: n.readyCall(n.protocol.ready, word, at, n.cfg.NodeTimeout, others), t0: at.asked, answered: learn})
	n.mu.Lock()
	// An impostor would be told the name of another server's data set. It would put that in the place of its own marker.
	switch n.readiness.asking = n.up && n.impostor == nil; {
	case !n.readiness.asking:
	case n.readiness.reloaded: // behind the script, which was queued when it was found missing
		n.queue = append(n.queue, request{round: r})
	default:
		// Ahead of everything that is queued: if it makes the node ready, the acquires behind it are granted already.
		n.queue = append([]request{{round: r}}, n.queue...)
	}
	n.mu.Unlock()
	n.wakeUp()
}

// learnReady takes the answer of ready.lua to a question that was asked then, and plans when to ask again if the node may
// not grant. asked: it is the answer that askReady waits for, and not one to Enroll.
func (n *node) learnReady(a answer, then Instant, asked bool) {
	cfg := &n.cfg
	n.mu.Lock()
	s := &n.readiness
	if isForgotten(a.err) && !s.reloaded && n.up { // that says nothing about the data set; see repair
		s.reloaded = true
		n.mu.Unlock()
		n.sendReady()
		return
	}
	agreed := s.known && s.differs == nil
	s.stopTimer()
	var callbacks, late []func()
	before := *s
	*s = readiness{identity: s.identity, marker: s.marker, known: true}
	if asked {
		callbacks, late = before.whenKnown, before.whenAgain
	} else {
		s.asking, s.reloaded, s.whenKnown, s.whenAgain = before.asking, before.reloaded, before.whenKnown, before.whenAgain
	}
	again := time.Duration(0)
	switch {
	case a.vote == granted:
		s.ready = true
	case errors.As(a.err, &s.differs):
		s.why = s.differs
		again = healthInterval
	case a.err == errUnjudged:
		s.unjudged, s.why = true, errUnjudged
		if cfg.onlyLook {
			s.why = errOnlyLooked
		}
		again = owedInterval
	case a.denial != nil:
		s.until = cfg.Clock.Now().Add(a.denial.left)
		again = min(a.denial.left, owedInterval) // before its end too: an operator may enroll the node
	default:
		s.why = a.err
		again = owedInterval
	}
	if again > 0 && n.up {
		s.askAgain = time.AfterFunc(again+time.Millisecond, n.askReady)
	}
	agrees := s.differs == nil
	if n.up { // else its connection broke, and this is no word of the server's
		n.groups.learn(s.ready, s.differs, then, n.freshFor())
	}
	n.mu.Unlock()
	cfg.groupNews.tell()
	defer func() {
		n.mu.Lock()
		ask := n.up && !n.readiness.asking && len(late) > 0
		if ask {
			n.queueReady()
			n.readiness.whenKnown, late = append(n.readiness.whenKnown, late...), nil
		} else if n.readiness.asking { // again, since this answer: all wait for the new one
			n.readiness.whenKnown, callbacks, late = slices.Concat(n.readiness.whenKnown, callbacks, late), nil, nil
		}
		n.mu.Unlock()
		if ask {
			n.wakeUp()
		}
		for _, call := range slices.Concat(callbacks, late) {
			call()
		}
	}()

	n.host.readied(n, agrees && !agreed)
	n.host.votesChanged()
}

func (n *node) waitsForOthers() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.readiness.unjudged
}

// stopTimer cancels the timer to ask again.
func (s *readiness) stopTimer() {
	if s.askAgain != nil {
		s.askAgain.Stop()
		s.askAgain = nil
	}
}

// stop cancels the timer to ask again, and returns the callbacks that wait for an answer.
func (s *readiness) stop() (callbacks []func()) {
	s.stopTimer()
	callbacks = slices.Concat(s.whenKnown, s.whenAgain)
	s.whenKnown, s.whenAgain = nil, nil
	return callbacks
}

// unready is why a server refused to grant as unready. If the node counted as ready until now, the server is asked
// again.
func (n *node) unready() error {
	n.mu.Lock()
	news := n.readiness.ready
	why := n.readiness.why
	left := n.readiness.until.Sub(n.cfg.Clock.Now())
	n.readiness.ready = false
	n.mu.Unlock()
	switch {
	case news:
		n.askReady()
		return errUnready
	case why != nil:
		return why
	case left <= 0: // the quarantine is over: ready.lua is being asked, or will be at once
		return errUnready
	default:
		return &QuarantineError{Left: left}
	}
}

// voted is called when the server granted or denied an acquire, so it is ready. If this client thought otherwise,
// because for example another client enrolled the node, it asks ready.lua again.
func (n *node) voted() {
	n.mu.Lock()
	news := n.readiness.known && !n.readiness.ready
	n.mu.Unlock()
	if news {
		n.askReady()
	}
}
