//go:build unix

package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// A planted fault is one of the third of three nodes that are well otherwise.
type planted struct {
	fleet *fleet.Fleet
	sick  *fleet.Node
	urls  []string // of the nodes, in order
	flags []string
}

// A fault is planted before the nodes are enrolled (early) or after that.
type fault struct {
	options      fleet.Options
	early, plant func(t *testing.T, p *planted)
	said, remedy string
	warning      bool // the node keeps its vote
	either       bool // the second node may be the one that has no vote
}

var faults = map[string]fault{
	"a replica": {plant: func(t *testing.T, p *planted) {
		host, port, err := p.fleet.Nodes()[0].PeerAddress()
		require.NoError(t, err)
		do(t, p.sick, "REPLICAOF", host, port)
	}, said: "it is a replica of 127.0.0.1:", remedy: "give the address of an independent master"},

	"the same server twice": {plant: func(_ *testing.T, p *planted) {
		p.urls[2] = strings.Replace(p.urls[1], "127.0.0.1", "localhost", 1)
	}, said: "it is the same server as ", remedy: "give each server once", either: true},

	"eviction": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		do(t, p.sick, "CONFIG", "SET", "maxmemory", "100mb")
	}, said: "it may evict locks", remedy: "set maxmemory-policy noeviction, or maxmemory 0"},

	"no memory": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "CONFIG", "SET", "maxmemory", "1mb")
	}, said: "its memory is full", remedy: "raise maxmemory, and keep the locks' servers apart from caches"},

	"no replicas": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "CONFIG", "SET", "min-replicas-to-write", "1")
	}, said: "it lacks replicas", remedy: "set min-replicas-to-write 0, because it needs none"},

	"everysec with Durable": {options: fleet.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}},
		early: func(_ *testing.T, p *planted) { p.flags = append(p.flags, "--durable") },
		plant: func(t *testing.T, p *planted) { do(t, p.sick, "CONFIG", "SET", "appendfsync", "everysec") },
		said:  "--durable is set, but it answers before it persists (appendfsync everysec)", remedy: "set appendfsync always, or give --durable=false"},

	"a clock that is 5 s ahead, in a quarantine": {options: fleet.Options{Clocks: true}, plant: func(t *testing.T, p *planted) {
		require.NoError(t, p.sick.SetClock(5*time.Second))
		do(t, p.sick, "FLUSHALL")
	}, said: "in quarantine for ", remedy: "the other nodes', more than half the ClockBand; set its clock (NTP)"},

	"a clock that is 5 s ahead": {options: fleet.Options{Clocks: true}, plant: func(t *testing.T, p *planted) {
		require.NoError(t, p.sick.SetClock(5*time.Second))
	}, said: "its clock is 5", remedy: "set its clock (NTP)"},

	"no replicas, in a quarantine": {plant: func(t *testing.T, p *planted) {
		if strings.Contains(fmt.Sprintf("%s", do(t, p.sick, "INFO", "server")), "redis_version:6.") {
			required.Missing(t, "redis-7.0", errors.New("before Redis 7.0, min-replicas-to-write does not keep scripts from writing"))
		}
		do(t, p.sick, "FLUSHALL")
		do(t, p.sick, "CONFIG", "SET", "min-replicas-to-write", "1")
	}, said: "NOREPLICAS", remedy: "unless it is the master of a Sentinel group, where you mend the replica"},

	"cluster mode": {early: func(t *testing.T, p *planted) {
		other := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--cluster-enabled", "yes"}})
		p.urls[2] = other.URLs()[0]
	}, said: "it runs in cluster mode", remedy: "give a master of its own (cluster-enabled no)"},

	"a Sentinel": {early: func(t *testing.T, p *planted) { p.urls[2] = startSentinel(t) },
		said: "it is a Sentinel", remedy: "give the address of an independent master"},

	"a missing right": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "ACL", "SETUSER", "default", "-pexpire") },
		said: "its user lacks the right +pexpire", remedy: "docs/operations.md has the rights that the user needs"},

	"rights of other kinds of lock are missing": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "ACL", "SETUSER", "default", "-zrank", "-zcard", "-pexpireat")
	}, said: "fair locks need +zrank +zcard, and readers and permits need +pexpireat",
		remedy: "docs/operations.md has the rights that the user needs", warning: true},

	"the right to queues is missing": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "ACL", "SETUSER", "default", "-zrem", "-zrange") },
		said:   "readers and permits need +zrange +zrem, and without +zrange +zrem waiters wait longer for any lock",
		remedy: "docs/operations.md has the rights that the user needs", warning: true},

	"the right to listen is missing": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "ACL", "SETUSER", "default", "-subscribe") },
		said: "so its waiters poll: NOPERM", remedy: "allow the user SUBSCRIBE and PUBLISH", warning: true},

	"the right to delete is missing": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "ACL", "SETUSER", "default", "-del") },
		said: "a command that a lock needs fails: ", remedy: "docs/operations.md has the rights that the user needs"},

	"tokens of another type": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "DEL", "redlock:fence")
		do(t, p.sick, "SET", "redlock:fence", "something")
	}, said: "redlock:fence is no sorted set, so the node grants nothing", remedy: "delete that key on this node"},

	"a wrong password": {plant: func(t *testing.T, p *planted) {
		fleettest.SetUser(t, p.sick, "locker", "on", ">right", "~*", "&*", "+@all")
		p.urls[2] = strings.Replace(p.urls[2], "://", "://locker:wrong@", 1)
	}, said: "it refused the login: WRONGPASS", remedy: "check the user name and the password"},

	"no password": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "CONFIG", "SET", "requirepass", "right") },
		said: "it demands a login: NOAUTH", remedy: "give the user and the password, in the URL or with --user and --password-file, which are for every node without a login in its URL"},

	"a wrong CA": {plant: func(t *testing.T, p *planted) {
		p.urls[2] = "rediss://" + fleettest.NewAuthority(t).Secure(t, []*fleet.Node{p.sick}, "no")[0]
		p.flags = append(p.flags, "--ca", fleettest.NewAuthority(t).CA)
	}, said: "certificate signed by unknown authority", remedy: "if an authority of your own signed it, give that one with --ca"},

	"TLS on a plain port": {plant: func(_ *testing.T, p *planted) {
		p.urls[2] = strings.Replace(p.urls[2], "redis:", "rediss:", 1)
	}, said: "it speaks plain Redis there and no TLS", remedy: "write redis:// instead of rediss://"},

	"a plain connection to a TLS port": {plant: func(t *testing.T, p *planted) {
		p.urls[2] = "redis://" + fleettest.NewAuthority(t).Secure(t, []*fleet.Node{p.sick}, "yes")[0]
	}, said: "it speaks TLS there", remedy: "write rediss:// instead of redis://"},

	"nothing listens": {plant: func(t *testing.T, p *planted) { require.NoError(t, p.sick.Kill()) },
		said: "connection refused", remedy: "is redis-server running there"},

	"no answer": {plant: func(t *testing.T, p *planted) { require.NoError(t, p.sick.Pause()) },
		said: "it did not answer within", remedy: "is its process stopped"},

	"a quarantine": {plant: func(t *testing.T, p *planted) { do(t, p.sick, "FLUSHALL") },
		said: "in quarantine for", remedy: "(wait until it is over; the others vote)"},

	"another configuration": {plant: func(t *testing.T, p *planted) {
		do(t, p.sick, "FLUSHALL")
		other := append([]string{"enroll", "--nodes=" + p.urls[2] + ",127.0.0.1:1,127.0.0.1:2"}, "--max-ttl=20s", "--yes")
		code, _, errs := run(t, other...)
		require.Equal(t, 69, code, "only the one node is there to be enrolled")
		require.Contains(t, errs, "1 node enrolled: "+strings.TrimPrefix(p.urls[2], "redis://")+"; not enrolled: 127.0.0.1:1, 127.0.0.1:2: ")
	}, said: "MaxTTL is 30s here and 20s there", remedy: "set MaxTTL to 20s"},

	"PUBLISH was renamed": {early: func(t *testing.T, p *planted) {
		other := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--rename-command", "PUBLISH", ""}})
		p.urls[2] = other.URLs()[0]
	}, said: "unknown command", remedy: "if its redis.conf has a rename-command for it, remove that line", warning: true},

	"CLIENT KILL is forbidden": {plant: func(t *testing.T, p *planted) { fleettest.SetUser(t, p.sick, "default", "-client|kill") },
		said: "what it still carried cannot be cancelled", remedy: "allow CLIENT ID and CLIENT KILL", warning: true},
}

