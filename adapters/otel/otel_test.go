package redlockotel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/redlock"
	redlockotel "github.com/quorumlock/redlock/adapters/otel"
	"github.com/quorumlock/redlock/redlocktest"
)

// telemetry is the real SDK, with everything that was exported at hand.
type telemetry struct {
	*redlockotel.Telemetry
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer // of the program
	reader *sdkmetric.ManualReader
}

func start(t *testing.T, with ...redlockotel.Option) *telemetry {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	made, err := redlockotel.New(append([]redlockotel.Option{redlockotel.WithTracerProvider(tracers),
		redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))}, with...)...)
	require.NoError(t, err)
	return &telemetry{made, spans, tracers.Tracer("program"), reader}
}

func (te *telemetry) client(t *testing.T, nodes *redlocktest.Nodes, with ...func(*redlock.Config)) *redlock.Client {
	// A busy machine may delay an answer by more than the default NodeTimeout.
	cfg := redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: 2 * time.Second, Hooks: te.Hooks(redlock.Hooks{})}
	for _, change := range with {
		change(&cfg)
	}
	c, err := redlock.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, c.Enroll(ctx))
	return c
}

// telling has a client tell of refused rounds.
func telling(te *telemetry, refused chan struct{}) func(*redlock.Config) {
	return func(cfg *redlock.Config) {
		cfg.Hooks = te.Hooks(redlock.Hooks{Refused: func([]string, error) { refused <- struct{}{} }})
	}
}

// named are the exported spans of that name, by their begin.
func (te *telemetry) named(name string) (found []tracetest.SpanStub) {
	for _, s := range te.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

func value(s tracetest.SpanStub, key string) any {
	for _, kv := range s.Attributes {
		if string(kv.Key) == key {
			return kv.Value.AsInterface()
		}
	}
	return nil
}

func childOf(t *testing.T, child tracetest.SpanStub, parent trace.SpanContext) {
	t.Helper()
	require.Equal(t, parent.TraceID(), child.SpanContext.TraceID(), child.Name)
	require.Equal(t, parent.SpanID(), child.Parent.SpanID(), child.Name)
}

func TestTheSpansOfAContendedRunJoinTheirCallersTraces(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	te := start(t)
	const clients, each = 3, 4
	parents := make(chan trace.SpanContext, clients*each)
	var wg sync.WaitGroup
	var all []*redlock.Client
	refused := make(chan struct{}, 1000)
	for range clients {
		all = append(all, te.client(t, nodes, telling(te, refused)))
	}
	var first sync.Once
	for _, c := range all {
		wg.Go(func() {
			for range each {
				ctx, span := te.tracer.Start(t.Context(), "work")
				parents <- span.SpanContext()
				err := c.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error {
					first.Do(func() { <-refused })
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				span.End()
			}
		})
	}
	wg.Wait()
	for _, c := range all {
		require.NoError(t, c.Close()) // it waits until the hooks were called
	}
	close(parents)
	works := map[trace.SpanID]tracetest.SpanStub{}
	for _, s := range te.named("work") {
		works[s.SpanContext.SpanID()] = s
	}
	acquires, releases := te.named("redlock.acquire"), te.named("redlock.release")
	require.Len(t, acquires, clients*each)
	require.Len(t, releases, clients*each)
	for parent := range parents {
		of := func(s tracetest.SpanStub) bool { return s.Parent.SpanID() == parent.SpanID() }
		acquire, release := acquires[slices.IndexFunc(acquires, of)], releases[slices.IndexFunc(releases, of)]
		childOf(t, acquire, parent)
		childOf(t, release, parent)
		work := works[parent.SpanID()]
		require.False(t, acquire.StartTime.Before(work.StartTime))
		require.False(t, acquire.EndTime.After(release.StartTime), "spans have the times of what they describe")
		require.False(t, release.EndTime.After(work.EndTime), "they end within the caller's span, although they are made later")
		require.Equal(t, "ok", value(acquire, "redlock.outcome"))
		require.Equal(t, value(acquire, "redlock.fencing_token"), value(release, "redlock.fencing_token"))
		require.Equal(t, trace.SpanKindInternal, acquire.SpanKind)

		var attempts []tracetest.SpanStub
		for _, a := range te.named("redlock.attempt") {
			if a.Parent.SpanID() == acquire.SpanContext.SpanID() {
				childOf(t, a, acquire.SpanContext)
				require.False(t, a.StartTime.Before(acquire.StartTime) || a.EndTime.After(acquire.EndTime))
				attempts = append(attempts, a)
			}
		}
		require.EqualValues(t, len(attempts), value(acquire, "redlock.attempts"))
		for i, a := range attempts {
			votes := value(a, "redlock.nodes.granted").(int64) + value(a, "redlock.nodes.denied").(int64) + value(a, "redlock.nodes.unknown").(int64)
			require.EqualValues(t, 3, votes)
			require.Equal(t, "redis", value(a, "db.system.name"))
			require.Equal(t, trace.SpanKindClient, a.SpanKind)
			if i == len(attempts)-1 {
				require.Equal(t, "ok", value(a, "redlock.outcome"))
				require.GreaterOrEqual(t, value(a, "redlock.nodes.granted"), int64(2))
			} else {
				require.NotEqual(t, "ok", value(a, "redlock.outcome"))
			}
		}
	}
	require.Greater(t, len(te.named("redlock.attempt")), clients*each, "nobody had to wait: the run was not contended")
}

// Whoever knows an owner token and may write to the nodes can release the lock, and many people can read traces.
func TestNoSpanHasAnOwnerToken(t *testing.T) {
	var exported bytes.Buffer
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(&exported))
	require.NoError(t, err)
	te := start(t, redlockotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))))
	c := te.client(t, redlocktest.Start(t, 3))
	lease, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	_, err = c.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.NoError(t, lease.Extend(t.Context()))
	require.NoError(t, lease.Release(t.Context()))
	require.NoError(t, c.Close())
	for _, name := range []string{"redlock.acquire", "redlock.attempt", "redlock.renew", "redlock.release"} {
		require.Contains(t, exported.String(), `"Name":"`+name+`"`)
	}
	require.NotContains(t, exported.String(), lease.Token()[:8])
	require.Contains(t, exported.String(), fmt.Sprint(lease.Fence()))
}

