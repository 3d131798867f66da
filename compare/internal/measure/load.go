package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/quorumlock/redlock/compare/internal/subject"
	"github.com/quorumlock/redlock/internal/sleep"
)

// A Load describes what a subject must do.
type Load struct {
	Goroutines int
	Clients    int // number of clients, which share the goroutines; 0 means 1
	Keys       Keys
	Hold       time.Duration // of each lock
	Fault      Fault
	Least      time.Duration // measured at least for so long, because little happens in a second
}

// Bearable returns an error if the load makes no sense for the subject.
func (l Load) Bearable(s subject.Subject) error {
	switch {
	case s.Bare && (l.Keys != Distinct || l.Clients > 1):
		return errors.New("it does not contend for locks")
	case s.OneServer && (l.Fault == Stopped || l.Fault == OneSlower):
		return errors.New("it uses one server, and the fault affects another one")
	}
	return nil
}

// A Setting says how to measure.
type Setting struct {
	Servers *Servers
	Time    time.Duration // measured, after a warm-up
	Prefix  string        // of the lock names; different for each measurement
}

// warmUp is the time for connections, scripts and pools, and until thousands of goroutines have all had a turn.
func (s Setting) warmUp() time.Duration { return min(s.Time/2, 500*time.Millisecond) }

// running is a running load.
type running interface {
	admit()
	stop() error
	cycles(counted int64) float64
}

// Run measures one subject under the load. Afterwards all faults are healed and no lock is left.
func (l Load) Run(ctx context.Context, set Setting, s subject.Subject) (sample Sample, err error) {
	defer func() {
		if ended := endOf(ctx); err != nil && ended != nil { // what failed may say so in its own words, as a dialer does
			err = errors.Join(ended, err)
		}
		if err = errors.Join(err, set.Servers.Heal()); err != nil { // no lock is left to the next measurement
			_, left := set.Servers.Sweep(context.WithoutCancel(ctx))
			err = errors.Join(err, left)
		}
	}()
	if err := l.Fault.before(set.Servers); err != nil {
		return nil, err
	}
	set.Time = max(set.Time, l.Least)
	rtt, err := set.Servers.RoundTrip(ctx)
	if err != nil {
		return nil, err
	}
	m := newMeter()
	var load running
	if s.Bare {
		load, err = startBare(ctx, s, set.Servers, l, set.Prefix, m)
	} else {
		load, err = startCrew(ctx, s, set.Servers, l, set.Prefix, m)
	}
	if err != nil {
		return nil, err
	}
	sample, err = l.observe(ctx, set, load, m)
	err = errors.Join(err, set.Servers.Heal(), load.stop()) // heal first: some subjects wait for a stopped server forever
	if err != nil {
		return nil, err
	}
	left, err := set.Servers.Sweep(ctx)
	if err != nil {
		return nil, err
	}
	sample[Leftovers], sample[RTT] = float64(left), micros(rtt)
	if why := m.why(); why != nil && sample[Rate] == 0 && l.Fault == AllWell {
		return nil, fmt.Errorf("no progress: %w", why)
	}
	return sample, nil
}

// endOf is ctx.Err(), also between ctx's deadline and the moment at which ctx's own timer notices it: a dialer has a timer
// of its own.
func endOf(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// observe switches the meter on for the time of the measurement.
func (l Load) observe(ctx context.Context, set Setting, load running, m *meter) (Sample, error) {
	if err := sleep.For(ctx, set.warmUp()); err != nil {
		return nil, err
	}
	if err := l.Fault.after(set.Servers); err != nil {
		return nil, err
	}
	runtime.GC()
	before := usageNow()
	m.on.Store(true)
	err := sleep.For(ctx, set.Time)
	m.on.Store(false)
	after := usageNow()
	if err != nil {
		return nil, err
	}

	cycles := load.cycles(m.cycle.Merge().Count())
	load.admit()
	sample := Sample{
		Rate:     cycles / after.at.Sub(before.at).Seconds(),
		Failures: float64(m.failures.Load()),
	}
	sample.durations(m.cycle.Merge(), CycleP50, CycleP99, CycleMax)
	sample.durations(m.wait.Merge(), WaitP50, WaitP99, WaitMax)
	if cycles > 0 {
		sample[Allocs] = float64(after.mallocs-before.mallocs) / cycles
		sample[AllocBytes] = float64(after.bytes-before.bytes) / cycles
		if cpu := after.cpu - before.cpu; cpu > 0 && set.Servers.Transport != Links { // links are in this process
			sample[CPU] = micros(cpu) / cycles
		}
	}
	return sample, nil
}
