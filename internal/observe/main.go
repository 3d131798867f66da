// Program observe makes a contended run with faults, and exports its traces and metrics: what people look at to judge
// adapters/otel, adapters/prometheus, the dashboard, the alert rules and redlock top.
//
//	go run . -for 3m -metrics 127.0.0.1:2112
//
// Traces and metrics go by OTLP to OTEL_EXPORTER_OTLP_ENDPOINT, if that is set; `make traces` runs a collector there.
// Prometheus can scrape the address of -metrics. It prints REDLOCK_NODES=…, for redlock top.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/quorumlock/redlock/internal/fleet"
)

func main() {
	length := flag.Duration("for", 20*time.Second, "how long the run takes; faults come at fixed shares of it")
	address := flag.String("metrics", "", "serve metrics for Prometheus at this address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := observe(ctx, *length, *address); err != nil {
		log.Fatal(err)
	}
}

func observe(ctx context.Context, length time.Duration, address string) (err error) {
	kind := fleet.Process
	if why := fleet.Available(kind); why != nil {
		log.Printf("%v: the nodes are in this process", why)
		kind = fleet.Embedded
	}
	nodes, err := fleet.Start(ctx, kind, fleet.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	fmt.Println("REDLOCK_NODES=" + strings.Join(nodes.URLs(), ","))

	tracers, meters, err := providers(ctx)
	if err != nil {
		return err
	}
	r, err := newRun(nodes, tracers, meters)
	if err != nil {
		return err
	}
	if address != "" {
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp", address)
		if err != nil {
			return err
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(r.metrics)
		server := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }()
		defer server.Close()
	}
	err = r.work(ctx, length)
	// The clients are closed, so every hook was called: what is exported now is all that happened.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, tracers.Shutdown(last), meters.Shutdown(last))
}

// providers export by OTLP, if the environment says where to.
func providers(ctx context.Context) (*trace.TracerProvider, *metric.MeterProvider, error) {
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithProcessPID(),
		resource.WithAttributes(serviceName))
	if err != nil {
		return nil, nil, err
	}
	traces, metrics := []trace.TracerProviderOption{trace.WithResource(about)}, []metric.Option{metric.WithResource(about)}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" {
		spans, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, nil, err
		}
		points, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, nil, err
		}
		traces = append(traces, trace.WithBatcher(spans, trace.WithMaxQueueSize(1<<16)))
		metrics = append(metrics, metric.WithReader(metric.NewPeriodicReader(points, metric.WithInterval(time.Second))))
	}
	return trace.NewTracerProvider(traces...), metric.NewMeterProvider(metrics...), nil
}