func TestWhatWentWrongIsAnError(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	te := start(t)
	c := te.client(t, nodes)
	held, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	_, err = c.Mutex("x").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Mutex("x").Acquire(waiting)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	nodes.Kill(0)
	nodes.Kill(1)
	require.ErrorIs(t, held.Extend(t.Context()), redlock.ErrNoQuorum)
	_, err = c.Mutex("y").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NoError(t, c.Close())

	var outcomes []any
	for _, s := range te.named("redlock.acquire") {
		outcome := value(s, "redlock.outcome")
		outcomes = append(outcomes, outcome)
		if outcome == "ok" || outcome == "held" {
			require.Equal(t, codes.Unset, s.Status.Code)
			require.Nil(t, value(s, "error.type"))
			continue
		}
		require.Equal(t, codes.Error, s.Status.Code)
		require.Equal(t, outcome, value(s, "error.type"))
		require.NotEmpty(t, s.Status.Description)
	}
	require.Equal(t, []any{"ok", "held", "deadline_exceeded", "no_quorum"}, outcomes)
	require.Equal(t, "no_quorum", value(te.named("redlock.renew")[0], "error.type"))
}

func TestARenewalJoinsTheTraceOfItsAcquire(t *testing.T) {
	te := start(t)
	told := make(chan redlock.Operation, 100)
	c := te.client(t, redlocktest.Start(t, 3), func(cfg *redlock.Config) {
		cfg.TTL = 6 * time.Second
		cfg.Hooks = te.Hooks(redlock.Hooks{Traced: func(_ context.Context, op redlock.Operation) { told <- op }})
	})
	ctx, span := te.tracer.Start(t.Context(), "job")
	lease, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	span.End()
	for renewed := false; !renewed; {
		select {
		case op := <-told:
			renewed = op.Renewal > 0
		case <-lease.Context().Done():
			require.Fail(t, "the lease ended", "%v", context.Cause(lease.Context()))
		}
	}
	renewal := te.named("redlock.renew")[0]
	childOf(t, renewal, span.SpanContext())
	require.EqualValues(t, 1, value(renewal, "redlock.renewal"))
	require.NoError(t, lease.Release(t.Context()))
}

