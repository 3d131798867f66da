package redlock

import (
	"slices"
	"strings"
)

// leave takes this client out of the queues of these keys on these nodes. What they keep for it is passed on, and
// what is free there goes to the next who waits. A key that others here wait for, beside the ear, is left out: they
// are entered by the same name, and have heard the same.
func (w *waiters) leave(keys []any, nodes nodeSet, but *inbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveLocked(keys, nodes, but)
}

// leaveLocked sends under w.mu, which is held: whoever begins to wait hereafter is entered hereafter.
func (w *waiters) leaveLocked(keys []any, nodes nodeSet, but *inbox) {
	if nodes == 0 || w.client.protocol.omits(queuesLeft) {
		return
	}
	unwanted := make([]any, 0, len(keys))
	for _, key := range keys {
		if !w.keys[key.(string)].wantedBeside(but) {
			unwanted = append(unwanted, key)
		}
	}
	if len(unwanted) == 0 {
		return
	}
	c := w.client
	r := c.newRound(plan{call: c.protocol.leaveCall(unwanted, w.me)})
	for _, n := range c.nodes {
		if nodes.has(n.index) {
			n.send(r, false)
		}
	}
}

// wantedBeside reports whether another ear than this one hears of the key.
func (k *keyState) wantedBeside(e *inbox) bool {
	if k == nil {
		return false
	}
	return slices.ContainsFunc(k.ears, func(other *inbox) bool { return other != e })
}

// passOn gives up what these nodes keep for this client, where nobody here wants it beside the ear.
func (w *waiters) passOn(keys []any, nodes nodeSet, but *inbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		if nodes != 0 && !w.keys[key.(string)].wantedBeside(but) {
			w.client.releaseAt([]any{key}, w.me, nodes, reservationTime)
		}
	}
}

// received passes on that the node keeps the key for this client, or for another who polls.
func (w *waiters) received(message string, node int) {
	if message == "" { // our own, of mayPublish
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.keys[message]; k != nil && len(k.ears) > 0 {
		for _, e := range k.ears {
			e.hints.reserved.add(node)
			e.wakeUp()
		}
		return
	}
	if key, ok := reservedForAnother(message); ok {
		if k := w.keys[key]; k != nil {
			for _, e := range k.ears {
				e.hints.poll = true
				e.wakeUp()
			}
		}
		return
	}
	w.leaveLocked([]any{message}, 1<<node, nil)
}

// reservedForAnother reads the message "next:<id> <key>"; see release.lua.
func reservedForAnother(message string) (key string, ok bool) {
	next, key, ok := strings.Cut(message, " ")
	return key, ok && strings.HasPrefix(next, reservationPrefix) && isOurs(next)
}
