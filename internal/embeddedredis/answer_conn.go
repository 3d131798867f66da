package embeddedredis

import (
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// announcement is a command that no client sends. An [announcedConn] inserts it before the client's first byte. The
// hook sees only a Peer, and learns from the announcement which connection belongs to it.
const announcement = "FLEET.ANNOUNCE"

// An announcedConn is the server's end of a connection of Serve.
type announcedConn struct {
	net.Conn
	commands *ServerCommands
	key      string
	refused  []string
	unread   []byte  // rest of the announcement; only miniredis's reader uses it
	client   *client // guarded by commands.mu; nil until the announcement was executed
}

func (s *ServerCommands) announce(conn net.Conn, refused []string) *announcedConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastID++
	a := &announcedConn{Conn: conn, commands: s, refused: refused, key: strconv.FormatInt(s.lastID, 10)}
	a.unread = fmt.Appendf(nil, "*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n",
		len(announcement), announcement, len(s.nonce), s.nonce, len(a.key), a.key)
	s.awaiting[a.key] = a
	return a
}

func (a *announcedConn) Read(p []byte) (int, error) {
	if len(a.unread) > 0 {
		n := copy(p, a.unread)
		a.unread = a.unread[n:]
		return n, nil
	}
	return a.Conn.Read(p)
}

// Write sends a reply, so the command has been executed.
func (a *announcedConn) Write(p []byte) (int, error) {
	a.commands.mu.Lock()
	if a.client != nil {
		a.client.busy = false
		a.commands.idle.Broadcast()
	}
	a.commands.mu.Unlock()
	return a.Conn.Write(p)
}

// enter executes an announcement. Ids are in the order in which connections were accepted, as in Redis.
func (s *ServerCommands) enter(peer *server.Peer, key string) {
	s.mu.Lock()
	a := s.awaiting[key]
	delete(s.awaiting, key)
	if a == nil {
		s.mu.Unlock()
		return
	}
	id, _ := strconv.ParseInt(key, 10, 64) // we made the key
	a.client = &client{id: id, conn: a.Conn, refused: a.refused}
	s.register(peer, a.client)
	s.mu.Unlock()
}

// register must be called with s.mu held.
func (s *ServerCommands) register(peer *server.Peer, c *client) {
	s.byPeer[peer], s.byID[c.id] = c, c
	peer.OnDisconnect(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.byPeer, peer)
		delete(s.byID, c.id)
		c.busy = false
		s.idle.Broadcast()
	})
}

// refusedTo returns the commands that this connection may not use.
func (s *ServerCommands) refusedTo(peer *server.Peer) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byPeer[peer]; c != nil {
		return c.refused
	}
	return nil
}

// known reports whether the peer is a connection, not a script.
func (s *ServerCommands) known(peer *server.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPeer[peer] != nil
}

// circumstances reports whether a command comes from a script, whether MULTI will queue it, and whether the connection
// has subscriptions. It reads private fields of miniredis. A test fails if a later miniredis changes them.
func circumstances(peer *server.Peer) (script, multi, subscribed bool) {
	fields := reflect.Indirect(reflect.ValueOf(peer.Ctx))
	if fields.Kind() != reflect.Struct {
		return false, false, false
	}
	nested, queue := fields.FieldByName("nested"), fields.FieldByName("transaction")
	subscriber := fields.FieldByName("subscriber")
	return nested.Kind() == reflect.Bool && nested.Bool(), queue.Kind() == reflect.Slice && !queue.IsNil(),
		subscriber.Kind() == reflect.Pointer && !subscriber.IsNil()
}

// begin reports whether the peer may execute the command.
func (s *ServerCommands) begin(peer *server.Peer, cmd string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byPeer[peer]
	if c == nil {
		return true
	}
	if c.killed {
		return false
	}
	// A kill does not wait for a command that blocks, nor for a CLIENT command, which may be a kill that waits for us.
	c.busy = c.conn != nil && cmd != "CLIENT" && !blocks(cmd)
	return true
}

