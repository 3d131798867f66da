// Package embeddedredis makes a Redis 7.0 of miniredis, as far as this project needs one: it adds commands that miniredis
// lacks, and runs Lua scripts fast. The embedded fleet, the simulation and package redlocktest use it.
package embeddedredis

import (
	"bufio"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// An Identity is what an embedded server reports about itself.
type Identity struct {
	RunID     string    // 40 hexadecimal characters; "" means a random one
	Version   string    // "" means 7.0.15
	Port      int       // tcp_port in INFO
	StartedAt time.Time // for uptime_in_seconds; zero means now
	Fsync     string    // appendfsync of its append-only file; "" means that it has no such file
	Evicted   int64     // evicted_keys
	Replica   bool      // role: a replica. It takes writes all the same

	History string // master_replid, 40 hexadecimal characters; "" means a random one
	// Before is master_replid2: the history that a promoted replica continues, up to BeforeOffset. "" means none.
	Before       string
	BeforeOffset int64
}

// NewRunID returns a random run id. A Redis server makes a new one at every start.
func NewRunID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // crypto/rand never fails
	return hex.EncodeToString(id[:])
}

// ServerCommands are the commands that [AnswerServerCommands] has added.
type ServerCommands struct {
	redis   *miniredis.Miniredis
	server  *server.Server
	nonce   string // marks our announcements, so that no client can forge one
	scripts scripts
	before  func(cmd string, args []string) bool // set by Before

	asking sync.Mutex // guards nested
	nested any        // the context of a script's peer, as the hook saw it

	mu       sync.Mutex // guards what follows and the fields of each client; only idle waits under it
	id       Identity
	idle     *sync.Cond // a client's command has ended
	lastID   int64
	byPeer   map[*server.Peer]*client
	byID     map[int64]*client
	awaiting map[string]*announcedConn // connections whose announcement has not been read
}

// A client is a connection that was opened by Serve, or that has asked for its id.
type client struct {
	id     int64
	conn   net.Conn // nil: not opened by Serve, so it can be closed only at its next command
	killed bool
	busy   bool // a command is being executed

	refused []string // forbidden commands; never changes
}

const noPermission = "NOPERM this user has no permissions to access one of the channels used as arguments"

// AnswerServerCommands adds commands to m that Redis 7.0 has and miniredis lacks: INFO with its server, memory,
// replication and other sections, CLIENT ID, CLIENT KILL ID, ROLE and CONFIG GET. They work in MULTI and, where Redis
// allows them, in Lua. Only CLIENT KILL is refused in MULTI; Redis would kill at EXEC.
//
// If m was not started, it is started without a listener. Closing m removes the commands; call it again after Restart.
// It uses the pre-hook of m.
//
// It may be called in a testing/synctest bubble. On connections from the Dial or Serve of its result, CLIENT KILL
// closes the connection at once, as Redis does. On other connections the kill forbids all further commands, and the
// connection closes at the next one.
func AnswerServerCommands(m *miniredis.Miniredis, id Identity) *ServerCommands {
	if m.Server() == nil { // only Dial starts it without a port
		if conn, err := m.Dial(); err == nil {
			_ = conn.Close()
		}
	}
	if id.RunID == "" {
		id.RunID = NewRunID()
	}
	if id.History == "" {
		id.History = NewRunID()
	}
	if id.Version == "" {
		id.Version = "7.0.15"
	}
	if id.StartedAt.IsZero() {
		id.StartedAt = time.Now()
	}
	s := &ServerCommands{
		redis: m, server: m.Server(), id: id, nonce: NewRunID(),
		byPeer: map[*server.Peer]*client{}, byID: map[int64]*client{}, awaiting: map[string]*announcedConn{},
	}
	s.idle = sync.NewCond(&s.mu)
	s.server.SetPreHook(s.hook)
	return s
}

// Identity returns what the server reports about itself.
func (s *ServerCommands) Identity() Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Change changes what the server reports about itself from now on.
func (s *ServerCommands) Change(change func(*Identity)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.id)
}

// Dial returns the client's end of a new in-memory connection.
func (s *ServerCommands) Dial() (net.Conn, error) {
	near, far := net.Pipe()
	s.Serve(far)
	return near, nil
}

// Serve serves conn in a goroutine of miniredis, which ends when conn or the server closes. The refused commands, in
// upper case, fail on this connection and in its scripts, as for a user without rights for their channels.
func (s *ServerCommands) Serve(conn net.Conn, refused ...string) {
	s.server.ServeConn(s.announce(conn, refused))
}

// Before calls f before each command of a connection, but not for the commands of a script. f may wait, and may change
// args. If it returns false, the command is not executed and the connection closes. Call Before ahead of Dial and Serve.
func (s *ServerCommands) Before(f func(cmd string, args []string) bool) { s.before = f }

// ForgetScripts empties the script cache. A real server does so when it ends; miniredis does not.
func (s *ServerCommands) ForgetScripts() {
	s.server.Dispatch(discardPeer(), []string{"SCRIPT", "FLUSH"})
}

func discardPeer() *server.Peer { return server.NewPeer(bufio.NewWriter(io.Discard)) }

