//go:build unix

package fleet_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Package dockerfleet has the tests of fleets of every kind.
func TestWithoutItsPackageADockerFleetSaysWhatToImport(t *testing.T) {
	_, err := fleet.Start(t.Context(), fleet.Docker, fleet.Options{})
	for _, err := range []error{err, fleet.Available(fleet.Docker)} {
		require.ErrorContains(t, err, `import _ "github.com/quorumlock/redlock/internal/fleet/dockerfleet"`)
	}
}

func TestAKindThatThereIsNotIsRefused(t *testing.T) {
	_, err := fleet.Start(t.Context(), "lxc", fleet.Options{})
	for _, err := range []error{err, fleet.Available("lxc")} {
		require.ErrorContains(t, err, "embedded, process and docker")
	}
}

func TestFaultsMayBeDoneAllAtOnceAndClosedAmid(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			f := fleettest.Start(t, kind, fleet.Options{Nodes: 2, Links: true})
			pids := fleet.ServerPIDs(f)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 12 {
				random := rand.New(rand.NewPCG(uint64(i), 1))
				n := f.Nodes()[i%2]
				faults := []func() error{
					n.Kill, n.Pause, n.Resume, n.Cut, n.CutReplies, n.Heal, f.Heal,
					func() error { return n.Delay(time.Millisecond) },
					func() error { return n.Stop(context.Background()) },
					func() error { return n.Start(context.Background(), fleet.Empty) },
					func() error { return n.Start(context.Background(), fleet.Kept) },
					func() error { return ping(n) },
				}
				wg.Add(1)
				go func() {
					defer wg.Done()
					for {
						select {
						case <-stop:
							return
						default:
							_ = faults[random.IntN(len(faults))]() // many fail, because the node is up or down
							n.Alive()
						}
					}
				}()
			}
			time.Sleep(time.Second)
			require.NoError(t, f.Close())
			close(stop)
			wg.Wait()
			for _, pid := range append(pids, fleet.ServerPIDs(f)...) {
				assert.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
			}
		})
	}
}

func ping(n *fleet.Node) error {
	conn, err := n.Dial(context.Background(), 20*time.Millisecond)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Do("SET", "k", "v")
	return err
}
