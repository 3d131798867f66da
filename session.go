package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A session is one connection, opened: logged in, its server known, its scripts loaded.
type session struct {
	conn     redis.Conn
	link     *link      // below conn; nil where the node has a Dial of its own
	info     serverInfo // of the server process, which a connection cannot outlive
	clientID int64      // of this connection there; 0 where the server does not tell
	askedAt  Instant
	micros   int64 // the server's TIME
}

// open dials the node and readies the connection: who is there, what time it is, the scripts, and an end
// to the connections that went before. It takes no longer than the client's stall timeout.
func (n *node) open(ctx context.Context, stale *staleConns) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, n.client.stallTimeout())
	defer cancel()
	conn, link, err := n.endpoint.connect(ctx, n.client.stallTimeout())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	s, err := n.handshake(conn, stale)
	if !stop() { // closed already, whatever the server said
		err = fmt.Errorf("it did not answer within %v of being dialled", n.client.stallTimeout())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.link = link
	return s, nil
}

// handshake sends all it wants to know in one batch.
func (n *node) handshake(conn redis.Conn, stale *staleConns) (*session, error) {
	s := &session{conn: conn, askedAt: n.client.cfg.Clock.Now()}
	logins, err := n.endpoint.login(conn)
	if err != nil {
		return nil, err
	}
	// Nobody has the number 0, but a user who may not kill is told so.
	commands := [][]any{{"CLIENT", "SETNAME", "redlock"}, {"CLIENT", "ID"}, {"CLIENT", "KILL", "ID", 0}, {"INFO"}, {"TIME"}}
	if n.client.cfg.Durable {
		commands = append(commands, append([]any{askPersistence.name}, askPersistence.args...))
	}
	for _, script := range n.client.protocol.scripts() {
		commands = append(commands, []any{"SCRIPT", "LOAD", script.source})
	}
	for _, c := range commands {
		if err := conn.Send(c[0].(string), c[1:]...); err != nil {
			return nil, err
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	for range logins {
		if _, err := conn.Receive(); err != nil {
			return nil, fmt.Errorf("it refused the login: %w", err)
		}
	}
	var noKill error
	for i, c := range commands {
		reply, err := conn.Receive()
		if conn.Err() != nil {
			return nil, conn.Err()
		}
		switch {
		case i == 0: // the name is for whoever reads CLIENT LIST; without the right to it, nothing is lost
			err = nil
		case i == 1:
			if s.clientID, err = redis.Int64(reply, err); err != nil {
				noKill, s.clientID, err = err, 0, nil // then a predecessor cannot be killed, and its last write may come late
			}
		case i == 2:
			if isForbidden(err) {
				noKill = cmp.Or(noKill, err)
			}
			err = nil
		case i == 3:
			if err = n.identify(s, reply, err); err != nil {
				return nil, err
			}
			s.info.noKill = noKill
		case i == 4:
			s.micros, err = serverTime(reply, err)
		case c[0] == "CONFIG":
			s.info.persistence(reply, err)
			err = nil
		}
		if err != nil {
			if i > 4 { // SCRIPT LOAD
				return nil, fmt.Errorf("%s %s: %w", c[0], c[1], err)
			}
			return nil, fmt.Errorf("%s: %w", c[0], err)
		}
	}
	if err := stale.kill(s); err != nil {
		return nil, err
	}
	return s, nil
}

// identify reads INFO and refuses a server that another node of this client leads to as well.
func (n *node) identify(s *session, reply any, err error) error {
	text, err := redis.String(reply, err)
	if err != nil {
		return fmt.Errorf("INFO, which tells one server from another: %w", err)
	}
	if s.info = readInfo(text); s.info.runID == "" {
		return errors.New("INFO tells no run_id, so one server cannot be told from another")
	}
	if other := n.client.claim(s.info.runID, n); other != nil {
		return invalid("Nodes["+fmt.Sprint(n.index)+"]", "it is the same server as %s; one server has one vote", other.endpoint.name)
	}
	return nil
}

// serverTime reads the reply to TIME, in microseconds.
func serverTime(reply any, err error) (int64, error) {
	t, err := redis.Int64s(reply, err)
	if err != nil {
		return 0, err
	}
	if len(t) != 2 {
		return 0, fmt.Errorf("TIME replied %d numbers instead of 2", len(t))
	}
	return t[0]*1e6 + t[1], nil
}

// staleConns are connections that broke: what they sent may still lie in a server's socket, to be applied after
// all that a new connection says. They are killed on the server before a new one is used.
type staleConns struct {
	runID string
	ids   []int64
}

func (g *staleConns) add(s *session) {
	if s.clientID == 0 {
		return
	}
	if s.info.runID != g.runID { // another process: the old one's sockets ended with it
		*g = staleConns{runID: s.info.runID}
	}
	g.ids = append(g.ids, s.clientID)
}

// kill is best effort: a server that forbids it, or knows the connection no more, is used all the same. A
// client's number means another connection in another process, so it is used in its own alone.
func (g *staleConns) kill(s *session) error {
	if s.info.runID == g.runID {
		for _, id := range g.ids {
			if _, err := s.conn.Do("CLIENT", "KILL", "ID", id); err != nil && s.conn.Err() != nil {
				return err
			}
		}
	}
	*g = staleConns{runID: s.info.runID}
	return nil
}

// An observation is what a reply told of the server's clock.
type observation struct {
	offset int64         // server's µs less our clock's
	rtt    time.Duration // of the request: the offset is out by no more than that
	at     Instant
}

// observe keeps the observation with the shortest round trip of the last second: it tells most about the clock.
func (n *node) observe(q request, micros int64, now Instant) {
	if !q.sampled {
		return
	}
	o := observation{rtt: now.Sub(q.sentAt), at: now}
	n.trip.Store(int64(n.trips.add(o.rtt)))
	o.offset = micros - (int64(now)-int64(o.rtt)/2)/1e3
	if old := n.clock.Load(); old == nil || o.rtt < old.rtt || now.Sub(old.at) > observationAge {
		best := o
		n.clock.Store(&best)
	}
}

// observationAge is how long an observation is better than a newer one that took longer.
const observationAge = time.Second

// usualTrips is of how many round trips the usual one is the median: a single slow or lucky one, as where delays vary,
// must not change which node is asked first. Of four that agree, it changes.
const usualTrips = 7

// trips are the last round trips to a node.
type trips struct {
	last  [usualTrips]time.Duration
	count int
}

// add returns the median of the last ones, the lower of two.
func (t *trips) add(trip time.Duration) time.Duration {
	t.last[t.count%usualTrips] = trip
	t.count++
	sorted := t.last
	known := sorted[:min(t.count, usualTrips)]
	slices.Sort(known)
	return known[(len(known)-1)/2]
}

func (n *node) learnTime(q request, reply any, err error) {
	if micros, err := serverTime(reply, err); err == nil {
		q.sampled = true
		n.observe(q, micros, n.client.cfg.Clock.Now())
	}
}

// isForbidden reports whether the server refused because the user may not, or because nobody may (a command that
// was renamed away).
func isForbidden(err error) bool {
	return err != nil && (strings.HasPrefix(err.Error(), "NOPERM") || strings.Contains(err.Error(), "unknown command"))
}

// persistence takes what CONFIG GET says. Without the right to it, it is the operator's word alone.
func (f *serverInfo) persistence(reply any, err error) {
	settings, err := redis.StringMap(reply, err)
	if err != nil {
		return
	}
	f.fsync, f.onRewrite = settings["appendfsync"], settings["no-appendfsync-on-rewrite"] == "yes"
}

// learnPersistence looks whether the server still persists as Durable has it.
func (n *node) learnPersistence(_ request, reply any, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.server.persistence(reply, err)
	n.unfit = n.server.unfit(n.client.cfg.Durable)
}

// learnInfo looks whether the server is still the same and still fit: both may change under a connection.
func (n *node) learnInfo(_ request, reply any, err error) {
	if n.applyInfo(reply, err) {
		n.askReady()
	}
}

// applyInfo reports whether the data set is another one.
func (n *node) applyInfo(reply any, err error) bool {
	text, err := redis.String(reply, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		if isRefusal(err) {
			n.server.noInfo = err
			n.unfit = n.server.unfit(n.client.cfg.Durable)
		}
		return false
	}
	f := readInfo(text)
	if f.runID != n.server.runID {
		n.impostor = fmt.Errorf("behind the connection is another server process now (run id %.8s…, before %.8s…): "+
			"give the node's own address, not that of a proxy", f.runID, n.server.runID)
		n.proxied = true
		n.readiness.marker = ""
		return false
	}
	f.fsync, f.onRewrite, f.noKill = n.server.fsync, n.server.onRewrite, n.server.noKill
	n.server, n.unfit = f, f.unfit(n.client.cfg.Durable)
	return n.identified()
}

// identified makes the marker that the server must have, and reports whether it is a new one. n.mu is held.
func (n *node) identified() bool {
	id := n.server.identity(n.client.protocol)
	if n.readiness.identity == any(id) {
		return false
	}
	n.readiness.identity, n.readiness.marker, n.readiness.ready = id, marker(id, n.client.agreement.digest), false
	n.renamed = n.client.cfg.Clock.Now()
	return true
}

// impostorNoticed is why the connection is of no more use: another server answers on it.
func (n *node) impostorNoticed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.impostor
	n.impostor = nil
	return err
}
