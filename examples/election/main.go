// Command election shows an election: three processes, of which one leads. The leader is killed, and another process
// follows. It needs no Redis: the nodes are in memory.
//
//	go run ./examples/election
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"time"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/internal/fleet"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if len(os.Args) > 2 {
		err = lead(ctx, os.Args[1], os.Args[2:])
	} else {
		err = show(ctx)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func connect(urls []string) (*redlock.Client, error) {
	return redlock.New(redlock.Config{Nodes: redlock.Nodes(urls...), TTL: 3 * time.Second})
}

// lead is one of the three processes.
func lead(ctx context.Context, label string, urls []string) error {
	client, err := connect(urls)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel() // the parent process has ended
	}()
	e := election.New(client, "scheduler", election.Options{Label: label})
	err = e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		log.Printf("%s: I lead, number %d", label, term.Number())
		<-ctx.Done() // the work of the leader
		return nil
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// show starts the nodes and the processes, kills the first leader, and waits for the second.
func show(ctx context.Context) error {
	nodes, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{Nodes: 3})
	if err != nil {
		return err
	}
	defer nodes.Close()
	client, err := connect(nodes.URLs())
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Enroll(ctx, redlock.OnlyNew()); err != nil {
		return err
	}

	processes := map[string]*exec.Cmd{}
	defer func() { // after their input was closed, which ends them
		for _, cmd := range processes {
			_ = cmd.Wait()
		}
	}()
	for i := range 3 {
		label := fmt.Sprintf("web-%d", i+1)
		cmd := exec.CommandContext(ctx, os.Args[0], append([]string{label}, nodes.URLs()...)...)
		cmd.Stderr = os.Stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		defer stdin.Close()
		processes[label] = cmd
	}

	killed := ""
	for leader := range election.New(client, "scheduler", election.Options{}).Observe(ctx) {
		switch {
		case leader.None():
			log.Print("observer: nobody leads")
		case killed != "":
			log.Printf("observer: %s leads, number %d: it follows %s", leader.Label, leader.Number, killed)
			return nil
		case processes[leader.Label] == nil:
			log.Printf("observer: %q has the lock, and is no process of ours", leader.Label)
		default:
			log.Printf("observer: %s leads, number %d; kill it", leader.Label, leader.Number)
			killed = leader.Label
			if err := processes[killed].Process.Kill(); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