// A leader may hold its lock for weeks.
func TestManyRenewalsDoNotGrowOneTrace(t *testing.T) {
	te := start(t)
	hook := te.Hooks(redlock.Hooks{}).Traced
	ctx, parent := te.tracer.Start(t.Context(), "lead")
	for i := range 150 {
		hook(ctx, redlock.Operation{Op: "extend", Renewal: i + 1, Begun: time.Now()})
	}
	hook(ctx, redlock.Operation{Op: "extend", Begun: time.Now()}) // by Lease.Extend: the caller's own
	inTrace, roots := 0, 0
	for _, s := range te.named("redlock.renew") {
		if s.SpanContext.TraceID() == parent.SpanContext().TraceID() {
			inTrace++
			continue
		}
		roots++
		require.False(t, s.Parent.IsValid())
		require.Len(t, s.Links, 1)
		require.Equal(t, parent.SpanContext().SpanID(), s.Links[0].SpanContext.SpanID())
	}
	require.Equal(t, []int{101, 50}, []int{inTrace, roots})
}

// A backend shows which version of the adapter made a span or a metric.
func TestWhatIsExportedNamesTheVersionOfThisModule(t *testing.T) {
	te := start(t)
	te.Hooks(redlock.Hooks{}).Traced(t.Context(), redlock.Operation{Op: "release", Begun: time.Now()})
	build, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.NotEmpty(t, build.Main.Version)
	span := te.named("redlock.release")[0].InstrumentationScope
	var got metricdata.ResourceMetrics
	require.NoError(t, te.reader.Collect(t.Context(), &got))
	require.Len(t, got.ScopeMetrics, 1)
	for _, scope := range []instrumentation.Scope{span, got.ScopeMetrics[0].Scope} {
		require.Equal(t, []string{build.Main.Path, build.Main.Version}, []string{scope.Name, scope.Version})
	}
}

func TestAttemptsThatWereLeftOutAreSaid(t *testing.T) {
	te := start(t)
	now := time.Now()
	te.Hooks(redlock.Hooks{}).Traced(t.Context(), redlock.Operation{Op: "acquire", Begun: now, RoundsLeftOut: 7,
		Rounds: []redlock.Attempt{{Begun: now}, {Begun: now.Add(time.Minute)}}})
	s := te.named("redlock.acquire")[0]
	require.EqualValues(t, 9, value(s, "redlock.attempts"))
	require.Len(t, s.Events, 1)
	require.Len(t, te.named("redlock.attempt"), 2)
}

// metrics are the data points, "name{attributes} unit": the value, or for a histogram how often it observed.
func (te *telemetry) metrics(t *testing.T) map[string]float64 { return metricsOf(t, te.reader) }

func metricsOf(t *testing.T, reader *sdkmetric.ManualReader) map[string]float64 {
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	points := map[string]float64{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			put := func(set attribute.Set, value float64) {
				var labels []string
				for _, kv := range set.ToSlice() {
					labels = append(labels, fmt.Sprintf("%s=%v", kv.Key, kv.Value.AsInterface()))
				}
				points[fmt.Sprintf("%s{%s} %s", m.Name, strings.Join(labels, ","), m.Unit)] = value
			}
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Count))
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					put(p.Attributes, float64(p.Value))
				}
			default:
				t.Fatalf("%s is %T", m.Name, m.Data)
			}
		}
	}
	return points
}

