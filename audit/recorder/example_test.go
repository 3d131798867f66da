package recorder_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/audit"
	"github.com/quorumlock/redlock/audit/recorder"
	"github.com/quorumlock/redlock/internal/fleet"
)

// A process records its leases in a file. Each night, somebody judges the files of all processes; redlock audit does the same.
func Example() {
	ctx := context.Background()
	nodes, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{}) // five nodes in this process, for the example
	if err != nil {
		log.Fatal(err)
	}
	defer nodes.Close()
	dir, err := os.MkdirTemp("", "audit")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "leases.jsonl")

	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	leases := recorder.New(file, "")
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(nodes.URLs()...), Hooks: leases.Hooks(redlock.Hooks{})})
	if err != nil {
		log.Fatal(err)
	}
	leases.Watch(client)
	if err := client.Enroll(ctx); err != nil { // once, for new servers
		log.Fatal(err)
	}
	err = client.Mutex("invoice/42").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
	if err := leases.Close(); err != nil { // the journal is not complete, as where the disk is full
		log.Fatal(err)
	}

	file, err = os.Open(name)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	journal, err := audit.Read(name, file)
	if err != nil {
		log.Fatal(err)
	}
	result := audit.Judge(audit.Options{}, journal)
	fmt.Println(result.Verdict, result.Leases, len(result.Violations))
	// Output: consistent 1 0
}