// Each fault on one of three real servers: doctor names the server, the fault and the remedy, and nothing about the
// other two.
func TestDoctorNamesEachFaultWithItsRemedy(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) { fault.check(t) })
	}
}

func (c fault) check(t *testing.T) {
	if c.options.Clocks {
		if err := fleet.ClocksAvailable(fleet.Process); err != nil {
			required.Missing(t, "clocks", err)
		}
	}
	c.options.Nodes = 3
	f := fleettest.Start(t, fleet.Process, c.options)
	p := &planted{fleet: f, sick: f.Nodes()[2], urls: f.URLs()}
	if c.early != nil {
		c.early(t, p)
	}
	with := func(command ...string) []string {
		return append(append(command, "--nodes="+strings.Join(p.urls, ",")), p.flags...)
	}
	code, _, errs := run(t, with("enroll", "--yes")...)
	require.Contains(t, []int{0, 69}, code, errs)
	if c.plant != nil {
		c.plant(t, p)
	}
	code, out, errs := run(t, with("doctor", "--json")...)
	var d struct {
		Votes int
		Nodes []struct {
			Node, Problem string
			Votes         bool
			Warnings      []string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &d), "%s%s", out, errs)
	if c.either && d.Nodes[2].Votes {
		d.Nodes[1], d.Nodes[2] = d.Nodes[2], d.Nodes[1]
	}
	sick := d.Nodes[2]
	said := sick.Problem
	if c.warning {
		require.Equal(t, 0, code, out)
		require.Empty(t, said)
		said = strings.Join(sick.Warnings, "\n")
	} else {
		require.Equal(t, 1, code, out)
		require.False(t, sick.Votes)
		require.Equal(t, 2, d.Votes, out)
	}
	require.Contains(t, said, c.said)
	require.Contains(t, said, c.remedy)
	require.Equal(t, 1, strings.Count(said, c.remedy), said)
	for _, well := range d.Nodes[:2] {
		require.True(t, well.Votes, out)
		require.Empty(t, well.Warnings, out)
	}
	_, out, _ = run(t, with("doctor")...) // the same for people
	require.Contains(t, out, c.said)
	require.Contains(t, out, c.remedy)
	t.Log(said)
}

