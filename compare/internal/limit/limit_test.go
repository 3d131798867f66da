package limit

import (
	"fmt"
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

func TestTheLoopLocksAndUnlocksOnEveryServer(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
	require.NoError(t, err)
	require.NoError(t, c.Enroll(t.Context()))
	require.NoError(t, c.Close())

	for _, fence := range []bool{true, false} {
		for _, window := range []int{1, 20} {
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

// With small buffers, commands are sent and replies are read in pieces. A loop that does not send the last piece waits
// for ever when it stops, about once in a hundred times.
func TestTheLoopStopsHoweverItsCommandsAreSplit(t *testing.T) {
	defer func(read, write int) { readSize, writeSize = read, write }(readSize, writeSize)
	readSize, writeSize = 200, 3000
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()...)})
	require.NoError(t, err)
	require.NoError(t, c.Enroll(t.Context()))
	require.NoError(t, c.Close())
	for i := range 60 {
		var done atomic.Int64
		loop, err := Start(t.Context(), Config{
			URLs: f.URLs(), Window: 60, Fence: i%2 == 0,
			Name: func(i int) string { return fmt.Sprintf("name/%d", i) },
			Done: func(int, time.Duration) { done.Add(1) },
		})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return done.Load() > 1000 }, 10*time.Second, time.Millisecond)
		require.NoError(t, loop.Stop())
	}
}
