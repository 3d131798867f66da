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
