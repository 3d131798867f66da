// Package check judges the history of a chaos run. It shares no code with what made the history: it imports
// [history], and of this module nothing else.
//
// # What a holder believes
//
// The client of an op believes that it alone has the lock from its granted event to the earliest of its
// release and lost events, and no longer than their Until, which is when it last saw its lease valid. A lease
// with neither ended in a crash or was out when the run ended: it was surely believed in until its last read
// or write. Both ends are drawn inwards, so two beliefs that overlap did so in truth. Beliefs that only
// touch do not overlap.
//
// # What is a violation
//
// A subject is unsafe if there is a violation, whatever its kind. Without one it is safe if all checks came to
// their end, and else the verdict is unsure. What was left out is named, with the reason, in [Result.LeftOut].
// These are violations:
//
//   - overlap: two ops believed that they held the same resource at the same time.
//   - fence_duplicate: two ops were granted the same resource with the same fence.
//   - fence_inversion: an op has a smaller fence than one that was granted before it was asked for.
//   - late_loss: another op's token took the lock on a quorum of nodes while the holder still believed. An
//     overlap is then a matter of luck, even where none is seen.
//   - lost_update on the fenced resource; and on the unfenced one, if the beliefs of the two ops overlapped or
//     if no stopped client explains it, which is one whose write came after another had been granted the lock.
//   - stale_write_accepted on the fenced resource: a write with a smaller fence than one that the resource
//     had seen. It is taken to note the fences of reads too: if it did not, a stale write could come between
//     another's read and write.
//   - valid_write_refused: the fenced resource refused a write though it can have seen no larger fence.
//   - register: an answer of the guarded resource fits no order of what was read and written. Its holder read
//     what another had written over, or the resource is broken, or the history of it is.
//   - orphan: a key outlived its owner's release, failure or loss by more than the TTL and [OrphanMargin], or
//     than the run allows, where every owner could clean up. It keeps everybody out of a lock that nobody has.
//
// # What is counted, and is no violation
//
// A client may be stopped after it looked at its lease and before its write arrives. No lock can prevent
// that; a fence can. So a stale write to the unfenced resource, and the update that is lost by it, are in
// the numbers of the report, and do not make a subject unsafe unless the beliefs of the two overlapped. A write
// that was answered before anybody else was granted the lock explains nothing. A write
// without a fence is judged so also where the resource would compare it. A stale write to the unfenced
// resource is one by a holder after which another was granted, and which no longer believed or whose
// successor had written already.
//
// An orphan that goes by its TTL is counted and timed. So is a refused stale write, which is the fence at work.
//
// # Nodes
//
// Owner events tell what an observer saw, later than it was so. Two tokens cannot own most of the nodes at
// once, so what is judged is ownership against belief. Losses that are late by less than the
// observer's delay are missed.
//
// A node under a fault may not be observable, and what was sent to it may arrive when that heals, and set a
// key anew. So the longest time that an orphan was there without a break is what counts: for the verdict,
// without any fault of its node; for the report, without one but those of the way to it ("cut", "delay", or of a single
// client), past which observers see. A token of no known op is put down to the ops that tell no token, or
// whose token was never seen, and were asked for before it was there. That a client died must be told, by
// a fault of the client that does not heal: else its lease may be out to the end.
//
// # Calls without a result
//
// A call that failed, or was never answered, may have taken effect at any time later: its return is at
// infinity.
//
// # Cost
//
// All checks are exact. Those of beliefs, fences and owners take O(n log n) time. A guarded resource is
// followed call by call with every state that it may be in, so what is in flight at once counts, and not how
// long the history is. Where more than 64 calls are in flight at once, or allow for too many orders, nothing
// is judged until none is in flight; these lines are left out, and named.
//
// The checks of fences and of the guarded resource have a second opinion, that of the linearizability checker
// porcupine. It is asked about one window after another, cut where no call is in flight; what the resource may
// contain is carried over the cut. If the two were to disagree, there is no verdict but an error. What was
// confirmed is in [Result.Confirmed]; where there is no such cut for long, or no time is left, the first
// opinion stands alone, and that is named too.
package check