func TestWhatAClientDoesIsMeasured(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	te := start(t, redlockotel.WithNames(func(names []string) string {
		kind, _, _ := strings.Cut(names[0], "/")
		return kind
	}))
	c := te.client(t, nodes)
	stop, err := te.Watch(c)
	require.NoError(t, err)
	lost, err := c.Mutex("job/1").Acquire(t.Context())
	require.NoError(t, err)
	for _, n := range nodes.Nodes() { // not by ForceRelease, which would tell this client, so that it may ask before Extend does
		conn, err := n.Dial(t.Context())
		require.NoError(t, err)
		_, err = conn.Do("DEL", "job/1")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	require.ErrorIs(t, lost.Extend(t.Context()), redlock.ErrLost)
	lease, err := c.Mutex("job/2").Acquire(t.Context())
	require.NoError(t, err)
	_, err = c.Mutex("job/2").TryAcquire(t.Context())
	require.ErrorIs(t, err, redlock.ErrHeld)

	var got map[string]float64
	require.Eventually(t, func() bool { // hooks are called later
		got = te.metrics(t)
		return got["redlock.acquire.duration{redlock.name=job,redlock.outcome=held} s"] == 1
	}, 10*time.Second, time.Millisecond)
	require.EqualValues(t, 2, got["redlock.acquire.duration{redlock.name=job,redlock.outcome=ok} s"])
	require.EqualValues(t, 3, got["redlock.acquire.attempts{redlock.name=job} {attempt}"])
	require.EqualValues(t, 1, got["redlock.renew.duration{redlock.name=job,redlock.outcome=lost} s"])
	require.EqualValues(t, 1, got["redlock.lease.lost{redlock.name=job} {lease}"])
	require.EqualValues(t, 1, got["redlock.hold.duration{redlock.name=job} s"])
	require.EqualValues(t, 1, got["redlock.lease.held{} {lease}"])
	require.Contains(t, got, "redlock.waiter.count{} {waiter}")
	require.Positive(t, got["redlock.lease.oldest{} s"])
	require.InDelta(t, 10, got["redlock.lease.remaining{} s"], 5)
	require.Contains(t, got, "redlock.event.dropped{} {event}")
	for _, status := range c.Status(t.Context()) {
		require.Eventually(t, func() bool { // a quorum sufficed until now
			return te.metrics(t)["redlock.node.vote{redlock.node="+status.Name+"} 1"] == 1
		}, 10*time.Second, time.Millisecond)
	}

	require.NoError(t, lease.Release(t.Context()))
	require.Eventually(t, func() bool {
		got = te.metrics(t)
		return got["redlock.release.duration{redlock.name=job,redlock.outcome=ok} s"] == 1 && got["redlock.hold.duration{redlock.name=job} s"] == 2
	}, 10*time.Second, time.Millisecond)
	require.Zero(t, got["redlock.lease.held{} {lease}"])
	require.NotContains(t, got, "redlock.lease.remaining{} s")
	nodes.Kill(0)
	require.Eventually(t, func() bool {
		return te.metrics(t)["redlock.node.vote{redlock.node="+c.Status(t.Context())[0].Name+"} 1"] == 0
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, stop())
	require.NotContains(t, te.metrics(t), "redlock.lease.held{} {lease}")
}

// OTLP refuses a whole batch because of one text that is not UTF-8, so all telemetry of the process would stop.
func TestWhatIsNotUTF8IsQuoted(t *testing.T) {
	te := start(t, redlockotel.WithNames(func(names []string) string { return names[0] }))
	nodes := redlocktest.Start(t, 1)
	c := te.client(t, nodes, func(cfg *redlock.Config) { cfg.Nodes[0].Name = "caf\xe9" })
	stop, err := te.Watch(c)
	require.NoError(t, err)
	_, err = c.Mutex("\xff").Acquire(t.Context())
	require.NoError(t, err)
	te.Hooks(redlock.Hooks{}).Traced(t.Context(), redlock.Operation{Op: "release", Lease: redlock.LeaseInfo{Names: []string{"x"}}, Err: errors.New("of \xff")})
	require.Contains(t, te.metrics(t), `redlock.node.vote{redlock.node=caf\xe9} 1`)
	require.NoError(t, c.Close()) // it waits until the hooks were called
	require.EqualValues(t, 1, te.metrics(t)[`redlock.acquire.duration{redlock.name=\xff,redlock.outcome=ok} s`])
	require.Equal(t, `\xff`, value(te.named("redlock.acquire")[0], "redlock.name"))
	require.Equal(t, `of \xff`, te.named("redlock.release")[0].Status.Description)
	require.NoError(t, stop())
}

// Clients of several groups of nodes have one set of gauges, which is about all of them.
func TestSeveralClientsAreMeasuredTogether(t *testing.T) {
	te := start(t)
	short := te.client(t, redlocktest.Start(t, 3))
	long := te.client(t, redlocktest.Start(t, 3), func(cfg *redlock.Config) {
		for i := range cfg.Nodes {
			cfg.Nodes[i].Name = "other-" + cfg.Nodes[i].Name
		}
	})
	stopShort, err := te.Watch(short)
	require.NoError(t, err)
	stopLong, err := te.Watch(long)
	require.NoError(t, err)
	_, err = short.Mutex("x").WithTTL(5 * time.Second).Acquire(t.Context())
	require.NoError(t, err)
	time.Sleep(50 * time.Millisecond)
	_, err = long.Mutex("x").WithTTL(20 * time.Second).Acquire(t.Context())
	require.NoError(t, err)
	got := te.metrics(t)
	require.EqualValues(t, 2, got["redlock.lease.held{} {lease}"])
	require.Less(t, got["redlock.lease.remaining{} s"], 5.0, "the least of all clients")
	require.Greater(t, got["redlock.lease.oldest{} s"], 0.05, "the oldest of all clients")
	require.Contains(t, got, "redlock.node.vote{redlock.node=node-0} 1")
	require.Contains(t, got, "redlock.node.vote{redlock.node=other-node-0} 1")

	require.NoError(t, stopShort())
	got = te.metrics(t)
	require.EqualValues(t, 1, got["redlock.lease.held{} {lease}"])
	require.Greater(t, got["redlock.lease.remaining{} s"], 5.0)
	require.NoError(t, long.Close())
	require.NotContains(t, te.metrics(t), "redlock.node.vote{redlock.node=other-node-0} 1", "a closed client knows nothing of its nodes")
	require.NoError(t, stopLong())
	require.NotContains(t, te.metrics(t), "redlock.lease.held{} {lease}")
}

// A backend takes a counter that goes down for that of a process that was restarted. A reader that asks for differences
// takes one that paused for a new one. Both count what is left, or all of it, again.
func TestTheCounterOfDroppedEventsNeitherGoesDownNorPauses(t *testing.T) {
	differences := sdkmetric.NewManualReader(sdkmetric.WithTemporalitySelector(sdkmetric.DeltaTemporalitySelector))
	sums := sdkmetric.NewManualReader()
	te := start(t, redlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sums), sdkmetric.WithReader(differences))))
	added := 0.0 // all differences
	requireCounted := func(dropped uint64) {
		t.Helper()
		const name = "redlock.event.dropped{} {event}"
		require.EqualValues(t, dropped, metricsOf(t, sums)[name])
		added += metricsOf(t, differences)[name]
		require.EqualValues(t, dropped, added)
	}
	require.NotContains(t, metricsOf(t, sums), "redlock.event.dropped{} {event}", "nothing was watched")
	goOn := make(chan struct{})
	defer close(goOn)
	block := func() { <-goOn }
	connect := func(named string) *redlock.Client {
		return te.client(t, redlocktest.Start(t, 1), func(cfg *redlock.Config) {
			cfg.Nodes[0].Name = named
			cfg.Hooks = redlock.Hooks{
				Acquired: func(redlock.LeaseInfo, time.Duration, int) { block() },
				Released: func(redlock.LeaseInfo, error) { block() },
				Traced:   func(context.Context, redlock.Operation) { block() },
			}
		})
	}
	first, second := connect("a"), connect("b")
	stopFirst, err := te.Watch(first)
	require.NoError(t, err)
	stopSecond, err := te.Watch(second)
	require.NoError(t, err)
	for first.Dropped() == 0 {
		lease, err := first.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	dropped := first.Dropped()
	requireCounted(dropped)
	require.NoError(t, stopFirst())
	requireCounted(dropped)
	require.NoError(t, stopSecond())
	requireCounted(dropped)
	_, err = te.Watch(second)
	require.NoError(t, err)
	requireCounted(dropped)
}

