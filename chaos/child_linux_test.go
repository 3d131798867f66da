package chaos_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
)

// A lock may be a process of its own, beside the client or below it: one that renews, for example.
func TestAClientIsStoppedAndKilledWithTheProcessesThatItStarted(t *testing.T) {
	t.Parallel()
	for _, play := range []string{"stopped-holder", "dead-holder"} {
		o := short(t, fleet.Embedded, play, "single")
		file := filepath.Join(t.TempDir(), "pid")
		o.Child = append([]string{"sh", "-c", "sleep 1000 <&- >&- 2>&- & echo $! >'" + file + "'; exec \"$@\"", "sh"}, o.Child...)
		o.Clients, o.TTL = 2, 2*time.Second
		ended, stopped := make(chan struct{}), make(chan bool)
		go func() {
			seen := false
			for {
				select {
				case <-ended:
					stopped <- seen
					return
				case <-time.After(time.Millisecond):
					seen = seen || stateOf(file) == "T"
				}
			}
		}()
		outcome := runOnce(t, o)
		close(ended)
		require.Equal(t, play == "stopped-holder", <-stopped, play)
		require.Empty(t, outcome.Unmet)
		require.Eventually(t, func() bool { s := stateOf(file); return s == "" || s == "Z" }, 10*time.Second, time.Millisecond)
	}
}

// This client ends by itself when it is to acquire.
func TestWhatAClientStartedEndsWithTheClient(t *testing.T) {
	t.Parallel()
	o := short(t, fleet.Embedded, "dead-holder", "single")
	file := filepath.Join(t.TempDir(), "pid")
	o.Child = []string{"sh", "-c", "sleep 1000 <&- >&- 2>&- & echo $! >'" + file + `'; read open; echo '{"told":"opened"}'; read acquire`}
	runOnce(t, o)
	require.FileExists(t, file)
	require.Eventually(t, func() bool { s := stateOf(file); return s == "" || s == "Z" }, 10*time.Second, time.Millisecond)
}

// stateOf returns the state of the process whose number is in the file: T if it is stopped. "": there is none.
func stateOf(file string) string {
	pid, _ := os.ReadFile(file)
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strings.TrimSpace(string(pid))))
	_, rest, _ := strings.Cut(string(stat), ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
