package redlockotel

import (
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/redlock"
)

const scope = "github.com/quorumlock/redlock/adapters/otel"

// A Telemetry makes spans and metrics. It is safe for concurrent use, and one is enough for all clients of a process.
type Telemetry struct {
	tracer trace.Tracer
	meter  metric.Meter
	name   func(names []string) string
	instruments

	mu        sync.Mutex // guards the rest; the meter is not called under it
	watch     []*watched
	forgotten uint64 // the events that clients had dropped when their watch was stopped
}

// watched is one call of Watch.
type watched struct{ client *redlock.Client }

// An Option changes what [New] makes.
type Option func(*options)

type options struct {
	tracers trace.TracerProvider
	meters  metric.MeterProvider
	name    func(names []string) string
}

// WithTracerProvider sets where spans go. Default: [otel.GetTracerProvider].
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithMeterProvider sets where metrics go. Default: [otel.GetMeterProvider].
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithNames adds the attribute redlock.name to spans and metrics: what name makes of a lock's names, such as "invoice"
// for "invoice/42". Each value is a time series of its own, so there must be few. An empty value adds nothing. name
// must not change its argument. It is called on the client's goroutine for hooks, one call at a time for each client.
func WithNames(name func(names []string) string) Option { return func(o *options) { o.name = name } }

// New makes a Telemetry. An error comes from the meter provider.
func New(opts ...Option) (*Telemetry, error) {
	noName := func([]string) string { return "" }
	o := options{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), name: noName}
	for _, apply := range opts {
		apply(&o)
	}
	t := &Telemetry{tracer: o.tracers.Tracer(scope, trace.WithInstrumentationVersion(version())),
		meter: o.meters.Meter(scope, metric.WithInstrumentationVersion(version())), name: o.name}
	return t, t.instruments.init(t.meter, t.observeDropped)
}

// version is that of this module in the running program. A backend shows it beside what we made; "": it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scope { // the module has the path of the package
			return m.Version
		}
	}
	return ""
}

// Hooks returns hooks for the configuration of a client. They also call the hooks in others, each after ours.
func (t *Telemetry) Hooks(others redlock.Hooks) redlock.Hooks {
	hooks := others // where we have none, the other hook stays
	hooks.Traced = func(ctx context.Context, op redlock.Operation) {
		t.record(ctx, op)
		t.span(ctx, op)
		if others.Traced != nil {
			others.Traced(ctx, op)
		}
	}
	hooks.Released = func(l redlock.LeaseInfo, err error) {
		t.held.Record(context.Background(), l.Held.Seconds(), t.named(l.Names))
		if others.Released != nil {
			others.Released(l, err)
		}
	}
	hooks.Lost = func(l redlock.LeaseInfo, err error) {
		t.held.Record(context.Background(), l.Held.Seconds(), t.named(l.Names))
		t.lost.Add(context.Background(), 1, t.named(l.Names))
		if others.Lost != nil {
			others.Lost(l, err)
		}
	}
	return hooks
}

// Watch adds to the metrics what the client holds and waits for, with all other clients that are watched, and whether its
// nodes vote. Each collection asks the nodes of each client, for a second at most. Two watched clients must not have a
// node's name in common: of several clients of the same nodes, watch one, or give each a meter provider of its own. stop
// ends it; call it before the client is closed. The events that the client has dropped stay counted, so do not watch the
// same client again: they would count twice.
func (t *Telemetry) Watch(c *redlock.Client) (stop func() error, err error) {
	w := &watched{c}
	t.mu.Lock()
	t.watch = append(t.watch, w)
	t.mu.Unlock()
	registered, err := t.meter.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		t.observe(ctx, to, w)
		return nil
	}, t.observables()...)
	if err != nil {
		t.forget(w)
		return nil, errors.Join(errors.New("redlockotel"), err)
	}
	return func() error {
		defer t.forget(w) // afterwards: if it went first, another client could count again in the same collection
		return registered.Unregister()
	}, nil
}

func (t *Telemetry) forget(w *watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watch = slices.DeleteFunc(slices.Clone(t.watch), func(other *watched) bool {
		if other != w {
			return false
		}
		t.forgotten += w.client.Dropped()
		return true
	})
}

// dropped is how many events all clients have dropped. It never goes down, because it is counted under the same lock as
// forget. known is false as long as there is nothing to tell: no client is watched, and none had dropped any.
func (t *Telemetry) dropped() (events uint64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	events = t.forgotten
	for _, w := range t.watch {
		events += w.client.Dropped()
	}
	return events, len(t.watch) > 0 || events > 0
}

func (t *Telemetry) allWatched() []*watched {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.watch[:len(t.watch):len(t.watch)]
}

// attributes of the lock.
func (t *Telemetry) attributes(names []string) []attribute.KeyValue {
	if name := valid(t.name(names)); name != "" {
		return []attribute.KeyValue{attribute.String("redlock.name", name)}
	}
	return nil
}

// valid quotes the bytes of a text that are not UTF-8. Of one such text, OTLP refuses the whole batch: all spans, or all
// metrics of the process.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.Trim(strconv.Quote(text), `"`)
}

func (t *Telemetry) named(names []string) metric.MeasurementOption {
	return metric.WithAttributes(t.attributes(names)...)
}