func TestAnErrorHasOneOutcome(t *testing.T) {
	te := start(t)
	hook := te.Hooks(redlock.Hooks{}).Traced
	begun := time.Now()
	for i, err := range []error{nil, redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrLost, redlock.ErrClosed, redlock.ErrInvalid,
		context.Canceled, errors.Join(context.DeadlineExceeded, redlock.ErrHeld), errors.New("?")} {
		hook(t.Context(), redlock.Operation{Op: "release", Err: err, Begun: begun.Add(time.Duration(i) * time.Second)})
	}
	var outcomes []any
	for _, s := range te.named("redlock.release") {
		outcomes = append(outcomes, value(s, "redlock.outcome"))
	}
	require.Equal(t, []any{"ok", "held", "no_quorum", "lost", "closed", "invalid", "canceled", "deadline_exceeded", "other"}, outcomes)
}

// A caller without a deadline cannot exceed one, however long a node takes to connect.
func TestAnOutageWithoutADeadlineIsNoQuorum(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	te := start(t)
	c, err := redlock.New(redlock.Config{Hooks: te.Hooks(redlock.Hooks{}), Nodes: redlock.Nodes(listener.Addr().String()),
		Credentials: func(ctx context.Context) (user, password string, err error) { <-ctx.Done(); return "", "", ctx.Err() }})
	require.NoError(t, err)
	_, err = c.Mutex("x").TryAcquire(context.Background())
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NoError(t, c.Close())
	require.Equal(t, "no_quorum", value(te.named("redlock.acquire")[0], "redlock.outcome"))
}

