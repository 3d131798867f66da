package redlock

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// How a node comes up, stays healthy, goes down and is closed.

// checkHealth detects a stalled server, asks for INFO, TIME, a write and the right to publish every healthInterval, and
// resends refused releases. It returns after how long to check again. late is how much later than due it is called: if at
// all, it looks a second time before it calls a server stalled, because replies may be here that nobody has read
// (timer.isOver).
func (n *node) checkHealth(late time.Duration) (time.Duration, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now, stall := n.cfg.Clock.Now(), n.stallTimeout()
	busy := n.flight.len() > 0
	if busy {
		if sent := n.flight.oldest().sentAt; now.Sub(sent) > stall {
			if late <= 0 || n.spared == sent {
				return 0, errStalled
			}
			n.spared = sent
			return stall / 4, nil
		}
	}
	if now.Sub(n.healthAsked) >= healthInterval {
		n.healthAsked = now
		if len(n.cfg.groups) > 1 && !n.readiness.asking { // the groups may have been changed, and this group may be idle (Q3)
			n.queueReady()
		} else {
			n.queue = append(n.queue, request{command: askInfo})
		}
		for _, c := range n.healthQuestions() {
			n.queue = append(n.queue, request{command: c})
		}
	}
	if len(n.owed) > 0 && (!busy || now.Sub(n.retried) >= owedInterval) {
		n.resendOwed(now, maxRetried)
	}
	if !busy && len(n.queue) == 0 {
		return n.untilHealth(now), nil
	}
	return min(stall, n.untilHealth(now)), nil
}

// untilHealth is how long it is until the health is asked for again. It is not too short to wait for, also where the
// configured clock stands still. n.mu is held.
func (n *node) untilHealth(now Instant) time.Duration {
	return max(healthInterval-now.Sub(n.healthAsked), time.Second/16)
}

// checkSoon is after how long to check the health once an idle node has something to send: a stall is noticed no later than
// after twice the stall timeout.
func (n *node) checkSoon() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return min(n.stallTimeout(), n.untilHealth(n.cfg.Clock.Now()))
}

// healthQuestions is what is asked with INFO, because the answers may change while a connection is open.
func (n *node) healthQuestions() []*command {
	questions := []*command{askTime, askWrite, n.host.askPublish(n)}
	if n.cfg.Durable {
		questions = append(questions, askPersistence)
	}
	return questions
}

// comeUp makes the node accept requests on its new connection. First it queues the releases that are owed. Then it asks
// ready.lua, ahead of them, whether the server may grant.
func (n *node) comeUp(s *session) {
	now := n.cfg.Clock.Now()
	n.clock.Store(nil) // it may be another server, with another clock
	n.trips, n.delay = trips{}, delay{}
	n.noteDelay(now.Sub(s.askedAt))
	n.mark.Store(hashOf(s.info.runID))
	n.observe(request{sentAt: s.askedAt, heard: now, sampled: true}, s.micros)
	n.mu.Lock()
	n.up, n.why, n.healthAsked, n.vouchedAt = true, nil, now, s.askedAt
	n.server, n.unfit, n.impostor = s.info, s.info.unfit(n.cfg.Durable), nil
	n.readiness = readiness{asking: true}
	n.light, n.readClock, n.clockSpan = s.info.knowsGT(), longAgo, span{}
	n.identified()
	n.renamed = longAgo // no vote was asked for before, on this connection
	n.resendOwed(now, maxOwed)
	n.mu.Unlock()
	n.sendReady()
	n.host.nodeChanged(n, nil)
}

// goDown makes the node's votes unknown, those in flight too. The releases among them are owed from now on, and their votes
// stay open: a connection that broke may be back before the time of their rounds is over (L1). began is when the attempt to
// connect began.
func (n *node) goDown(err error, began Instant) {
	err = inWords(err)
	n.mu.Lock()
	wasUp, first := n.up, !n.tried
	n.tried, n.up, n.why = true, false, err
	if !wasUp || !n.readiness.known {
		n.groups.tried = began
	}
	callbacks := n.readiness.stop()
	requests := n.flight.drain()
	sent := len(requests)
	requests = append(requests, n.queue...)
	n.queue = nil
	if wasUp {
		n.brokeAt = n.cfg.Clock.Now()
	}
	for i, q := range requests {
		if q.isOwed() {
			n.owe(q.round.debt(i < sent))
		}
	}
	n.mu.Unlock()
	n.cfg.groupNews.tell()
	n.host.unclaim(n)
	for _, call := range callbacks {
		call()
	}
	n.countLights(func(*lightVote) answer { return answer{vote: unknown, err: err} })
	n.countUnvouched(err)
	for _, q := range requests {
		if q.isOwed() {
			q.round.staysOpen(n.index, err)
			continue
		}
		for r := range q.rounds {
			r.record(n.index, answer{vote: unknown, err: err})
		}
		if q.round == nil {
			q.command.done(n, q, nil, err)
		}
	}
	if n.isNews(err, wasUp) {
		n.host.logAway(n, err)
	}
	if wasUp || first {
		n.host.nodeChanged(n, err)
		n.host.votesChanged()
	}
}

// isNews reports whether the log has not said this reason since the node was last connected. Where the text of a reason is
// always another one, the log gets no more than a few.
func (n *node) isNews(err error, wasUp bool) bool {
	if wasUp {
		n.away = n.away[:0]
	}
	key, _ := causeOf(err)
	if slices.Contains(n.away, key) || len(n.away) == 8 {
		return false
	}
	n.away = append(n.away, key)
	return true
}

// inWords says what a bare EOF means, for people who read it in a log or in Status.
func inWords(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("the server closed the connection (%w)", err)
	}
	return err
}

// close lets the node send what is queued and receive the answers, and then end. A node that is not connected tries once
// more if it is owed a release.
func (n *node) close() {
	close(n.quit)
	n.wakeUp()
}

func (n *node) isClosing() bool {
	select {
	case <-n.quit:
		return true
	default:
		return false
	}
}

// state says whether the first attempt is over (tried), whether the node is connected and has said if it may grant
// (up), and why it is not connected. The attempt is not over while a node that could not be judged is asked again,
// because the other nodes have been heard since.
func (n *node) state() (tried, up bool, why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	judging := n.up && n.readiness.unjudged && n.readiness.asking
	return n.tried && !judging, n.up && n.readiness.known, n.why
}

// noteTried notes that the first attempt is over.
func (n *node) noteTried() {
	n.mu.Lock()
	n.tried = true
	n.mu.Unlock()
}

var errNotJudged = errors.New("it is new, or may have forgotten what it granted, and the other nodes have not answered yet, which it takes to judge that")

// unreadyNow is unready, for people: a node that is about to be judged is no outage of the others.
func (n *node) unreadyNow() error { return n.judgedNow(n.unready()) }

// judgedNow replaces errUnjudged if other nodes have answered meanwhile, or may still do so for the first time. It locks
// other nodes.
func (n *node) judgedNow(err error) error {
	if err != errUnjudged {
		return err
	}
	if word, _ := n.host.word(n); word != wordLook || !n.host.hasTried() {
		return errNotJudged
	}
	return err
}
