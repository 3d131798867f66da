// Package check judges the history of a chaos run. It shares no code with the programs that made the history: from this
// module it imports only [history].
//
// # What a holder believes
//
// The client of an op believes that it alone holds the lock. The belief begins with its granted event. It ends with its
// release or lost event, whichever is first, and no later than their Until: the time at which the client last saw its
// lease valid. If a lease has neither event, its client crashed, or the lease was held when the run ended. The belief
// then ends with the last read or write, because until then it is certain. So the real belief is never shorter than the
// belief that is judged, and two beliefs that overlap here did overlap. Beliefs that only touch do not overlap. In a lease
// that its client never saw valid after the grant, nobody believed, unless the lock went from hand to hand.
//
// # Violations
//
// A subject is unsafe if there is a violation, whatever its kind. Without one it is safe, or unsure if a check was not made
// at all that applies to it: the keys of a lock with owner tokens were not observed, a lock in order of arrival does not
// say when calls had their places, or a part of the history of a guarded resource was not judged. It is also unsure if
// nobody ever held the lock, as where a password is wrong: that shows nothing. [Result.LeftOut] names
// all that was left out, with the reason: also what a check could not judge beside the rest, what does not apply because
// the subject shows no tokens, and second opinions. These leave the verdict safe. These are violations:
//
//   - overlap: two ops believed that they held the same resource at the same time. Readers may do so; of a semaphore,
//     any ops that have no more permits than there are. An op that goes on with what another had (From) holds it from
//     the moment at which the other stopped: so nobody can get in between.
//   - overtaken: an op of a lock in order of arrival had its place (Queued), and an op that was requested later was
//     granted the lock before it. See below.
//   - fence_duplicate: two ops were granted the same resource with the same fencing token.
//   - fence_inversion: an op has a smaller fencing token than an op that was granted before it was requested, or none where
//     that op had one. Readers need none. A lock whose ops have none at all promises nothing about them.
//   - late_loss: the owner token of another op took the lock on a quorum of nodes while the holder still believed. This
//     can lead to an overlap, even if none was seen.
//   - lost_update on the fenced resource; on the unfenced resource only if the beliefs of the two ops overlapped, or if
//     no stopped client explains it. A stopped client is one whose write came after another op was granted the lock.
//   - stale_write_accepted on the fenced resource: it accepted a write with a smaller fencing token than it had seen. The
//     resource must note the tokens of reads too. Otherwise a stale write could come between another op's read and write.
//   - valid_write_refused: the fenced resource refused a write, although it cannot have seen a larger fencing token.
//   - register: an answer of the guarded resource fits no order of the reads and writes. Its holder read a value that
//     was overwritten, or the resource is broken, or its history is.
//   - orphan: a key outlived its owner's release, failure or loss by more than the TTL and [OrphanMargin]; or by more
//     than the run allows, if every owner could clean up. Such a key blocks a lock that nobody holds.
//
// # What is counted, but is no violation
//
// A client may be stopped after it looked at its lease and before its write arrives. No lock can prevent that; a
// fencing token can. So a stale write to the unfenced resource, and the update that it destroys, are counted. They make
// a subject unsafe only if the beliefs of the two ops overlapped. A write that was answered before another op was
// granted the lock explains no lost update. A write without a fencing token is judged as one to the unfenced resource,
// even if the resource compares tokens.
//
// A stale write to the unfenced resource is a write by a holder after which another op was granted. In addition, the
// holder no longer believed, or its successor had already written.
//
// An orphan that ends by its TTL is counted and timed. A stale write that was refused is counted too: the fencing token
// worked.
//
// # Locks that are no mutex
//
// The rule of the lock is known from the history: permits of its run, readers among its ops. Readers and holders of
// permits show the guarded resource no fencing token, and do not write. Their fencing tokens are judged like all others,
// except that a reader may keep that of the writer that it was. A late loss of a semaphore is a token that got its
// permits on a quorum while others believed that they had so many that too few were left.
//
// When an op has its place in an order of arrival cannot be seen from outside: the subject says it. Calls at the same
// moment may be served in any order. An op is judged if enough nodes for a quorum had no fault, for its client, from the
// time at which it had its place until it was granted. The others are left out, and named.
//
// # Nodes
//
// Owner events report what an observer saw, some time after it happened. Two tokens cannot own most of the nodes at the
// same time, so ownership is compared with belief. A loss that is late by less than the observer's delay is not found.
// Observers miss the token of a lease that is shorter than the time between two looks. Late losses are left out, and
// named, for a lock whose owners were seen on too few nodes for a quorum, or never on a quorum at a time; where a quorum
// of nodes had a token of an unknown owner in the time of a lease whose own token was never seen, or took the lock with
// nobody asking for it; and for long leases whose token was never seen. A lock that the run does not let anybody observe
// (Observed) is judged without them.
//
// It may not be possible to observe a node during a fault. What was sent to the node may arrive when the fault heals,
// and set a key again. So only the longest uninterrupted time of an orphan counts. For the verdict, that time must be
// free of all faults of its node. For the report, it may include faults between the node and its clients ("cut",
// "delay", or faults of a single client), because observers bypass these. A token that belongs to no known op is
// attributed to ops whose token is unknown or was never seen, and which were requested before the key was there. The
// death of a client must be recorded as a fault of the client that does not heal. Otherwise its lease may have lasted
// to the end.
//
// # Causes
//
// A violation names the fault that explains it. For an overlap, a late loss, or a lost update whose holders overlapped, it
// is the last fault in whose time a node lost the key of a holder, before another got the lock: the observer saw the key
// before the fault and not after it, and the fault is of a kind that makes a node forget. A key that was put back was not
// lost. For a fencing token it is the last such fault of a node that had granted the earlier op. For an orphan it is the
// fault in whose time the node got the key back. Where nothing of this is known, it is a fault of a client that takes part,
// else what was active, else the last fault before: and its text says how little is known.
//
// # Calls without a result
//
// A call that failed, or that was never answered, may take effect at any later time: it returns at infinity. Calls that
// never returned while the run waited for them make the verdict unsure.
//
// # Cost
//
// All checks are exact. Those of beliefs, fencing tokens and owners take O(n log n) time. For a guarded resource, every
// possible state is followed from call to call. The cost depends on how many calls are in flight at once, not on the
// length of the history. If more than 64 calls are in flight at once, or if they allow too many orders, nothing is
// judged until no call is in flight. These lines are left out and named.
//
// The checks of fencing tokens and of the guarded resource have a second opinion: the linearizability checker
// porcupine. It gets one window after another, cut where no call is in flight. The possible contents of the resource
// are carried over each cut. If the two checks disagree, the result is an error, not a verdict. [Result.Confirmed]
// counts what was confirmed. If there is no such cut for a long time, or no time is left, there is no second opinion,
// and that is named.
//
// Who held a lock is another history for porcupine, with a model for each kind of lock. An op takes the lock between its
// request and its grant, and leaves it no earlier than its belief ends. If any order of these calls is legal, then also
// the one in which each takes the lock at its grant and leaves it at the end of its belief: no other excludes fewer
// calls. So this history is cut between any two of these moments, and the holders at the cut are known.
package check
