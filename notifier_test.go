package redlock

import (
	"bytes"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEventsThatFindNoRoomAreDroppedAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg := Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
		n := newNotifier(&cfg)
		c := &Client{notifier: n}
		goOn, delivered := make(chan struct{}), 0
		n.post(func() { <-goOn })
		synctest.Wait() // it blocks the queue
		for range maxEvents + 10 {
			n.post(func() { delivered++ })
		}
		cfg.Logger.Info("there is no room for this")
		require.EqualValues(t, 11, c.Dropped())
		close(goOn)
		synctest.Wait()
		require.Equal(t, maxEvents, delivered)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "dropped=11")
		cfg.Logger.Info("there is again")
		n.close(time.Second)
		require.Contains(t, log.String(), "there is again")
		require.Equal(t, 2, strings.Count(log.String(), "\n"), "nothing is logged twice")
	})
}

// A log record is written later, and has the time of its event.
func TestALogRecordHasTheTimeOfItsEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cfg := Config{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{AddSource: true, Level: slog.LevelInfo}))}
		n := newNotifier(&cfg)
		n.post(func() { time.Sleep(time.Hour) })
		synctest.Wait()
		begun := time.Now()
		cfg.Logger.With("a", 1).WithGroup("g").Warn("said", "b", 2)
		cfg.Logger.Debug("not asked for")
		n.close(2 * time.Hour)
		require.Equal(t, time.Hour, time.Since(begun))
		require.Contains(t, log.String(), begun.Format(time.RFC3339Nano))
		require.Contains(t, log.String(), "notifier_test.go")
		require.Contains(t, log.String(), `"a":1,"g":{"b":2}`)
		require.NotContains(t, log.String(), "not asked for")
	})
}

// Every hook must go through the notifier. One that was forgotten would be called where a lease depends on it, or not
// at all.
func TestEveryHookIsCalledByTheNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hooks Hooks
		fields := reflect.ValueOf(&hooks).Elem()
		for i := range fields.NumField() {
			name, called := fields.Type().Field(i).Name, 0
			hooks = Hooks{}
			fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				called++
				return nil
			}))
			cfg := Config{Hooks: hooks}
			n := newNotifier(&cfg)
			require.NotNil(t, n, name)
			goOn := make(chan struct{})
			n.post(func() { <-goOn })
			later := reflect.ValueOf(cfg.Hooks)
			for j := range later.NumField() {
				require.Equal(t, i == j, !later.Field(j).IsNil(), later.Type().Field(j).Name)
			}
			args := make([]reflect.Value, later.Field(i).Type().NumIn())
			for a := range args {
				args[a] = reflect.Zero(later.Field(i).Type().In(a))
			}
			later.Field(i).Call(args)
			require.Zero(t, called, name)
			close(goOn)
			n.close(time.Second)
			require.Equal(t, 1, called, name)
		}
	})
}

func TestWithoutHooksAndALoggerThereIsNoNotifier(t *testing.T) {
	for _, logger := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		cfg := Config{Logger: logger}
		n := newNotifier(&cfg)
		require.Nil(t, n)
		require.Equal(t, Hooks{}, cfg.Hooks)
		require.NotNil(t, cfg.Logger)
		n.close(0)
		require.Zero(t, (&Client{}).Dropped())
		require.Zero(t, testing.AllocsPerRun(100, func() { cfg.Logger.Warn("nobody hears") }))
	}
}

func TestWithoutTheHookTracesCostNothing(t *testing.T) {
	c := &Client{settings: &settings{}}
	l := &Lease{ownership: &ownership{client: c}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.traceAcquire(t.Context(), "acquire", nil).acquired(nil, nil)
		l.trace(t.Context(), "extend").end(nil)
		if c.traceLease(t.Context()) != nil {
			t.Error("a lease remembers what no hook asks for")
		}
		l.ownership.traceRenewal(0, nil)
	}))
}

// A waiter may be refused any number of times.
func TestALongWaitIsTracedWithItsFirstAndItsLastRounds(t *testing.T) {
	var op Operation
	for i := range 100 {
		op.add(Attempt{Denied: i})
	}
	require.Len(t, op.Rounds, maxTracedRounds)
	require.Equal(t, 100-maxTracedRounds, op.RoundsLeftOut)
	require.Equal(t, 0, op.Rounds[0].Denied)
	for i, a := range op.Rounds[1:] {
		require.Equal(t, 100-maxTracedRounds+1+i, a.Denied)
	}
}
