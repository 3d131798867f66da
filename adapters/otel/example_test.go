package redlockotel_test

import (
	"context"
	"log"

	"go.opentelemetry.io/otel"

	"github.com/quorumlock/redlock"
	redlockotel "github.com/quorumlock/redlock/adapters/otel"
)

func Example() {
	// The program has set otel.SetTracerProvider and otel.SetMeterProvider.
	telemetry, err := redlockotel.New()
	if err != nil {
		log.Fatal(err)
	}
	client, err := redlock.New(redlock.Config{
		Nodes: redlock.Nodes("10.0.0.1", "10.0.1.1", "10.0.2.1"),
		Hooks: telemetry.Hooks(redlock.Hooks{}), // or your own hooks: they are called too
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	stop, err := telemetry.Watch(client)
	if err != nil {
		log.Fatal(err)
	}
	defer stop()

	ctx, span := otel.Tracer("billing").Start(context.Background(), "charge")
	defer span.End()
	err = client.Mutex("invoice/42").Do(ctx, func(ctx context.Context, l *redlock.Lease) error {
		return nil // the spans redlock.acquire and redlock.release are children of charge
	})
	if err != nil {
		log.Fatal(err)
	}
}
