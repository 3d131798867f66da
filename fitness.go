package redlock

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// serverInfo is what a server says about itself in INFO.
type serverInfo struct {
	runID     string
	version   string // of Redis, or the version of Redis that another product is compatible with
	product   string // the name and version of another product; "" if it is Redis
	mode      string // standalone, cluster or sentinel
	role      string // master or slave
	master    string // of a replica: host:port
	maxMemory int64  // bytes; 0: no limit
	policy    string // what is evicted at the limit
	behind    string // rlec_version of Redis Enterprise, which has a proxy in front; "" if it is not
	aof       bool   // there is an append-only file
	aofBegins bool   // it may not be complete yet: see aofNews
	aofAnew   bool   // it was written anew since the process began, or is being: the process may have begun with other data
	history   string // of a master that was a replica in this process: master_replid2, the history it took over
	evicted   string // the number of keys evicted since the process began; "" and "0": none

	noInfo   error // why the server no longer answers INFO; nil if it does
	noWrites error // why the server refuses all writes, with the remedy; nil if it does not, or if that is not known

	// From CONFIG, where Config.Durable is set and the user may read it.
	fsync     string // appendfsync
	onRewrite bool   // no-appendfsync-on-rewrite: it does not persist at once while it rewrites the file

	// From CLIENT: why stale connections cannot be ended on the server; nil if they can.
	noID   error // the number of this connection is not known
	noKill error // the user may not
}

// maxField bounds what is taken of a field of INFO. The longest in use is a host or a run id. The run id goes into each acquire.
const maxField = 256

func readInfo(info string) serverInfo {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value[:min(len(value), maxField)]
		}
	}
	s := serverInfo{
		runID:   fields["run_id"],
		version: fields["redis_version"],
		mode:    cmp.Or(fields["redis_mode"], fields["server_mode"], fields["redict_mode"]), // Redis, Valkey, Redict
		role:    fields["role"],
		policy:  fields["maxmemory_policy"],
		behind:  fields["rlec_version"],
		aof:     fields["aof_enabled"] == "1",
		history: fields["master_replid2"],
		evicted: fields["evicted_keys"],
	}
	for _, product := range []string{"valkey", "redict"} {
		if version := fields[product+"_version"]; version != "" {
			s.product = product + "-" + version // one word: it is in a column of doctor
		}
	}
	rewrites := fields["aof_rewrite_in_progress"] == "1" || fields["aof_rewrite_scheduled"] == "1"
	s.aofBegins = s.aof && rewrites
	last := fields["aof_last_rewrite_time_sec"]
	s.aofAnew = rewrites || last != "" && last != "-1"
	if !isOffset(fields["second_repl_offset"]) {
		s.history = ""
	}
	if fields["cluster_enabled"] == "1" {
		s.mode = "cluster"
	}
	if s.isReplica() {
		s.master = fields["master_host"] + ":" + fields["master_port"]
	}
	s.maxMemory, _ = strconv.ParseInt(fields["maxmemory"], 10, 64) // absent: no limit is known
	return s
}

// aofNews is what is new about the append-only file since the INFO before, on the same connection. A server that is told to
// keep one first writes all that it has into it. Until that is done, a restart reads none or an older one (aof.c,
// AOF_WAIT_REWRITE), though aof_enabled is 1 already. INFO then shows the same as when a file that is complete is written anew.
// So it is known to be complete only if there was one before.
func (s *serverInfo) aofNews(before *serverInfo) {
	s.aofBegins = s.aofBegins && (before.aofBegins || !before.aof)
}

// readReplication reads only the role and the history, as readInfo does: it is called many times a second.
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

// isOffset reports whether second_repl_offset says that the server was promoted. Otherwise it is -1.
func isOffset(text string) bool {
	offset, err := strconv.ParseInt(text, 10, 64)
	return err == nil && offset >= 0
}

// identity is the name of the server's data set (Q1). It changes whenever the server may have lost keys, as far as INFO
// tells. It has up to three parts: the run id of the process; the history that the server took over, if it was a
// replica in this process and was promoted; and the number of evicted keys, if any.
//
// Redis forgets the history when it frees its replication backlog: when a master has had no replica for repl-backlog-ttl
// (replication.c, replicationCron). Then the name is the run id again. A client cannot tell that from a server that took
// over other data meanwhile and forgot that too, so it counts as another data set.
func (s *serverInfo) identity(p *protocol) string {
	id := s.runID
	if s.history != "" && !p.omits(dataSetNamed) {
		id += "/" + s.history
	}
	if s.hasEvicted() {
		id += "#" + s.evicted
	}
	return id
}

// shownVersion is the version for people.
func (s *serverInfo) shownVersion() string { return cmp.Or(s.product, s.version) }

