package redlock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Facts are what a server says of itself in INFO.
type serverInfo struct {
	runID, version string
	mode           string // standalone, cluster or sentinel
	role           string // master or slave
	master         string // of a replica: host:port
	maxMemory      int64  // bytes; 0: no limit
	policy         string // what is evicted at the limit
	aof            bool   // there is an append-only file
	history        string // of a master that was a replica in this process: the replication history it goes on with
	evicted        string // keys evicted since it began; "" and "0": none

	noInfo error // why it no longer tells all that

	// What CONFIG tells, where Durable asked for it and the user may.
	fsync     string // appendfsync
	onRewrite bool   // no-appendfsync-on-rewrite: not while a file is being rewritten

	// What CLIENT tells: a defence that is missing.
	noKill error // why connections that broke cannot be ended on the server
}

func readInfo(info string) serverInfo {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	f := serverInfo{
		runID:   fields["run_id"],
		version: fields["redis_version"],
		mode:    fields["redis_mode"],
		role:    fields["role"],
		policy:  fields["maxmemory_policy"],
		aof:     fields["aof_enabled"] == "1",
		history: fields["master_replid2"],
		evicted: fields["evicted_keys"],
	}
	if !isOffset(fields["second_repl_offset"]) {
		f.history = ""
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

// readReplication is what readInfo takes of a server's role and history, for one that is asked often.
func readReplication(info string) (role, history string) {
	promoted := false
	for line := range strings.Lines(info) {
		line = strings.TrimSpace(line)
		if value, ok := strings.CutPrefix(line, "role:"); ok {
			role = value
		} else if value, ok := strings.CutPrefix(line, "master_replid2:"); ok {
			history = value
		} else if value, ok := strings.CutPrefix(line, "second_repl_offset:"); ok {
			promoted = isOffset(value)
		}
	}
	if !promoted {
		history = ""
	}
	return role, history
}

// isOffset reports whether second_repl_offset tells that the server was promoted: else it is -1.
func isOffset(text string) bool {
	offset, err := strconv.ParseInt(text, 10, 64)
	return err == nil && offset >= 0
}

// identity names the server's data set: it changes whenever the server may have lost keys, as far as INFO tells. A
// server process has a run id. If it was made a replica and promoted again, its data are those of another server; it
// then goes on with that one's replication history (master_replid2). And it may have evicted keys.
func (f *serverInfo) identity(p *protocol) string {
	id := f.runID
	if f.history != "" && !p.omits(dataSetNamed) {
		id += "/" + f.history
	}
	if f.hasEvicted() {
		id += "#" + f.evicted
	}
	return id
}

func (f *serverInfo) hasEvicted() bool { return f.evicted != "" && f.evicted != "0" }

// unfit is why a server is refused as a voter, with the remedy; nil if it is not.
func (f *serverInfo) unfit(durable bool) error {
	switch {
	case f.noInfo != nil:
		return fmt.Errorf("it refuses INFO, which vouches for its votes: %w", f.noInfo)
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
	case durable && f.onRewrite:
		return fmt.Errorf("Config.Durable is set, but it answers before it persists while it rewrites its append-only file; " +
			"set no-appendfsync-on-rewrite no, or unset Durable")
	}
	return nil
}

// warnings are what does not make a server unfit, but is worth a look.
func (f *serverInfo) warnings() (warn []string) {
	if major, _, _ := strings.Cut(f.version, "."); f.version != "" {
		if n, err := strconv.Atoi(major); err == nil && n < 6 {
			warn = append(warn, "version "+f.version+" is older than 6.0, the oldest that is tested; upgrade it")
		}
	}
	if f.maxMemory > 0 {
		warn = append(warn, fmt.Sprintf("maxmemory is %d: at the limit it refuses locks; keep the locks' servers apart from caches", f.maxMemory))
	}
	if f.noKill != nil {
		warn = append(warn, fmt.Sprintf("after a broken connection, what it still carried cannot be cancelled (%v), so an old command may be applied late; "+
			"allow CLIENT ID and CLIENT KILL", f.noKill))
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
	return n.unfit == nil && (n.readiness.ready || !n.readiness.known)
}