// hook runs before every command, including those of a script, which come from a separate Peer with the server locked.
// It answers with the commands ECHO and EVAL of miniredis, because these handle MULTI and the limits of scripts.
func (s *ServerCommands) hook(peer *server.Peer, cmd string, args ...string) bool {
	if cmd == announcement && len(args) == 2 && args[0] == s.nonce {
		s.enter(peer, args[1])
		return true
	}
	if cmd == announcement && len(args) == 1 && args[0] == s.nonce {
		s.nested = peer.Ctx // the dispatcher holds s.asking
		peer.WriteOK()
		return true
	}
	if s.before != nil && s.known(peer) && !s.before(cmd, args) || !s.begin(peer, cmd) {
		peer.Close()
		return true // no reply, for example because the client was killed
	}
	if slices.Contains(s.refusedTo(peer), cmd) {
		return s.refuse(peer, noPermission)
	}
	switch cmd {
	case "INFO":
		s.server.Dispatch(peer, []string{"ECHO", s.info(args)})
	case "ROLE":
		if len(args) != 0 {
			return s.refuse(peer, "ERR wrong number of arguments for 'role' command")
		}
		s.script(peer, "return {'master', 0, {}}")
	case "CONFIG":
		return s.config(peer, args)
	case "CLIENT":
		return s.client(peer, args)
	case "EVAL", "EVALSHA", "SCRIPT":
		return s.lua(peer, cmd, args)
	default:
		return false
	}
	return true
}

func (s *ServerCommands) script(peer *server.Peer, lua string, args ...string) {
	s.server.Dispatch(peer, append([]string{"EVAL", lua, "0"}, args...))
}

// refuse replies with an error, by a script, so that it works in MULTI.
func (s *ServerCommands) refuse(peer *server.Peer, why string) bool {
	s.script(peer, "return redis.error_reply(ARGV[1])", why)
	return true
}

var yesNo = map[bool]string{true: "yes", false: "no"}

func (s *ServerCommands) config(peer *server.Peer, args []string) bool {
	if len(args) < 2 || !strings.EqualFold(args[0], "GET") {
		return s.refuse(peer, "ERR CONFIG of the embedded server knows only GET")
	}
	var found []string
	id := s.Identity()
	for _, setting := range [][2]string{
		{"appendfsync", cmp.Or(id.Fsync, "everysec")}, {"appendonly", yesNo[id.Fsync != ""]}, {"maxmemory", "0"},
		{"maxmemory-policy", "noeviction"}, {"no-appendfsync-on-rewrite", "no"},
		{"port", strconv.Itoa(id.Port)}, {"save", ""}, {"timeout", "0"},
	} {
		for _, pattern := range args[1:] {
			if ok, err := path.Match(strings.ToLower(pattern), setting[0]); ok && err == nil {
				found = append(found, setting[:]...)
				break
			}
		}
	}
	s.script(peer, "return ARGV", found...)
	return true
}

func (s *ServerCommands) client(peer *server.Peer, args []string) bool {
	if len(args) == 0 {
		return false
	}
	script, multi, _ := circumstances(peer)
	switch strings.ToUpper(args[0]) {
	case "ID":
		if len(args) != 1 || script {
			return s.refuse(peer, "ERR wrong number of arguments for 'client|id' command")
		}
		s.script(peer, "return tonumber(ARGV[1])", strconv.FormatInt(s.idOf(peer), 10))
	case "KILL":
		if script || multi {
			return s.refuse(peer, "ERR CLIENT KILL of the embedded server works neither in MULTI nor in a script")
		}
		id, skipMe, err := killFilter(args[1:])
		if err != nil {
			return s.refuse(peer, err.Error())
		}
		s.script(peer, "return tonumber(ARGV[1])", strconv.Itoa(s.kill(peer, id, skipMe)))
		s.killSelf(peer, id, skipMe)
	default:
		return false // SETNAME, GETNAME
	}
	return true
}

// killFilter parses ID n [SKIPME yes|no].
func killFilter(args []string) (id int64, skipMe bool, err error) {
	skipMe = true
	if len(args) == 0 || len(args)%2 != 0 {
		return 0, false, errors.New("ERR syntax error: the embedded server knows CLIENT KILL ID id [SKIPME yes|no]")
	}
	for ; len(args) > 0; args = args[2:] {
		switch value := args[1]; strings.ToUpper(args[0]) {
		case "ID":
			if id, err = strconv.ParseInt(value, 10, 64); err != nil || id <= 0 {
				return 0, false, errors.New("ERR client-id should be greater than 0")
			}
		case "SKIPME":
			if !strings.EqualFold(value, "yes") && !strings.EqualFold(value, "no") {
				return 0, false, errors.New("ERR syntax error")
			}
			skipMe = strings.EqualFold(value, "yes")
		default:
			return 0, false, fmt.Errorf("ERR CLIENT KILL of the embedded server does not know %s", strings.ToUpper(args[0]))
		}
	}
	if id == 0 {
		return 0, false, errors.New("ERR the embedded server needs CLIENT KILL's ID")
	}
	return id, skipMe, nil
}
