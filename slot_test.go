package redlock

import (
	"hash/fnv"
	"testing"
	"testing/quick"

	"github.com/stretchr/testify/require"
)

// F3: the slot is the same in every client of the nodes, of whatever version or language.
func TestAFenceSlotIsTheFNV1aOfTheKey(t *testing.T) {
	require.NoError(t, quick.Check(func(key string) bool {
		h := fnv.New64a()
		h.Write([]byte(key))
		return fenceSlot(key) == int(h.Sum64()%fenceSlots)
	}, nil))
	require.Equal(t, 1739, fenceSlot("invoice/42"))
}
