package redlock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// A session is an opened connection: logged in, with its server known and its scripts loaded.
type session struct {
	conn     redis.Conn
	link     *link      // below conn; nil where the node has a Dial of its own
	info     serverInfo // of the server process; a direct connection cannot outlive that
	clientID int64      // the number of this connection on the server; 0 where the server does not give it
	askedAt  Instant    // when the handshake began
	micros   int64      // the server's TIME
}

// open dials the node and prepares the connection: it reads the server info and the time, loads the scripts, and ends
// the stale connections. It takes no longer than the client's stall timeout.
func (n *node) open(ctx context.Context, stale *staleConns) (*session, error) {
	var s *session
	_, link, err := n.endpoint.open(ctx, n.stallTimeout(), func(conn redis.Conn, login login) (err error) {
		s, err = n.handshake(conn, login, stale)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.link = link
	return s, nil
}

// nobody is the number of no connection, because servers count from 1. Killing it only shows whether the user may kill.
// It is not 0: to Redis before 7.0 (networking.c, clientCommand) that is no filter, and all other connections are killed.
// It is not a number of 31 or 32 bits either, though Dragonfly takes no larger one. A server that a thousand connections a
// second reach has such a connection after 25 days, and this would kill it. What Dragonfly says of a larger number is no
// refusal to isForbidden: it looks for the right and for the command before it reads the number.
const nobody = math.MaxInt64

// handshake sends all its commands in one batch, behind the login.
func (n *node) handshake(conn redis.Conn, login login, stale *staleConns) (*session, error) {
	s := &session{conn: conn, askedAt: n.cfg.Clock.Now()}
	commands := [][]any{{"CLIENT", "SETNAME", "redlock"}, {"CLIENT", "ID"}, askKill.whole(), {"INFO"}, {"TIME"}, askWrite.whole()}
	if n.cfg.Durable {
		commands = append(commands, askPersistence.whole())
	}
	for _, script := range n.protocol.scripts() {
		commands = append(commands, []any{"SCRIPT", "LOAD", script.source})
	}
	if err := login.start(conn, commands...); err != nil {
		return nil, err
	}
	var noID, noKill, refusal error
	for i, c := range commands {
		reply, err := conn.Receive()
		switch {
		case conn.Err() != nil && i == 1 && refusal != nil:
			return nil, refusedConnection(refusal)
		case conn.Err() != nil:
			return nil, conn.Err()
		}
		switch {
		case i == 0: // the name is only for people who read CLIENT LIST
			if !isForbidden(err) {
				refusal = err
			}
			err = nil
		case i == 1:
			if s.clientID, err = redis.Int64(reply, err); err != nil {
				noID, s.clientID, err = err, 0, nil // the next connection cannot kill this one
			}
		case i == 2:
			if isForbidden(err) {
				noKill = err
			}
			err = nil
		case i == 3:
			if err = n.identify(s, reply, err); err != nil {
				return nil, err
			}
			s.info.noID, s.info.noKill = noID, noKill
		case i == 4:
			s.micros, err = serverTime(reply, err)
		case i == 5:
			s.info.answersWrites(err)
			err = nil
		case c[0] == "CONFIG":
			s.info.persistence(reply, err)
			err = nil
		}
		if err != nil {
			if i > 5 { // SCRIPT LOAD
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

// identify reads INFO. It refuses a server that another node of this client is connected to as well.
func (n *node) identify(s *session, reply any, err error) error {
	text, err := redis.String(reply, err)
	if err != nil {
		if strings.HasPrefix(err.Error(), "NOAUTH") { // it refuses the other commands too
			return fmt.Errorf("it demands a login: %w", err)
		}
		return fmt.Errorf("INFO, which tells one server from another: %w", err)
	}
	s.info = readInfo(text)
	if s.info.mode == "sentinel" { // it lacks the commands that would be next
		return s.info.unfit(false)
	}
	if s.info.runID == "" {
		return errors.New("INFO has no run_id, which tells one server from another, so this is no Redis server; in tests use package redlocktest")
	}
	if other := n.host.claim(s.info.runID, n); other != nil {
		return invalid("Nodes["+fmt.Sprint(n.index)+"]", "it is the same server as %s; give each server once, because one server has one vote", other.endpoint.name)
	}
	return nil
}

// staleConns are connections that broke. What they sent may still lie in the server's socket, so the server could apply
// it after what a new connection sends. So they are killed on the server before a new connection is used.
type staleConns struct {
	runID string
	ids   []int64
}

func (c *staleConns) add(s *session) {
	if s.clientID == 0 {
		return
	}
	if s.info.runID != c.runID { // another process: the sockets of the old one ended with it
		*c = staleConns{runID: s.info.runID}
	}
	c.ids = append(c.ids, s.clientID)
}

// kill is best effort: a server that forbids it, or no longer knows the connection, is used all the same. In another
// server process the same number is another connection, so nothing is killed there. An error means that the new
// connection broke.
func (c *staleConns) kill(s *session) error {
	if s.info.runID == c.runID {
		for _, id := range c.ids {
			if _, err := s.conn.Do("CLIENT", "KILL", "ID", id); err != nil && s.conn.Err() != nil {
				return err
			}
		}
	}
	*c = staleConns{runID: s.info.runID}
	return nil
}

// isForbidden reports whether the server refused because this user may not, or because nobody may: the command was
// renamed, or the server lacks it. Any other refusal shows that the server has the command.
func isForbidden(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error()) // Redis before 7.0 begins Unknown with a capital letter
	return strings.HasPrefix(text, "noperm") || strings.Contains(text, "unknown command") ||
		strings.Contains(text, "unknown subcommand")
}

// isBusy reports whether the server runs a script for long, and so refuses whatever it is asked. That says nothing about what
// it was asked.
func isBusy(err error) bool { return err != nil && hasCode(err, "BUSY") }

// persistence notes what CONFIG GET says. If the user may not ask, the client relies on Config.Durable alone.
func (s *serverInfo) persistence(reply any, err error) {
	settings, err := redis.StringMap(reply, err)
	if err != nil {
		return
	}
	s.fsync, s.onRewrite = settings["appendfsync"], settings["no-appendfsync-on-rewrite"] == "yes"
}

// learnPersistence checks whether the server still persists as Config.Durable requires.
func (n *node) learnPersistence(_ request, reply any, err error) {
	n.mu.Lock()
	n.server.persistence(reply, err)
	n.unfit = n.server.unfit(n.cfg.Durable)
	n.mu.Unlock()
	n.host.votesChanged()
}

// learnWrite notes whether the server refuses all writes now.
func (n *node) learnWrite(_ request, _ any, err error) {
	if err != nil && !isRefusal(err) {
		return
	}
	n.mu.Lock()
	n.server.answersWrites(err)
	n.mu.Unlock()
	n.host.votesChanged()
}

// learnKill notes whether the user may end connections now.
func (n *node) learnKill(_ request, _ any, err error) {
	if err != nil && !isRefusal(err) || isBusy(err) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server.noKill = nil; isForbidden(err) {
		n.server.noKill = err
	}
}

// learnInfo checks whether the server is still the same and still fit: both may change while a connection is open.
func (n *node) learnInfo(_ request, reply any, err error) {
	if n.applyInfo(reply, err) {
		n.askReady()
	}
	n.host.votesChanged()
}

// applyInfo takes the new server info, and reports whether the data set is now another one.
func (n *node) applyInfo(reply any, err error) bool {
	text, err := redis.String(reply, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		if isRefusal(err) && !isBusy(err) {
			n.server.noInfo = err
			n.unfit = n.server.unfit(n.cfg.Durable)
		}
		return false
	}
	info := readInfo(text)
	if info.runID != n.server.runID {
		n.impostor = fmt.Errorf("another server process answers on the same connection now (run id %.8s…, before %.8s…): "+
			"give the node's own address, not that of a proxy", info.runID, n.server.runID)
		n.proxied = true
		n.readiness.marker = ""
		return false
	}
	info.aofNews(&n.server)
	info.fsync, info.onRewrite = n.server.fsync, n.server.onRewrite
	info.noID, info.noKill, info.noWrites = n.server.noID, n.server.noKill, n.server.noWrites
	n.server, n.unfit = info, info.unfit(n.cfg.Durable)
	return n.identified()
}

// identified makes the marker that the server must have from the name of its data set, and reports whether the name is
// new. n.mu is held.
func (n *node) identified() bool {
	id := n.server.identity(n.protocol)
	if n.readiness.identity == any(id) {
		return false
	}
	n.readiness.identity, n.readiness.marker, n.readiness.ready = id, marker(id, n.agreement.digest), false
	n.renamed = n.cfg.Clock.Now()
	return true
}

// impostorNoticed is why the connection must end: another server answers on it. It is nil if that is not so.
func (n *node) impostorNoticed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.impostor
}
