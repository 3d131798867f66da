package limit

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestAStreamIsTakenApartWhereItsCommandsEnd(t *testing.T) {
	requests, err := parse([]byte("*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*2\r\n$3\r\nGET\r\n$9\r\nunfini"))
	require.NoError(t, err)
	require.Len(t, requests, 2)
	assert.Equal(t, "*1\r\n$4\r\nPING\r\n", string(requests[0].raw))
	get := requests[1]
	assert.Equal(t, "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n", string(get.raw))
	require.Len(t, get.args, 2)
	assert.Equal(t, "a\r\nb", string(get.args[1].text))
	assert.Equal(t, "a\r\nb", string(get.raw[get.args[1].at:][:4]))

	_, err = parse([]byte("PING\r\n"))
	assert.Error(t, err)
}

// splitting is a window of many commands. With small buffers, they are sent and their replies are read in pieces. A loop
// that does not send the last piece waits for ever when it stops, once in twenty times or so.
const splitting = 60

func TestTheLoopLocksAndUnlocksOnEveryServer(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
	require.NoError(t, err)
	require.NoError(t, c.Enroll(t.Context()))
	require.NoError(t, c.Close())

	for _, window := range append([]int{1, 20}, slices.Repeat([]int{splitting}, 30)...) {
		if window == splitting {
			defer func(read, write int) { readSize, writeSize = read, write }(readSize, writeSize)
			readSize, writeSize = 200, 3000
		}
		for _, fence := range []bool{true, false} {
			var done [fleet.DefaultNodes]atomic.Int64
			cfg := Config{
				URLs: f.URLs(), Window: window, Fence: fence,
				Name: func(i int) string { return fmt.Sprintf("name/%d", i) },
				Done: func(server int, took time.Duration) {
					assert.Positive(t, took)
					done[server].Add(1)
				},
			}
			loop, err := Start(t.Context(), cfg)
			require.NoError(t, err)
			busy := len(done) // one name is sent to a quorum of the servers, and many to all
			if window == 1 {
				busy = cfg.Quorum()
			}
			require.Eventually(t, func() bool {
				count := 0
				for i := range done {
					if done[i].Load() > 200 {
						count++
					}
				}
				return count == busy
			}, 10*time.Second, time.Millisecond)
			require.NoError(t, loop.Stop()) // it would fail if any reply was a refusal
			for _, n := range f.Nodes() {
				conn, err := n.DialDirect(t.Context(), time.Second)
				require.NoError(t, err)
				left, err := conn.Do("EXISTS", "name/0", "name/1", "name/19")
				require.NoError(t, err)
				assert.Zero(t, left)
				conn.Close()
			}
		}
	}
}
