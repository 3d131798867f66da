package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Facts are what a server says of itself in INFO.
type facts struct {
	runID, version string
	mode           string // standalone, cluster or sentinel
	role           string // master or slave
	master         string // of a replica: host:port
	maxMemory      int64  // bytes; 0: no limit
	policy         string // what is evicted at the limit
	aof            bool   // there is an append-only file
	fsync          string // appendfsync, where Durable asked for it
}

func readInfo(info string) facts {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	f := facts{
		runID:   fields["run_id"],
		version: fields["redis_version"],
		mode:    fields["redis_mode"],
		role:    fields["role"],
		policy:  fields["maxmemory_policy"],
		aof:     fields["aof_enabled"] == "1",
	}
	if fields["cluster_enabled"] == "1" {
		f.mode = "cluster"
	}
	if f.role == "slave" {
		f.master = fields["master_host"] + ":" + fields["master_port"]
	}
	f.maxMemory, _ = strconv.ParseInt(fields["maxmemory"], 10, 64) // not told: no limit that is known
	return f
}

// unfit is why a server is refused as a voter, with the remedy; nil if it is not.
func (f *facts) unfit(durable bool) error {
	switch {
	case f.role == "slave":
		return fmt.Errorf("it is a replica of %s, where a lock arrives late or never; give the address of an independent master", f.master)
	case f.mode == "cluster":
		return fmt.Errorf("it runs in cluster mode, where a failover loses locks; give a master of its own (cluster-enabled no)")
	case f.mode == "sentinel":
		return fmt.Errorf("it is a Sentinel, which keeps no keys; give the address of an independent master")
	case f.maxMemory > 0 && f.policy != "noeviction" && f.policy != "":
		return fmt.Errorf("it may evict locks to make room (maxmemory %d, maxmemory-policy %s); set maxmemory-policy noeviction, or maxmemory 0",
			f.maxMemory, f.policy)
	case durable && !f.aof:
		return fmt.Errorf("Config.Durable is set, but it keeps no append-only file; set appendonly yes and appendfsync always, or unset Durable")
	case durable && f.fsync != "" && f.fsync != "always":
		return fmt.Errorf("Config.Durable is set, but it answers before it persists (appendfsync %s); set appendfsync always, or unset Durable", f.fsync)
	}
	return nil
}

// warnings are what does not make a server unfit, but is worth a look.
func (f *facts) warnings() (warn []string) {
	if major, _, _ := strings.Cut(f.version, "."); f.version != "" {
		if n, err := strconv.Atoi(major); err == nil && n < 6 {
			warn = append(warn, "version "+f.version+" is older than 6.0, the oldest that is tested; upgrade it")
		}
	}
	if f.maxMemory > 0 {
		warn = append(warn, fmt.Sprintf("maxmemory is %d: at the limit it refuses locks; keep the locks' servers apart from caches", f.maxMemory))
	}
	return warn
}

// isOutOfStep reports whether a clock that is so far from the median of the nodes' clocks is surely out of step.
// The offset is not known better than the round trip.
func isOutOfStep(offset, rtt, tolerance time.Duration) bool {
	return tolerance >= 0 && offset.Abs() > tolerance+rtt
}

// clockError is why a server's clock keeps it from voting; nil if it does not.
func clockError(offset, rtt, tolerance time.Duration) error {
	if !isOutOfStep(offset, rtt, tolerance) {
		return nil
	}
	way := "ahead of"
	if offset < 0 {
		way = "behind"
	}
	return fmt.Errorf("its clock is %v %s the other nodes', more than half the ClockBand; set its clock (NTP)",
		offset.Abs().Round(time.Millisecond), way)
}

// responsive reports whether the node is connected and does not owe an answer for long.
func (n *node) responsive(now Instant) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.up && (n.flight.len() == 0 || now.Sub(n.flight.oldest().sentAt) < n.client.cfg.NodeTimeout/4)
}

// isVoter reports whether the server is fit, and has not been found unready to grant.
func (n *node) isVoter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unfit == nil && (n.stands.ready || !n.stands.known)
}
