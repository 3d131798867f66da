package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
)

// lookTimeout bounds a look at one server.
const lookTimeout = time.Minute

// abilities are what a server can do of what the library uses and not every server has.
type abilities struct {
	shown    string // the version in Status
	light    bool   // ZADD GT: a free lock is acquired by plain commands
	channels bool   // rules for channels in ACLs
	dryRun   bool   // ACL DRYRUN
	subrules bool   // rules that forbid a part of a command, such as -client|kill
	named    bool   // a right that is missing in a script is named
	kill     string // why stale connections cannot be ended; "" if they can
	absent   []string
}

// vouching are the fields of INFO by which the library recognises restarts, promotions and evictions, and what it
// refuses to use.
var vouching = []string{"run_id", "redis_version", "role", "master_replid2", "second_repl_offset", "evicted_keys",
	"maxmemory", "maxmemory_policy", "aof_enabled", "cluster_enabled"}

// look asks a server of its own. Process fleets start what the environment names.
func look(ctx context.Context, path string) (can abilities, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if err := os.Setenv(fleet.ServerVariable, path); err != nil {
		return can, err
	}
	nodes, err := fleet.Start(ctx, fleet.Process, fleet.Options{Nodes: 1})
	if err != nil {
		return can, err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	url := nodes.URLs()[0]
	conn, err := redis.DialURLContext(ctx, url)
	if err != nil {
		return can, err
	}
	defer conn.Close()
	takes := func(command string, args ...any) bool {
		_, refused := conn.Do(command, args...)
		return refused == nil
	}
	can.light = takes("ZADD", "look", "GT", "CH", 1, "member") && takes("DEL", "look")
	can.channels = takes("ACL", "SETUSER", "look", "on", "&channel")
	can.subrules = takes("ACL", "SETUSER", "look", "-client|kill")
	can.dryRun = takes("ACL", "DRYRUN", "default", "PING")
	_, _ = conn.Do("ACL", "DELUSER", "look")
	info, err := redis.String(conn.Do("INFO"))
	if err != nil {
		return can, fmt.Errorf("INFO: %w", err)
	}
	for _, field := range vouching {
		if !strings.Contains(info, "\n"+field+":") {
			can.absent = append(can.absent, field)
		}
	}
	return can, can.ask(ctx, url, conn)
}

// ask looks through the library itself.
func (can *abilities) ask(ctx context.Context, url string, conn redis.Conn) (err error) {
	client, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(url)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := client.Enroll(ctx); err != nil {
		return err
	}
	status := client.Status(ctx)[0]
	can.shown = status.Version
	for _, warning := range status.Warnings {
		if strings.Contains(warning, "CLIENT KILL") {
			can.kill = warning
		}
	}
	if _, err := conn.Do("ACL", "SETUSER", "default", "-pexpire"); err != nil {
		return err
	}
	problems, err := client.Trial(ctx)
	can.named = err == nil && problems[0] != nil && strings.Contains(strings.ToLower(problems[0].Error()), "pexpire")
	_, undo := conn.Do("ACL", "SETUSER", "default", "+pexpire") // for the releases of Close
	return errors.Join(err, undo)
}
