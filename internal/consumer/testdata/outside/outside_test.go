// Package outside imports everything that can be imported, and uses a little of each.
package outside

import (
	"context"
	"errors"
	"testing"
	"time"

	gocronlib "github.com/go-co-op/gocron/v2"
	"github.com/prometheus/client_golang/prometheus"
	goredislib "github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/quorumlock/redlock"
	redlockgocron "github.com/quorumlock/redlock/adapters/gocron"
	"github.com/quorumlock/redlock/adapters/goredis"
	redlockotel "github.com/quorumlock/redlock/adapters/otel"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
	"github.com/quorumlock/redlock/adapters/rueidis"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestEverythingWorksOutsideOfTheRepository(t *testing.T) {
	nodes := redlocktest.Start(t, 3)
	telemetry, err := redlockotel.New()
	if err != nil {
		t.Fatal(err)
	}
	metrics := redlockprom.New()
	client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: telemetry.Hooks(metrics.Hooks(redlock.Hooks{}))})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Enroll(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics.Watch(client)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	var gate fence.Gate
	lease, err := client.Mutex("invoice/42").Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := gate.Check(t.Context(), "invoice/42", lease.Fence()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Mutex("invoice/42").TryAcquire(t.Context()); !errors.Is(err, redlock.ErrHeld) {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil || len(families) < 10 {
		t.Fatal(len(families), err)
	}

	led := errors.New("it led")
	err = election.New(client, "leader", election.Options{}).Run(t.Context(), func(context.Context, *election.Term) error { return led })
	if !errors.Is(err, led) {
		t.Fatal(err)
	}

	locker, err := redlockgocron.NewLocker(client)
	if err != nil {
		t.Fatal(err)
	}
	scheduler, err := gocronlib.NewScheduler(gocronlib.WithDistributedLocker(locker))
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{}, 1)
	_, err = scheduler.NewJob(gocronlib.DurationJob(time.Second), gocronlib.NewTask(func() { ran <- struct{}{} }), gocronlib.WithName("job"))
	if err != nil {
		t.Fatal(err)
	}
	scheduler.Start()
	<-ran
	if err := scheduler.Shutdown(); err != nil {
		t.Fatal(err)
	}

	one, err := goredis.Node(&goredislib.Options{Addr: "10.0.0.1:6379"})
	if err != nil || one.Name != "10.0.0.1:6379" {
		t.Fatal(one, err)
	}
	two, err := rueidis.Node(rueidislib.ClientOption{InitAddress: []string{"10.0.0.2:6379"}})
	if err != nil || two.Name != "10.0.0.2:6379" {
		t.Fatal(two, err)
	}
}
