package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/redlock"
	redlockotel "github.com/quorumlock/redlock/adapters/otel"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/sleep"
)

var serviceName = attribute.String("service.name", "billing")

// A run is several clients that contend for a few locks, as several processes would.
type run struct {
	nodes   *fleet.Fleet
	clients []*redlock.Client
	metrics *redlockprom.Metrics
	tracer  trace.Tracer // of the program that uses the locks
	stop    func() error
}

const contenders = 4

func newRun(nodes *fleet.Fleet, tracers *sdktrace.TracerProvider, meters *metric.MeterProvider) (*run, error) {
	telemetry, err := redlockotel.New(redlockotel.WithTracerProvider(tracers), redlockotel.WithMeterProvider(meters))
	if err != nil {
		return nil, err
	}
	r := &run{nodes: nodes, metrics: redlockprom.New(), tracer: tracers.Tracer("billing")}
	for i := range contenders {
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...), TTL: 2 * time.Second, MaxTTL: 5 * time.Second,
			Owner: fmt.Sprintf("web-%d/4711", i+1), Hooks: telemetry.Hooks(r.metrics.Hooks(redlock.Hooks{}))})
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.clients = append(r.clients, c)
	}
	r.metrics.Watch(r.clients[0])
	r.stop, err = telemetry.Watch(r.clients[0])
	return r, err
}

func (r *run) close() (err error) {
	if r.stop != nil {
		err = r.stop()
	}
	for _, c := range r.clients {
		err = errors.Join(err, c.Close())
	}
	return err
}

// work contends and injects faults for that long, and closes the clients.
func (r *run) work(ctx context.Context, length time.Duration) error {
	enrolling, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.clients[0].Enroll(enrolling); err != nil {
		return errors.Join(err, r.close())
	}
	ctx, cancel = context.WithTimeout(ctx, length)
	defer cancel()
	var wg sync.WaitGroup
	for i, c := range r.clients {
		charge := func(ctx context.Context, _ *redlock.Lease) error {
			return sleep.For(ctx, 5*time.Millisecond+rand.N(60*time.Millisecond))
		}
		for range 2 {
			r.again(ctx, &wg, "POST /invoices/charge", func(ctx context.Context) error {
				return c.Mutex(fmt.Sprint("invoice/", rand.N(3))).Do(ctx, charge)
			})
		}
		if i == 0 { // a job that is longer than its TTL
			report := func(ctx context.Context, _ *redlock.Lease) error { return sleep.For(ctx, 4*time.Second) }
			r.again(ctx, &wg, "report", func(ctx context.Context) error {
				return c.Mutex("report").WithTTL(900*time.Millisecond).Do(ctx, report)
			})
			continue
		}
		r.again(ctx, &wg, "report unless it runs", func(ctx context.Context) error {
			_, err := c.Mutex("report").WithTTL(900*time.Millisecond).TryDo(ctx, charge)
			return errors.Join(err, sleep.For(ctx, 300*time.Millisecond))
		})
		r.again(ctx, &wg, "report soon", func(ctx context.Context) error {
			patient, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
			defer cancel()
			return errors.Join(c.Mutex("report").WithTTL(900*time.Millisecond).Do(patient, charge), sleep.For(ctx, 700*time.Millisecond))
		})
	}
	err := r.faults(ctx, length)
	wg.Wait()
	return errors.Join(err, r.close())
}

// again does it until ctx ends, each time under a span of its own.
func (r *run) again(ctx context.Context, wg *sync.WaitGroup, name string, do func(context.Context) error) {
	wg.Go(func() {
		for ctx.Err() == nil {
			ctx, span := r.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
			_ = do(ctx) // faults are what this is about
			span.End()
		}
	})
}

// faults come one after the other. At the end all nodes vote.
func (r *run) faults(ctx context.Context, length time.Duration) error {
	n := r.nodes.Nodes()
	both := func(change func(*fleet.Node) error) error { return errors.Join(change(n[2]), change(n[3])) }
	began := time.Now()
	for _, fault := range []struct {
		at   float64
		what string
		do   func() error
	}{
		{.15, "the lock of the report is taken by force", func() error { return r.clients[1].ForceRelease(ctx, "report") }},
		{.3, "a node is killed", n[4].Kill},
		{.4, "two more are silent: no quorum", func() error { return both((*fleet.Node).Pause) }},
		{.5, "these two answer again", func() error { return both((*fleet.Node).Resume) }},
		{.65, "the killed node comes back empty: quarantine", func() error { return n[4].Start(ctx, fleet.Empty) }},
	} {
		at := time.Duration(fault.at * float64(length))
		select {
		case <-ctx.Done(): // the program was interrupted
			return nil
		case <-time.After(at - time.Since(began)):
		}
		log.Print(fault.what)
		if err := fault.do(); err != nil {
			return err
		}
	}
	return nil
}
