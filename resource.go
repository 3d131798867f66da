package redlock

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"time"
)

// A resource is what one lock locks: its names, and how they are said to a node. It is not written after
// it was made.
type resource struct {
	names  []string
	keys   []any  // the lock keys
	fenced []any  // redlock:fence, then the lock keys
	marked []any  // redlock:node, then all of these
	slots  []any  // the fence slot of each lock key
	line   string // where those of this process queue who want the same
}

// fenceSlots bounds the fence state of a node (F3).
const fenceSlots = 4096

func newResource(prefix string, names []string) *resource {
	res := &resource{names: names, marked: make([]any, 2, 2+len(names)), slots: make([]any, len(names))}
	res.marked[0], res.marked[1] = markerKey, fenceKey
	for i, name := range names {
		key := prefix + name
		res.marked = append(res.marked, key)
		res.slots[i] = strconv.Itoa(fenceSlot(key))
	}
	res.fenced, res.keys = res.marked[1:], res.marked[2:]
	res.line = names[0]
	if len(names) > 1 {
		sorted := slices.Sorted(slices.Values(names))
		res.line = quoted(sorted)
	}
	return res
}

// fenceSlot is the same in every client of the nodes: FNV-1a of the key, modulo the number of slots.
func fenceSlot(key string) int {
	h := fnv.New64a()
	h.Write([]byte(key))
	return int(h.Sum64() % fenceSlots)
}

// millis rounds up, so that the servers never expire a lease before its time.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// A nodeSet is a set of nodes by index.
type nodeSet uint64

func (s *nodeSet) add(node int)     { *s |= 1 << node }
func (s nodeSet) has(node int) bool { return s&(1<<node) != 0 }
func (s nodeSet) len() int          { return bits.OnesCount64(uint64(s)) }
func (s nodeSet) first() int        { return bits.TrailingZeros64(uint64(s)) }