// blocks reports whether a command may wait for other clients, or sends no direct reply.
func blocks(cmd string) bool {
	switch cmd {
	case "BLPOP", "BRPOP", "BRPOPLPUSH", "BLMOVE", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "XREAD", "XREADGROUP":
		return true
	}
	return strings.HasSuffix(cmd, "SUBSCRIBE")
}

func (s *ServerCommands) idOf(peer *server.Peer) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byPeer[peer]
	if c == nil {
		s.lastID++
		c = &client{id: s.lastID}
		s.register(peer, c)
	}
	return c.id
}

// kill returns how many clients it killed. When it returns, no command of the killed client is being executed, and none
// will be. Clients rely on that.
func (s *ServerCommands) kill(by *server.Peer, id int64, skipMe bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.byID[id]
	switch {
	case c == nil || c.killed:
		return 0
	case c == s.byPeer[by] && skipMe:
		return 0
	case c == s.byPeer[by]:
		return 1 // killSelf comes after the reply
	}
	c.killed = true
	if c.conn != nil {
		_ = c.conn.Close()
	}
	for c.busy {
		s.idle.Wait()
	}
	return 1
}

// killSelf ends a client that has killed itself.
func (s *ServerCommands) killSelf(peer *server.Peer, id int64, skipMe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byPeer[peer]; c != nil && c.id == id && !skipMe {
		c.killed = true
		peer.Close()
	}
}

// info returns the requested sections. No section, "default", "all" and "everything" mean all of them.
func (s *ServerCommands) info(sections []string) string {
	id := s.Identity()
	uptime := int64(time.Since(id.StartedAt).Seconds())
	before, offset := strings.Repeat("0", 40), int64(-1)
	if id.Before != "" {
		before, offset = id.Before, id.BeforeOffset
	}
	role := "master"
	if id.Replica {
		role = "slave"
	}
	aof := 0
	if id.Fsync != "" {
		aof = 1
	}
	all := len(sections) == 0
	wanted := map[string]bool{}
	for _, section := range sections {
		section = strings.ToLower(section)
		wanted[section] = true
		all = all || section == "default" || section == "all" || section == "everything"
	}
	var b strings.Builder
	for _, section := range []struct{ name, body string }{
		{"Server", fmt.Sprintf("redis_version:%s\r\nredis_mode:standalone\r\nrun_id:%s\r\ntcp_port:%d\r\n"+
			"server_time_usec:%d\r\nuptime_in_seconds:%d\r\nuptime_in_days:%d\r\n",
			id.Version, id.RunID, id.Port, time.Now().UnixMicro(), uptime, uptime/86400)},
		{"Clients", fmt.Sprintf("connected_clients:%d\r\n", s.server.ClientsLen())},
		{"Memory", "used_memory:1000000\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:noeviction\r\n"},
		{"Persistence", fmt.Sprintf("loading:0\r\nasync_loading:0\r\nrdb_bgsave_in_progress:0\r\naof_enabled:%d\r\n", aof)},
		{"Stats", fmt.Sprintf("total_connections_received:%d\r\ntotal_commands_processed:%d\r\nevicted_keys:%d\r\n",
			s.server.TotalConnections(), s.server.TotalCommands(), id.Evicted)},
		{"Replication", fmt.Sprintf("role:%s\r\nconnected_slaves:0\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n"+
			"master_repl_offset:%d\r\nsecond_repl_offset:%d\r\n", role, id.History, before, id.BeforeOffset, offset)},
		{"Cluster", "cluster_enabled:0\r\n"},
	} {
		if all || wanted[strings.ToLower(section.name)] {
			if b.Len() > 0 {
				b.WriteString("\r\n")
			}
			fmt.Fprintf(&b, "# %s\r\n%s", section.name, section.body)
		}
	}
	return b.String()
}