// startSentinel starts a Sentinel, until the test ends, and returns its URL.
func startSentinel(t *testing.T) string {
	port := freePort(t)
	config := filepath.Join(t.TempDir(), "sentinel.conf") // a Sentinel writes it
	require.NoError(t, os.WriteFile(config, []byte(fmt.Sprintf("port %s\nbind 127.0.0.1\n", port)), 0o600))
	server, err := fleet.Server()
	require.NoError(t, err)
	cmd := exec.Command(server, config, "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address := "127.0.0.1:" + port
	eventually(t, "the Sentinel", func() bool {
		conn, err := redis.Dial("tcp", address, redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second))
		if err != nil {
			return false
		}
		defer conn.Close()
		_, err = conn.Do("PING")
		return err == nil
	})
	return "redis://" + address
}

// What several nodes have in common is said once: another configuration, or that nothing listens. The remedy has the
// values of the nodes and the flags, and asks for a missing node first.
func TestDoctorSaysOnceWhatSeveralNodesHaveInCommon(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	code, _, errs := run(t, "enroll", "--max-ttl=2m", nodes(f))
	require.Equal(t, 0, code, errs)
	var names []string
	for _, url := range f.URLs() {
		names = append(names, strings.TrimPrefix(url, "redis://"))
	}
	code, out, _ := run(t, "doctor", "--max-ttl=30s", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "✗ "+strings.Join(names, ", ")+": each has no vote: ")
	require.Equal(t, 1, strings.Count(out, "MaxTTL is 30s here and 2m0s there"), out)
	require.Contains(t, out, "; give --max-ttl 2m0s, or, while none holds a lock, change the nodes with `redlock enroll --change-config --max-ttl 30s`")

	code, _, errs = run(t, "run", "--wait=0", "--max-ttl=30s", nodes(f), "k", "--", "true")
	require.Equal(t, 64, code)
	require.Contains(t, errs, "; give --max-ttl 2m0s, or, while none holds a lock, change the nodes with `redlock enroll --change-config --max-ttl 30s` [")

	code, out, _ = run(t, "doctor", "--nodes="+strings.Join(names[:4], ","))
	require.Equal(t, 1, code)
	require.Contains(t, out, "Nodes is 4 here and 5 there; is a node missing from your list?; set the same")

	require.NoError(t, f.Nodes()[1].Kill())
	require.NoError(t, f.Nodes()[3].Kill())
	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "✗ "+names[1]+", "+names[3]+": each has no vote: dial tcp: connect: connection refused; is redis-server running there")

	// One that restarted waits, and the others vote.
	require.NoError(t, f.Nodes()[1].Start(t.Context(), fleet.Empty))
	code, out, _ = run(t, "doctor", nodes(f))
	require.Equal(t, 1, code)
	require.Regexp(t, regexp.QuoteMeta("✗ "+names[1])+` has no vote: in quarantine for up to \S+ more: .*\(wait until it is over; the others vote\)`, out)
	require.NotContains(t, out, "redlock enroll")
	code, out, _ = run(t, "doctor", "--json", nodes(f))
	require.Equal(t, 1, code)
	require.Contains(t, out, "(wait until it is over; the others vote)")
	require.NotContains(t, out, "redlock enroll")
}