// knowsGT reports whether the server has ZADD with GT, which came with Redis 6.2.
func (s *serverInfo) knowsGT() bool {
	major, rest, _ := strings.Cut(s.version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errMajor := strconv.Atoi(major)
	b, errMinor := strconv.Atoi(minor)
	return errMajor == nil && (a > 6 || a == 6 && errMinor == nil && b >= 2)
}

func (s *serverInfo) isReplica() bool { return s.role == "slave" }

func (s *serverInfo) hasEvicted() bool { return s.evicted != "" && s.evicted != "0" }

// unfit is why the server has no vote, with the remedy; nil if it may vote (N1).
func (s *serverInfo) unfit(durable bool) error {
	switch {
	case s.noInfo != nil:
		return fmt.Errorf("it refuses INFO, which vouches for its votes: %w", s.noInfo)
	case s.isReplica():
		return fmt.Errorf("it is a replica of %s, where a lock arrives late or never; give the address of an independent master", s.master)
	case s.mode == "cluster":
		return fmt.Errorf("it runs in cluster mode, where a failover loses locks; give a master of its own (cluster-enabled no)")
	case s.mode == "sentinel":
		return fmt.Errorf("it is a Sentinel, which keeps no keys; give the address of an independent master")
	case s.role == "":
		return errors.New("its INFO has no replication section, by which promotions are recognised; give the address of a master of Redis, Valkey or Redict")
	case s.role != "master":
		return fmt.Errorf("its role is %s; give the address of an independent master", s.role)
	case s.maxMemory > 0 && s.policy != "noeviction" && s.policy != "":
		return fmt.Errorf("it may evict locks to make room (maxmemory %d, maxmemory-policy %s); set maxmemory-policy noeviction, or maxmemory 0",
			s.maxMemory, s.policy)
	case durable && !s.aof:
		return fmt.Errorf("Config.Durable is set, but it keeps no append-only file; set appendonly yes and appendfsync always, or unset Durable")
	case durable && s.aofBegins:
		return fmt.Errorf("Config.Durable is set, but it is writing an append-only file, perhaps its first, and until that is done a restart may lose what it grants; " +
			"wait until INFO shows aof_rewrite_in_progress:0 and aof_rewrite_scheduled:0, or unset Durable")
	case durable && s.fsync != "" && s.fsync != "always":
		return fmt.Errorf("Config.Durable is set, but it answers before it persists (appendfsync %s); set appendfsync always, or unset Durable", s.fsync)
	case durable && s.onRewrite:
		return fmt.Errorf("Config.Durable is set, but it answers before it persists while it rewrites its append-only file; " +
			"set no-appendfsync-on-rewrite no, or unset Durable")
	}
	return nil
}

// refusesWrites are what servers answer to every write while something is wrong with them. They answer INFO, and even ready.lua
// where the marker is right, so only a write shows it.
var refusesWrites = []struct{ code, words string }{
	{"OOM", "its memory is full, so it grants no locks; raise maxmemory, and keep the locks' servers apart from caches: %w"},
	{"MISCONF", "it cannot write to its disk, so it refuses locks and renewals; make room there, or have it persist nothing " +
		"(save \"\", appendonly no): %w"},
	{"NOREPLICAS", "it lacks replicas, so it refuses locks and renewals; set min-replicas-to-write 0, because it needs none, " +
		"unless it is the master of a Sentinel group, where you mend the replica: %w"},
}

// answersWrites notes what the server answers to a write. Such a server is asked for its vote all the same: it may grant
// again at any time.
func (s *serverInfo) answersWrites(err error) {
	if isBusy(err) {
		return
	}
	s.noWrites = nil
	for _, r := range refusesWrites {
		if err != nil && hasCode(err, r.code) {
			s.noWrites = fmt.Errorf(r.words, err)
		}
	}
}

// warnings are problems that do not make a server unfit.
func (s *serverInfo) warnings() (warn []string) {
	if major, _, _ := strings.Cut(s.version, "."); s.version != "" {
		if n, err := strconv.Atoi(major); err == nil && n < 6 {
			warn = append(warn, "version "+s.version+" is older than 6.0, the oldest that is tested; upgrade it")
		}
	}
	if s.behind != "" {
		warn = append(warn, "it is Redis Enterprise (rlec_version "+s.behind+"), as in Redis Cloud and Azure Managed Redis, where a proxy keeps connections open "+
			"while the server behind it is replaced, so a restart may go unnoticed for five seconds; use servers without a proxy, or guard the work with fencing tokens")
	}
	if s.maxMemory > 0 {
		warn = append(warn, fmt.Sprintf("maxmemory is %d: at the limit it refuses locks; keep the locks' servers apart from caches", s.maxMemory))
	}
	if s.history != "" {
		warn = append(warn, "it was a replica and was promoted, or started with such a server's data: unless its repl-backlog-ttl is 0, it forgets that when it has had no replica for so long "+
			"(an hour by default), and sits out one more quarantine; CONFIG SET repl-backlog-ttl 0")
	}
	if why := cmp.Or(s.noID, s.noKill); why != nil {
		warn = append(warn, fmt.Sprintf("after a broken connection, what it still carried cannot be cancelled (%v), so an old command may be applied late; "+
			"allow CLIENT ID and CLIENT KILL", why))
	}
	return warn
}

// isOutOfStep reports whether a clock with this offset from the median of the nodes' clocks is surely out of step. The
// offset is known only to within the round trip.
func isOutOfStep(offset, rtt, tolerance time.Duration) bool {
	return tolerance >= 0 && offset.Abs() > tolerance+rtt
}

// clockError is why the server's clock costs it its vote; nil if it does not.
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

// isResponsive reports whether the node is connected, and has owed no answer for a quarter of NodeTimeout; or for as long
// as it takes until it is late (node_delay.go), if it is usually slower than that. n.mu is held.
func (n *node) isResponsive(now Instant) bool {
	patience := max(n.cfg.NodeTimeout/4, time.Duration(n.late.Load()))
	return n.up && (n.flight.len() == 0 || now.Sub(n.flight.oldest().sentAt) < patience)
}

// mayVote reports whether the node is responsive, its server is fit, and may grant as far as is known. It is prompt if it
// owes no answer for so long that it is late.
func (n *node) mayVote(now Instant) (may, prompt bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	may = n.isResponsive(now) && n.unfit == nil && (n.readiness.ready || !n.readiness.known)
	return may, n.flight.len() == 0 || now.Sub(n.flight.oldest().sentAt) <= time.Duration(n.late.Load())
}
