package fleet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/redlock/internal/embeddedredis"
	"github.com/quorumlock/redlock/internal/fleet/server"
)

// The simulation takes its servers from here.
type (
	ServerCommands = embeddedredis.ServerCommands
	Identity       = embeddedredis.Identity
)

// AnswerServerCommands is [embeddedredis.AnswerServerCommands].
func AnswerServerCommands(m *miniredis.Miniredis, id Identity) *ServerCommands {
	return embeddedredis.AnswerServerCommands(m, id)
}

type embeddedLauncher struct{}

func (embeddedLauncher) Node(_ string, gone func()) (Backend, error) {
	port, release, err := server.Reserve()
	if err != nil {
		return nil, err
	}
	return &embedded{port: port, release: release, gone: gone}, nil
}

func (embeddedLauncher) Close() error { return nil }

// embedded is a miniredis behind a listener of this package.
type embedded struct {
	port    int
	release func()
	gone    func()

	running atomic.Pointer[embeddedRun]
	dataset *miniredis.Miniredis // of the last run; nil before the first
	saved   *snapshot            // nil: nothing was saved since the last empty start
}

// embeddedRun is one run of the node. Its accepting goroutine ends with the listener.
type embeddedRun struct {
	miniredis *miniredis.Miniredis
	commands  *ServerCommands
	listener  net.Listener
	accepting sync.WaitGroup

	mu      sync.Mutex // guards resumed and dead
	resumed chan struct{}
	dead    bool
}

func (e *embedded) Address() server.Address { return server.TCP(e.port, nil) }
func (e *embedded) Direct() server.Address  { return e.Address() }
func (e *embedded) Alive() bool             { return e.running.Load() != nil }
func (e *embedded) Cutter() Cutter          { return nil }
func (e *embedded) Clock() server.Clock     { return "" }

func (e *embedded) PeerAddress() (host, port string) { return "127.0.0.1", strconv.Itoa(e.port) }

func (e *embedded) Start(ctx context.Context, data Data) error {
	m, err := e.prepare(data)
	if err != nil {
		return err
	}
	listener, err := listen(e.Address())
	if err != nil {
		return err
	}
	r := &embeddedRun{miniredis: m, listener: listener, resumed: make(chan struct{})}
	close(r.resumed)
	r.commands = AnswerServerCommands(m, Identity{Port: e.port})
	r.commands.Before(r.mayRun)
	r.commands.ForgetScripts() // of the run before
	r.accepting.Go(r.accept)
	e.dataset = m
	e.running.Store(r)
	if err := e.Address().AwaitPing(ctx, nil); err != nil {
		return errors.Join(err, e.Kill())
	}
	return nil
}

// prepare returns a miniredis that is not started, with the data.
func (e *embedded) prepare(data Data) (*miniredis.Miniredis, error) {
	if data == Empty {
		e.saved, e.dataset = nil, nil
	}
	if e.saved == nil && e.dataset != nil {
		// Close has cancelled its context, which would end every blocking command at once.
		e.dataset.Ctx, e.dataset.CtxCancel = context.WithCancel(context.Background())
		return e.dataset, nil
	}
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	if e.saved == nil {
		return m, nil
	}
	return m, e.saved.restore(m)
}

func (r *embeddedRun) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // probably out of file descriptors
			continue
		}
		r.commands.Serve(conn)
	}
}

// mayRun holds commands back while the node is paused, and drops them after it was killed: a killed server never executes
// them. Calls of a script pass, because the script began before the pause and holds the lock of the server.
func (r *embeddedRun) mayRun(string, []string) bool {
	r.mu.Lock()
	resumed := r.resumed
	r.mu.Unlock()
	<-resumed
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dead
}

func (e *embedded) Pause() error {
	r := e.running.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumed = make(chan struct{})
	return nil
}

func (e *embedded) Resume() error {
	e.running.Load().wake(false)
	return nil
}

func (r *embeddedRun) wake(dead bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dead = r.dead || dead
	select {
	case <-r.resumed:
	default:
		close(r.resumed)
	}
}

func (e *embedded) Save(context.Context) error {
	saved, err := takeSnapshot(e.dataset)
	if err == nil {
		e.saved = saved
	}
	return err
}

func (e *embedded) Stop(context.Context) error { return e.Kill() }

func (e *embedded) Kill() error {
	r := e.running.Swap(nil)
	if r == nil {
		return nil
	}
	err := server.CloseListener(r.listener)
	e.gone()
	r.accepting.Wait()
	r.wake(true)
	r.miniredis.Close() // closes the connections and waits for their goroutines
	return err
}

func (e *embedded) Close() error {
	err := e.Kill()
	e.release()
	return err
}
