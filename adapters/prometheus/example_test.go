package redlockprom_test

import (
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/quorumlock/redlock"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
)

func Example() {
	metrics := redlockprom.New()
	prometheus.MustRegister(metrics)
	client, err := redlock.New(redlock.Config{
		Nodes: redlock.Nodes("10.0.0.1", "10.0.1.1", "10.0.2.1"),
		Hooks: metrics.Hooks(redlock.Hooks{}), // or your own hooks: they are called too
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	metrics.Watch(client)
	http.Handle("/metrics", promhttp.Handler())
	log.Fatal(http.ListenAndServe("localhost:9100", nil))
}
