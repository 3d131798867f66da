package redlock

import (
	"slices"
	"strings"
)

// leave takes this client out of the queues of these keys on these nodes. A key that is reserved for it, or that is
// free, goes to the next waiter. A key that other waiters of this process want, besides the owner of this inbox, is
// left out: all of them are queued under the same client id.
//
// told is those of the nodes where the owner of the inbox was told that it could have a key, or where others rely on it
// to pass one on. There a key is left out only while another of these waiters may still use what it was told. It may be
// one that began later and was told nothing, or one that has tried already. Such a waiter is taken out of the queue too,
// and asks again soon.
func (w *waiters) leave(res *resource, nodes, told nodeSet, except *inbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leaveLocked(res.keys, nodes, told, except, res.isShared())
}

// leaveLocked sends while w.mu is held. So a waiter that begins later also enters the queue later, and this cannot take
// it out.
func (w *waiters) leaveLocked(keys []any, nodes, told nodeSet, except *inbox, shared bool) {
	if nodes == 0 || w.client.protocol.omits(queuesLeft) {
		return
	}
	unwanted := make([]any, 0, len(keys))
	for _, key := range keys {
		if !w.keys[key.(string)].wantedBeside(except, shared) {
			unwanted = append(unwanted, key)
			continue
		}
		if told := told & nodes &^ w.hopesBeside(key, except, shared); told != 0 {
			for _, box := range w.keys[key.(string)].inboxes {
				if box != except && box.shared == shared {
					box.hints.resubscribed |= told
					box.wakeUp()
				}
			}
			w.sendLeave([]any{key}, told, shared)
		}
	}
	if len(unwanted) > 0 {
		w.sendLeave(unwanted, nodes, shared)
	}
}

// queueAgain has the other waiters of this process for the lock, which they may share, ask again soon. All of them are queued
// under one id, and a grant to one of them took that out of the queue.
func (w *waiters) queueAgain(res *resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.client.allNodes()
	if k := w.keys[res.keys[0].(string)]; k != nil {
		for _, box := range k.inboxes {
			if box.shared && box.hints.resubscribed != all { // of a crowd, most have heard it already
				box.hints.resubscribed = all
				box.wakeUp()
			}
		}
	}
}

func (w *waiters) sendLeave(keys []any, nodes nodeSet, shared bool) {
	c := w.client
	r := c.newRound(plan{call: c.protocol.leaveCall(keys, w.idFor(shared), c.reservation())})
	c.send(r, nodes, 0)
}

// hopesBeside is the nodes where other waiters of that kind for the key, besides the owner of this inbox, may still use a
// reservation or a release of this process. w.mu is held.
func (w *waiters) hopesBeside(key any, except *inbox, shared bool) (nodes nodeSet) {
	k := w.keys[key.(string)]
	if k == nil {
		return 0
	}
	for _, box := range k.inboxes {
		if box != except && box.shared == shared {
			nodes |= w.hopes(box)
		}
	}
	return nodes
}

// wantedBeside reports whether the key has an inbox of that kind other than this one.
func (k *keyState) wantedBeside(box *inbox, shared bool) bool {
	if k == nil {
		return false
	}
	return slices.ContainsFunc(k.inboxes, func(other *inbox) bool { return other != box && other.shared == shared })
}

// passOn releases the keys that these nodes reserved for this client, so that each goes to the next waiter. It leaves
// out a key where other waiters of this process, besides the owner of this inbox, may still use the reservation.
func (w *waiters) passOn(keys []any, nodes nodeSet, except *inbox) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys { // only a mutex has several keys
		w.client.releaseAt([]any{key}, w.me, nodes&^w.hopesBeside(key, except, false), w.client.reservation())
	}
}

// received handles a message to this client's waiters of that kind: the node reserved a key for them, or for another
// client that polls. If none of them waits for the key any more, it goes to the next waiter.
func (w *waiters) received(message string, node int, shared bool) {
	if message == "" { // our own, sent to learn whether we may publish
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if waiter, key, ok := w.place(message); ok {
		w.placeTold(waiter, key, node)
		return
	}
	// A lock may be named like a message about a permit. Then the message is read both ways: it is only a hint.
	var unwanted []any
	slot, of, isPermit := reservedPermit(message)
	if isPermit && !w.hint(of, node, shared, slot+1) {
		unwanted = append(unwanted, of)
	}
	if (!isPermit || w.keys[message] != nil) && !w.hint(message, node, shared, 0) {
		unwanted = append(unwanted, message)
	}
	if key, ok := reservedForAnother(message); ok && len(unwanted) > 0 {
		if k := w.keys[key]; k != nil {
			for _, box := range k.inboxes {
				box.hints.poll = true
				box.wakeUp()
			}
		}
		return
	}
	w.leaveLocked(unwanted, 1<<node, 0, nil, shared)
}

// hint tells the waiters of that kind for the key that the node has reserved it for them; or of a semaphore, the slot before
// permit. It reports whether there are any. w.mu is held.
func (w *waiters) hint(key string, node int, shared bool, permit int) bool {
	k := w.keys[key]
	if !k.wantedBeside(nil, shared) {
		return false
	}
	for _, box := range k.inboxes {
		if box.shared == shared {
			box.hints.reserved.add(node)
			box.hints.permit = permit
			box.wakeUp()
		}
	}
	return true
}

// reservedForAnother reads the message "next:<id> <key>"; see release.lua.
func reservedForAnother(message string) (key string, ok bool) {
	next, key, ok := strings.Cut(message, " ")
	return key, ok && strings.HasPrefix(next, reservationPrefix) && isOurs(next)
}
