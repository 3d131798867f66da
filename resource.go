package redlock

import (
	"math/bits"
	"slices"
	"strconv"
	"time"
)

// A resource is what a lock locks: its names, and the script arguments for them. It does not change after it was made.
type resource struct {
	names    []string
	keys     []any    // the lock keys
	slots    []any    // the fence slot of each lock key
	queueKey queueKey // its queue in this process (W1)
	share    *sharing // how several may have the lock; nil: a mutex
}

// maxNames bounds the names of one lock, because a server does nothing else while it runs a script.
const maxNames = 1000

// fenceSlots bounds what a node stores for fencing tokens (F3).
const fenceSlots = 4096

func newResource(prefix, name string, more []string) *resource {
	if len(more) >= maxNames { // refused by checkNames
		return &resource{names: append([]string{name}, more...)}
	}
	var res *resource
	if len(more) == 0 { // most locks: one allocation for all; the allocations of BenchmarkCycle show it
		one := &struct {
			resource
			names [1]string
			keys  [1]any
			slots [1]any
		}{}
		res = &one.resource
		res.names, res.keys, res.slots = one.names[:0], one.keys[:0], one.slots[:0]
	} else {
		size := 1 + len(more)
		res = &resource{names: make([]string, 0, size), keys: make([]any, 0, size), slots: make([]any, 0, size)}
	}
	res.names = append(append(res.names, name), more...)
	for _, name := range res.names {
		key := prefix + name
		res.keys = append(res.keys, key)
		res.slots = append(res.slots, slotArgs[fenceSlot(key)])
	}
	res.queueKey = queueKey{names: name}
	if len(more) > 0 {
		res.queueKey = queueKey{names: quoted(slices.Sorted(slices.Values(res.names))), several: true}
	}
	return res
}

// isShared reports whether several may have the lock at once.
func (r *resource) isShared() bool { return r.share != nil }

// shared returns the resource in a form that several may have.
func (r *resource) shared(how *sharing) *resource {
	s := *r
	s.share = how
	s.queueKey.take, s.queueKey.permits = how.take, how.permits
	return &s
}

// first is the smallest lock key. It chooses the node to ask first, so it must be the same in every process (W3).
func (r *resource) first() string {
	first := r.keys[0].(string)
	for _, key := range r.keys[1:] {
		first = min(first, key.(string))
	}
	return first
}

// slotArgs has every fence slot as a script argument, so that newResource allocates none. The allocations of
// BenchmarkCycle show it.
var slotArgs = func() (slots [fenceSlots]any) {
	for i := range slots {
		slots[i] = strconv.Itoa(i)
	}
	return slots
}()

// fenceSlot is the slot of a lock key (F3). It must be the same in every client of the nodes.
func fenceSlot(key string) int { return int(hashOf(key) % fenceSlots) }

// hashOf is the 64-bit FNV-1a hash.
func hashOf(text string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * prime
	}
	return h
}

// millis rounds up, so that no server deletes a key before its time.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// A nodeSet is a set of nodes by index.
type nodeSet uint64

func (s *nodeSet) add(node int)     { *s |= 1 << node }
func (s nodeSet) has(node int) bool { return s&(1<<node) != 0 }
func (s nodeSet) len() int          { return bits.OnesCount64(uint64(s)) }

// first is the node with the smallest index; ok is false if the set is empty.
func (s nodeSet) first() (node int, ok bool) { return bits.TrailingZeros64(uint64(s)), s != 0 }

// mix is the finalizer of MurmurHash3. FNV alone gives similar hashes to names that differ only in their last byte.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// A queueKey identifies the queue of one lock by the lock's names. A single name may look like the text of several
// names, so the number matters too.
type queueKey struct {
	names   string
	several bool
	// Of a semaphore, how many permits are wanted, and of how many; of other locks 0. Who wants one does not queue behind
	// those who want all of them: one may be free all the time, and all of them never at once.
	take, permits int
}
