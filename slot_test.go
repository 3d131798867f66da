package redlock

import (
	"hash/fnv"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

// F3: All clients of the nodes compute the same slot, whatever their version or language.
func TestAFenceSlotIsTheFNV1aOfTheKey(t *testing.T) {
	require.NoError(t, quick.Check(func(key string) bool {
		h := fnv.New64a()
		h.Write([]byte(key))
		return fenceSlot(key) == int(h.Sum64()%fenceSlots)
	}, nil))
	require.Equal(t, 1739, fenceSlot("invoice/42"))
}

// W3, T2: All clients ask the same node first, whatever their version, or there would be two queues for one lock.
func TestTheNodeToAskFirstIsTheSameInAllVersions(t *testing.T) {
	var n node
	n.mark.Store(hashOf("0123456789abcdef0123456789abcdef01234567"))
	require.Equal(t, uint64(0x292bc5e62ad6e189), n.weight(hashOf("invoice/42")))
	require.Equal(t, uint64(0x835aaf9ff1853fc8), n.weight(0))
}