// Without providers and without hooks of the program nothing happens, and nothing breaks.
func TestWithoutProvidersItIsSilent(t *testing.T) {
	made, err := redlockotel.New()
	require.NoError(t, err)
	var told []string
	hooks := made.Hooks(redlock.Hooks{
		Traced:   func(context.Context, redlock.Operation) { told = append(told, "traced") },
		Released: func(redlock.LeaseInfo, error) { told = append(told, "released") },
		Lost:     func(redlock.LeaseInfo, error) { told = append(told, "lost") },
		NodeUp:   func(string) { told = append(told, "up") },
	})
	hooks.Traced(t.Context(), redlock.Operation{Op: "acquire"})
	hooks.Released(redlock.LeaseInfo{}, nil)
	hooks.Lost(redlock.LeaseInfo{}, nil)
	hooks.NodeUp("")
	require.Equal(t, []string{"traced", "released", "lost", "up"}, told)
}

// REDLOCK_SPANS=FILE go test -run Shown also writes the spans of a contended run, for people to look at.
func TestAContendedRunCanBeShown(t *testing.T) {
	var out bytes.Buffer
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(&out))
	require.NoError(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	te := start(t, redlockotel.WithTracerProvider(provider))
	nodes := redlocktest.Start(t, 3)
	refused := make(chan struct{}, 1000)
	holder, waiter := te.client(t, nodes), te.client(t, nodes, telling(te, refused))
	ctx, span := provider.Tracer("program").Start(t.Context(), "holder")
	lease, err := holder.Mutex("x").Acquire(ctx)
	require.NoError(t, err)
	done := make(chan error)
	go func() {
		ctx, span := provider.Tracer("program").Start(t.Context(), "waiter")
		err := waiter.Mutex("x").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
		span.End()
		done <- err
	}()
	<-refused
	require.NoError(t, lease.Extend(ctx))
	require.NoError(t, lease.Release(ctx))
	span.End()
	require.NoError(t, <-done)
	require.NoError(t, holder.Close())
	require.NoError(t, waiter.Close())
	require.NoError(t, provider.Shutdown(t.Context()))
	names := map[string]int{}
	for line := range strings.Lines(out.String()) {
		var s struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		names[s.Name]++
	}
	require.Equal(t, 2, names["redlock.acquire"])
	require.Equal(t, 2, names["redlock.release"])
	require.Equal(t, 1, names["redlock.renew"])
	require.GreaterOrEqual(t, names["redlock.attempt"], 3)
	if file := os.Getenv("REDLOCK_SPANS"); file != "" {
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o600))
	}
}
