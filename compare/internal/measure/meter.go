package measure

import (
	"sync/atomic"
	"time"

	"github.com/quorumlock/redlock/compare/internal/stats"
)

// A meter counts cycles that end while it is on.
type meter struct {
	on          atomic.Bool
	cycle, wait *stats.Recorder
	failures    atomic.Int64
	firstError  atomic.Pointer[error]
}

func newMeter() *meter { return &meter{cycle: stats.NewRecorder(), wait: stats.NewRecorder()} }

func (m *meter) count(goroutine int, waited, took time.Duration) {
	if m.on.Load() {
		m.wait.Record(goroutine, waited)
		m.cycle.Record(goroutine, took)
	}
}

func (m *meter) fail(err error) {
	m.firstError.CompareAndSwap(nil, &err)
	if m.on.Load() {
		m.failures.Add(1)
	}
}

// why returns the first failure, or nil.
func (m *meter) why() error {
	if err := m.firstError.Load(); err != nil {
		return *err
	}
	return nil
}
